"""Any nesting of lists, structs and maps, written in any way, reads as the table that was written.

Also in parts: by ranks that share row groups, in slices, by several threads.
"""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.oracles.arrow_leaves import difference, table_leaves
from torchparquet import ParquetDataset

# Arrow types and their values.
small, texts, raw = st.integers(0, 100), st.text(max_size=9), st.binary(max_size=40)
LEAVES: list[tuple[pa.DataType, Any]] = [
    (pa.bool_(), st.booleans()),
    *((kind, small) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.date32())),
    *((kind, st.integers(-(2**62), 2**62)) for kind in (pa.int64(), pa.timestamp("us"))),
    (pa.float16(), small.map(np.float16)),
    *((kind, small.map(lambda n: n / 8 - 3)) for kind in (pa.float32(), pa.float64())),
    *((kind, texts) for kind in (pa.string(), pa.large_string())),
    (pa.binary(), raw),
    *((pa.binary(n), st.binary(min_size=n, max_size=n)) for n in (1, 3)),
    *((pa.decimal128(*p), small.map(lambda n: Decimal(n - 3) / 100)) for p in ((9, 2), (30, 4))),
]
Typed = st.SearchStrategy[tuple[pa.DataType, Any]]


def maybe_null(typed: Any, nullable: bool) -> tuple[pa.Field, Any]:
    kind, values = typed
    return pa.field("element", kind, nullable), st.none() | values if nullable else values


@st.composite
def nestings(draw: Any, inner: Typed) -> tuple[pa.DataType, Any]:
    """A list, a large list, a struct or a map of what is given."""
    field, values = maybe_null(draw(inner), draw(st.booleans()))
    how = draw(st.sampled_from(["list", "large list", "struct", "map"]))
    if how == "map":
        key = draw(st.sampled_from([(pa.string(), texts), (pa.int32(), small)]))
        pairs = st.lists(st.tuples(key[1], values), max_size=6)
        return pa.map_(key[0], field.with_name("value")), pairs
    if how == "struct":
        other, other_values = maybe_null(draw(inner), draw(st.booleans()))
        kind = pa.struct([field.with_name("f0"), other.with_name("f1")])
        return kind, st.fixed_dictionaries({"f0": values, "f1": other_values})
    make = pa.list_ if how == "list" else pa.large_list
    return make(field), st.lists(values, max_size=draw(st.sampled_from([1, 3, 12])))


KINDS = st.recursive(st.sampled_from(LEAVES), nestings, max_leaves=4)


@st.composite
def tables(draw: Any) -> pa.Table:
    """Some rows, over and over in any order."""
    num_rows = draw(st.sampled_from([1, 2, 9, 64, 257, 900]))
    order = np.random.default_rng(draw(st.integers(0, 99)))
    fields, arrays = [], []
    for number in range(draw(st.integers(1, 3))):
        field, values = maybe_null(draw(KINDS), draw(st.booleans()))
        rows = draw(st.lists(values, min_size=1, max_size=12))
        places = order.integers(0, len(rows), num_rows).tolist()
        fields.append(field.with_name(f"c{number}"))
        arrays.append(pa.array([rows[place] for place in places], field.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


LAYOUTS = st.fixed_dictionaries(
    {
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
        "data_page_size": st.sampled_from([1, 100, 2**20]),
        "write_batch_size": st.sampled_from([1, 7, 1024]),
        "row_group_size": st.sampled_from([1, 30, 200, 1000]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([20, 300, 2**20]),
        "write_page_checksum": st.booleans(),
    }
)
READS = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([1, 7, 100, None]),
        "num_threads": st.sampled_from([1, 3]),
        "shuffle": st.booleans(),
        "max_memory": st.sampled_from([40_000, "1MiB", "1GiB"]),
    }
)


@pytest.mark.long
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), layout=LAYOUTS, options=READS, world_size=st.sampled_from([1, 1, 2, 3]))
def test_any_table_reads_as_it_was_written(
    table: Any, layout: Any, options: Any, world_size: int
) -> None:
    if table.num_rows > 100 and options["batch_size"] == 1:
        options["batch_size"] = 31
    if (options["batch_size"] or 100) > 50:
        options["max_memory"] = "16MiB"
    leaves = {leaf.path: leaf for leaf in table_leaves(table)}
    options |= {"columns": list(leaves), "nulls": "mask", "row_ids": True}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.parquet")
        pq.write_table(table, path, **layout)
        read_rows = []
        for rank in range(world_size):
            dataset = ParquetDataset(path, rank=rank, world_size=world_size, **options)
            try:
                batches = list(dataset)
            except MemoryError:
                # One batch may take more than the least of these.
                assume(options["max_memory"] == "1GiB")
                raise
            for batch in batches:
                ids = batch["row.id"].tolist()
                read_rows += ids
                for name, leaf in leaves.items():
                    assert not difference(batch, name, leaf, [leaf.rows[i] for i in ids])
        assert set(read_rows) == set(range(table.num_rows))
        assert len(read_rows) < table.num_rows + world_size
