"""Several columns of lists and scalars as one KeyedJagged: as pyarrow has them, however stored."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.fixtures.datasets import batch_of, batches_of
from tests.fixtures.parquet_files import LAYOUTS, write
from torchparquet import (
    ByLength,
    CastError,
    Column,
    KeyedJagged,
    ListLengthError,
    NullValueError,
    Order,
    ParquetDataset,
    mix,
)

KEYS = ["cat_a", "user", "cat_b", "empty"]
WEIGHTS = ["w_a", "w_user", "w_b", "w_empty"]
NUM_ROWS = 500


def lists_of(rng: Any, most: int, nulls: float = 0.1) -> list[list[int] | None]:
    lengths = rng.integers(0, most + 1, NUM_ROWS).tolist()
    is_null = rng.random(NUM_ROWS) < nulls
    rows = [rng.integers(0, 2**40, length).tolist() for length in lengths]
    return [None if null else row for row, null in zip(rows, is_null, strict=True)]


def weights_of(rows: Sequence[Any], rng: Any) -> list[Any]:
    """For each row as many floats as it has values; nulls and scalars alike."""

    def draw(row: Any) -> Any:
        if row is None:
            return None
        return rng.random(len(row)).tolist() if isinstance(row, list) else rng.random()

    return [draw(row) for row in rows]


def a_table(seed: int = 0) -> pa.Table:
    """Lists and a scalar, some null, and their weights."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, 99, NUM_ROWS).tolist()
    columns: dict[str, Any] = {
        "cat_a": lists_of(rng, 9),
        "user": [None if i % 7 == 3 else user for i, user in enumerate(users)],
        "cat_b": lists_of(rng, 3),
        "empty": [None if i % 2 else [] for i in range(NUM_ROWS)],
    }
    weights = {w: weights_of(columns[k], rng) for k, w in zip(KEYS, WEIGHTS, strict=True)}
    numbers, floats = pa.list_(pa.int64()), pa.list_(pa.float64())
    kinds = {"cat_a": numbers, "cat_b": numbers, "empty": numbers, "user": pa.int32()}
    kinds |= {"w_a": floats, "w_b": floats, "w_empty": pa.list_(pa.float32())}
    made = {name: pa.array(rows, kinds.get(name)) for name, rows in (columns | weights).items()}
    return pa.table({"id": range(NUM_ROWS), **made})


def values_in(row: Any) -> list[Any]:
    return row if isinstance(row, list) else [] if row is None else [row]


def assert_holds(keyed: KeyedJagged, table: pa.Table, rows: Sequence[int], weighted: bool) -> None:
    """The parts are those that columns of Python's lists make, feature after feature."""
    of_key = {name: table[name].to_pylist() for name in (*KEYS, *WEIGHTS)}
    wanted = [[values_in(of_key[key][row]) for row in rows] for key in KEYS]
    assert keyed.keys == tuple(KEYS)
    assert keyed.values.dtype == torch.int64
    assert keyed.values.tolist() == [v for lists in wanted for row in lists for v in row]
    assert keyed.lengths.dtype == torch.int32
    assert keyed.lengths.tolist() == [len(row) for lists in wanted for row in lists]
    assert keyed.length_per_key == tuple(sum(map(len, lists)) for lists in wanted)
    assert len(keyed) == len(rows)
    for key, lists in zip(KEYS, wanted, strict=True):
        assert keyed[key].to_list() == lists
    if not weighted:
        assert keyed.weights is None
        return
    assert keyed.weights is not None
    drawn = [v for key in WEIGHTS for row in rows for v in values_in(of_key[key][row])]
    assert keyed.weights.tolist() == np.array(drawn, np.float32).tolist()


def rows_in(batches: Iterable[dict[str, Any]], table: pa.Table, weighted: bool = True) -> list[int]:
    """The ids of the rows of the batches, which must hold just these rows."""
    found: list[int] = []
    for batch in batches:
        ids = batch["id"].tolist()
        assert_holds(batch["sparse"], table, ids, weighted)
        found += ids
    return found


SPARSE = Column(KEYS, dtype="int64", weights=WEIGHTS)
COLUMNS: dict[str, Any] = {"id": "id", "sparse": SPARSE}


def open_table(path: Any, **options: Any) -> ParquetDataset:
    given: dict[str, Any] = {"columns": COLUMNS, "batch_size": 37, "rank": 0, "world_size": 1}
    return ParquetDataset(path, **given | options)


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return a_table()


@pytest.fixture(scope="module")
def path(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Batches cross row groups, and pages are short."""
    path = tmp_path_factory.mktemp("keyed") / "a.parquet"
    return write(path, table, row_group_size=90, data_page_size=300)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_every_layout(tmp_path: Path, table: pa.Table, layout: str, weighted: bool) -> None:
    path = write(tmp_path / "a.parquet", table, row_group_size=130, **LAYOUTS[layout])
    columns = {"id": "id", "sparse": SPARSE if weighted else Column(KEYS, dtype="int64")}
    for batch_size in (1, 60, None):
        batches = batches_of(path, columns, batch_size=batch_size)
        assert rows_in(batches, table, weighted) == list(range(NUM_ROWS))


@pytest.mark.parametrize("writer", ["polars", "duckdb"])
def test_files_of_other_writers(tmp_path: Path, table: pa.Table, writer: str) -> None:
    path = tmp_path / "a.parquet"
    if writer == "polars":
        pl.DataFrame(table).write_parquet(path, row_group_size=101)
    else:
        duckdb.register("rows", table)
        duckdb.sql(f"copy (from rows) to '{path}' (row_group_size 2048)")
    assert rows_in(open_table(path), table) == list(range(NUM_ROWS))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("max_memory", [80_000, "1GiB"])
def test_rows_within_little_memory(
    path: Path, table: pa.Table, max_memory: Any, num_threads: int
) -> None:
    options: dict[str, Any] = {"max_memory": max_memory, "num_threads": num_threads}
    assert rows_in(open_table(path, **options), table) == list(range(NUM_ROWS))
    shuffled = open_table(path, shuffle=True, shuffle_window=2, **options)
    orders = [rows_in(shuffled, table) for _ in range(2)]
    assert orders[0] != orders[1]
    assert [sorted(order) for order in orders] == [list(range(NUM_ROWS))] * 2


def test_selected_rows(path: Path, table: pa.Table) -> None:
    chosen = [row for row in range(NUM_ROWS) if row % 3 == 1]
    assert rows_in(open_table(path, rows=chosen), table) == chosen
    assert rows_in(open_table(path, filters=[("id", ">=", 444)]), table) == list(range(444, 500))


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_and_resumption_within_an_epoch(path: Path, table: pa.Table, shuffle: bool) -> None:
    seen: list[int] = []
    for rank in range(3):
        whole = list(open_table(path, rank=rank, world_size=3, shuffle=shuffle, even="none"))
        dataset = open_table(path, rank=rank, world_size=3, shuffle=shuffle, even="none")
        iterator = iter(dataset)
        before = [next(iterator) for _ in range(2)]
        again = open_table(path, rank=rank, world_size=3, shuffle=shuffle, even="none")
        again.load_state_dict(dataset.state_dict())
        rows = rows_in([*before, *again], table)
        assert rows == rows_in(whole, table)
        seen += rows
    assert sorted(seen) == list(range(NUM_ROWS))


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_of_several_shares_in_a_batch(path: Path, table: pa.Table, shuffle: bool) -> None:
    order = Order(canonical_world_size=4)
    rows = rows_in(open_table(path, order=order, batch_size=40, shuffle=shuffle), table)
    assert sorted(rows) == list(range(NUM_ROWS))


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_loader_workers(path: Path, table: pa.Table, context: str) -> None:
    loader = DataLoader(
        open_table(path, even="none"), None, num_workers=2, multiprocessing_context=context
    )
    assert sorted(rows_in(loader, table)) == list(range(NUM_ROWS))


def test_dynamic_shares_end_with_a_short_batch(path: Path, table: pa.Table) -> None:
    """The last batch is cut while it is in flight."""
    dataset = open_table(path, even="dynamic", batch_size=64)
    assert sorted(rows_in(dataset, table)) == list(range(NUM_ROWS))


def test_batches_by_the_length_of_another_column(path: Path, table: pa.Table) -> None:
    columns = COLUMNS | {"cat_b": Column("cat_b", nulls=0)}
    batches = list(open_table(path, columns=columns, batch_size=ByLength("cat_b", max_tokens=90)))
    found = []
    for batch in batches:
        keyed, ids = batch["sparse"], batch["id"].tolist()
        of_row = [values_in(row) for row in table["cat_a"].take(ids).to_pylist()]
        assert keyed["cat_a"].to_list() == of_row
        assert len(keyed.weights_of("cat_b")) == keyed["cat_b"].offsets[-1]
        found += ids
    assert sorted(found) == list(range(NUM_ROWS))


def test_rows_one_by_one_and_mixed(path: Path, table: pa.Table) -> None:
    rows = list(open_table(path, rows=range(40)).unbatched())
    for number, row in enumerate(rows):
        assert row["id"] == number
        assert row["sparse"]["cat_a"].to_list() == [values_in(table["cat_a"][number].as_py())]
    mixed = mix(
        [open_table(path, rows=range(250)), open_table(path, rows=range(250, 500))],
        weights=[1, 1],
        within_batch=True,
        batch_size=16,
    )
    assert len(rows_in(mixed, table)) == 496


def test_functions_get_it_and_keep_it(path: Path) -> None:
    def doubled(batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"users": batch["sparse"]["user"]}

    dataset = open_table(path, transform=doubled, processors={"sparse": lambda k: k[::2]})
    batch = next(iter(dataset))
    assert len(batch["sparse"]) == 19
    assert len(batch["users"]) == 19


def test_scalars_alone_are_lists_only_if_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"a": [1, 2, 3], "b": [4, None, 6]}))
    assert batch_of(path, {"ab": Column(["a", "b"], nulls=0)})["ab"].tolist() == [
        [1, 4],
        [2, 0],
        [3, 6],
    ]
    keyed = batch_of(path, {"ab": Column(["a", "b"], length="any")})["ab"]
    assert keyed.values.tolist() == [1, 2, 3, 4, 6]
    assert keyed.lengths.tolist() == [1, 1, 1, 1, 0, 1]
    one = batch_of(path, {"a": Column(["a"], length="any", dtype="float32")})["a"]
    assert one["a"].to_list() == [[1.0], [2.0], [3.0]]


def nulls_table() -> pa.Table:
    """The columns are lists with a null among their values, a null list, and a null scalar."""
    return pa.table({"l": [[1, None], [], [2]], "n": [[5], None, [6]], "s": pa.array([7, None, 9])})


def lists_with(path: Any, source: Any, nulls: Any = None, **options: Any) -> Any:
    column = Column(source, nulls=nulls, length="any", **options)
    keyed = batch_of(path, {"k": column})["k"]
    return {key: keyed[key].to_list() for key in source}


def test_nulls(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", nulls_table())
    rows_are_empty = {"n": [[5], [], [6]], "s": [[7], [], [9]]}
    for nulls in (None, "empty"):
        assert lists_with(path, ["n", "s"], nulls) == rows_are_empty
        with pytest.raises(
            NullValueError, match=r"column 'l' of 'k' has a null .*row 0 of"
        ) as refused:
            lists_with(path, ["n", "l"], nulls)
        assert "mask" not in str(refused.value)
    filled = {"l": [[1, -1], [], [2]], "n": [[5], [], [6]], "s": [[7], [-1], [9]]}
    assert lists_with(path, ["l", "n", "s"], -1) == filled
    for source in ("n", "s"):
        text = rf"column '{source}' of 'k' has a null .*row 1 of"
        with pytest.raises(NullValueError, match=text):
            lists_with(path, [source], "error")
    of_each = {"l": -5, "s": "empty"}
    assert lists_with(path, ["l", "s"], of_each) == {"l": [[1, -5], [], [2]], "s": [[7], [], [9]]}
    floats = lists_with(path, ["l", "s"], dtype="float32")
    assert floats["s"] == [[7.0], [], [9.0]]
    assert np.isnan(floats["l"][0][1])
    with pytest.raises(ValueError, match='nulls="mask" is not for several columns with lists'):
        lists_with(path, ["n", "s"], "mask")
    # The policy of the data set counts too.
    batch = batch_of(path, {"k": ["n", "s"]}, nulls=0)
    assert batch["k"]["s"].to_list() == [[7], [0], [9]]


def test_words_and_casts(tmp_path: Path) -> None:
    table = pa.table({"l": [["b", "a"], None, ["c", "b"]], "s": ["a", "z", None]})
    path = write(tmp_path / "a.parquet", table)
    words = lists_with(path, ["l", "s"], vocab=["a", "b"], unknown=-1)
    assert words == {"l": [[1, 0], [], [-1, 1]], "s": [[0], [-1], []]}
    every = lists_with(path, ["l", "s"], vocab="auto")
    assert every == {"l": [[1, 0], [], [2, 1]], "s": [[0], [3], []]}
    numbers = write(tmp_path / "b.parquet", pa.table({"l": [[1, 300]], "s": [2.0]}))
    with pytest.raises(CastError, match=r"300.*column 'l'"):
        lists_with(numbers, ["l"], dtype="uint8")
    with pytest.raises(ValueError, match="columns of one tensor must have the same dtype"):
        lists_with(numbers, ["l", "s"])
    assert lists_with(numbers, ["l", "s"], dtype="float64") == {"l": [[1.0, 300.0]], "s": [[2.0]]}


def test_files_that_lack_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"l": [[1, 2]], "s": [3], "w": [[0.5, 0.25]]}))
    write(tmp_path / "b.parquet", pa.table({"s": [4, None]}))
    write(tmp_path / "c.parquet", pa.table({"l": pa.nulls(1), "s": pa.nulls(1)}))
    for default, missing in (([], []), ([9], [9]), (9, [9])):
        keyed = batch_of(tmp_path, {"k": Column(["l", "s"], default=default)})["k"]
        assert keyed["l"].to_list() == [[1, 2], missing, missing, []]
        assert keyed["s"].to_list() == [[3], [4], [], []]
    filled = batch_of(tmp_path, {"k": Column(["l", "s"], default=[], nulls=0)})["k"]
    assert filled["s"].to_list() == [[3], [4], [0], [0]]
    for weighed, ones in (([7, 8], [1, 1, 1, 1]), (0, [1, 1]), ([], [])):
        weighted = Column(["l"], default=weighed, weights=["w"])
        keyed = batch_of([tmp_path / "a.parquet", tmp_path / "b.parquet"], {"k": weighted})["k"]
        assert keyed.weights.tolist() == [0.5, 0.25, *ones]


@pytest.mark.parametrize("shuffle", [False, True])
def test_weights_of_another_length_are_refused(tmp_path: Path, shuffle: bool) -> None:
    """Every other batch before them comes, and they fail again at each later next."""
    rows = [[1, 2, 3]] * 50
    weights = [[0.5] * (2 if row == 33 else 3) for row in range(50)]
    table = pa.table({"a": rows, "l": rows, "one": [[1.0] * 3] * 50, "w": weights})
    path = write(tmp_path / "a.parquet", table, row_group_size=20)
    columns = {"k": Column(["a", "l"], weights=["one", "w"])}
    iterator = iter(
        ParquetDataset(path, batch_size=10, columns=columns, shuffle=shuffle, rank=0, world_size=1)
    )
    text = r"2 weights for 3 values of 'l', row \d of batch \d .*: row 13 of row group 1 .*'w'"
    if not shuffle:
        assert len([next(iterator) for _ in range(3)]) == 3
        text = text.replace(r"row \d of batch \d", "row 3 of batch 3")
    for _ in range(2):
        with pytest.raises(ListLengthError, match=text):
            list(iterator)


def test_weights_without_a_value_are_refused(tmp_path: Path) -> None:
    table = pa.table({"l": [[1, 2]], "w": [[0.5, None]], "s": [3]})
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(NullValueError, match=r"column 'w' of 'k.weights' has a null .weights have"):
        batch_of(path, {"k": Column(["l"], weights=["w"])})
    with pytest.raises(ValueError, match="weights need a list of columns, one for each"):
        Column(["l", "s"], weights=["w"])
    with pytest.raises(ValueError, match="weights need a list of columns, one for each"):
        Column("l", weights=["w"])
    with pytest.raises(TypeError, match="weights must be a list of names"):
        Column(["l"], weights="w")
    with pytest.raises(ValueError, match="weights are for lists, or for scalars"):
        batch_of(path, {"k": Column(["s"], weights=["s"])})
    once = batch_of(path, {"*": "*", "k": Column(["l"], nulls=0, weights=["l"], dtype="int32")})
    assert set(once) == {"k", "s", "w"}
    assert once["k"].weights.tolist() == [1.0, 2.0]


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    table = pa.table({"l": [[1]], "t": ["a"], "d": [[[1]]], "lt": [["a"]], "s": [1]})
    path = write(tmp_path / "year=3" / "a.parquet", table)
    for wrong, text in (
        ("t", "strings and binary cannot be read with other columns"),
        ("lt", "strings and binary cannot be read with other columns"),
        ("d", "lists of lists cannot be read with other columns"),
        ("year", "partition keys have no lists"),
    ):
        with pytest.raises(ValueError, match=text):
            batch_of(tmp_path, {"k": Column(["l", wrong])})
    with pytest.raises(ValueError, match="length is for lists of numbers"):
        batch_of(path, {"k": Column(["l", "s"], length=1)})
    with pytest.raises(ValueError, match=r"; 'k' is a group of columns"):
        batch_of(path, {"k": ["l", "s"]}, batch_size=ByLength("k", max_tokens=9))


@st.composite
def groups(draw: Any) -> tuple[pa.Table, list[str]]:
    """Columns of lists and scalars with nulls; rows are drawn from few, over and over."""
    num_rows = draw(st.sampled_from([1, 3, 65, 300]))
    order = np.random.default_rng(draw(st.integers(0, 99)))
    columns: dict[str, Any] = {"id": list(range(num_rows))}
    names = [f"c{number}" for number in range(draw(st.integers(1, 5)))]
    numbers = st.integers(0, 2**31 - 1)
    for name in names:
        of_row = draw(st.sampled_from([numbers, st.lists(numbers, max_size=9)]))
        kind = pa.int64() if of_row is numbers else pa.list_(pa.int32())
        rows = draw(st.lists(st.none() | of_row, min_size=1, max_size=9))
        picked = order.integers(0, len(rows), num_rows).tolist()
        columns[name] = pa.array([rows[place] for place in picked], kind)
    return pa.table(columns), names


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    group=groups(),
    batch_size=st.sampled_from([1, 7, 64, None]),
    group_size=st.sampled_from([1, 40, 1000]),
    page=st.sampled_from([1, 200, 2**20]),
    shuffle=st.booleans(),
    num_threads=st.sampled_from([1, 3]),
    version=st.sampled_from(["1.0", "2.0"]),
)
def test_any_group_reads_as_its_columns(
    group: Any,
    batch_size: Any,
    group_size: int,
    page: int,
    shuffle: bool,
    num_threads: int,
    version: str,
) -> None:
    table, names = group
    column = Column(names, length="any", dtype="int64")
    with tempfile.TemporaryDirectory() as folder:
        path = write(
            Path(folder) / "a.parquet",
            table,
            row_group_size=group_size,
            data_page_size=page,
            data_page_version=version,
        )
        options: dict[str, Any] = {"shuffle": shuffle, "num_threads": num_threads}
        batches = batches_of(path, {"id": "id", "k": column}, batch_size=batch_size, **options)
    assert sorted(i for batch in batches for i in batch["id"].tolist()) == list(range(len(table)))
    for batch in batches:
        ids = batch["id"].tolist()
        lists = [[values_in(row) for row in table[name].take(ids).to_pylist()] for name in names]
        assert batch["k"].values.tolist() == [v for of in lists for row in of for v in row]
        assert batch["k"].lengths.tolist() == [len(row) for of in lists for row in of]


def test_names_of_struct_fields_and_declared_lengths(tmp_path: Path) -> None:
    """Lists that declare one length are lists like others."""
    fixed = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2))
    structs = [{"ids": [7]}, {"ids": [8, 9]}, None]
    path = write(tmp_path / "a.parquet", pa.table({"fixed": fixed, "s": structs}))
    found = lists_with(path, ["fixed", "s.ids"])
    assert found == {"fixed": [[1, 2], [3, 4], [5, 6]], "s.ids": [[7], [8, 9], []]}


def test_batches_that_are_kept_stay_as_they_were(path: Path, table: pa.Table) -> None:
    """Memory that is recycled belongs to no batch that is still there."""
    dataset = open_table(path, batch_size=8, max_memory="100KiB")
    for _ in range(3):
        assert rows_in(list(dataset), table) == list(range(NUM_ROWS))


def test_metrics_count_each_column(path: Path, table: pa.Table) -> None:
    dataset = open_table(path)
    num_values = sum(len(batch["sparse"]["cat_a"].values) for batch in dataset)
    counted = dataset.metrics().columns["cat_a"].bytes_produced
    assert counted == num_values * 8 + NUM_ROWS * 4


def test_batches_beyond_the_memory_name_the_way_out(tmp_path: Path) -> None:
    table = pa.table({"a": [[1] * 600] * 64, "b": [[2] * 600] * 64})
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(MemoryError, match="smaller batch_size or a larger max_memory"):
        batch_of(path, {"k": ["a", "b"]}, batch_size=64, max_memory=500_000)
