"""read_manifest, with pyarrow's reading of the same footers as the oracle."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet.errors import CorruptFileError


def write(path: Path, num_rows: int, row_group_size: int = 100, start: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "id": pa.array(range(start, start + num_rows), pa.int64()),
            "x": pa.array(np.linspace(0, 1, num_rows), pa.float32()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return str(path)


@pytest.fixture
def data(tmp_path: Path) -> Any:
    """Four files of 250, 0, 100 and 901 rows; the last one's footer is longer than most."""
    root = tmp_path / "data"
    write(root / "a.parquet", 250)
    write(root / "b" / "1.parquet", 0)
    write(root / "b" / "2.parquet", 100, start=250)
    write(root / "c.parquet", 901, row_group_size=1, start=350)
    return root


def oracle_row_groups(files: Any) -> list[tuple[int, int, int, int]]:
    """(file, number in the file, rows, compressed bytes) for each row group, by pyarrow."""
    groups = []
    for number, file in enumerate(files):
        metadata = pq.read_metadata(file)
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = range(group.num_columns)
            size = sum(group.column(column).total_compressed_size for column in columns)
            groups.append((number, index, group.num_rows, size))
    return groups


# Reading


def test_manifest_says_what_pyarrow_says(data: Any) -> None:
    manifest = read_manifest(data)
    assert [str(Path(file).relative_to(data)) for file in manifest.files] == [
        "a.parquet",
        "b/1.parquet",
        "b/2.parquet",
        "c.parquet",
    ]
    assert manifest.root == str(data)
    status = [Path(file).stat() for file in manifest.files]
    assert manifest.file_num_bytes.tolist() == [s.st_size for s in status]
    assert manifest.file_mtime_ns.tolist() == [s.st_mtime_ns for s in status]
    assert manifest.file_inode.tolist() == [s.st_ino for s in status]
    assert manifest.file_num_rows.tolist() == [250, 0, 100, 901]
    found = zip(
        manifest.row_group_file.tolist(),
        manifest.row_group_in_file.tolist(),
        manifest.row_group_num_rows.tolist(),
        manifest.row_group_num_bytes.tolist(),
        strict=True,
    )
    assert list(found) == oracle_row_groups(manifest.files)
    assert manifest.num_rows == 1251
    assert manifest.num_row_groups == len(oracle_row_groups(manifest.files))


def test_more_rows_than_can_be_numbered(data: Any) -> None:
    """Two files of 100 rows claim 2**61 rows each, which int64 cannot number."""
    files = [data / "b" / "2.parquet", data / "copy.parquet"]
    content = files[0].read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    claim = b"\x16" + bytes([0x80] * 8) + b"\x40"
    footer = content[-8 - length : -8].replace(b"\x16\xc8\x01", claim)
    for file in files:
        file.write_bytes(
            content[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"
        )
    with pytest.raises(CorruptFileError, match=f"can number: '{files[1]}', {2**61} rows"):
        read_manifest(files)


# Fingerprint


def test_fingerprint_survives_a_move_and_notices_a_touch(data: Any, tmp_path: Path) -> None:
    before = read_manifest(data).fingerprint
    assert len(bytes.fromhex(before)) == 16
    shutil.copytree(data, tmp_path / "elsewhere" / "copy")
    assert read_manifest(tmp_path / "elsewhere" / "copy").fingerprint == before
    file = data / "c.parquet"
    mtime_ns = file.stat().st_mtime_ns
    os.utime(file, ns=(mtime_ns, mtime_ns + 1000))
    assert read_manifest(data).fingerprint != before
    os.utime(file, ns=(mtime_ns, mtime_ns))
    assert read_manifest(data).fingerprint == before


def test_fingerprint_notices_other_values_of_the_same_size(tmp_path: Path) -> None:
    """The footer's statistics differ, where sizes, rows and schema are equal."""
    path = tmp_path / "x.parquet"
    prints = []
    for first in (0, 1000):
        values = pa.array(range(first, first + 100), pa.int64())
        pq.write_table(pa.table({"x": values}), path, compression="none", use_dictionary=False)
        os.utime(path, (1, 1))
        manifest = read_manifest(path)
        prints.append((manifest.file_num_bytes.tolist(), manifest.fingerprint))
    assert prints[0][0] == prints[1][0]
    assert prints[0][1] != prints[1][1]


def test_fingerprint_takes_in_all_that_identifies_the_data(tmp_path: Path) -> None:
    """Each data set differs from the first in one thing; times of change are all the same."""

    def field(name: str = "a", kind: str = "int32", *, nullable: bool = True) -> Any:
        return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=nullable)])

    both = [field("a"), field("b")]
    variants: list[dict[str, Any]] = [
        {},
        {"names": ["a", "c"]},
        {"names": ["x/a", "b"]},
        {"names": ["b", "a"]},
        {"schemas": [field("b")]},
        {"schemas": [field(kind="int64")]},
        {"schemas": [field(nullable=False)]},
        {"schemas": [pa.unify_schemas(both)]},
        {"schemas": [pa.unify_schemas(both[::-1])]},
        {"schemas": both},
        {"schemas": both[::-1]},
        {"row_group_size": 3},
        {"num_rows": 6},
    ]
    prints = []
    for number, changes in enumerate(variants):
        for place in (tmp_path / str(number), tmp_path / "moved" / str(number)):
            prints.append(_fingerprint_of_two(place, changes))
    assert prints[::2] == prints[1::2]
    assert len(set(prints)) == len(variants)


def _fingerprint_of_two(root: Path, changes: dict[str, Any]) -> str:
    schemas = changes.get("schemas", [pa.schema({"a": pa.int32()})])
    files = []
    for number, name in enumerate(changes.get("names", ["a", "b"])):
        schema = schemas[number % len(schemas)]
        rows = {column: range(changes.get("num_rows", 5)) for column in schema.names}
        files.append(root / f"{name}.parquet")
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        size = changes.get("row_group_size", 2)
        pq.write_table(pa.table(rows, schema), files[-1], row_group_size=size)
        os.utime(files[-1], (1, 1))
    return read_manifest(files).fingerprint
