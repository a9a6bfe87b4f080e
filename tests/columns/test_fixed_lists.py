"""Column(length=L): lists of one length as tensors of rows, however they are stored."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.fixtures.datasets import batches_of, open_alone
from tests.fixtures.parquet_files import (
    KINDS,
    LAYOUTS,
    first_difference,
    random_array,
    same_bits,
    with_nulls,
    write,
)
from tests.oracles.arrow_leaves import LeafRows, table_leaves
from torchparquet import (
    CastError,
    Column,
    ListLengthError,
    NullValueError,
)

NUM_ROWS = 500


def fixed_rows(kind: Any, length: int, null_share: float, distinct: Any = None) -> Any:
    """A column of lists of one length; as many rows as values are null."""
    rng = np.random.default_rng([0, length])
    items = random_array(kind, NUM_ROWS * length, rng, distinct)
    if null_share:
        items = with_nulls(items, rng.random(len(items)) < null_share)
    null = rng.random(NUM_ROWS) < null_share
    offsets = pa.array(np.concatenate([[0], (~null * length).cumsum()]))
    items = items.slice(0, offsets[-1].as_py())
    mask = pa.array(null) if null_share else None
    rows = pa.LargeListArray.from_arrays(offsets, items, mask=mask)
    return rows if null_share else rows.cast(pa.list_(items.type))


def dense(leaf: LeafRows, length: int, fill: int = 0) -> Any:
    """Values `[B, L, ...]` and mask `[B, L]`; a null list is L nulls."""
    rows = [[None] * length if row is None else row for row in leaf.rows]
    assert {len(row) for row in rows} == {length}
    empty = np.full_like(leaf.no_value, fill)
    values = np.array([[empty if v is None else v for v in row] for row in rows], empty.dtype)
    values = values.reshape(len(rows), length, *empty.shape)
    valid = np.array([[v is not None for v in row] for row in rows], bool)
    return values.reshape(len(rows), -1), valid


def read(paths: Any, columns: Any, **options: Any) -> Any:
    batches = batches_of(paths, columns, **{"batch_size": 77} | options)
    return {name: torch.cat([batch[name] for batch in batches]).numpy() for name in batches[0]}


def assert_bits(actual: Any, expected: Any) -> None:
    assert same_bits(actual, expected), first_difference(actual, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_with_masks_and_fills(tmp_path: Path, kind: Any, layout: str) -> None:
    distinct, fill = 20 if layout == "dictionary" else None, True if kind == "bool" else 1
    cases = {f"{length} {nulls}": (length, nulls) for length in (1, 3) for nulls in (0, 0.2)}
    table = pa.table({n: fixed_rows(kind, *c, distinct=distinct) for n, c in cases.items()})
    path = write(tmp_path / "a.parquet", table, row_group_size=300, **LAYOUTS[layout])
    columns = {n: Column(n, length=c[0], nulls="mask") for n, c in cases.items()}
    columns |= {f"{n} filled": Column(n, length=c[0], nulls=fill) for n, c in cases.items()}
    batch = read(path, columns)
    for leaf in table_leaves(table):
        values, valid = dense(leaf, int(leaf.path[0]))
        assert_bits(batch[leaf.path], values)
        assert_bits(batch[f"{leaf.path}.valid"], valid)
        assert_bits(batch[f"{leaf.path} filled"], dense(leaf, int(leaf.path[0]), fill)[0])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 2049, 5000])
def test_lengths_around_the_blocks_of_levels(tmp_path: Path, length: int) -> None:
    rng = np.random.default_rng(length)
    rows = rng.integers(-(2**40), 2**40, (23, length))
    plain = [row.tolist() for row in rows]
    some = [
        None if i % 5 == 1 else [v if v % 3 else None for v in row] for i, row in enumerate(plain)
    ]
    table = pa.table({"x": plain, "n": some})
    path = write(tmp_path / "a.parquet", table, row_group_size=9, data_page_size=3000)
    columns = {n: Column(n, length=length, nulls="mask") for n in ("x", "n")}
    for options in ({"batch_size": 4}, {"batch_size": 100}, {"batch_size": 2, "num_threads": 3}):
        batch = read(path, columns, **options)
        for leaf in table_leaves(table):
            values, valid = dense(leaf, length)
            assert_bits(batch[leaf.path], values)
            assert_bits(batch[f"{leaf.path}.valid"], valid)


def test_a_null_list_is_a_row_of_nulls(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"x": [[1.0, None], None, [2.0, 3.0]]}))
    policies = {None: np.nan, "nan": np.nan, 0.5: 0.5}
    batch = read(path, {str(p): Column("x", length=2, nulls=p) for p in policies})  # type: ignore[arg-type]
    for policy, fill in policies.items():
        expected = np.array([[1.0, fill], [fill, fill], [2.0, 3.0]])
        np.testing.assert_array_equal(batch[str(policy)], expected)
    with pytest.raises(NullValueError, match=r"column 'x' .*row 0 of its row group"):
        read(path, {"o": Column("x", length=2, nulls="error")})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("row", "batch_size"), [(100, 1), (141, 9), (199, 42), (141, 1000)])
@pytest.mark.parametrize("bad", [[], [1], [1, 2, 3, 4], [None] * 2, [1] * 300], ids=len)
def test_a_list_of_another_length_names_its_row(
    tmp_path: Path, row: int, bad: Any, batch_size: int, layout: str
) -> None:
    """Wherever it stands in a batch and its row group, and though another makes up for it."""
    rows = [[1, 2, 3]] * 200
    rows[150] = [1, 2, 3] if row > 150 else [1] * max(0, 6 - len(bad))
    rows[row], layout_options = bad, {"row_group_size": 100, **LAYOUTS[layout]}
    path = write(tmp_path / "a.parquet", pa.table({"x": rows}), **layout_options)
    count = len(bad) if len(bad) < 4 else r"\d+( or more)?"
    place = rf"row {row - 100} of its row group: .*a\.parquet.*row group 1, column 'x'"
    columns, before = {"o": Column("x", length=3, nulls=0)}, list[Any]()
    with pytest.raises(ListLengthError, match=rf"^list of {count} is not.*length=3\) or.*{place}"):
        before.extend(open_alone(path, columns=columns, batch_size=batch_size))
    assert all((batch["o"] == torch.tensor([1, 2, 3])).all() for batch in before)
    assert sum(len(batch["o"]) for batch in before) == row // batch_size * batch_size


@pytest.mark.parametrize("num_bytes", [1, 3])
def test_binary_of_a_fixed_size_in_lists(tmp_path: Path, num_bytes: int) -> None:
    """The bytes of a row's values lie side by side; the mask has one place for each value."""
    cells = [bytes([i % 256] * num_bytes) for i in range(40)]
    rows = [None if i % 7 == 3 else [cells[i], None, cells[i + 1]] for i in range(39)]
    table = pa.table({"x": pa.array(rows, pa.list_(pa.binary(num_bytes)))})
    path = write(tmp_path / "a.parquet", table)
    batch = read(path, {"o": Column("x", length=3, nulls="mask")})
    values, valid = dense(table_leaves(table)[0], 3)
    assert batch["o"].shape == (39, 3 * num_bytes)
    assert_bits(batch["o"], values)
    assert_bits(batch["o.valid"], valid)
    values, _ = dense(table_leaves(table)[0], 3, fill=9)
    assert_bits(read(path, {"o": Column("x", length=3, nulls=9)})["o"], values)


def test_elements_are_cast(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([[1, 300], None, [3, None]], pa.list_(pa.int64())),
            "d": pa.array([[Decimal("1.25"), None]] * 3, pa.list_(pa.decimal128(5, 2))),
        }
    )
    path = write(tmp_path / "a.parquet", table)
    columns = {
        "i": Column("i", length=2, dtype="float32", nulls=-1),
        "d": Column("d", length=2, dtype="int64", nulls=0),
    }
    batch = read(path, columns)
    assert_bits(batch["i"], np.array([[1, 300], [-1, -1], [3, -1]], np.float32))
    assert_bits(batch["d"], np.array([[125, 0]] * 3))
    with pytest.raises(CastError, match=r"int8: 300: .*row group 0, column 'i'"):
        read(path, {"i": Column("i", length=2, dtype="int8", nulls=0)})


def test_files_that_lack_the_column_take_the_default(tmp_path: Path) -> None:
    """The mask has a place for each value, the tensor one for each of its bytes."""
    cells = pa.array([[b"abc", None]], pa.list_(pa.binary(3)))
    write(tmp_path / "a.parquet", pa.table({"x": cells, "y": [[1, 2]], "i": [0]}))
    write(tmp_path / "b.parquet", pa.table({"i": [1, 2]}))
    columns = {n: Column(n, length=2, default=7, nulls="mask") for n in "xy"}
    for batch_size in (1, 2, 10):
        batch = read(tmp_path, columns, batch_size=batch_size)
        assert batch["x"].tolist() == [[97, 98, 99, 0, 0, 0], [7] * 6, [7] * 6]
        assert batch["x.valid"].tolist() == [[True, False], [True, True], [True, True]]
        assert batch["y"].tolist() == [[1, 2], [7, 7], [7, 7]]
        assert batch["y.valid"].all()
