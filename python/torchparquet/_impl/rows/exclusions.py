"""Files of exclusions: what `torchparquet verify` could not read, and data sets leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet.errors import one_line

_FORMAT = "torchparquet.exclusions"
_VERSION = 1


class ExcludedFile(NamedTuple):
    """A file that is left out, or some of its row groups."""

    name: str  # below the deepest directory of all files that were verified
    num_bytes: int
    row_groups: tuple[int, ...] | None  # None for the whole file


def write_exclusions(path: str, listing: Listing, found: Mapping[str, set[int] | None]) -> None:
    """Write what is to be left out: by path of a file, its row groups, or None for all of it."""
    prefix = len(listing.root.rstrip("/")) + 1
    sizes = dict(zip(listing.paths, listing.num_bytes, strict=True))
    files = [
        {
            "name": file[prefix:],
            "bytes": sizes[file],
            "row_groups": None if groups is None else sorted(groups),
        }
        for file, groups in found.items()
    ]
    content = {"format": _FORMAT, "version": _VERSION, "files": files}
    Path(path).write_text(json.dumps(content, indent=2) + "\n")


class Exclusions:
    """The files and row groups that one data set leaves out."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """Read a file of exclusions; None for nothing."""
        self._shown = "" if path is None else os.fspath(path)
        self._files = [] if path is None else _read(Path(path))
        self._num_files, self._row_groups = 0, dict[str, tuple[int, ...]]()

    def left(self, listing: Listing) -> Listing:
        """Return a listing without the files that are left out as a whole.

        Raises:
            ValueError: A file has changed since, no name is of this data set, or no file is left.
        """
        if not self._files:
            return listing
        if listing.memory:
            raise ValueError(f"Excluding({self._shown!r}) needs files; the data is in memory")
        whole, num_known = set[int](), 0
        for name, num_bytes, row_groups in self._files:
            numbers = [at for at, path in enumerate(listing.paths) if _is_of(path, name)]
            if len(numbers) > 1:
                raise ValueError(
                    f"Excluding({self._shown!r}) must name one file, verify those of this data set "
                    f"again: {name!r} may be {', '.join(repr(listing.paths[n]) for n in numbers)}"
                )
            if not numbers:  # the data set may be a part of what was verified
                continue
            (number,) = numbers
            num_known += 1
            path, now = listing.paths[number], listing.num_bytes[number]
            if now != num_bytes:
                raise ValueError(
                    f"Excluding({self._shown!r}) is of other files, verify them again: {path!r} "
                    f"had {num_bytes} bytes and has {now}"
                )
            if row_groups is None:
                whole.add(number)
            else:
                self._row_groups[path] = row_groups
        if not num_known:
            raise ValueError(
                f"Excluding({self._shown!r}) names no file of the data set, verify its files: "
                f"{self._files[0].name!r} is none"
            )
        self._num_files = len(whole)
        if len(whole) == len(listing.paths):
            raise ValueError(f"Excluding({self._shown!r}) leaves no file")
        return listing.pick([at for at in range(len(listing.paths)) if at not in whole])

    def narrowed(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the row groups that are left, which counts the others."""
        if not self._files:
            return manifest
        kept = np.ones(manifest.num_row_groups, bool)
        for path, numbers in self._row_groups.items():
            file = manifest.files.index(path)
            of_file = manifest.row_group_file == file
            most = int(of_file.sum())
            if numbers and max(numbers) >= most:
                raise ValueError(
                    f"Excluding({self._shown!r}) is of other files, verify them again: {path!r} "
                    f"has {most} row groups"
                )
            kept &= ~of_file | ~np.isin(manifest.row_group_in_file, numbers)
        if not manifest.row_group_num_rows[kept].any():
            raise ValueError(f"Excluding({self._shown!r}) leaves no row")
        num_rows = int(manifest.row_group_num_rows[~kept].sum())
        excluded = self._num_files, int((~kept).sum()), num_rows
        return replace(manifest.keep(kept), excluded=excluded)


def _is_of(path: str, name: str) -> bool:
    return path == name or path.endswith(f"/{name}")


def _read(path: Path) -> list[ExcludedFile]:
    text = path.read_text()
    try:
        content: Any = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise ValueError("torchparquet verify --exclusions has not written it")
        if content["version"] != _VERSION:
            raise ValueError("another release of torchparquet has written it: verify again")
        return [_file(one) for one in content["files"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a file of exclusions ({one_line(error)}): {str(path)!r}") from None


def _file(one: Mapping[str, Any]) -> ExcludedFile:
    groups = one["row_groups"]
    numbers = [one["bytes"], *(groups or ())]
    if not isinstance(one["name"], str) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError("a file needs a name, bytes and row_groups")
    return ExcludedFile(one["name"], numbers[0], None if groups is None else tuple(numbers[1:]))
