"""Any nesting of lists, structs and maps, written in any way, reads as the table that was written.

Also in parts: by ranks that share row groups, in slices, by several threads.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from tests.oracles.arrow_leaves import difference, table_leaves
from torchparquet import ParquetDataset

MAX_DEPTH = 3
LEAF_KINDS = (
    *(pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float16(), pa.float32()),
    *(pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.binary(3), pa.binary(1)),
    *(pa.timestamp("us"), pa.date32(), pa.decimal128(9, 2), pa.decimal128(30, 4)),
)
ENCODINGS = {
    pa.string(): ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    pa.binary(): ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    pa.int32(): ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    pa.int64(): ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    pa.float32(): ("PLAIN", "BYTE_STREAM_SPLIT"),
    pa.binary(3): ("PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"),
}


def kinds(depth: int = MAX_DEPTH) -> Any:
    """Arrow types of at most `depth` nestings."""
    leaf = st.sampled_from(LEAF_KINDS)
    if depth == 0:
        return leaf
    inner = kinds(depth - 1)
    elements = st.builds(pa.field, st.sampled_from(["element", "item"]), inner, st.booleans())
    members = st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=2)
    return st.one_of(
        leaf,
        st.builds(pa.list_, elements),
        st.builds(pa.list_, elements),
        st.builds(pa.large_list, elements),
        members.map(
            lambda fields: pa.struct(
                [pa.field(f"f{i}", kind, nullable) for i, (kind, nullable) in enumerate(fields)]
            )
        ),
        st.builds(
            lambda key, item, nullable: pa.map_(key, pa.field("value", item, nullable)),
            st.sampled_from([pa.string(), pa.int32()]),
            inner,
            st.booleans(),
        ),
    )


class Draw:
    """Values of any type; how many are null, and how long lists are, differs from case to case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.null_share = self.rng.choice([0.0, 0.05, 0.5, 1.0], p=[0.3, 0.3, 0.3, 0.1])
        self.most_items = int(self.rng.choice([1, 3, 12]))
        self.num_distinct = int(self.rng.choice([2, 50, 10_000]))

    def rows(self, kind: Any, count: Any, nullable: Any) -> Any:
        """`count` values of a type as Python's, for pyarrow to make an array of."""
        values = self.values(kind, count)
        if not nullable:
            return values
        null = self.rng.random(count) < self.null_share
        return [None if is_null else value for is_null, value in zip(null, values, strict=True)]

    def values(self, kind: Any, count: Any) -> Any:
        if pa.types.is_struct(kind):
            columns = [self.rows(field.type, count, field.nullable) for field in kind]
            names = [field.name for field in kind]
            return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if pa.types.is_map(kind):
            key, item = kind.key_type, kind.item_field
            return self.lists(
                count,
                lambda n: list(
                    zip(self.values(key, n), self.rows(item.type, n, item.nullable), strict=True)
                ),
            )
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            field = kind.value_field
            return self.lists(count, lambda n: self.rows(field.type, n, field.nullable))
        return [self.leaf(kind, number) for number in self.numbers(count)]

    def lists(self, count: Any, draw: Any) -> Any:
        lengths = self.rng.integers(0, self.most_items + 1, count)
        items = draw(int(lengths.sum()))
        ends = lengths.cumsum()
        return [items[end - length : end] for length, end in zip(lengths, ends, strict=True)]

    def numbers(self, count: Any) -> Any:
        return self.rng.integers(0, self.num_distinct, count).tolist()

    def leaf(self, kind: Any, number: Any) -> Any:
        if pa.types.is_boolean(kind):
            return number % 2 == 1
        if pa.types.is_fixed_size_binary(kind):
            return (number * 7).to_bytes(8, "little")[: kind.byte_width]
        if kind in (pa.string(), pa.large_string()):
            return "" if number % 5 == 0 else f"\0{number}é" * (number % 4)
        if kind == pa.binary():
            return bytes([number % 256]) * (number % 41)
        if pa.types.is_decimal(kind):
            return Decimal(number - 3).scaleb(-kind.scale)
        if pa.types.is_floating(kind):
            return np.float16(number) if kind == pa.float16() else number / 8 - 3
        return number % 100 if pa.types.is_integer(kind) else number


def array_of(draw: Any, kind: Any, num_rows: int, nullable: Any) -> pa.Array:
    return pa.array(draw.rows(kind, num_rows, nullable), kind)


@st.composite
def tables(draw: Any) -> pa.DataType:
    columns = draw(st.lists(st.tuples(kinds(), st.booleans()), min_size=1, max_size=3))
    num_rows = draw(st.sampled_from([1, 2, 9, 64, 257, 900]))
    values = Draw(draw(st.integers(0, 2**32)))
    schema = pa.schema(
        [pa.field(f"c{i}", kind, nullable) for i, (kind, nullable) in enumerate(columns)]
    )
    arrays = [array_of(values, field.type, num_rows, field.nullable) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


@st.composite
def layouts(draw: Any) -> dict[str, Any]:
    """How a table is written."""
    return {
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "compression": draw(st.sampled_from(["none", "snappy", "zstd"])),
        "data_page_size": draw(st.sampled_from([1, 100, 2**20])),
        "write_batch_size": draw(st.sampled_from([1, 7, 1024])),
        "row_group_size": draw(st.sampled_from([1, 30, 200, 1000])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([20, 300, 2**20])),
        "write_page_checksum": draw(st.booleans()),
    }


def encodings_of(table: pa.Table, path_of_leaf: Any, pick: Any) -> Any:
    """A column encoding for each leaf that has a choice."""
    chosen = {}
    for path, kind in path_of_leaf:
        if kind in ENCODINGS:
            chosen[path] = ENCODINGS[kind][pick % len(ENCODINGS[kind])]
    return chosen


def stored_leaves(schema: Any) -> Iterator[Any]:
    """The dotted path of each leaf in a file, with its Arrow type, in order."""

    def walk(kind: Any, path: Any) -> Iterator[Any]:
        if pa.types.is_struct(kind):
            for field in kind:
                yield from walk(field.type, f"{path}.{field.name}")
        elif pa.types.is_map(kind):
            yield f"{path}.key_value.key", kind.key_type
            yield from walk(kind.item_type, f"{path}.key_value.value")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from walk(kind.value_type, f"{path}.list.element")
        else:
            yield path, kind

    for field in schema:
        yield from walk(field.type, field.name)


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    table=tables(),
    layout=layouts(),
    pick=st.integers(0, 5),
    batch_size=st.sampled_from([1, 7, 100, None]),
    world_size=st.sampled_from([1, 1, 2, 3]),
    num_threads=st.sampled_from([1, 3]),
    shuffle=st.booleans(),
    max_memory=st.sampled_from([40_000, "1MiB", "1GiB"]),
)
def test_any_table_reads_as_it_was_written(
    table: Any,
    layout: Any,
    pick: int,
    batch_size: Any,
    world_size: Any,
    num_threads: Any,
    shuffle: bool,
    max_memory: Any,
) -> None:
    if table.num_rows > 100 and batch_size == 1:
        batch_size = 31
    if not layout["use_dictionary"]:
        layout["column_encoding"] = encodings_of(table, stored_leaves(table.schema), pick)
    if batch_size is None or batch_size > 50:
        max_memory = "16MiB"
    leaves = {leaf.path: leaf for leaf in table_leaves(table)}
    event(f"lists {max(leaf.num_lists for leaf in leaves.values())}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        pq.write_table(table, path, **layout)
        read_rows = []
        for rank in range(world_size):
            dataset = ParquetDataset(
                str(path),
                columns=list(leaves),
                nulls="mask",
                batch_size=batch_size,
                row_ids=True,
                shuffle=shuffle,
                even="split",
                rank=rank,
                world_size=world_size,
                num_threads=num_threads,
                max_memory=max_memory,
            )
            try:
                batches = list(dataset)
            except MemoryError:
                # One batch may take more than the least of these.
                assume(max_memory == "1GiB")
                raise
            for batch in batches:
                ids = batch["row.id"].tolist()
                read_rows += ids
                for name, leaf in leaves.items():
                    assert not difference(batch, name, leaf, [leaf.rows[i] for i in ids])
        assert set(read_rows) == set(range(table.num_rows))
        assert len(read_rows) < table.num_rows + world_size
