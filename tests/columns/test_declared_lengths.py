"""Columns that files declare as lists of one length: tensors of rows, with nothing stated."""

from __future__ import annotations

import base64
import contextlib
import datetime
import random
import resource
import struct
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.parquet_files import write
from tests.fixtures.pyarrow_release import needs_pyarrow
from torchparquet import (
    Column,
    Jagged,
    ListLengthError,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
)


def batch_of(source: Any, columns: Any = None, **options: Any) -> Any:
    options = {"batch_size": None, "rank": 0, "world_size": 1, **options}
    (batch,) = ParquetDataset(source, columns=columns, **options)
    return batch


VALUES = np.arange(12).reshape(4, 3)


@pytest.mark.parametrize("kind", ["int8", "uint16", "int64", "float16", "float32", "float64"])
def test_numbers(tmp_path: Path, kind: str) -> None:
    values = pa.array(VALUES.astype(kind).ravel())
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 3)})
    for source in (table, write(tmp_path / "a.parquet", table)):
        batch = batch_of(source, batch_size=len(VALUES))
        assert batch["x"].dtype == getattr(torch, kind)
        assert batch["x"].tolist() == VALUES.tolist()


def test_other_elements_and_places(tmp_path: Path) -> None:
    pair = pa.list_(pa.struct({"a": pa.int16(), "b": pa.string()}), 2)
    struct = pa.struct({"x": pa.list_(pa.int32(), 2), "y": pa.int8(), "z": pa.list_(pa.int8())})
    rows = [{"x": [1, 2], "y": 1, "z": [1]}, {"x": [3, 4], "y": 2, "z": []}]
    pairs = [[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]] * 2
    texts = [["a", "b"], ["b", "?"]]
    table = pa.table(
        {
            "bool": pa.array([[True, False], [False, False]], pa.list_(pa.bool_(), 2)),
            "cell": pa.array([[b"ab", b"cd"], [b"ef", b"gh"]], pa.list_(pa.binary(2), 2)),
            "day": pa.array([[datetime.date(1970, 1, 2)]] * 2, pa.list_(pa.date32(), 1)),
            "text": pa.array(texts, pa.list_(pa.string(), 2)),
            "s": pa.array(rows, struct),
            "pairs": pa.array(pairs, pair),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    batch = batch_of(path)
    assert batch["bool"].tolist() == [[True, False], [False, False]]
    assert batch["cell"].tolist() == [list(b"abcd"), list(b"efgh")]
    assert batch["day"].tolist() == [[1], [1]]
    assert batch["text"].to_str() == texts
    assert batch["s.x"].tolist() == [[1, 2], [3, 4]]
    assert batch["s.z"].to_list() == [[1], []]
    assert batch["pairs.a"].tolist() == [[1, 2], [1, 2]]
    assert batch["pairs.b"].to_str() == [["x", "y"], ["x", "y"]]
    columns = {"text": Column("text", vocab=["a", "b"]), "any": Column("s.x", length="any")}
    batch = batch_of(path, columns)
    assert batch["text"].tolist() == [[0, 1], [1, -1]]
    assert batch["any"].to_list() == [[1, 2], [3, 4]]
    with pytest.raises(ListLengthError, match="length=3"):
        batch_of(path, {"x": Column("s.x", length=3)})


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.int32(), 2)),
        pa.list_(pa.list_(pa.int32()), 1),
    ],
    ids=str,
)
def test_lists_of_lists_of_any_length_stay_jagged(tmp_path: Path, kind: pa.DataType) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": pa.array([[[1, 2]], [[3, 4]]], kind)}))
    assert batch_of(path)["x"].to_list() == [[[1, 2]], [[3, 4]]]


@needs_pyarrow(25, "does not write fixed-size lists with nulls")
def test_nulls(tmp_path: Path) -> None:
    rows = [[1.0, None], None, [3.0, 4.0]]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.float32(), 2))})
    path = write(tmp_path / "a.parquet", table)
    nan = float("nan")
    expected = torch.tensor([[1.0, nan], [nan, nan], [3.0, 4.0]])
    torch.testing.assert_close(batch_of(path)["x"], expected, equal_nan=True)
    masked = batch_of(path, nulls="mask")
    assert masked["x.valid"].tolist() == [[True, False], [False, False], [True, True]]
    with pytest.raises(NullValueError, match="row 0"):
        batch_of(path, nulls="error")


@pytest.mark.parametrize(
    ("kind", "shown"), [(pa.list_(pa.int32()), "any"), (pa.list_(pa.int32(), 1), "1")], ids=str
)
def test_files_that_disagree(tmp_path: Path, kind: pa.DataType, shown: str) -> None:
    first = write(
        tmp_path / "a.parquet", pa.table({"x": pa.array([[1, 2]], pa.list_(pa.int32(), 2))})
    )
    second = write(tmp_path / "b.parquet", pa.table({"x": pa.array([[3]], kind)}))
    with pytest.raises(SchemaMismatchError, match=rf"'x'.*2 in .*, {shown} in") as caught:
        ParquetDataset(tmp_path, batch_size=1)
    assert first in str(caught.value)
    assert second in str(caught.value)
    any_length = {"x": Column("x", length="any")}
    assert batch_of([first], any_length)["x"].to_list() == [[1, 2]]
    rows = [
        batch["x"].to_list()[0]
        for batch in ParquetDataset(tmp_path, batch_size=1, columns=any_length)
    ]
    assert rows == [[1, 2], [3]]
    with pytest.raises(ListLengthError, match=r"b\.parquet"):
        list(ParquetDataset(tmp_path, batch_size=1, columns={"x": Column("x", length=2)}))


def test_files_that_agree_in_another_order_and_one_without_rows(tmp_path: Path) -> None:
    fixed = pa.list_(pa.int32(), 2)
    write(tmp_path / "a.parquet", pa.table({"x": pa.array([[1, 2]], fixed), "y": [1]}))
    write(tmp_path / "b.parquet", pa.table({"y": [2], "x": pa.array([[3, 4]], fixed)}))
    write(tmp_path / "c.parquet", pa.table({"x": pa.array([[0]], pa.list_(pa.int32()))})[:0])
    batches = list(ParquetDataset(tmp_path, batch_size=2, columns=["x"]))
    assert [batch["x"].tolist() for batch in batches] == [[[1, 2], [3, 4]]]


def declaring(path: Path, table: pa.Table, metadata: bytes) -> str:
    """A file whose Arrow schema is `metadata`, whatever that is."""
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"ARROW:schema": metadata})
    return str(path)


def encoded(schema: pa.Schema) -> bytes:
    return base64.b64encode(schema.serialize().to_pybytes())


LISTS = pa.table({"x": [[1, 2], [3, 4]], "y": [1, 2]})
FIXED = pa.list_(pa.int64(), 2)


@pytest.mark.parametrize(
    "metadata",
    [
        *(b"", b"no base64 at all!"),
        base64.b64encode(b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"x" * 16),
        base64.b64encode(b"\xff\xff\xff\xff\xff\xff\xff\x7f"),
        encoded(pa.schema({"x": FIXED, "y": pa.int64()}))[:-40],
        encoded(pa.schema({"x": FIXED})),
        *(
            encoded(pa.schema(kinds))
            for kinds in (
                {"z": FIXED, "y": pa.int64()},
                {"x": FIXED, "y": FIXED},
                {"x": pa.list_(FIXED), "y": pa.int64()},
                {"y": pa.int64(), "x": FIXED},
            )
        ),
    ],
    ids=lambda metadata: str(len(metadata)),
)
def test_schemas_that_do_not_fit_declare_nothing(tmp_path: Path, metadata: Any) -> None:
    path = declaring(tmp_path / "a.parquet", LISTS, metadata)
    assert batch_of(path)["x"].to_list() == [[1, 2], [3, 4]]
    fitting = encoded(pa.schema({"x": FIXED, "y": pa.int64()}))
    path = declaring(tmp_path / "a.parquet", LISTS, fitting)
    assert batch_of(path)["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("length", [1, 3])
def test_a_schema_that_lies_about_the_length(tmp_path: Path, length: int) -> None:
    schema = pa.schema({"x": pa.list_(pa.int64(), length), "y": pa.int64()})
    path = declaring(tmp_path / "a.parquet", LISTS, encoded(schema))
    with pytest.raises(ListLengthError, match=r'length="any".*row 0.*column \'x\'') as caught:
        batch_of(path)
    assert path in str(caught.value)


def test_a_length_that_no_memory_holds(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.list_(pa.int64(), 2**31 - 1), "y": pa.int64()})
    path = declaring(tmp_path / "a.parquet", LISTS, encoded(schema))
    with pytest.raises((ValueError, MemoryError), match="max_memory"):
        batch_of(path)


class Pair(pa.ExtensionType):
    """A type that Python registers; notes who asks it."""

    threads: ClassVar[list[str]] = []

    def __init__(self) -> None:
        super().__init__(pa.list_(pa.int64(), 2), "torchparquet.tests.pair")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: Any) -> Any:
        cls.threads.append(threading.current_thread().name)
        return cls()


def test_types_of_python_are_not_asked(tmp_path: Path) -> None:
    """Threads that did would wait for the GIL, whose owner may wait for them."""
    pa.register_extension_type(Pair())
    try:
        pairs = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
        table = pa.table({"x": pa.ExtensionArray.from_storage(Pair(), pairs)})
        for name in "abc":
            write(tmp_path / f"{name}.parquet", table)
        Pair.threads.clear()
        dataset = ParquetDataset(tmp_path, batch_size=2, rank=0, world_size=1)
        assert [batch["x"].tolist() for batch in dataset] == [[[1, 2], [3, 4]]] * 3
        assert Pair.threads == []
    finally:
        pa.unregister_extension_type("torchparquet.tests.pair")


@pytest.mark.parametrize("length", [0, -1, -(2**31)])
def test_lengths_that_are_none(tmp_path: Path, length: int) -> None:
    metadata = pa.schema({"x": pa.list_(pa.int64(), 0x01020304), "y": pa.int64()}).serialize()
    content = metadata.to_pybytes().replace(b"\4\3\2\1", struct.pack("<i", length))
    path = declaring(tmp_path / "a.parquet", LISTS, base64.b64encode(content))
    assert isinstance(batch_of(path)["x"], Jagged)


def test_a_field_that_is_referred_to_often_takes_no_memory(tmp_path: Path) -> None:
    """A megabyte of schema may mean gigabytes of names."""
    count = 20_000
    schema = pa.schema([pa.field("n" * 300_000, pa.int64()), *[pa.field("", pa.int64())] * count])
    content = bytearray(schema.serialize().to_pybytes())
    begin = content.index(struct.pack("<I", count + 1)) + 4
    (first,) = struct.unpack_from("<I", content, begin)
    for i in range(1, count + 1):
        struct.pack_into("<I", content, begin + 4 * i, (first - 4 * i) % 2**32)
    # Offsets lead forwards only, so the field stands after all that refer to it.
    assert first > 4 * count
    path = declaring(tmp_path / "a.parquet", LISTS, base64.b64encode(bytes(content)))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, limits[1]))
    try:
        assert isinstance(batch_of(path)["x"], Jagged)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_damaged_schemas_are_read_without_harm(tmp_path: Path) -> None:
    maps = pa.struct({"x": pa.list_(pa.float32(), 2), "m": pa.map_(pa.int8(), pa.int8())})
    schema = pa.schema({"s": maps, "l": pa.large_list(pa.list_(pa.int16(), 3))})
    content = schema.serialize().to_pybytes()
    row = {"s": [{"x": [1, 2], "m": []}], "l": [[[1, 2, 3]]]}
    table = pa.table({name: pa.array(row[name], schema.field(name).type) for name in row})
    draws = random.Random(4)
    found = set()
    for _ in range(300):
        damaged = bytearray(content[: draws.choice([len(content), draws.randrange(len(content))])])
        for _ in range(draws.randrange(4)):
            if damaged:
                damaged[draws.randrange(len(damaged))] = draws.choice([0, 1, 4, 127, 128, 255])
        path = declaring(tmp_path / "a.parquet", table, base64.b64encode(bytes(damaged)))
        with contextlib.suppress(ListLengthError, ValueError, MemoryError):
            found.add(isinstance(batch_of(path, ["s.x"])["s.x"], Jagged))
    assert found == {False, True}
