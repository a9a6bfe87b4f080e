"""The exceptions that torchparquet adds to Python's own, and what any of them says."""

from __future__ import annotations


class CorruptFileError(OSError):
    """A file is unreadable, lies about its content, or changed after it was planned.

    The message names the path and, where known, the row group and the column.
    """


class EncryptedFileError(OSError):
    """A file or a column is encrypted, and there is no key that decrypts it.

    The message names the path and, where only that is encrypted, the row group and the column.
    """


class SchemaMismatchError(ValueError):
    """Two files of one data set disagree about a column; the message names both."""


class UnsupportedColumnError(TypeError):
    """A selected column has a kind that cannot be read as a tensor yet."""


class NullValueError(ValueError):
    """A null stands in a column whose null policy is ``"error"``."""


class CastError(ValueError):
    """A value does not fit the dtype that it is read as; the message names the value."""


class ListLengthError(ValueError):
    """A list is not as long as ``Column(..., length=...)`` says; the message names the row."""


class RankMismatchError(RuntimeError):
    """Ranks of one job do not agree about the data or its order; raised on all of them.

    The message names what differs, and which ranks have which value.
    """


class TransformError(RuntimeError):
    """A user's function on batches or rows failed; its own exception is the ``__cause__``.

    The message names the function, and the batch: epoch, step, rank, worker, and the rows of which
    row groups of which files it was made of.
    """


def one_line(error: BaseException) -> str:
    """Return what the error says, on one line; its class where it says nothing."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    # A KeyError's or an assertion's text means nothing without its class.
    plain = isinstance(error, OSError | RuntimeError | TypeError | ValueError)
    return text if plain else f"{type(error).__name__}: {text}"
