"""`torchparquet verify`: decode everything, and check that every row is dealt exactly once.

`decoding` checks one file after the other, `exactly_once` epochs over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from torchparquet._impl.files.discovery import find_sources
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import walk_footers
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet.errors import CorruptFileError, EncryptedFileError, one_line
from torchparquet.tools.verify.decoding import Failure, FileCheck, FileDecoder

Advance = Callable[[int], None]


def open_files(
    paths: Sequence[str],
    advance: Advance = lambda _: None,
    storage: StorageArguments = NO_STORAGE,
) -> tuple[list[Manifest], list[str], list[Failure]]:
    """Read the footer of each file by itself."""
    manifests, without_rows, failures = [], [], []
    found = find_sources(list(paths), storage, empty_files=True)
    for number, path in enumerate(found.paths):
        try:
            manifests.append(walk_footers(found.only(number))[0])
        except OSError as error:
            failures.append(Failure(path, None, None, one_line(error)))
        except ValueError:
            # The manifest refuses a sound file without rows.
            without_rows.append(path)
        advance(1)
    return manifests, without_rows, failures


def paths_of(manifests: Sequence[Manifest]) -> tuple[list[str], StorageArguments]:
    """Return the paths that lead to the files of manifests again, and how to reach their store."""
    remote = manifests[0].remote
    if remote is None:
        return [manifest.files[0] for manifest in manifests], NO_STORAGE
    names = [manifest.remote.names[0] for manifest in manifests if manifest.remote is not None]
    return names, StorageArguments(filesystem=remote.storage.access().filesystem)


def verify_file(manifest: Manifest, options: ReadOptions, advance: Advance) -> FileCheck:
    """Decode everything in one file, and return its failures."""
    try:
        return FileDecoder(manifest, options).check(advance)
    except (CorruptFileError, EncryptedFileError) as error:
        advance(manifest.num_rows)
        return FileCheck(failures=[Failure(manifest.files[0], None, None, one_line(error))])


def summary(
    manifests: Sequence[Manifest],
    without_rows: Sequence[str],
    unreadable: Sequence[Failure],
    checks: Sequence[FileCheck],
) -> dict[str, Any]:
    """Return the findings of all files as JSON values."""
    failures = [*unreadable, *(failure for check in checks for failure in check.failures)]
    by_pyarrow = dict.fromkeys(name for check in checks for name in check.columns_by_pyarrow)
    return {
        "files": len(manifests) + len(without_rows) + len(unreadable),
        "files_without_rows": list(without_rows),
        "row_groups": sum(manifest.num_row_groups for manifest in manifests),
        "rows": sum(check.rows for check in checks),
        "columns": max((check.columns for check in checks), default=0),
        "columns_by_pyarrow": list(by_pyarrow),
        "pages": sum(check.pages for check in checks),
        "pages_with_checksum": sum(check.pages_with_checksum for check in checks),
        "failures": [asdict(failure) for failure in failures],
    }
