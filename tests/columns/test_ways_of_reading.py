"""Columns of every shape, by ranks, slices, workers, epochs: each row is that of the table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from tests.fixtures import parquet_files
from tests.fixtures.parquet_files import write
from torchparquet import Column, Jagged, ParquetDataset

VOCAB = [f"word {number}" for number in range(0, 50, 2)]
COLUMNS: dict[str, Any] = {
    "i": "i",
    "x": Column("x", nulls="mask"),
    "pair": Column(["x", "i"], nulls=-1, dtype="float64"),
    "half": Column("i", dtype="uint16"),
    "flag": Column("flag", nulls=True),
    "s": Column("s", nulls="mask"),
    "word": Column("s", vocab=VOCAB, nulls=-2),
    "l": Column("l", nulls="mask"),
    "n": Column("n", nulls="empty"),
    "triple": Column("triple", length=3, nulls="mask"),
}
DELTAS = {"i": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT", "s": "DELTA_BYTE_ARRAY"} | {
    "n.list.element.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "l.list.element": "DELTA_BINARY_PACKED",
}
LAYOUTS = parquet_files.LAYOUTS | {
    "deltas": {"use_dictionary": False, "column_encoding": DELTAS, "data_page_size": 900}
}


def row_of(i: int) -> dict[str, Any]:
    """The values of a row as they are written; where they are null differs by column."""
    items = [None if (i + k) % 5 == 0 else i * k - 9 for k in range(i % 6)]
    return {
        "i": i,
        "x": None if i % 7 == 0 else i / 4,
        "flag": None if i % 9 == 4 else i % 2 == 0,
        "s": None if i % 11 == 3 else f"word {i % 50}" * (i % 13 != 1),
        "l": None if i % 13 == 2 else items,
        "n": [[f"{k}é" * k, None][: i % 3] for k in range(i % 4)],
        "triple": None if i % 8 == 1 else [i, None, -i],
    }


def table_of(rows: range) -> pa.Table:
    kinds = {"i": pa.int64(), "x": pa.float32(), "triple": pa.list_(pa.int32())}
    drawn = [row_of(i) for i in rows]
    return pa.table(
        {name: pa.array([r[name] for r in drawn], kinds.get(name)) for name in drawn[0]}
    )


def expected_row(i: int) -> dict[str, Any]:
    """What batches hold of a row."""
    row, x, items, triple = row_of(i), row_of(i)["x"], row_of(i)["l"], row_of(i)["triple"]
    return {
        "i": i,
        "x": x or 0,
        "x.valid": x is not None,
        "pair": [-1 if x is None else x, i],
        "half": i,
        "flag": row["flag"] is not False,
        "s": row["s"] or "",
        "s.valid": row["s"] is not None,
        "word": -2 if row["s"] is None else VOCAB.index(row["s"]) if row["s"] in VOCAB else -1,
        "l": [item or 0 for item in items or []],
        "l.valid": items is not None,
        "l.values.valid": [item is not None for item in items or []],
        "n": [[text or "" for text in texts] for texts in row["n"]],
        "triple": [item or 0 for item in triple or [0] * 3],
        "triple.valid": [item is not None for item in triple or [None] * 3],
        "row.id": i,
    }


def rows_in(batches: Iterable[dict[str, Any]], names: Iterable[str] = COLUMNS) -> list[int]:
    """The rows of the batches, whose every value must be that of its row."""
    found = []
    for batch in batches:
        ids = batch["row.id"].tolist()
        found += ids
        rows = [expected_row(i) for i in ids]
        own = {*names, "row"}
        assert set(batch) == {name for name in expected_row(0) if name.split(".")[0] in own}
        for name, value in batch.items():
            if name == "l.values.valid":
                assert value.tolist() == [flag for row in rows for flag in row[name]]
            elif isinstance(value, Jagged):
                is_text = name in ("s", "n")
                assert (value.to_str() if is_text else value.to_list()) == [r[name] for r in rows]
            else:
                assert value.tolist() == [row[name] for row in rows], name
    return found


def open_table(path: Any, **options: Any) -> ParquetDataset:
    given: dict[str, Any] = {"columns": COLUMNS, "batch_size": 7, "rank": 0, "world_size": 1}
    return ParquetDataset(path, row_ids=True, **given | options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("batch_size", [1, 7, None])
@pytest.mark.parametrize("world_size", [2, 3, 5])
@pytest.mark.mostly_long(every=2)
def test_ranks_share_two_row_groups(
    tmp_path: Path, world_size: int, batch_size: int | None, layout: str
) -> None:
    """Fewer row groups than ranks: they begin in the middle of one, and of a page."""
    layout_options = {"row_group_size": 60, "data_page_size": 50, **LAYOUTS[layout]}
    path = write(tmp_path / "a.parquet", table_of(range(101)), **layout_options)
    seen: list[int] = []
    for rank in range(world_size):
        seen += rows_in(open_table(path, batch_size=batch_size, rank=rank, world_size=world_size))
    assert set(seen) == set(range(101))
    assert len(seen) < 101 + world_size


def test_batches_cross_row_groups_and_files(tmp_path: Path) -> None:
    """Row groups of one row and of none, several of them in a batch; files without any."""
    groups = [[5, 0, 1, 300], [0], [], [77, 0, 0], [1, 1, 1]]
    first, schema = 0, table_of(range(20)).schema
    (tmp_path / "data").mkdir()
    for number, sizes in enumerate(groups):
        with pq.ParquetWriter(tmp_path / "data" / f"{number}.parquet", schema) as writer:
            for size in sizes:
                part = range(first, first := first + size)
                writer.write_table(table_of(part).cast(schema) if size else schema.empty_table())
    for batch_size in (1, 3, 76, 386, 1000, None):
        assert rows_in(open_table(tmp_path / "data", batch_size=batch_size)) == list(range(386))


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_slices_in_little_memory(tmp_path: Path, layout: str) -> None:
    """A row group is cut, so that reading goes on in a page, or over again from its begin."""
    path = write(
        tmp_path / "a.parquet", table_of(range(3000)), row_group_size=2000, **LAYOUTS[layout]
    )
    for max_memory, num_threads in (("1MiB", 3), (40_000, 3), (40_000, 1)):
        batches = open_table(path, batch_size=31, max_memory=max_memory, num_threads=num_threads)
        assert rows_in(batches) == list(range(3000))


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_loader_workers(tmp_path: Path, num_workers: int, context: str) -> None:
    """Through pipes and shared memory, a Jagged arrives as one."""
    path = write(tmp_path / "a.parquet", table_of(range(300)), row_group_size=30)
    loader = DataLoader(
        open_table(path, even="none"),
        None,
        num_workers=num_workers,
        multiprocessing_context=context,
    )
    assert sorted(rows_in(loader)) == list(range(300))


def test_shuffled_epochs_whose_batches_are_kept(tmp_path: Path) -> None:
    """Memory that is recycled belongs to no batch that is still there."""
    path = write(tmp_path / "a.parquet", table_of(range(400)), row_group_size=11)
    dataset = open_table(path, batch_size=16, shuffle=True, max_memory="100KiB")
    epochs = [list(dataset) for _ in range(3)]
    orders = [rows_in(batches) for batches in epochs]
    assert len(set(map(str, orders))) == 3
    assert [sorted(order) for order in orders] == [list(range(400))] * 3


def test_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    """Flat ones, lists and masks, none touched by the others; one column twice."""
    path = write(tmp_path / "a.parquet", table_of(range(100)), row_group_size=30)
    names = ["l", "pair", "i", "triple", "s", "x", "n"]
    batches = list(open_table(path, columns={name: COLUMNS[name] for name in names}))
    order = ["l", "l.valid", "l.values.valid", "pair", "i", "triple", "triple.valid"]
    assert list(batches[0]) == [*order, "s", "s.valid", "x", "x.valid", "n", "row.id"]
    assert rows_in(batches, names) == list(range(100))
    twice = {"e": Column("s", nulls="empty"), "i": "i", "m": Column("s", nulls="mask")}
    for batch in open_table(path, columns=twice):
        assert list(batch) == ["e", "i", "m", "m.valid", "row.id"]
        texts = [row_of(i)["s"] or "" for i in batch["i"].tolist()]
        assert batch["e"].to_str() == batch["m"].to_str() == texts
