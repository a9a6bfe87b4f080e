"""The rules of paths and names that hold for files on disk and in stores alike."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from torchparquet.errors import users_level

PathArgument = str | os.PathLike[str]

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
HIDDEN_PREFIXES = ("_", ".")
MAGICS = (b"PAR1", b"PARE")

EMPTY_FILE = "empty file (0 bytes); write it again, or leave it out of the paths"
NO_PARQUET_FILE = (
    "No Parquet file in the directory; give one that has .parquet files in it or below it, or, "
    "if their names begin with . or _, name them or a pattern that matches them"
)
# A warning of files that are Parquet by content only looks at a few of each suffix.
_MAX_SUFFIXES = 32
_MAX_OF_SUFFIX = 4


def path_texts(paths: object) -> list[str]:
    """Return the texts of the argument ``paths``."""
    if isinstance(paths, str | os.PathLike):
        return [_path_text(paths, "paths")]
    if not isinstance(paths, Sequence) or isinstance(paths, bytes | bytearray | memoryview):
        raise TypeError(
            "paths must be a str, an os.PathLike or a list or tuple of them (give other "
            "collections an order: sorted(...)), or in memory: a Parquet file's bytes, a "
            f"pyarrow.Table, a pandas or Polars DataFrame; got {type(paths).__name__}"
        )
    if not paths:
        raise ValueError(f"paths must name at least one file; got {paths!r}")
    return [_path_text(path, f"paths[{index}]") for index, path in enumerate(paths)]


def _path_text(path: object, argument: str) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{argument} must be a str or an os.PathLike of str; got {text!r}")
    if not text:
        # As a relative path it would mean the current directory.
        raise ValueError(f"{argument} must not be empty; got {text!r}")
    if "\0" in text:
        raise ValueError(f"{argument} must not contain a null character; got {text!r}")
    return text


def has_parquet_suffix(name: str) -> bool:
    """True if the name ends as those of Parquet files do."""
    return name.lower().endswith(PARQUET_SUFFIXES)


def is_written_out(match: str, marked: list[str]) -> bool:
    """True if the pattern spells out each part of ``match`` with a leading ``_``."""
    return all(
        any(fnmatchcase(part, pattern) for pattern in marked)
        for part in match.split("/")
        if part.startswith("_")
    )


def samples_of_suffixes(names: Iterable[str]) -> list[str]:
    """Return the first few names of each suffix that is not one of Parquet files."""
    by_suffix: dict[str, list[str]] = {}
    for name in names:
        suffix = PurePosixPath(name).suffix.lower()
        if suffix not in PARQUET_SUFFIXES:
            by_suffix.setdefault(suffix, []).append(name)
    samples = [names[:_MAX_OF_SUFFIX] for names in list(by_suffix.values())[:_MAX_SUFFIXES]]
    return [name for names in samples for name in names]


def warn_of_left_out(root: str, path: str) -> None:
    """Warn that a directory has files that are Parquet by content only."""
    warnings.warn(
        f"left out files below {root!r} that begin like Parquet files but do not end in "
        f"{', '.join(PARQUET_SUFFIXES)}, such as {path!r}; to read them, add their "
        "names or a pattern to paths",
        stacklevel=users_level(),
    )
