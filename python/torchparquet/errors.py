"""The exceptions of torchparquet, and the texts of its messages and of others."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType


class CorruptFileError(OSError):
    """A file is unreadable, contradicts itself, or changed after its footer was read.

    The message names the path and, if known, the row group and the column.
    """


class FileChangedError(CorruptFileError):
    """A file has changed since the data set was made; a data set that is made anew may read it."""


class EncryptedFileError(OSError):
    """A file, or the column that the message names, is encrypted, and no key decrypts it."""


class SchemaMismatchError(ValueError):
    """Two files of one data set disagree about a column; the message names both."""


class UnsupportedColumnError(TypeError):
    """A selected column has a kind that cannot be read as a tensor yet."""


class NullValueError(ValueError):
    """A column whose null policy is ``"error"`` has a null."""


class CastError(ValueError):
    """A value does not fit the dtype of its tensor; the message names the value."""


class ListLengthError(ValueError):
    """A list does not have the length of ``Column(..., length=...)``, or that of its weights.

    The message names the row.
    """


class RankMismatchError(RuntimeError):
    """Ranks of one job disagree; all of them raise this, with each difference and rank's value."""


class TransformError(RuntimeError):
    """A user's function on batches or rows failed; its own exception is the ``__cause__``.

    The message names the function and the batch: epoch, step, rank, worker, rows and files.
    """


def unpickled(kind: type, made_by: str) -> object:
    """Return an empty data set for what a pickle holds; raise if another version made it."""
    own = version("torchparquet")
    if made_by != own:
        raise RuntimeError(
            f"torchparquet {made_by} pickled this data set, and torchparquet {own} cannot read it: "
            "make the data set anew; its state_dict() can travel between versions"
        )
    return object.__new__(kind)


def printable(text: str, keep: str = "") -> str:
    """Return a text with escapes for characters that steer a terminal, or that nobody sees."""
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def one_line(error: BaseException) -> str:
    """Return the message of an error on one line, or its class if the message is empty."""
    text = printable(" ".join(str(error).split()))
    if not text:
        return type(error).__name__
    # The text of a KeyError or an assertion means nothing without the class.
    kinds = ImportError | OSError | OverflowError | RuntimeError | TypeError | ValueError
    plain = isinstance(error, kinds)
    return text if plain else f"{type(error).__name__}: {text}"


def unreadable(error: BaseException, path: str, message: str) -> Exception:
    """Return what to raise in place of an error of a library that read a file."""
    # If memory or a call of the system failed, the file may be sound.
    if isinstance(error, MemoryError):
        return MemoryError(message)
    # A file that is too short leads to a seek before its beginning, which is an invalid argument.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return OSError(error.errno, os.strerror(error.errno), path)
    return CorruptFileError(message)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name a file in errors of the system that name none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error
        # Some of pyarrow's have no number.
        if error.errno is None and type(error) is OSError:
            raise OSError(errno.EIO, str(error), os.fspath(path)) from error
        raise


def users_level() -> int:
    """Return the `stacklevel` by which a warning names the line of the user's own program."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and _is_between(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    return level


def _is_between(file: str) -> bool:
    return file.startswith(_PACKAGE) or _LOADERS in file


_PACKAGE = str(Path(__file__).parent) + os.sep
_LOADERS = f"{os.sep}{Path('torch/utils/data')}{os.sep}"
