"""read_manifest, with pyarrow's reading of the same footers as the oracle."""

from __future__ import annotations

import datetime
import os
import pickle
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet._impl.files.discovery import find_sources
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest, walk_footers
from torchparquet.errors import CorruptFileError

ARRAYS = [
    "file_num_bytes",
    "file_mtime_ns",
    "file_inode",
    "file_digest",
    "file_has_hidden_columns",
    "file_num_rows",
    "file_schema",
    "row_group_file",
    "row_group_in_file",
    "row_group_num_rows",
    "row_group_num_bytes",
    "row_group_first_row",
]


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
    """Four files of 7 row groups: 250, 0, 100 and 301 rows."""
    root = tmp_path / "data"
    write(root / "a.parquet", 250)
    write(root / "b" / "1.parquet", 0)
    write(root / "b" / "2.parquet", 100, start=250)
    write(root / "c.parquet", 301, row_group_size=150, start=350)
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
    assert manifest.file_num_rows.tolist() == [250, 0, 100, 301]
    found = zip(
        manifest.row_group_file.tolist(),
        manifest.row_group_in_file.tolist(),
        manifest.row_group_num_rows.tolist(),
        manifest.row_group_num_bytes.tolist(),
        strict=True,
    )
    assert list(found) == oracle_row_groups(manifest.files)
    assert manifest.num_rows == 651
    assert manifest.num_row_groups == len(oracle_row_groups(manifest.files))
    assert {getattr(manifest, name).dtype for name in ARRAYS} == {np.dtype(np.int64)}


@pytest.mark.parametrize("columns", [["id"], ["id", "x"], ["unknown"]], ids=str)
def test_bytes_of_columns_are_those_of_pyarrow(data: Any, columns: list[str]) -> None:
    expected = []
    for file in sorted(data.rglob("*.parquet")):
        footer = pq.read_metadata(file)
        for group in map(footer.row_group, range(footer.num_row_groups)):
            chunks = map(group.column, range(group.num_columns))
            of_column = {chunk.path_in_schema: chunk.total_compressed_size for chunk in chunks}
            expected.append(sum(of_column.get(column, 0) for column in columns))
    manifest, _ = walk_footers(find_sources(data), with_chunk_sizes=True)
    assert manifest.bytes_of_columns(columns).tolist() == expected
    kept = np.arange(len(expected)) % 3 > 0
    assert (
        manifest.keep(kept).bytes_of_columns(columns).tolist() == np.array(expected)[kept].tolist()
    )
    assert read_manifest(data).chunk_num_bytes is None


def test_first_rows_are_global_row_numbers(data: Any) -> None:
    """The files number their rows, so that a row group's first id is its first row."""
    manifest = read_manifest(data)
    first = [
        pq.ParquetFile(manifest.files[file]).read_row_group(index)["id"].to_pylist()[:1]
        for file, index, _, _ in oracle_row_groups(manifest.files)
    ]
    expected = [number for numbers in first for number in numbers]
    nonempty = manifest.row_group_num_rows > 0
    assert manifest.row_group_first_row[nonempty].tolist() == expected
    assert expected == [0, 100, 200, 250, 350, 500, 650]


def test_explicit_list_keeps_its_order(data: Any) -> None:
    files = [str(data / "c.parquet"), str(data / "a.parquet")]
    manifest = read_manifest(files)
    assert manifest.files == tuple(files)
    assert manifest.row_group_num_rows.tolist() == [150, 150, 1, 100, 100, 50]
    assert manifest.row_group_file.tolist() == [0, 0, 0, 1, 1, 1]
    assert manifest.row_group_in_file.tolist() == [0, 1, 2, 0, 1, 2]


def test_root_of_one_file_is_its_directory(data: Any) -> None:
    assert read_manifest(data / "a.parquet").root == str(data)
    assert read_manifest(data / "b" / "2.parquet").root == str(data / "b")
    assert read_manifest([data / "b" / "2.parquet", data / "c.parquet"]).root == str(data)


def test_leaves_of_a_rich_schema(tmp_path: Path) -> None:
    day = datetime.date(2020, 1, 2)
    table = pa.table(
        {
            "flag": pa.array([True]),
            "i8": pa.array([1], pa.int8()),
            "u16": pa.array([1], pa.uint16()),
            "i32": pa.array([1], pa.int32()),
            "u64": pa.array([1], pa.uint64()),
            "f16": pa.array([np.float16(1)], pa.float16()),
            "f32": pa.array([1], pa.float32()),
            "f64": pa.array([1], pa.float64()),
            "day": pa.array([day], pa.date32()),
            "at": pa.array([datetime.datetime(2020, 1, 2)], pa.timestamp("us")),
            "s": pa.array([{"x": 1, "y": {"z": 2.0}}]),
            "text": pa.array(["a"]),
            "list": pa.array([[1]], pa.list_(pa.int32())),
            "money": pa.array([Decimal("1.25")], pa.decimal128(9, 2)),
        },
    )
    required = pa.field("i32", pa.int32(), nullable=False)
    table = table.cast(table.schema.set(table.schema.get_field_index("i32"), required))
    pq.write_table(table, tmp_path / "a.parquet")
    (schema,) = read_manifest(tmp_path).schemas
    assert all(type(leaf) is Leaf for leaf in schema)
    dtypes = {leaf.path: leaf.dtype for leaf in schema if leaf.dtype}
    assert dtypes == {
        "flag": "bool",
        "i8": "int8",
        "u16": "uint16",
        "i32": "int32",
        "u64": "uint64",
        "f16": "float16",
        "f32": "float32",
        "f64": "float64",
        "day": "int64",
        "at": "int64",
        "s.x": "int64",
        "s.y.z": "float64",
        "text": "uint8",
        "list": "int32",
        "money": "float64",
    }
    assert all(bool(leaf.dtypes) == bool(leaf.dtype) for leaf in schema)
    assert all(leaf.dtype in leaf.dtypes for leaf in schema if leaf.dtype)
    kinds = {leaf.path.split(".")[0]: leaf.kind for leaf in schema}
    assert kinds["i32"] == "int32"
    assert kinds["at"] == "timestamp[us]"
    assert kinds["text"] == "string"
    assert "int32" in kinds["list"]
    assert kinds["money"] == "decimal(9, 2)"
    assert [leaf.path for leaf in schema if not leaf.nullable] == ["i32"]
    assert [leaf.path.split(".")[0] for leaf in schema] == [
        name for name in table.column_names for _ in range(2 if name == "s" else 1)
    ]


def test_schemas_are_distinct_and_in_order_of_appearance(tmp_path: Path) -> None:
    first = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([1.0])})
    second = pa.table({"a": pa.array([1], pa.int64())})
    for number, table in enumerate([first, second, first, second, first]):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    manifest = read_manifest(tmp_path)
    assert manifest.file_schema.tolist() == [0, 1, 0, 1, 0]
    paths = [[leaf.path for leaf in schema] for schema in manifest.schemas]
    assert paths == [["a", "b"], ["a"]]
    assert [schema[0].kind for schema in manifest.schemas] == ["int32", "int64"]


def test_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / f"{number:02}.parquet", number % 7 + 1, row_group_size=number % 3 + 1)
    manifests = [read_manifest(tmp_path, threads) for threads in (None, 1, 3, 64)]
    assert manifests[0].file_num_rows.tolist() == [number % 7 + 1 for number in range(40)]
    for name in ARRAYS:
        arrays = [getattr(manifest, name).tolist() for manifest in manifests]
        assert all(array == arrays[0] for array in arrays)
    assert len({manifest.fingerprint for manifest in manifests}) == 1


@pytest.mark.parametrize(
    ("num_threads", "error"),
    [(0, ValueError), (-1, ValueError), (True, TypeError), (1.0, TypeError), ("1", TypeError)],
)
def test_wrong_number_of_threads(data: Any, num_threads: bool | float | str, error: Any) -> None:
    with pytest.raises(error, match=f"num_threads must be.*{num_threads!r}"):
        read_manifest(data, num_threads)  # type: ignore[arg-type]


def test_data_without_rows_is_an_error(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.parquet", 0)
    with pytest.raises(ValueError, match=r"at least one row.*0\.parquet.* and 2 more") as caught:
        read_manifest(tmp_path)
    assert not isinstance(caught.value, CorruptFileError)
    with pytest.raises(ValueError, match=r"0\.parquet'$"):
        read_manifest(tmp_path / "0.parquet")


@pytest.mark.parametrize("damage", ["not parquet", "cut", "length"])
def test_damaged_footer_names_the_file(data: Any, damage: str) -> None:
    file = data / "b" / "2.parquet"
    content = file.read_bytes()
    length = (2**31 - 1).to_bytes(4, "little")
    file.write_bytes(
        {
            "not parquet": b"name,age\nx,1\n" * 50,
            "cut": content[: len(content) // 2],
            "length": content[:-8] + length + b"PAR1",
        }[damage]
    )
    with pytest.raises(CorruptFileError, match=r"b/2\.parquet"):
        read_manifest(data)


# The number of rows is field 3 of the footer and of each row group in it: an i64, one field
# after the last, is b"\x16", and its value a zigzag varint.
@pytest.mark.parametrize(
    ("honest", "lie", "total"),
    [(b"\x16\xf4\x03", b"\x16\xf2\x03", 249), (b"\x16\xc8\x01", b"\x16\xc6\x01", 250)],
)
def test_footer_that_contradicts_itself_names_the_file(
    data: Any, honest: bytes, lie: bytes, total: int
) -> None:
    file = data / "a.parquet"
    content = file.read_bytes()
    length = int.from_bytes(content[-8:-4], "little") + 8
    footer = content[-length:]
    file.write_bytes(content[:-length] + footer.replace(honest, lie))
    metadata = pq.read_metadata(file)
    groups = [metadata.row_group(index).num_rows for index in range(3)]
    assert metadata.num_rows == total
    assert sum(groups) != total
    with pytest.raises(CorruptFileError, match=r"row count.*a\.parquet"):
        read_manifest(data)


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


def test_missing_file_is_an_error(data: Any) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        read_manifest([data / "a.parquet", data / "none.parquet"])


def test_pickle_keeps_everything(data: Any) -> None:
    manifest = read_manifest(data)
    copy = pickle.loads(pickle.dumps(manifest))
    with pytest.raises(ValueError, match="read-only"):
        manifest.row_group_num_rows[0] = 7
    assert type(copy) is Manifest
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(copy, name), getattr(manifest, name))
    for name in ("files", "root", "schemas", "fingerprint", "num_rows", "num_row_groups"):
        assert getattr(copy, name) == getattr(manifest, name)


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


def test_fingerprint_depends_on_the_order_of_files(data: Any) -> None:
    files = [data / "a.parquet", data / "c.parquet"]
    assert read_manifest(files).fingerprint != read_manifest(files[::-1]).fingerprint


def test_fingerprint_takes_in_all_that_identifies_the_data(tmp_path: Path) -> None:
    """Each data set differs from the first in one thing; times of change are all the same."""

    def field(name: str = "a", kind: str = "int32", *, nullable: bool = True) -> Any:
        return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable=nullable)])

    both = [field("a"), field("b")]
    variants: list[dict[str, Any]] = [
        {},
        {"names": ["a", "c"]},
        {"names": ["x/a", "b"]},
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
