"""Steps of all ranks in which no key is twice, against what plain Python counts in each step."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from tests.fixtures.random_cases import in_random_cases
from tests.sampling.test_sampling import Data, data_of, rows_of
from torchparquet import Order, ParquetDataset, Unique, mix, verify_no_shard_overlap
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.sampling import unique
from torchparquet._impl.sampling.policy import RowOrder
from torchparquet._impl.sampling.spreading import spread
from torchparquet._impl.sampling.unique import UniqueKeys

pytestmark = pytest.mark.filterwarnings("ignore:this epoch has no step")


@dataclass(frozen=True)
class Job:
    """Ranks that read epochs together."""

    size: int
    batch_size: int
    shuffle: bool = True
    window: int | None = None
    epoch: int = 0
    even: str = "split"
    drop_last: bool = True

    def dataset(self, data: Any, rank: int, size: int = 0, **options: Any) -> ParquetDataset:
        """Return the data set of a rank."""
        chosen: dict[str, Any] = {
            "batch_size": self.batch_size,
            "unique": Unique("key", across_ranks=True),
            "shuffle": self.shuffle,
            "shuffle_window": self.window if self.shuffle else None,
            "drop_last": self.drop_last,
            "even": self.even,
            "row_ids": True,
            "num_threads": 1,
        }
        size = size or self.size
        dataset = ParquetDataset(data, rank=rank, world_size=size, **chosen | options)
        dataset.set_epoch(self.epoch)
        return dataset

    def steps(self, data: Any, num_workers: int = 0, **options: Any) -> list[list[list[int]]]:
        """Return, by step and rank, the rows that are read; all ranks take every step."""
        of_ranks = []
        for rank in range(self.size):
            dataset = self.dataset(data, rank, **options)
            batches: Any = dataset
            if num_workers:
                batches = DataLoader(dataset, batch_size=None, num_workers=num_workers)
            of_ranks.append([batch["row.id"].tolist() for batch in batches])
            assert len(of_ranks[-1]) == len(batches)
        return [list(step) for step in zip(*of_ranks, strict=True)]


def check_steps(job: Job, keys: Sequence[Any], steps: list[list[list[int]]]) -> None:
    """Check each step, and that each row is read once but for those that `drop_last` leaves out."""
    num_full, rest = divmod(len(keys), job.size * job.batch_size)
    for step in steps:
        of_step = [keys[row] for row in chain(*step)]
        assert len(set(of_step)) == len(of_step)
    sizes = [sorted(map(len, step)) for step in steps]
    short = [[rest // job.size] * (job.size - rest % job.size)]
    short[0] += [rest // job.size + 1] * (rest % job.size)
    expected = [[job.batch_size] * job.size] * num_full
    assert sorted(sizes) == sorted(expected + short * (rest > 0 and not job.drop_last))
    times = Counter(chain(*chain(*steps)))
    assert set(times) <= set(range(len(keys)))
    assert set(times.values()) <= {1}


JOBS = st.builds(
    Job,
    st.integers(2, 4),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([None, 1, 2]),
    st.integers(0, 2),
    st.sampled_from(["split", "drop", "pad", "none"]),
    st.booleans(),
)


@in_random_cases(60, data_of(), JOBS, st.integers(0, 3))
@example(Data([12], [0] * 12, [1] * 12, ["a", "b"] * 6), Job(2, 1), 1)
def test_no_key_is_in_a_step_twice_and_each_row_is_read_once(
    data: Data, job: Job, stop_rank: int
) -> None:
    num_full, rest = divmod(len(data.rows), job.size * job.batch_size)
    most = max(Counter(data.keys).values())
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        refused = ""
        if most > max(1, num_full):
            refused = f"one key has {most} rows, and there are {max(1, num_full)} steps"
        elif job.drop_last and not num_full:
            refused = "rows make no step"
        elif not job.drop_last and 0 < rest < job.size:
            refused = f"{rest} rows are left for {job.size} ranks"
        if refused:
            with pytest.raises(ValueError, match=refused):
                job.dataset(folder, 0)
            return
        steps = job.steps(folder)
        check_steps(job, data.keys, steps)
        # A state after each batch, of one rank, fits another one.
        dataset, other = (job.dataset(folder, rank) for rank in (0, stop_rank % job.size))
        for stop, batch in enumerate(dataset, 1):
            assert rows_of(batch, data) == steps[stop - 1][0]
            if stop < len(steps):
                other.load_state_dict(dataset.state_dict())
                rest_of_other = [rows_of(batch, data) for batch in other]
                assert rest_of_other == [step[stop_rank % job.size] for step in steps[stop:]]


def table_of(keys: list[int], row_group: int = 0) -> Any:
    table = pa.table({"key": keys, "x": range(len(keys))})
    return [table.slice(at, row_group) for at in range(0, len(keys), row_group)]


KEYS = [row * row % 97 for row in range(960)]


@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
def test_workers_of_a_rank_take_the_steps_in_turn(even: str) -> None:
    job = Job(2, 8, even=even, window=1)
    steps = job.steps(table_of(KEYS, 60), num_workers=3)
    times = Counter(chain(*chain(*steps)))
    for step in steps:
        of_step = [KEYS[row] for row in chain(*step)]
        assert len(set(of_step)) == len(of_step)
    assert even == "drop" or set(times) == set(range(960))
    assert even in ("split", "pad") or set(times.values()) == {1}


def test_an_epoch_goes_on_with_other_workers() -> None:
    job, table = Job(2, 8, window=1, even="none"), table_of(KEYS, 60)
    steps, found = job.steps(table), []
    for rank in range(2):
        dataset = job.dataset(table, rank)
        batches = iter(dataset)
        for _ in range(7):
            next(batches)
        other = job.dataset(table, rank)
        other.load_state_dict(dataset.state_dict())
        loader = DataLoader(other, batch_size=None, num_workers=2)
        found.append([batch["row.id"].tolist() for batch in loader])
    check_steps(job, KEYS, steps[:7] + [list(step) for step in zip(*found, strict=True)])


@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_differ_if_shuffled_and_repeat(shuffle: bool) -> None:
    table = table_of(KEYS, 60)
    first, again, second = (
        Job(2, 8, shuffle, epoch=epoch).steps(table, seed=3) for epoch in (0, 0, 1)
    )
    assert first == again
    assert (first != second) == shuffle


def test_a_key_may_be_in_every_step_of_an_epoch() -> None:
    keys = [row // 15 for row in range(15 * 24)]
    job = Job(4, 6)
    steps = job.steps(table_of(keys, 40))
    check_steps(job, keys, steps)
    assert all(sorted(keys[row] for row in chain(*step)) == list(range(24)) for step in steps)


@pytest.mark.parametrize("is_canonical", [False, True])
def test_few_threads_spread_large_blocks_at_once(
    monkeypatch: pytest.MonkeyPatch, is_canonical: bool
) -> None:
    num_rows, job, spread_at = list[int](), Job(2, 8, window=1), threading.Lock()

    def counted(keys: Any, *values: Any) -> Any:
        assert spread_at.acquire(blocking=False)
        try:
            num_rows.append(len(keys))
            return spread(keys, *values)
        finally:
            spread_at.release()

    monkeypatch.setattr(unique, "spread", counted)
    monkeypatch.setattr(unique, "_MOST_ROWS", 256)
    options: dict[str, Any] = {"num_threads": 4}
    if is_canonical:  # each rank has two parts of each block
        job, options["order"] = replace(job, batch_size=4, size=2), Order(canonical_world_size=4)
        options["batch_size"] = 8
    table = table_of(KEYS, 60)
    steps = job.steps(table, **options)
    check_steps(replace(job, batch_size=8), KEYS, steps)
    # Each of two ranks has spread each block once.
    assert sum(num_rows) == 2 * len(KEYS) // 16 * 16
    assert max(num_rows) == 256


def test_steps_of_few_rows_are_as_many_as_there_are() -> None:
    keys = np.tile(np.arange(1 << 18, dtype=np.uint64), 2)
    order = RowOrder(np.array([len(keys)]), PlanOptions(1, shuffle=True))
    policy = UniqueKeys(order, keys, 1, len(keys), most_equal=2, num_ranks=2, drop_last=True)
    for block in range(len(policy.steps)):
        first, second = (keys[policy.rows(0, 2 * block + rank)] for rank in range(2))
        assert len(first) == policy.steps[block]
        assert (first != second).all()
    assert policy.steps.sum() == len(keys) // 2


def test_a_rank_reads_neighbouring_rows() -> None:
    job = Job(4, 4, shuffle=False)
    steps = job.steps(table_of(list(range(256)), 64))
    for rank in range(4):
        assert sorted(chain(*(step[rank] for step in steps))) == list(
            range(64 * rank, 64 * rank + 64)
        )


def test_states_name_the_number_of_ranks() -> None:
    job, table = Job(4, 4), table_of(KEYS, 60)
    dataset = job.dataset(table, 0)
    next(iter(dataset))
    for size in (1, 2):
        with pytest.raises(ValueError, match=f"which is 4 in the state, {size} here"):
            job.dataset(table, 0, size, batch_size=16 // size).load_state_dict(dataset.state_dict())


@in_random_cases(
    30,
    data_of(),
    st.sampled_from([(4, 2), (4, 1), (2, 1), (4, 4)]),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 12),
)
def test_fewer_ranks_go_on_with_the_steps_of_canonical_ones(
    data: Data, sizes: tuple[int, int], batch_size: int, drop_last: bool, stop: int
) -> None:
    canonical, size = sizes
    job = Job(canonical, batch_size, window=1, drop_last=drop_last)
    options: dict[str, Any] = {"order": Order(canonical_world_size=canonical)}
    num_full, rest = divmod(len(data.rows), canonical * batch_size)
    assume(max(Counter(data.keys).values()) <= num_full)
    assume(drop_last or not 0 < rest < canonical)
    with tempfile.TemporaryDirectory() as folder:
        data.write(folder)
        steps = job.steps(folder, **options)
        check_steps(job, data.keys, steps)
        options["batch_size"] = batch_size * canonical // size
        few = replace(job, size=size)
        as_few = few.steps(folder, **options)
        assert [sorted(chain(*step)) for step in as_few] == [sorted(chain(*step)) for step in steps]
        dataset = job.dataset(folder, 0, order=options["order"])
        stop = min(stop, len(steps) - 1)
        for _ in zip(range(stop), dataset, strict=False):
            pass
        state = dataset.state_dict()
        for rank in range(size if stop else 0):
            other = few.dataset(folder, rank, **options)
            other.load_state_dict(state)
            rest_of_other = [rows_of(batch, data) for batch in other]
            assert rest_of_other == [step[rank] for step in as_few[stop:]]


def test_ranks_must_divide_the_canonical_ones() -> None:
    with pytest.raises(ValueError, match="world_size must divide canonical_world_size"):
        Job(3, 4).dataset(table_of(KEYS, 60), 0, order=Order(canonical_world_size=4))
    with pytest.raises(ValueError, match="does not go with order"):
        Job(2, 4).dataset(table_of(KEYS, 60), 0, order=Order(within_rank=True))


@pytest.mark.parametrize("at_first", [1, 2])
def test_the_number_of_ranks_is_known_when_the_data_set_is_made(
    monkeypatch: pytest.MonkeyPatch, at_first: int
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(at_first))
    unique = Unique("key", across_ranks=True)
    dataset = ParquetDataset(table_of(KEYS, 60), batch_size=4, unique=unique)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match="was not 3 then: make the data set after init"):
        len(dataset)


def test_one_rank_reads_as_with_the_name_of_the_column() -> None:
    job, table = Job(1, 8), table_of(KEYS, 60)
    found = [
        job.steps(table, unique=unique)
        for unique in ("key", Unique("key"), Unique("key", across_ranks=True))
    ]
    assert found[0] == found[1] == found[2]


def test_a_mix_takes_steps_of_all_ranks() -> None:
    job, table = Job(2, 8, shuffle=False), table_of(KEYS, 60)
    others = pa.table({"key": [-1] * 960, "x": [-1] * 960})
    of_ranks = []
    for rank in range(2):
        options: dict[str, Any] = {"rank": rank, "world_size": 2, "batch_size": 8, "row_ids": True}
        mixed = mix([job.dataset(table, rank), ParquetDataset(others, **options)], weights=[1, 1])
        of_ranks.append([batch["key"].tolist() for batch in mixed])
    for step in zip(*of_ranks, strict=True):
        assert len({-1 in part for part in step}) == 1
        keys = [key for key in chain(*step) if key >= 0]
        assert len(set(keys)) == len(keys)


def test_audits_count_batches_of_all_ranks() -> None:
    audit = verify_no_shard_overlap(Job(1, 8).dataset(table_of(KEYS, 60), 0))
    assert audit.rows_delivered == audit.num_rows == 120
    info = Job(3, 8).dataset(table_of(KEYS, 60), 1).get_shard_distribution_info()
    assert info["steps_per_rank"] == info["rows_per_rank"] == [40, 40, 40]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Unique(3), "column of Unique must be a str"),  # type: ignore[arg-type]
        (lambda: Unique("x", 2), "across_ranks must be a bool"),  # type: ignore[arg-type]
    ],
)
def test_options_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()
