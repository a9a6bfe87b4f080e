"""Columns that files declare as lists of one length or tensors of one shape."""

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

from tests.fixtures.datasets import batch_of
from tests.fixtures.parquet_files import write
from tests.fixtures.pyarrow_release import needs_pyarrow
from torchparquet import (
    ByLength,
    Column,
    Jagged,
    ListLengthError,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
)

SQUARES = pa.list_(pa.list_(pa.int64(), 2), 2)


def tensors(shape: tuple[int, ...], order: list[int] | None = None, rows: int = 5) -> Any:
    kind = pa.fixed_shape_tensor(pa.int32(), shape, permutation=order)
    size = int(np.prod(shape))
    values = pa.array(np.arange(rows * size, dtype=np.int32))
    storage = pa.FixedSizeListArray.from_arrays(values, size)
    return pa.ExtensionArray.from_storage(kind, storage)


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
    "kind", [pa.list_(pa.list_(pa.int32(), 2)), pa.list_(pa.list_(pa.int32()), 1)], ids=str
)
def test_lists_of_lists_of_any_length_stay_jagged(tmp_path: Path, kind: pa.DataType) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": pa.array([[[1, 2]], [[3, 4]]], kind)}))
    assert batch_of(path)["x"].to_list() == [[[1, 2]], [[3, 4]]]


@needs_pyarrow(25, "does not write fixed-size lists with nulls")
def test_null_rows_are_filled_and_masked(tmp_path: Path) -> None:
    table = pa.table(
        {
            "f": pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "x": pa.array([[[1, 2], [3, None]], None, [None, [5, 6]]], SQUARES),
            "t": tensors((2, 3), [1, 0], rows=3),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    nan = float("nan")
    expected = torch.tensor([[1.0, nan], [nan, nan], [3.0, 4.0]])
    torch.testing.assert_close(batch_of(path, ["f"])["f"], expected, equal_nan=True)
    filled = [[[1, 2], [3, -1]], [[-1, -1], [-1, -1]], [[-1, -1], [5, 6]]]
    assert batch_of(path, nulls=-1)["x"].tolist() == filled
    batch = batch_of(path, nulls="mask")
    assert batch["f.valid"].tolist() == [[True, False], [False, False], [True, True]]
    assert batch["x.valid"].tolist() == [True, False, True]
    valid = [[[one != -1 for one in a] for a in b] for b in filled]
    assert batch["x.values.valid"].tolist() == valid
    assert batch["t"].shape == batch["t.valid"].shape == (3, 3, 2)
    for name in "fx":
        with pytest.raises(NullValueError, match="row"):
            batch_of(path, [name], nulls="error")


@pytest.mark.parametrize(
    ("kind", "shown"), [(pa.list_(pa.int32()), "any"), (pa.list_(pa.int32(), 1), "1")], ids=str
)
def test_files_that_disagree(tmp_path: Path, kind: pa.DataType, shown: str) -> None:
    fixed = pa.array([[1, 2]], pa.list_(pa.int32(), 2))
    for name, array in (("a", fixed), ("b", pa.array([[3]], kind))):
        write(tmp_path / f"{name}.parquet", pa.table({"x": array}))
    message = rf"'x'.*2 in .*a\.parquet.*, {shown} in .*b\.parquet"
    with pytest.raises(SchemaMismatchError, match=message):
        ParquetDataset(tmp_path, batch_size=1)
    any_length = {"x": Column("x", length="any")}
    assert batch_of(tmp_path, any_length)["x"].to_list() == [[1, 2], [3]]
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
PLAIN = pa.schema({"x": pa.list_(pa.int64(), 0x01020304), "y": pa.int64()}).serialize().to_pybytes()
NO_LENGTHS = (0, -1, -(2**31))


@pytest.mark.parametrize(
    "metadata",
    [
        *(b"", b"no base64 at all!"),
        base64.b64encode(b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"x" * 16),
        base64.b64encode(b"\xff\xff\xff\xff\xff\xff\xff\x7f"),
        encoded(pa.schema({"x": FIXED, "y": pa.int64()}))[:-40],
        encoded(pa.schema({"x": FIXED})),
        # Lengths that are none.
        *(base64.b64encode(PLAIN.replace(b"\4\3\2\1", struct.pack("<i", n))) for n in NO_LENGTHS),
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
    ids=range(13),
)
def test_schemas_that_do_not_fit_declare_nothing(tmp_path: Path, metadata: Any) -> None:
    path = declaring(tmp_path / "a.parquet", LISTS, metadata)
    assert batch_of(path)["x"].to_list() == [[1, 2], [3, 4]]
    fitting = encoded(pa.schema({"x": FIXED, "y": pa.int64()}))
    path = declaring(tmp_path / "a.parquet", LISTS, fitting)
    assert batch_of(path)["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("length", [1, 3, 2**31 - 1])
def test_a_schema_that_lies_about_the_length(tmp_path: Path, length: int) -> None:
    schema = pa.schema({"x": pa.list_(pa.int64(), length), "y": pa.int64()})
    path = declaring(tmp_path / "a.parquet", LISTS, encoded(schema))
    message = r'a\.parquet.*length="any".*row 0.*column \'x\'|length="any".*row 0.*a\.parquet'
    with pytest.raises((ValueError, MemoryError), match=message if length < 9 else "max_memory"):
        batch_of(path, batch_size=None)


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


@pytest.mark.parametrize(
    ("shape", "order"),
    [((2, 3), None), ((2, 3), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((4, 1, 2), None), ((3,), None)],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_tensors_of_a_fixed_shape(
    tmp_path: Path, shape: tuple[int, ...], order: list[int] | None, shuffle: bool
) -> None:
    column = tensors(shape, order)
    table = pa.table({"t": column, "i": range(5)})
    path = write(tmp_path / "a.parquet", table, row_group_size=2)
    batch = batch_of(path, shuffle=shuffle)
    stored = np.arange(5 * np.prod(shape)).reshape(5, *shape)
    expected = stored.transpose(0, *(at + 1 for at in order or range(len(shape))))
    if len(shape) < 3:  # pyarrow itself mixes up the dimensions of more
        assert expected.tolist() == column.to_numpy_ndarray().tolist()
    expected = expected[batch["i"].numpy()]
    assert batch["t"].shape == expected.shape
    assert batch["t"].numpy().tolist() == expected.tolist()


def test_lists_of_lists_of_one_shape(tmp_path: Path) -> None:
    kind = pa.list_(pa.list_(pa.float32(), 3), 2)
    values = np.arange(30, dtype=np.float32).reshape(5, 2, 3)
    table = pa.table({"x": pa.array(values.tolist(), kind), "i": range(5)})
    path = write(tmp_path / "a.parquet", table)
    for shuffle in (False, True):
        batch = batch_of(path, shuffle=shuffle)
        assert batch["x"].numpy().tolist() == values[batch["i"].numpy()].tolist()
    lists = batch_of(path, columns={"x": Column("x", length="any")})["x"]
    assert isinstance(lists, Jagged)


def test_files_of_different_shapes_are_refused(tmp_path: Path) -> None:
    for name, shape in (("a", (2, 3)), ("b", (3, 2))):
        write(tmp_path / f"{name}.parquet", pa.table({"t": tensors(shape)}))
    with pytest.raises(SchemaMismatchError, match=r'length="any"'):
        batch_of(tmp_path)
    assert batch_of(tmp_path, columns={"t": Column("t", length=6)})["t"].shape == (10, 6)


def test_a_shape_that_contradicts_its_list_is_no_shape(tmp_path: Path) -> None:
    storage = pa.list_(pa.int32(), 6)
    said = {"ARROW:extension:name": "arrow.fixed_shape_tensor", "ARROW:extension:metadata": "{"}
    for place, metadata in enumerate(("{", '{"shape":[4,4]}', '{"shape":"no"}', "[1]")):
        field = pa.field("t", storage, metadata=said | {"ARROW:extension:metadata": metadata})
        table = pa.table([pa.array([[0] * 6], storage)], pa.schema([field]))
        assert batch_of(write(tmp_path / f"{place}.parquet", table))["t"].shape == (1, 6)


def test_rows_one_by_one_and_batches_by_length_have_the_shape(tmp_path: Path) -> None:
    rows = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    columns = {"x": pa.array(rows, SQUARES), "t": tensors((2, 3), rows=2), "l": [[1], [2, 3]]}
    path = write(tmp_path / "a.parquet", pa.table(columns))
    shapes = {"x": (2, 2), "t": (2, 3)}
    single = list(ParquetDataset(path, batch_size=2).unbatched())
    assert [{name: row[name].shape for name in shapes} for row in single] == [shapes] * 2
    assert [row["x"].tolist() for row in single] == rows
    batch = batch_of(path, batch_size=ByLength("l", max_tokens=100))
    assert {name: batch[name].shape[1:] for name in shapes} == shapes
    assert sorted(batch["x"].tolist()) == rows
