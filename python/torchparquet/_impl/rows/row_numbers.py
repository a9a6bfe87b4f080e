"""Rows by their numbers: those of the argument `rows=`, and those that a table has deleted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet.errors import CorruptFileError

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest

RowsArgument: TypeAlias = (
    "NDArray[Any] | Sequence[int] | Mapping[str, Any] | pa.Table | str | os.PathLike[str] | None"
)

# In the metadata of a file of row numbers: of the data set that they are of.
FINGERPRINT_KEY = b"torchparquet.fingerprint"


def chosen_rows(rows: RowsArgument, manifest: Manifest) -> NDArray[np.int64]:
    """Return the global numbers of rows that a user chose, in order."""
    numbers = _global_numbers(rows, manifest)
    total = int(manifest.file_num_rows.sum())
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < total:
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"rows has {wrong}, but the files hold {total} rows")
    twice = np.flatnonzero(numbers[1:] == numbers[:-1])
    if len(twice):
        raise ValueError(
            "rows must name each row once, as numpy.unique(rows) does; to read some rows more "
            f"often than others, mix data sets of them: row {numbers[twice[0]]} is there twice"
        )
    return numbers


def deleted_rows(left: Mapping[int, NDArray[np.bool_]], manifest: Manifest) -> NDArray[np.int64]:
    """Return the global numbers of rows that a table has deleted and its files still hold."""
    first_rows = np.cumsum(manifest.file_num_rows) - manifest.file_num_rows
    found = [np.zeros(0, np.int64)]
    for file, mask in left.items():
        num_rows = int(manifest.file_num_rows[file])
        if len(mask) != num_rows:
            raise CorruptFileError(
                f"the deletions are of {len(mask)} rows, the file has {num_rows}: "
                f"{manifest.files[file]!r}"
            )
        found.append(np.flatnonzero(~mask) + first_rows[file])
    return np.sort(np.concatenate(found))


def _global_numbers(rows: Any, manifest: Manifest) -> NDArray[np.int64]:
    if isinstance(rows, str | os.PathLike):
        rows = _read(Path(rows))
    if isinstance(rows, pa.Table):
        return _of_table(rows, manifest)
    if isinstance(rows, Mapping):
        return _of_files(rows, manifest)
    return _ascending(_array("rows", rows, int(manifest.file_num_rows.sum())))


def _read(path: Path) -> Any:
    """Return the content of a file of row numbers, mapped and not copied where that can be."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix in (".arrow", ".feather"):
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    if path.suffix in (".parquet", ".parq", ".pq"):
        import pyarrow.parquet as pq

        return pq.read_table(path, partitioning=None)
    raise ValueError(f"rows must be a .npy, .arrow, .feather or .parquet file, got {str(path)!r}")


def _of_table(table: pa.Table, manifest: Manifest) -> NDArray[np.int64]:
    of = (table.schema.metadata or {}).get(FINGERPRINT_KEY, b"").decode()
    if of and of != manifest.content_fingerprint:
        raise ValueError(
            f"rows is of a data set with fingerprint {of}, this one has "
            f"{manifest.content_fingerprint}"
        )
    if "row" not in table.column_names or not set(table.column_names) <= {"file", "row"}:
        raise ValueError(
            f'the table of rows needs the column "row" and may have "file", got '
            f"{table.column_names}"
        )
    numbers = table["row"].to_numpy()
    if "file" not in table.column_names:
        return _ascending(_array("rows", numbers, int(manifest.file_num_rows.sum())))
    files = table["file"].combine_chunks().dictionary_encode()
    codes = files.indices.to_numpy(zero_copy_only=False)
    by_file = {
        name: numbers[codes == code] for code, name in enumerate(files.dictionary.to_pylist())
    }
    return _of_files(by_file, manifest)


def _of_files(by_file: Mapping[Any, Any], manifest: Manifest) -> NDArray[np.int64]:
    first_rows = np.cumsum(manifest.file_num_rows) - manifest.file_num_rows
    names = _names(manifest)
    parts = [np.zeros(0, np.int64)]
    for name, rows in by_file.items():
        file = names.get(os.fspath(name))
        if file is None:
            raise ValueError(f"rows names a file that the data set does not have: {name!r}")
        num_rows = int(manifest.file_num_rows[file])
        numbers = _ascending(_array(f"rows of {os.fspath(name)!r}", rows, num_rows))
        if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < num_rows:
            wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
            raise ValueError(f"rows has {wrong} of {name!r}, which holds {num_rows} rows")
        parts.append(numbers + first_rows[file])
    return np.sort(np.concatenate(parts))


def _names(manifest: Manifest) -> dict[str, int]:
    """Return the files by path, by path below the root, and by name where that is of one file."""
    prefix = len(manifest.root.rstrip("/")) + 1 if manifest.root else 0
    last = [PurePath(file).name for file in manifest.files]
    names = {name: file for file, name in enumerate(last) if last.count(name) == 1}
    names |= {path[prefix:]: file for file, path in enumerate(manifest.files)}
    return names | {path: file for file, path in enumerate(manifest.files)}


def _array(name: str, rows: Any, num_rows: int) -> NDArray[np.int64]:
    array = np.asarray(rows)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got {array.ndim}")
    if array.dtype == bool:
        if len(array) != num_rows:
            raise ValueError(f"{name} is a mask of {len(array)} rows, there are {num_rows}")
        return np.flatnonzero(array)
    if len(array) and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers or bools, got {array.dtype}")
    if array.dtype.kind == "u" and len(array) and array.max() >= 2**63:
        raise ValueError(f"{name} has {array.max()}, but there are {num_rows} rows")
    return array.astype(np.int64, copy=False)


def _ascending(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    is_sorted = len(numbers) < 2 or bool((numbers[1:] >= numbers[:-1]).all())
    return numbers if is_sorted else np.sort(numbers)
