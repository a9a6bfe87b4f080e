"""Sources in memory: buffers, tables and frames read as the same bytes on disk do."""

from __future__ import annotations

import gc
import io
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parquet_files import (
    assert_reads_as,
    id_table,
    ids_of,
    kinds_table,
    read_all,
)
from torchparquet import CorruptFileError, ParquetDataset

ROW_GROUPS = [300, 1, 250, 0, 90, 333, 64]
BUFFERS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "memoryview of a bytearray": lambda data: memoryview(bytearray(data)),
    "memoryview of a part": lambda data: memoryview(b"PAR1" + data + b"rest")[4:-4],
    "memoryview with gaps": lambda data: memoryview(np.repeat(np.frombuffer(data, "u1"), 2))[::2],  # type: ignore[arg-type]
    "pyarrow.Buffer": pa.py_buffer,
    "slice of a pyarrow.Buffer": lambda data: pa.py_buffer(b"x" + data).slice(1),
    "BytesIO": io.BytesIO,
}
FRAMES = {
    "pyarrow.Table": lambda table: table,
    "pyarrow.RecordBatch": lambda table: table.combine_chunks().to_batches()[0],
    "pandas.DataFrame": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars.DataFrame": pl.from_arrow,
}


def rows_table(first: int, num_rows: int) -> pa.Table:
    """Columns "id" and "x" of the rows from `first` on, without nulls."""
    return id_table(first, num_rows).select(["id", "x"])


def encoded(table: pa.Table, row_groups: list[int] | None = None, **options: Any) -> bytes:
    """The table as a Parquet file, in row groups of the given numbers of rows."""
    sink, first = io.BytesIO(), 0
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        for num_rows in row_groups or [table.num_rows]:
            writer.write_table(table.slice(first, num_rows), row_group_size=max(1, num_rows))
            first += num_rows
    return sink.getvalue()


@pytest.fixture(scope="module")
def data() -> bytes:
    table = rows_table(0, sum(ROW_GROUPS))
    return encoded(table, ROW_GROUPS, compression="none", use_dictionary=False)


@pytest.fixture(scope="module")
def on_disk(data: Any, tmp_path_factory: Any) -> str:
    path = tmp_path_factory.mktemp("memory") / "file.parquet"
    path.write_bytes(data)
    return str(path)


# Reading


@pytest.mark.parametrize("kind", BUFFERS)
def test_a_buffer_reads_as_its_table(kind: str) -> None:
    table = kinds_table(250, ["bool", "int32", "float64", "timestamp[us]"])
    assert_reads_as(table, BUFFERS[kind](encoded(table)))


def test_all_of_a_bytesio_is_read_wherever_its_position(data: Any) -> None:
    source = io.BytesIO(data)
    source.seek(100)
    assert read_all(source)["id"].tolist() == list(range(sum(ROW_GROUPS)))
    assert source.tell() == 100


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 1000])
def test_a_table_of_every_kind_keeps_its_types(num_rows: int) -> None:
    table = kinds_table(num_rows)
    assert_reads_as(table, table)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_reads_as_its_table(kind: str) -> None:
    kinds = ["bool", "int8", "uint16", "int32", "int64", "float32", "timestamp[us]"]
    table = kinds_table(500, kinds, ["no null", "some null"])
    assert_reads_as(table, FRAMES[kind](table))  # type: ignore[no-untyped-call]


def test_pandas_own_kinds() -> None:
    frame = pd.DataFrame(
        {
            "i": np.arange(5, dtype=np.int16),
            "f": [0.5, np.nan, 2.0, -1.0, np.inf],
            "b": [True, False, True, True, False],
            "t": pd.to_datetime(
                ["2020-01-01", "2021-06-01", "2022-01-01", "2023-01-01", "1969-01-01"]
            ),
            "n": pd.array([1, None, 3, 4, 5], dtype="Int64"),
        },
        index=[10, 20, 30, 40, 50],
    )
    assert_reads_as(pa.Table.from_pandas(frame, preserve_index=False), frame)


def test_frames_of_classes_derived_from_the_known_ones() -> None:
    class Frame(pd.DataFrame):
        pass

    assert read_all(Frame({"a": [1, 2]}))["a"].tolist() == [1, 2]


def test_a_sequence_is_a_file_each_in_its_order(data: Any) -> None:
    other = encoded(rows_table(5000, 40))
    dataset = ParquetDataset([other, bytearray(data)], batch_size=100, columns=["id"])
    assert dataset.manifest.files == ("<buffer 0>", "<buffer 1>")
    assert dataset.manifest.row_group_file.tolist() == [0] + [1] * len(ROW_GROUPS)
    assert ids_of(dataset) == [*range(5000, 5040), *range(sum(ROW_GROUPS))]
    tables = (rows_table(0, 70), pl.from_arrow(rows_table(70, 30)))
    dataset = ParquetDataset(tables, batch_size=7)
    assert dataset.manifest.files == ("<pyarrow.Table 0>", "<polars.DataFrame 1>")
    assert ids_of(dataset) == list(range(100))


@pytest.mark.parametrize("num_rows", [1, 10, 64, 1000, 70_000, 64 * 65_536 + 1])
def test_a_table_has_many_row_groups_of_even_size(num_rows: int) -> None:
    table = pa.table({"x": pa.array(np.zeros(num_rows, np.int8))})
    rows = ParquetDataset(table, batch_size=1).manifest.row_group_num_rows
    assert rows.sum() == num_rows
    assert rows.max() <= 65_536
    assert len(rows) >= min(num_rows, 33)
    assert (rows[:-1] == rows[0]).all()


# As on disk


def batches_of(dataset: Any) -> list[dict[str, list[Any]]]:
    return [{name: values.tolist() for name, values in batch.items()} for batch in dataset]


@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_stream_is_that_of_the_same_bytes_on_disk(
    data: Any, on_disk: str, even: str, shuffle: bool, world_size: int
) -> None:
    for rank in range(world_size):
        options: dict[str, Any] = {
            **{"batch_size": 64, "shuffle": shuffle, "seed": 3, "even": even, "row_ids": True},
            **{"rank": rank, "world_size": world_size, "drop_last": rank == 1},
        }
        here, there = ParquetDataset(data, **options), ParquetDataset(on_disk, **options)
        for epoch in (0, 1, 5):
            for dataset in (here, there):
                dataset.set_epoch(epoch)
            assert len(here) == len(there)
            assert here.get_shard_distribution_info() == there.get_shard_distribution_info()
            assert batches_of(here) == batches_of(there)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_the_data_travels_in_a_pickle(data: Any, protocol: int) -> None:
    sources = [data, bytearray(data), pa.py_buffer(data), rows_table(0, 300), [data, data]]
    datasets = [ParquetDataset(source, batch_size=64, shuffle=True) for source in sources]
    copies = pickle.loads(pickle.dumps(datasets, protocol))
    for dataset, copied in zip(datasets, copies, strict=True):
        assert copied.manifest.fingerprint == dataset.manifest.fingerprint
        assert batches_of(copied) == batches_of(dataset)


# Identity


def fingerprint(source: Any) -> str:
    return ParquetDataset(source, batch_size=1).manifest.fingerprint


def test_the_fingerprint_is_that_of_the_bytes(data: Any) -> None:
    prints = {fingerprint(buffer(data)) for buffer in BUFFERS.values()}
    assert prints == {fingerprint([data])}
    # Other values, which no footer tells.
    changed = data.replace(np.int64(123).tobytes(), np.int64(124).tobytes(), 1)
    assert changed != data
    others = [changed, [data, data], [data, changed], [changed, data]]
    assert len(prints | {fingerprint(source) for source in others}) == 5


def test_the_fingerprint_of_a_table_is_that_of_its_rows() -> None:
    table = rows_table(0, 1000)
    cut = pa.concat_tables([table.slice(0, 333), table.slice(333, 1), table.slice(334)])
    wide = pa.concat_tables([rows_table(7, 50), table, rows_table(7, 50)]).slice(50, 1000)
    assert cut.column("x").num_chunks == 3
    same = [table, cut, wide, table.combine_chunks().to_batches()[0], rows_table(0, 1000)]
    assert len(set(map(fingerprint, same))) == 1
    assert fingerprint(rows_table(1, 1000)) != fingerprint(table)
    # The writer ends a page of 1 MiB where a piece ends.
    large = pa.table({"x": pa.array([b"12345678" * 1024] * 9000, pa.binary(8192))})
    cut = pa.concat_tables([large.slice(0, 135), large.slice(135)])
    assert fingerprint(cut) == fingerprint(large)


# Ownership


def test_bytes_are_not_copied(data: Any) -> None:
    sources = [data, memoryview(data), pa.py_buffer(data), [data], memoryview(data)[:]]
    for source in sources:
        (file,) = ParquetDataset(source, batch_size=1).manifest.listing.memory
        assert file.content.address == pa.py_buffer(data).address


# Some memory, as sources.
WRITABLE = {
    "bytearray": lambda array: array,
    "memoryview": memoryview,
    "read-only memoryview": lambda array: memoryview(array).toreadonly(),
    "memoryview of an array": lambda array: memoryview(np.frombuffer(array, "u1")).toreadonly(),  # type: ignore[arg-type]
    "pyarrow.Buffer": pa.py_buffer,
    "slice of a pyarrow.Buffer": lambda array: pa.py_buffer(array).slice(0).slice(0),
}


@pytest.mark.parametrize("kind", [*WRITABLE, "BytesIO", "BytesIO with a view"])
def test_a_later_change_does_not_reach_the_data(data: Any, kind: str) -> None:
    array = bytearray(data)
    source = WRITABLE[kind](array) if kind in WRITABLE else io.BytesIO(array)
    memory = source.getbuffer() if kind == "BytesIO with a view" else memoryview(array)
    dataset = ParquetDataset(source, batch_size=64, columns=["id"], max_memory="4KiB")
    iterator = iter(dataset)
    first = next(iterator)["id"].tolist()
    memory[:] = bytes(len(data))
    if kind == "BytesIO":
        source.getbuffer()[:] = bytes(len(data))
    rest = [row for batch in iterator for row in batch["id"].tolist()]
    assert first + rest == list(range(sum(ROW_GROUPS)))
    assert ids_of(dataset) == list(range(sum(ROW_GROUPS)))


def test_a_changed_list_or_table_does_not_reach_the_data(data: Any) -> None:
    frame = pd.DataFrame({"id": np.arange(100)})
    sources = [data]
    from_list = ParquetDataset(sources, batch_size=64, columns=["id"])
    from_frame = ParquetDataset(frame, batch_size=64)
    sources.clear()
    frame["id"] = -1
    assert ids_of(from_list) == list(range(sum(ROW_GROUPS)))
    assert ids_of(from_frame) == list(range(100))


def test_the_data_lives_as_long_as_an_iterator(data: Any) -> None:
    source = bytearray(encoded(rows_table(0, 200_000), [1000] * 200))
    options: dict[str, Any] = {
        "batch_size": 100,
        "columns": ["id"],
        "num_threads": 1,
        "max_memory": "8KiB",
    }
    iterator = iter(ParquetDataset(bytes(source), **options))
    first = next(iterator)["id"].tolist()
    gc.collect()
    trash = [bytearray(b"\xff" * size) for size in [len(source)] * 3 + [len(source) + 33] * 3]
    rows = first + [row for batch in iterator for row in batch["id"].tolist()]
    assert rows == list(range(200_000))
    assert len(trash) == 6


def test_the_data_is_freed_with_the_data_set() -> None:
    content = encoded(rows_table(0, 5000))
    before = sys.getrefcount(content)
    dataset = ParquetDataset(content, batch_size=10)
    iterator = iter(dataset)
    next(iterator)
    del dataset
    gc.collect()
    assert sys.getrefcount(content) > before
    del iterator
    gc.collect()
    assert sys.getrefcount(content) == before


# Errors


def damaged(data: bytes) -> Any:
    """The file with other bytes in the pages of its third row group."""
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(2).column(1)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    end = begin + chunk.total_compressed_size
    return data[:begin] + b"\xff" * (end - begin) + data[end:]


@pytest.mark.parametrize(
    "cut",
    [
        lambda data: b"",
        lambda data: data[:3],
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-700] + bytes(692) + data[-8:],
        lambda data: b"PAR1" * 5,
        lambda data: b"/data/train",
    ],
)
def test_what_is_no_parquet_file_is_named(data: Any, cut: Callable[..., Any]) -> None:
    for buffer in BUFFERS.values():
        with pytest.raises(CorruptFileError, match=r"file '<buffer>'"):
            ParquetDataset(buffer(cut(data)), batch_size=1)
    with pytest.raises(CorruptFileError, match=r"file '<buffer 1>'"):
        ParquetDataset([data, cut(data), data], batch_size=1)


def test_a_damaged_page_is_named_at_its_place(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(damaged(data))
    messages, delivered = [], []
    for source in (damaged(data), path):
        rows: list[int] = []
        stream = ParquetDataset(source, batch_size=100)
        with pytest.raises(CorruptFileError) as caught:
            rows.extend(row for batch in stream for row in batch["id"].tolist())
        messages.append(str(caught.value).replace(str(path), "<buffer>"))
        delivered.append(rows)
    assert messages[0] == messages[1]
    assert "file '<buffer>', row group 2, column 'x'" in messages[0]
    assert delivered == [list(range(300))] * 2


@pytest.mark.parametrize(
    ("empty", "named"),
    [
        (rows_table(0, 0), "<pyarrow.Table>"),
        (encoded(rows_table(0, 0)), "<buffer>"),
        (pd.DataFrame({"a": np.zeros(0)}), "<pandas.DataFrame>"),
        (pl.DataFrame({"a": []}, schema={"a": pl.Int8}), "<polars.DataFrame>"),
        (pa.table({}), "<pyarrow.Table>"),
        ([rows_table(0, 0)] * 3, "<pyarrow.Table 0>' and 2 more"),
    ],
)
def test_no_row_is_an_error_as_for_files(empty: Any, named: str) -> None:
    with pytest.raises(ValueError, match="must hold at least one row") as caught:
        ParquetDataset(empty, batch_size=1)
    assert named in str(caught.value)


def test_paths_and_memory_are_not_mixed(data: Any, on_disk: str) -> None:
    for mixed in ([data, on_disk], [on_disk, rows_table(0, 5), data], (data, 3), [data, [data]]):
        with pytest.raises(TypeError, match=r"cannot be mixed.*paths\[[01]\]"):
            ParquetDataset(mixed, batch_size=1)


@pytest.mark.parametrize(
    "source", [pl.LazyFrame({"a": [1]}), pd.Series([1]), {"a": [1]}, io.StringIO("a"), 3, None]
)
def test_other_objects_are_refused(source: Any) -> None:
    with pytest.raises(TypeError, match=f"pyarrow.Table.*got {type(source).__name__}"):
        ParquetDataset(source, batch_size=1)


def test_columns_that_parquet_cannot_hold_are_refused() -> None:
    intervals = pa.table({"x": pa.array([pa.MonthDayNano([1, 2, 3])])})
    mixed = pd.DataFrame({"odd": [1, "a", 2.5]})
    for source, named in ((intervals, "<pyarrow.Table>"), ([mixed], "<pandas.DataFrame 0>.*")):
        with pytest.raises(ValueError, match=f"cannot be written as Parquet.*{named}"):
            ParquetDataset(source, batch_size=1)


@pytest.mark.long
def test_neither_pandas_nor_polars_is_imported() -> None:
    program = """
        import sys
        import pyarrow as pa
        from torchparquet import ParquetDataset
        table = pa.ipc.open_stream(sys.stdin.buffer.read()).read_all()
        for source in (table, [table, table.to_batches()[0]]):
            assert len(list(ParquetDataset(source, batch_size=table.num_rows))) >= 1
        assert not {"pandas", "polars"} & set(sys.modules)
    """
    table = pa.BufferOutputStream()
    with pa.ipc.new_stream(table, rows_table(0, 1).schema) as writer:
        writer.write_table(rows_table(0, 100))
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, input=table.getvalue().to_pybytes(), timeout=60, check=True)
