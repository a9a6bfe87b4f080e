"""Mixes of data sets: proportions, ends, epochs, exact resume at every batch."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.fixtures.datasets import ids_by_batch
from torchparquet import Column, Jagged, ParquetDataset, SchemaMismatchError, mix
from torchparquet.features import Hash

ROWS = (300, 170, 90)
BATCH = 10
STOPPINGS = ("first_exhausted", "all_exhausted", "repeat")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: Any) -> list[Path]:
    """Three data sets; `id` says which one and which row."""
    root = tmp_path_factory.mktemp("mixing")
    made = []
    for number, rows in enumerate(ROWS):
        ids = np.arange(rows) + 1000 * number
        lists = pa.array([list(range(i % 4)) for i in ids.tolist()], pa.list_(pa.int32()))
        texts = pa.array([[str(i)] * (i % 3) for i in ids.tolist()], pa.list_(pa.string()))
        table = pa.table({"id": ids, "items": lists, "words": texts, "x": ids.astype(np.float32)})
        made.append(root / f"{number}.parquet")
        pq.write_table(table, made[-1], row_group_size=37)
    return made


def open_datasets(paths: Any, **options: Any) -> list[ParquetDataset]:
    defaults = {"batch_size": BATCH, "shuffle": True, "seed": 4, "num_threads": 1}
    defaults["shuffle_window"] = 0
    return [ParquetDataset(path, **(defaults | options)) for path in paths]


def open_mix(paths: Any, weights: Any = (3, 2, 1), options: Any = None, **arguments: Any) -> Any:
    return mix(open_datasets(paths, **(options or {})), weights=weights, **arguments)


def sources(batches: Any) -> list[int]:
    """The data set of each batch; all its rows are from one."""
    found = []
    for batch in batches:
        (source,) = set((batch["id"] // 1000).tolist())
        found.append(source)
    return found


def check_proportion(counts: Any, total: int, weights: Any) -> None:
    exact = [Fraction(weight) for weight in weights]
    for source, weight in enumerate(exact):
        assert abs(counts[source] - total * weight / sum(exact)) < 1, (counts, total)


# Batches


@pytest.mark.parametrize("weights", [(3, 2, 1), (0.7, 0.2, 0.1), (1, 1, 1), (90, 9, 1)])
def test_first_exhausted_keeps_the_proportion_and_ends_where_one_is_empty(
    paths: list[Path], weights: Any
) -> None:
    mixed = open_mix(paths, weights)
    length = len(mixed)
    drawn = sources(mixed)
    assert length == len(drawn)
    counts: Any = Counter()
    for num, source in enumerate(drawn, 1):
        counts[source] += 1
        check_proportion(counts, num, weights)
    batches = [-(-rows // BATCH) for rows in ROWS]
    assert any(counts[source] == batches[source] for source in range(3))
    assert all(counts[source] <= batches[source] for source in range(3))


def test_all_exhausted_delivers_each_row_once(paths: list[Path]) -> None:
    mixed = open_mix(paths, (1, 5, 5), stopping="all_exhausted")
    batches = list(mixed)
    assert len(batches) == len(mixed) == 30 + 17 + 9
    rows = sorted(row for ids_of in ids_by_batch(batches) for row in ids_of)
    assert rows == [1000 * number + row for number in range(3) for row in range(ROWS[number])]
    # While all are there the weights hold; those that are left go on in theirs.
    drawn = sources(batches)
    ends = {source: len(drawn) - drawn[::-1].index(source) for source in range(3)}
    first_end = min(ends.values())
    for num in range(first_end + 1):
        check_proportion(Counter(drawn[:num]), num, (1, 5, 5))
    first = min(ends, key=ends.get)  # type: ignore[arg-type]
    left = [source for source in range(3) if source != first]
    second_end = sorted(ends.values())[1]
    part = drawn[first_end:second_end]
    weights = [(1, 5, 5)[source] for source in left]
    for num in range(len(part) + 1):
        counts = Counter(part[:num])
        check_proportion([counts[source] for source in left], num, weights)


def test_repeat_goes_on_until_each_was_read_as_a_whole(paths: list[Path]) -> None:
    mixed = open_mix(paths, (1, 5, 5), stopping="repeat")
    length = len(mixed)
    batches = list(mixed)
    assert len(batches) == length
    counts = Counter(row for ids_of in ids_by_batch(batches) for row in ids_of)
    for number, rows in enumerate(ROWS):
        times = {counts[1000 * number + row] for row in range(rows)}
        assert min(times) >= 1
        assert max(times) - min(times) <= 1
    # It ends with the batch that completes the last of them.
    assert {counts[row] for row in range(ROWS[0])} == {1}
    assert sources(batches)[-1] == 0
    drawn = sources(batches)
    for num in range(len(drawn)):
        check_proportion(Counter(drawn[:num]), num, (1, 5, 5))
    # Each round has an order of its own.
    second = [ids_of for ids_of in ids_by_batch(batches) if ids_of[0] >= 2000]
    assert sorted(chain(*second[:9])) == sorted(chain(*second[9:18]))
    assert second[:9] != second[9:18]


@pytest.mark.parametrize("stopping", STOPPINGS)
def test_each_iteration_is_the_next_epoch_in_another_order(
    paths: list[Path], stopping: str
) -> None:
    mixed = open_mix(paths, stopping=stopping)
    epochs = []
    for epoch in range(3):
        assert mixed.epoch == epoch
        length = len(mixed)
        batches = list(mixed)
        assert length == len(batches)
        epochs.append(batches)
    assert len({str(sources(batches)) for batches in epochs}) == 3
    assert len({str(ids_by_batch(batches)) for batches in epochs}) == 3
    again = open_mix(paths, stopping=stopping)
    again.set_epoch(2)
    assert ids_by_batch(again) == ids_by_batch(epochs[2])
    assert ids_by_batch(open_mix(paths, stopping=stopping, seed=1)) != ids_by_batch(epochs[0])


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 9}])
@pytest.mark.parametrize("stopping", STOPPINGS)
def test_a_data_set_of_weight_0_is_left_out_and_joins_later(
    paths: list[Path], stopping: Any, rows: dict[str, Any]
) -> None:
    """Without it the mix is that of the others; a state within an epoch goes on so."""
    options: Any = {"stopping": stopping, **rows}
    mixed = open_mix(paths, (0, 2, 1), **options)
    others = mix(open_datasets(paths)[1:], weights=(2, 1), **options)
    length = len(mixed)
    first = ids_by_batch(mixed)
    assert first == ids_by_batch(others)
    assert len(first) == length
    states = iter(mixed)
    next(states), next(states)
    resumed = open_mix(paths, (1, 2, 1), **options)
    resumed.load_state_dict(mixed.state_dict())
    assert ids_by_batch(resumed) == ids_by_batch(states)
    mixed.set_weights((1, 2, 1))
    mixed.set_epoch(3)
    joined = open_mix(paths, (1, 2, 1), **options)
    joined.set_epoch(3)
    assert ids_by_batch(mixed) == ids_by_batch(joined)


def test_source_key(paths: list[Path]) -> None:
    for options in ({}, {"within_batch": True, "batch_size": 16}):
        for batch in open_mix(paths, source_key="from", **options):
            assert batch["from"].dtype == torch.int64
            assert batch["from"].equal(batch["id"] // 1000)
        assert "from" not in next(iter(open_mix(paths, **options)))
    with pytest.raises(ValueError, match="source_key must be the name of no column, got 'x'"):
        next(iter(open_mix(paths, source_key="x")))


# Rows


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("weights", [(3, 2, 1), (0.7, 0.2, 0.1), (50, 1, 1)])
@pytest.mark.parametrize("batch_size", [1, 7, 16, 64])
def test_rows_of_each_batch_are_in_proportion(
    paths: list[Path], weights: Any, batch_size: int
) -> None:
    mixed = open_mix(paths, weights, within_batch=True, batch_size=batch_size)
    length = len(mixed)
    counts, total = Counter(), 0  # type: ignore[var-annotated]
    found = list(mixed)
    assert len(found) == length
    for batch in found:
        assert len(batch["id"]) == batch_size
        counts += Counter((batch["id"] // 1000).tolist())
        total += batch_size
        check_proportion(counts, total, weights)
    # One more batch would need rows that one of them has not.
    beyond = [(total + batch_size) * w / sum(weights) for w in weights]
    assert any(rows < need + 1 for rows, need in zip(ROWS, beyond, strict=True))


@pytest.mark.parametrize("stopping", STOPPINGS)
def test_rows_keep_their_values(paths: list[Path], stopping: str) -> None:
    for batch in open_mix(paths, within_batch=True, batch_size=33, stopping=stopping):
        rows = batch["id"].tolist()
        assert batch["x"].tolist() == rows
        assert batch["items"].to_list() == [list(range(row % 4)) for row in rows]
        assert batch["words"].to_str() == [[str(row)] * (row % 3) for row in rows]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["id"], "'items' is Jagged of int32 .B. in data set 0, missing in data set 1"),
        ({"id": "x", "items": "items"}, r"'id' is int64 \[B\] in data set 0, float32 \[B\] in"),
        ({"id": "id", "items": "words"}, "'items' is Jagged of int32 .* Jagged of Jagged of uint8"),
        ({"id": ["x", "x2"], "items": "items"}, "float32"),
    ],
)
def test_columns_must_agree(
    paths: list[Path], tmp_path: Path, columns: dict[str, Any] | list[str], message: str
) -> None:
    table = pq.read_table(paths[1])
    pq.write_table(table.append_column("x2", table["x"]), tmp_path / "1.parquet")
    first = ParquetDataset(paths[0], batch_size=BATCH, columns=["id", "items"])
    second = ParquetDataset(tmp_path / "1.parquet", batch_size=BATCH, columns=columns)
    mixed = mix([first, second], within_batch=True, batch_size=20)
    with pytest.raises(SchemaMismatchError, match=message):
        next(iter(mixed))


@pytest.mark.parametrize("other", [Column("id", transform=Hash(8)), Column("id", dtype="int64")])
def test_values_must_become_the_same_numbers(paths: list[Path], other: Column) -> None:
    columns = {"o": Column("id", transform=Hash(9))}
    first = ParquetDataset(paths[0], batch_size=BATCH, columns=columns)
    same = ParquetDataset(paths[1], batch_size=BATCH, columns=columns)
    assert len(next(iter(mix([first, same], within_batch=True, batch_size=20)))["o"]) == 20
    second = ParquetDataset(paths[1], batch_size=BATCH, columns={"o": other})
    with pytest.raises(SchemaMismatchError, match="the same words and transforms of a column"):
        next(iter(mix([first, second], within_batch=True, batch_size=20)))


def test_masks_of_elements_are_cut_with_their_lists(tmp_path: Path) -> None:
    rows = [[1, None], [], [None, 2, 3], [4]] * 5
    pq.write_table(pa.table({"v": pa.array(rows, pa.list_(pa.int64()))}), tmp_path / "a.parquet")
    datasets = [ParquetDataset(tmp_path / "a.parquet", batch_size=5, nulls="mask") for _ in "ab"]
    found = []
    for batch in mix(datasets, within_batch=True, batch_size=3, stopping="all_exhausted"):
        valid = Jagged(batch["v.values.valid"], batch["v"].offsets).to_list()
        values = batch["v"].to_list()
        found += [
            [x if ok else None for x, ok in zip(*row, strict=True)]
            for row in zip(values, valid, strict=True)
        ]
    assert sorted(map(str, found)) == sorted(map(str, rows * 2))


# Resume


@pytest.mark.parametrize("rows", [None, 16, 25])
@pytest.mark.parametrize("stopping", STOPPINGS)
@pytest.mark.mostly_long(every=12)
def test_resume_after_every_batch(paths: list[Path], stopping: str, rows: int | None) -> None:
    """Or every third; before the first too, and after the last, which is the next epoch."""
    options = {"stopping": stopping, "seed": 3, "source_key": "from"}
    if rows:
        options |= {"within_batch": True, "batch_size": rows}

    def fresh() -> Any:
        return open_mix(paths, (2, 2, 1), **options)

    mixed = fresh()
    epochs = [list(map(str, mixed)), list(map(str, mixed))]
    mixed = fresh()
    states = [mixed.state_dict()]
    for _ in mixed:
        states.append(mixed.state_dict())
    assert len(states) == len(epochs[0]) + 1
    step = 1 if rows is None and stopping == "all_exhausted" else 3
    for num in sorted({*range(0, len(states), step), len(states) - 2, len(states) - 1}):
        resumed = fresh()
        resumed.load_state_dict(json.loads(json.dumps(states[num])))
        rest = epochs[0][num:] or epochs[1]
        assert len(resumed) == len(epochs[0] if num < len(epochs[0]) else epochs[1])
        assert list(map(str, resumed)) == rest, num
        if num < len(epochs[0]):
            assert resumed.epoch == 1
            assert str(next(iter(resumed))) == epochs[1][0]


def test_set_weights_is_for_the_next_epoch_and_of_the_state(paths: list[Path]) -> None:
    unchanged = ids_by_batch(open_mix(paths, (1, 1, 1), stopping="all_exhausted"))
    mixed = open_mix(paths, (1, 1, 1), stopping="all_exhausted")
    stream = iter(mixed)
    begun = [next(stream) for _ in range(4)]
    mixed.set_weights([100, 1, 1])
    state = mixed.state_dict()
    rest, after = ids_by_batch(stream), list(mixed)
    assert ids_by_batch(begun) + rest == unchanged
    assert sources(after)[:25].count(0) >= 24
    assert mixed.weights == pytest.approx([100 / 102, 1 / 102, 1 / 102])
    resumed = open_mix(paths, (1, 2, 3), stopping="all_exhausted")
    resumed.load_state_dict(state)
    assert [ids_by_batch(resumed) for _ in range(2)] == [rest, ids_by_batch(after)]
    resumed.load_state_dict(state)
    resumed.set_weights([1, 0, 0])
    mixed.load_state_dict(resumed.state_dict())
    assert mixed.weights == [1, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 9}, "seed=0, here 9"),
        ({"stopping": "repeat"}, "stopping='first_exhausted', here 'repeat'"),
        ({"within_batch": True, "batch_size": 8}, "batch_size=None, here 8"),
    ],
)
def test_states_of_another_mix_are_refused(
    paths: list[Path], change: dict[str, Any], message: str
) -> None:
    state = open_mix(paths).state_dict()
    with pytest.raises(ValueError, match=message):
        open_mix(paths, **change).load_state_dict(state)
    with pytest.raises(ValueError, match="num_datasets=3, here 2"):
        open_mix(paths[:2], (1, 1)).load_state_dict(state)
    with pytest.raises(ValueError, match="state must be that of a mix"):
        open_mix(paths).load_state_dict(open_datasets(paths)[0].state_dict())
    with pytest.raises(TypeError, match="state must be a dict"):
        open_mix(paths).load_state_dict("state")


@pytest.mark.parametrize(
    "damage", ["format", "seed", "weights", "next_weights", "sources", "counts"]
)
def test_damaged_states_are_refused(paths: list[Path], damage: str) -> None:
    mixed = open_mix(paths)
    next(iter(mixed))
    state = mixed.state_dict()
    if damage == "counts":
        state["progress"]["counts"].pop()
    elif damage == "format":
        state["format"] = 1
    elif damage == "weights":
        state[damage].pop()
    else:
        del state[damage]
    message = r"format 2, got format 1.*another release" if damage == "format" else "mix|data sets"
    with pytest.raises(ValueError, match=message):
        open_mix(paths).load_state_dict(state)


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 8}], ids=["", "rows"])
def test_what_fails_to_begin_takes_no_epoch(paths: list[Path], rows: dict[str, Any]) -> None:
    """The state is refused by a data set, when iteration begins, again and again."""
    mixed = open_mix(paths, **rows)
    state = mixed.state_dict()
    next(iter(mixed))
    begun = mixed.state_dict()
    other = open_mix(paths, options={"seed": 5}, **rows)
    other.load_state_dict(begun)
    for _ in range(2):
        with pytest.raises(ValueError, match="seed"):
            next(iter(other))
    assert other.state_dict() == begun
    other.load_state_dict(state)
    assert other.epoch == 0
    length = len(other)
    assert len(ids_by_batch(other)) == length


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 8}], ids=["", "rows"])
def test_an_iterator_that_was_closed_says_so(paths: list[Path], rows: dict[str, Any]) -> None:
    mixed = open_mix(paths, **rows)
    for num_taken in (1, len(mixed)):
        batches = iter(mixed)
        for _ in range(num_taken):
            next(batches)
        mixed.close()
        if num_taken == 1:
            with pytest.raises(RuntimeError, match=r"mix was closed.*new iteration"):
                next(batches)
    assert next(batches, None) is None


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 8}], ids=["", "rows"])
def test_a_live_iterator_goes_on(paths: list[Path], rows: dict[str, Any]) -> None:
    """Beside another one and after `set_epoch`; and at a state, of the mix or of the iterator."""
    whole = ids_by_batch(open_mix(paths, **rows))
    mixed = open_mix(paths, **rows)
    batches = iter(mixed)
    first = ids_by_batch(next(batches) for _ in range(4))
    state = batches.state_dict()
    assert state == mixed.state_dict()
    mixed.set_epoch(3)
    assert ids_by_batch([next(iter(mixed))])
    assert first + ids_by_batch(batches) == whole
    mixed.load_state_dict(state)
    batches = iter(mixed)
    for load in (mixed.load_state_dict, batches.load_state_dict):
        next(batches), next(batches)
        load(state)
        assert batches.state_dict() == state
        assert ids_by_batch([next(batches)]) == whole[4:5]
    assert ids_by_batch(batches) == whole[5:]


# Mixes of mixes


def open_nested(paths: Any, stopping: Any, **arguments: Any) -> Any:
    first, second, third = open_datasets(paths)
    return mix([mix([first, second], weights=[1, 2]), third], stopping=stopping, **arguments)


@pytest.mark.parametrize("stopping", STOPPINGS)
@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 8}], ids=["", "rows"])
@pytest.mark.mostly_long(every=5)
def test_a_mix_of_a_mix_goes_on_where_it_was(
    paths: list[Path], stopping: str, rows: dict[str, Any]
) -> None:
    """Also after its last batch, from where its own state leads to its next epoch."""
    whole = ids_by_batch(open_nested(paths, stopping, weights=[9, 1], **rows))
    for stop in range(0, len(whole), 3):
        mixed = open_nested(paths, stopping, weights=[9, 1], **rows)
        batches = iter(mixed)
        assert ids_by_batch(next(batches) for _ in range(stop)) == whole[:stop]
        resumed = open_nested(paths, stopping, weights=[9, 1], **rows)
        resumed.load_state_dict(json.loads(json.dumps(mixed.state_dict())))
        assert ids_by_batch(resumed) == whole[stop:]


def test_rows_of_a_mix_are_not_mixed_on_several_ranks(paths: list[Path]) -> None:
    inner = mix(open_datasets(paths, rank=0, world_size=2))
    mixed = mix(
        [inner, *open_datasets(paths[:1], rank=0, world_size=2)], within_batch=True, batch_size=8
    )
    with pytest.raises(ValueError, match="several ranks"):
        next(iter(mixed))


# Other data sets, workers, arguments


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 9}])
def test_a_mix_marks_what_its_data_sets_repeat(tmp_path: Path, rows: dict[str, Any]) -> None:
    """103 rows on three ranks, of which two repeat one."""
    pq.write_table(pa.table({"x": range(103)}), tmp_path / "a.parquet", row_group_size=20)
    found: list[int] = []
    num_rows = 0
    for rank in range(3):
        datasets = [
            ParquetDataset(tmp_path, batch_size=size, shuffle=True, rank=rank, world_size=3)
            for size in (16, 7)
        ]
        mixed = mix(datasets, stopping="all_exhausted", **rows)
        for batch in mixed.marking_repeats():
            num_rows += len(batch["x"])
            found += batch["x"][batch["row.valid"]].tolist()
        assert "row.valid" not in next(iter(mixed))
    assert sorted(found) == sorted(list(range(103)) * 2)
    assert num_rows == 2 * 105


class Plain(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield {"id": torch.arange(3)}


class Doubled(ParquetDataset):
    def __iter__(self) -> Any:
        return ({"id": 2 * batch["id"]} for batch in super().__iter__())


def test_what_a_mix_cannot_read_is_refused_with_the_way_out(paths: list[Path]) -> None:
    (known, *_) = open_datasets(paths)
    for other in (Plain(), known.unbatched(), DataLoader(known, batch_size=None), paths[0]):
        with pytest.raises(TypeError, match=r"ParquetDatasets.*torchdata\.nodes.* Data set 1"):
            mix([known, other])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"does not call an __iter__ .*transform=.* Data set 1"):
        mix([known, Doubled(paths[1], batch_size=BATCH)])


@pytest.mark.parametrize("rows", [{}, {"within_batch": True, "batch_size": 33}], ids=["", "rows"])
def test_a_mix_leaves_its_data_sets_alone(paths: list[Path], rows: dict[str, Any]) -> None:
    """Its length and its iterations do not move them, and one may come twice."""
    options: dict[str, Any] = {"stopping": "all_exhausted", **rows}
    datasets = open_datasets(paths)
    datasets[0].set_epoch(4)
    under_way = iter(datasets[1])
    first = [next(under_way)["id"].tolist() for _ in range(2)]
    states = [dataset.state_dict() for dataset in datasets]
    twice = mix([*datasets, datasets[0]], **options)
    length = len(twice)
    assert [dataset.state_dict() for dataset in datasets] == states
    found = ids_by_batch(twice)
    assert len(found) == length
    once = chain(*ids_by_batch(open_mix(paths, **options)))
    assert sorted(chain(*found)) == sorted([*range(ROWS[0]), *once])
    assert [dataset.state_dict() for dataset in datasets] == states
    assert datasets[0].epoch == 4
    assert first + ids_by_batch(under_way) == ids_by_batch(open_datasets(paths)[1])


@pytest.mark.filterwarnings("ignore:this epoch has no step")
def test_without_a_batch() -> None:
    tables = [pa.table({"id": ids}) for ids in ([0, 1], [1000, 1001, 1002])]
    datasets = [
        ParquetDataset(tables[0], batch_size=3, drop_last=True),
        ParquetDataset(tables[1], batch_size=1),
    ]
    assert ids_by_batch(mix(datasets)) in ([], [[1000]])
    assert ids_by_batch(mix(datasets, stopping="all_exhausted")) == [[1000], [1001], [1002]]
    with pytest.raises(ValueError, match="must have batches"):
        next(iter(mix(datasets, stopping="repeat")))


@pytest.mark.parametrize(
    ("stopping", "method"),
    [
        ("all_exhausted", "fork"),
        ("repeat", "fork"),
        pytest.param("all_exhausted", "spawn", marks=pytest.mark.long),
    ],
)
def test_dataloader_workers(paths: list[Path], stopping: str, method: str) -> None:
    """Each worker mixes its own share; together they read every row, in each epoch another way."""
    mixed = open_mix(paths, stopping=stopping)
    context = multiprocessing.get_context(method)
    loader = DataLoader(mixed, None, num_workers=2, multiprocessing_context=context, timeout=60)
    epochs = [ids_by_batch(loader) for _ in range(2)]
    every = {1000 * number + row for number in range(3) for row in range(ROWS[number])}
    for found in epochs:
        rows = list(chain(*found))
        assert set(rows) == every
        if stopping == "all_exhausted":
            assert len(rows) - len(every) <= 2 * 3
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": [1]}, ValueError, "weights must be as many as data sets, got 1 for 3"),
        ({"weights": [1, -1, 1]}, ValueError, "weights must be at least 0 and finite, got -1"),
        ({"weights": [0, 0, 0]}, ValueError, "weights must not all be 0"),
        ({"weights": [1, 1, float("nan")]}, ValueError, "finite, got nan"),
        ({"weights": [1, 1, float("inf")]}, ValueError, "finite, got inf"),
        ({"weights": [1, 1, "1"]}, TypeError, "weights must be numbers, got '1'"),
        ({"weights": [1, 1, True]}, TypeError, "weights must be numbers, got True"),
        ({"stopping": "never"}, ValueError, "stopping must be one of .* got 'never'"),
        ({"seed": -1}, ValueError, "seed must be >= 0"),
        ({"batch_size": 8}, ValueError, "within_batch=True and batch_size go together"),
        ({"within_batch": True}, ValueError, "within_batch=True and batch_size go together"),
        ({"within_batch": True, "batch_size": 0}, ValueError, "batch_size must be >= 1"),
        ({"within_batch": 1}, TypeError, "within_batch must be a bool"),
        ({"source_key": 3}, TypeError, "source_key must be a str or None, got 3"),
    ],
)
def test_wrong_arguments(
    paths: list[Path], arguments: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        mix(open_datasets(paths), **arguments)
    with pytest.raises(ValueError, match="num_epochs=1"):
        mix(open_datasets(paths, num_epochs=2))
    with pytest.raises(ValueError, match="datasets must hold a data set"):
        mix([])
