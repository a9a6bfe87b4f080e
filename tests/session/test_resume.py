"""Stopping anywhere and going on: the stream is the one that was never stopped."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.fixtures.parquet_files import numbered_files
from torchparquet import Column, Order, ParquetDataset

ROWS = [70, 0, 130, 50, 10, 220, 90, 40]


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    """Four files of two row groups each; every value is its row number."""
    root = tmp_path_factory.mktemp("resume")
    files = [ROWS[file : file + 2] for file in range(0, 8, 2)]
    return Path(numbered_files(root, *files, number="x", text="name"))


ORDERS: dict[str, Any] = {
    "file order": {},
    "row groups": {"shuffle": True, "seed": 3, "shuffle_window": 0},
    "windows": {"shuffle": True, "seed": 3, "shuffle_window": 3},
    "windows that max_memory holds": {"shuffle": True, "seed": 3, "max_memory": 6000},
    "within a rank": {"shuffle": True, "order": Order(within_rank=True), "shuffle_window": 2},
    "one batch per chunk": {"batch_size": None, "shuffle": True, "shuffle_window": 2},
    "canonical": {
        **{"shuffle": True, "shuffle_window": 2, "order": Order(canonical_world_size=4)},
        "batch_size": 32,
    },
}


def make(data: Any, rank: int = 0, world_size: int = 1, **options: Any) -> ParquetDataset:
    options = {"batch_size": 16, "columns": ["x"], **options}
    return ParquetDataset(data, rank=rank, world_size=world_size, **options)


def rows(batches: Any) -> Any:
    return [batch["x"].tolist() for batch in batches]


def joined(lists: Any) -> list[Any]:
    return list(itertools.chain.from_iterable(lists))


def epoch_of(dataset: ParquetDataset, epoch: int) -> Any:
    dataset.set_epoch(epoch)
    return iter(dataset)


def stopped(data: Any, num_steps: int, *world: int, **options: Any) -> tuple[Any, Any, Any]:
    """Return the rows of so many batches, the state after them, and the iterator."""
    dataset = make(data, *world, **options)
    batches = iter(dataset)
    taken = rows(itertools.islice(batches, num_steps))
    return taken, json.loads(json.dumps(dataset.state_dict())), batches


def resumed(data: Any, state: Any, *world: int, **options: Any) -> ParquetDataset:
    dataset = make(data, *world, **options)
    dataset.load_state_dict(state)
    return dataset


@pytest.mark.parametrize("order", ORDERS)
def test_resume_at_every_batch(data: Any, order: str) -> None:
    whole = rows(make(data, **ORDERS[order]))
    after = rows(epoch_of(make(data, **ORDERS[order]), 1))
    for stop in range(len(whole) + 1):
        taken, state, batches = stopped(data, stop, **ORDERS[order])
        assert len(json.dumps(state)) < 1024
        dataset = resumed(data, state, **ORDERS[order])
        assert dataset.epoch == (stop == len(whole))
        if stop < len(whole):
            assert taken + rows(dataset) == whole, stop
            # The one that goes on is not disturbed by the state that was taken of it.
            assert taken + rows(batches) == whole
        assert rows(dataset) == after


def test_set_epoch_keeps_a_state_of_that_epoch_and_drops_another(data: Any) -> None:
    whole = rows(make(data, shuffle=True))
    _, state, _ = stopped(data, 1, shuffle=True)
    same, other = (resumed(data, state, shuffle=True) for _ in range(2))
    same.set_epoch(0)
    assert rows(same) == whole[1:]
    with pytest.warns(UserWarning, match=r"drops a loaded state.* set_epoch\(2\) after .* epoch 0"):
        other.set_epoch(2)
    assert rows(other) == rows(epoch_of(make(data, shuffle=True), 2))


def test_nothing_before_the_state_is_read(data: Any, tmp_path: Path) -> None:
    for file in data.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    dataset = make(tmp_path)
    batches = iter(dataset)
    whole = rows(make(tmp_path))
    done: list[Any] = []
    while not done or max(done[-1]) < sum(ROWS[:4]):
        done += rows([next(batches)])
    rest = resumed(tmp_path, dataset.state_dict())
    # Files of which no row is left cannot be missed.
    for file in ("part-0.parquet", "part-1.parquet"):
        (tmp_path / file).unlink()
    assert rows(rest) == whole[len(done) :]


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("order", ["file order", "row groups", "windows"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 2), (2, 3), (4, 6), (8, 3)])
def test_another_world_reads_the_rest_once(data: Any, order: str, before: int, after: int) -> None:
    options = ORDERS[order]
    for steps in (0, 1, 2, 4):
        found = [stopped(data, steps, rank, before, **options) for rank in range(before)]
        delivered = joined(joined(taken for taken, _, _ in found))
        (state,) = {json.dumps(state) for _, state, _ in found}
        rest, num_steps = [], set()
        for rank in range(after):
            goes_on = options | {"batch_size": 10}
            own = rows(resumed(data, json.loads(state), rank, after, **goes_on))
            num_steps.add(len(own))
            rest += joined(own)
        assert len(num_steps) == 1
        assert sorted(set(delivered + rest)) == list(range(sum(ROWS)))
        assert len(delivered) + len(rest) - sum(ROWS) <= after  # split repeats a row at most


@pytest.mark.parametrize("world_size", [2, 3, 12])
def test_the_state_of_any_rank_fits_ranks_that_have_fewer_batches(
    data: Any, world_size: int
) -> None:
    """With even="none": what a rank has delivered by that step is all or a part of its share."""
    shares = [rows(make(data, rank, world_size, even="none")) for rank in range(world_size)]
    longest = max(range(world_size), key=lambda rank: len(shares[rank]))
    for stop in range(len(shares[longest])):
        taken, state, _ = stopped(data, stop, longest, world_size, even="none")
        assert len(taken) == stop
        for rank, share in enumerate(shares):
            dataset = resumed(data, state, rank, world_size, even="none")
            assert len(dataset) == len(share)
            assert rows(dataset) == share[stop:]


def test_a_canonical_world_has_the_same_global_batches_at_every_size(data: Any) -> None:
    options: dict[str, Any] = {
        "order": Order(canonical_world_size=4),
        "shuffle": True,
        "shuffle_window": 2,
    }
    by_world = {}
    for world in (1, 2, 4):
        ranks = [
            rows(make(data, r, world, batch_size=32 // world, **options)) for r in range(world)
        ]
        by_world[world] = [sorted(joined(batches)) for batches in zip(*ranks, strict=True)]
    assert by_world[1] == by_world[2] == by_world[4]
    # And across a change of the world in the middle.
    for before, after in ((1, 4), (4, 2), (2, 1)):
        _, state, _ = stopped(data, 5, 0, before, batch_size=32 // before, **options)
        rest = [
            rows(resumed(data, state, rank, after, batch_size=32 // after, **options))
            for rank in range(after)
        ]
        assert [sorted(joined(b)) for b in zip(*rest, strict=True)] == by_world[1][5:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, "seed is 3 in the state, 4 here"),
        ({"shuffle": False, "shuffle_window": None}, "shuffle is True in the state, False here"),
        ({"shuffle_window": 1}, "shuffle_window is 2 in the state, 1 here"),
        ({"even": "pad"}, "even is 'split' in the state, 'pad' here"),
        ({"drop_last": True}, "drop_last is False in the state, True here"),
        ({"columns": ["x", "name"]}, "columns are 'x' in the state, 'x, name' here"),
        ({"columns": {"x": Column("x", dtype=torch.float64)}}, "dtypes, nulls"),
    ],
)
def test_a_state_that_does_not_fit_names_the_difference(
    data: Any, change: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "shuffle_window": 2}
    state = make(data, **options).state_dict()
    with pytest.raises(ValueError, match="state does not fit this data set") as caught:
        make(data, **options | change).load_state_dict(state)
    assert message in str(caught.value)


def test_a_state_of_other_files_names_what_differs_and_the_way_out(tmp_path: Path) -> None:
    for number in range(3):
        table = pa.table({"x": range(number, number + 20)})
        pq.write_table(table, tmp_path / f"part-{number}.parquet", row_group_size=10)
    state = ParquetDataset(tmp_path, batch_size=4).state_dict()
    assert len(json.dumps(state)) < 1000
    fewer, renamed, changed = (tmp_path.parent / f"{tmp_path.name}-{name}" for name in "abc")
    for folder in (fewer, renamed, changed):
        shutil.copytree(tmp_path, folder)
    (fewer / "part-1.parquet").unlink()
    (renamed / "part-1.parquet").rename(renamed / "part-9.parquet")
    pq.write_table(pa.table({"x": range(20)}), changed / "part-1.parquet", row_group_size=10)
    said = {
        fewer: "files are 3 in the state, 2 here; row groups are 6 in the state, 4 here; rows are "
        "60 in the state, 40 here; names are 'part-0.parquet, part-1.parquet, part-2.parquet' in "
        "the state, 'part-0.parquet, part-2.parquet' here",
        renamed: "other files or rows: names are 'part-0.parquet, part-1.parquet, part-2.parquet' "
        "in the state, 'part-0.parquet, part-2.parquet, part-9.parquet' here",
        changed: "names and numbers are the same, but the content",
    }
    for folder, words in said.items():
        with pytest.raises(ValueError, match=r'other_data="next_epoch"') as caught:
            ParquetDataset(folder, batch_size=4).load_state_dict(state)
        assert words in str(caught.value)
    with pytest.raises(ValueError, match=r"rows are 60 in the state, 15 here") as caught:
        ParquetDataset(tmp_path, batch_size=4, rows=range(15)).load_state_dict(state)
    assert "files are" not in str(caught.value)


def test_a_state_fits_a_copy_of_the_files(data: Any, tmp_path: Path) -> None:
    """Each node may have its own, changed at another time and in another directory."""
    whole = rows(make(data, shuffle=True, seed=3))
    dataset = make(data, shuffle=True, seed=3)
    next(iter(dataset))
    elsewhere = shutil.copytree(data, tmp_path / "copy")
    os.utime(elsewhere / "part-0.parquet", (1, 1))
    copied = make(elsewhere, shuffle=True, seed=3)
    copied.load_state_dict(dataset.state_dict())
    assert rows(copied) == whole[1:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "must be of version 2, got version 3"),
        ({"version": 1}, "must be of version 2, got version 1"),
        ({"format": "else"}, "must be that of a ParquetDataset"),
        ({"legs": []}, "damaged.*no leg"),
        ({"legs": [[1, 1, 16]]}, "damaged.*a leg has 4 or 5 numbers"),
        ({"legs": [[1, 1, 16, -1]]}, "damaged.*a count must be an int >= 0, got -1"),
        ({"legs": [[0, 1, 16, 1]]}, "damaged.*a count must be an int >= 1, got 0"),
        ({"legs": [[1, 1, 16, 1, 16]]}, "damaged.*16 rows of a batch of 16"),
        ({"epoch": True}, "damaged.*got True"),
        ({"epoch": 1.0}, "damaged.*got 1.0"),
        ({"epoch": ...}, "damaged.*lacks 'epoch'"),
        ({"order": {"window": None}}, "damaged.*of another kind"),
        ({"columns": "x"}, "damaged.*of another kind"),
    ],
)
def test_a_damaged_state_is_refused(data: Any, change: dict[str, Any], message: str) -> None:
    dataset = make(data)
    damaged = {k: v for k, v in (dataset.state_dict() | change).items() if v is not ...}
    with pytest.raises(ValueError, match=f"^state (is )?{message}") as caught:
        dataset.load_state_dict(damaged)
    assert str(caught.value).count("damaged") == message.count("damaged")
    assert "Error" not in str(caught.value)
    assert rows(dataset) == rows(make(data))


@pytest.mark.parametrize("garbage", [None, 3, "state", [{}]])
def test_what_is_no_state_is_refused(data: Any, garbage: Any) -> None:
    dataset = make(data)
    with pytest.raises(TypeError, match="must be a dict"):
        dataset.load_state_dict(garbage)
    with pytest.raises(ValueError, match="must be that of a ParquetDataset"):
        dataset.load_state_dict({})


def test_seek_and_skip(data: Any) -> None:
    whole = rows(make(data))
    dataset = make(data)
    dataset.seek(5)
    assert rows(dataset) == whole[5:]
    dataset.set_epoch(0)
    dataset.skip(3)
    dataset.skip(2)
    batches = iter(dataset)
    assert rows([next(batches)]) == [whole[5]]
    dataset.skip(4)
    assert rows([next(batches)]) == [whole[10]]
    dataset.seek(1)
    assert rows([next(batches)]) == [whole[1]]
    batches.seek(len(whole))
    assert rows(batches) == []
    with pytest.raises(ValueError, match=f"<= {len(whole)}"):
        iter(dataset).seek(len(whole) + 1)
    with pytest.raises(TypeError, match="step"):
        dataset.seek(1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_ends_at_its_limit(data: Any, order: str) -> None:
    whole = rows(make(data, **ORDERS[order]))
    for limit in (2, 3, len(whole) - 1):
        options = ORDERS[order] | {"limit_steps": limit}
        taken, state, batches = stopped(data, 1, **options)
        for dataset in (make(data, **options), resumed(data, state, **options)):
            assert len(dataset) == limit
        assert rows(dataset) == rows(batches) == whole[1:limit]
        assert taken == whole[:1]
    assert len(make(data, limit_steps=10**6, **ORDERS[order])) == len(whole)


def test_nothing_beyond_the_limit_is_read(data: Any) -> None:
    limited, first_file = make(data, limit_steps=3, num_threads=3), make(data / "part-0.parquet")
    assert rows(limited) == rows(first_file)[:3]
    assert limited.metrics().bytes_read == first_file.metrics().bytes_read


def test_epochs_without_end(data: Any) -> None:
    epochs = [rows(epoch_of(make(data, shuffle=True), epoch)) for epoch in range(3)]
    stream = joined(epochs)
    dataset = make(data, shuffle=True, num_epochs=None)
    batches = iter(dataset)
    assert rows(next(batches) for _ in range(len(stream))) == stream
    for stop in (1, len(epochs[0]) - 1, len(epochs[0]), len(epochs[0]) + 1, len(epochs[0]) * 2):
        taken, state, _ = stopped(data, stop, shuffle=True, num_epochs=None)
        rest = iter(resumed(data, state, shuffle=True, num_epochs=None))
        assert taken + rows(itertools.islice(rest, len(stream) - stop)) == stream


@pytest.mark.parametrize("even", ["none", "drop"])
def test_epochs_without_a_batch_are_passed(tmp_path: Path, even: str) -> None:
    """By chance a rank has only the row group without rows; later epochs go on."""
    numbered_files(tmp_path, [0], [4], [4], number="x")
    options: dict[str, Any] = {"seed": 1, "batch_size": 4, "even": even, "shuffle_window": 0}
    options["shuffle"] = True
    epochs = [
        [rows(epoch_of(make(tmp_path, rank, 2, **options), epoch)) for epoch in range(12)]
        for rank in range(2)
    ]
    assert any([] in of_rank for of_rank in epochs)
    for rank, of_rank in enumerate(epochs):
        expected = list(itertools.chain.from_iterable(of_rank))
        assert rows(make(tmp_path, rank, 2, num_epochs=12, **options)) == expected
        endless = make(tmp_path, rank, 2, num_epochs=None, **options)
        assert rows(itertools.islice(endless, len(expected))) == expected


def test_an_iteration_without_end_of_nothing_ends(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(3)}), tmp_path / "x")
    with pytest.warns(UserWarning, match="no step"):
        assert rows(make(tmp_path, drop_last=True, num_epochs=None)) == []


def test_what_fails_to_begin_takes_no_epoch(data: Any) -> None:
    """A state that fits no epoch of `limit_steps`: each try begins at it, until it is replaced."""
    _, state, _ = stopped(data, 9)
    limited = resumed(data, state, limit_steps=5)
    batches = iter(limited)
    for _ in range(3):
        with pytest.raises(ValueError, match="9 batches"):
            next(batches)
    with pytest.raises(ValueError, match="9 batches"):
        next(iter(limited))
    limited.set_epoch(0)
    limited.set_epoch(1)
    assert rows(limited) == rows(epoch_of(make(data), 1))[:5]
    assert limited.epoch == 2


def test_workers_begin_after_what_has_failed_to(data: Any) -> None:
    """The request after the failure is for them."""
    _, state, _ = stopped(data, 9)
    failing = make(data, limit_steps=12)
    for count in (1, 2):
        failing.load_state_dict(state | {"legs": [[*state["legs"][0][:-1], 99]]})
        with pytest.raises(ValueError, match="99 batches"):
            next(iter(failing))
        failing.set_epoch(3 * count)
        loader = DataLoader(failing, batch_size=None, num_workers=1)
        assert rows(loader) == rows(epoch_of(make(data), 3 * count))[:12]


# DataLoader workers


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_go_on_with_the_state_of_a_bare_loop(data: Any, num_workers: int) -> None:
    batches, state, _ = stopped(data, 9, shuffle=True)
    taken, dataset = joined(batches), resumed(data, state, shuffle=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)
    rest = joined(rows(loader))
    assert sorted(set(taken + rest)) == list(range(sum(ROWS)))
    assert len(taken + rest) - sum(ROWS) <= num_workers
    with pytest.raises(RuntimeError, match="StatefulDataLoader"):
        dataset.state_dict()
    # The state was for one iteration; the next one is the next epoch.
    assert dataset.epoch == 1
    assert len(set(joined(rows(loader)))) == sum(ROWS)


def test_workers_share_the_rest_that_the_process_itself_looked_at(data: Any) -> None:
    _, state, _ = stopped(data, 2, 0, 3, shuffle=True)
    rest = joined(rows(resumed(data, state, shuffle=True)))
    dataset = resumed(data, state, shuffle=True)
    next(iter(dataset))
    found = joined(rows(DataLoader(dataset, batch_size=None, num_workers=2)))
    assert sorted(set(found)) == sorted(rest)
    assert len(found) - len(rest) <= 2


def test_states_of_workers_that_share_the_rest_of_other_ranks(data: Any) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    _, state, _ = stopped(data, 2, 0, 3)

    def loader(dataset: ParquetDataset) -> Any:
        return stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=2)

    whole = rows(loader(resumed(data, state)))
    first = loader(resumed(data, state))
    batches = iter(first)
    taken = rows(next(batches) for _ in range(3))
    second = loader(make(data))
    second.load_state_dict(first.state_dict())
    assert taken + rows(second) == whole


@pytest.mark.parametrize(
    ("num_workers", "persistent"),
    [
        (0, False),
        (2, False),
        *(
            pytest.param(workers, persistent, marks=pytest.mark.long)
            for workers, persistent in ((1, False), (1, True), (2, True), (3, False), (3, True))
        ),
    ],
)
@pytest.mark.parametrize("order", ["file order", "windows"])
@pytest.mark.mostly_long(every=2)
def test_stateful_data_loader(data: Any, order: str, num_workers: Any, persistent: Any) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        options: dict[str, Any] = {"batch_size": None, "num_workers": num_workers}
        dataset = make(data, **ORDERS[order])
        return stateful.StatefulDataLoader(dataset, persistent_workers=persistent, **options)

    uninterrupted = loader()
    whole, after = rows(uninterrupted), rows(uninterrupted)
    assert np.unique(joined(whole)).tolist() == list(range(sum(ROWS)))
    for stop in (0, 1, 2, 5, len(whole) - 1, len(whole)):
        first = loader()
        batches = iter(first)
        taken = rows(next(batches) for _ in range(stop))
        state = pickle.loads(pickle.dumps(first.state_dict()))
        resumed = loader()
        resumed.load_state_dict(state)
        rest = rows(resumed)
        if stop == len(whole) and not rest:
            rest = rows(resumed)  # the loader may end the epoch once more
        if stop == len(whole):
            assert rest == after
        else:
            assert taken + rest == whole, stop
            assert rows(resumed) == after
