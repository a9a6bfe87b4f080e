"""Batches that Accelerate's loaders skip are not read, and the rest is the same.

The oracle is a plain loader of the same workers, whose first batches are dropped here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import NUM_ROWS, Noting, dataset_of, ids_of
from tests.servers.faulty_origin import FaultyOrigin
from tests.servers.fixtures import origin  # noqa: F401
from torchparquet import mix

accelerate = pytest.importorskip("accelerate")
pytest.importorskip("torchdata")
from torchparquet.frameworks.accelerate import ParquetLoader  # noqa: E402

# The parent runs threads of torch when it forks.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

Make = Callable[..., Any]


def mixed_rows(data: Any, stopping: Any = "first_exhausted", **options: Any) -> Any:
    parts = [dataset_of(data, seed=seed, **options) for seed in range(2)]
    return mix(parts, weights=[2, 1], within_batch=True, batch_size=16, stopping=stopping)


def uneven_shares(data: Any, **options: Any) -> Any:
    """Two workers have 28 and 23 batches."""
    options = {"batch_size": 8, "shuffle": False, "shuffle_window": None} | options
    return dataset_of(data, even="none", **options)


def mix_of_mixes(data: Any, **options: Any) -> Any:
    """Of rows and of batches, with a data set that begins again."""
    rows = mixed_rows(data, "all_exhausted", **options)
    batches = mix([dataset_of(data, seed=seed, **options) for seed in (3, 4)], weights=[3, 1])
    return mix([rows, batches], weights=[1, 2], stopping="repeat")


MAKERS: dict[str, Make] = {
    "data set": dataset_of,
    "uneven shares": uneven_shares,
    "mix of mixes": mix_of_mixes,
    "rows, first": mixed_rows,
    "rows, all": lambda data, **options: mixed_rows(data, "all_exhausted", **options),
    "rows, repeat": lambda data, **options: mixed_rows(data, "repeat", **options),
}


@pytest.fixture(scope="module", autouse=True)
def accelerator() -> Any:
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


@pytest.fixture
def noting(tmp_path: Path) -> Noting:
    return Noting(tmp_path / "read.jsonl")


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("name", MAKERS)
def test_the_rest_is_the_same(
    accelerator: Any, data: Path, noting: Noting, name: str, num_workers: int
) -> None:
    """Also of the next epoch, which begins with its first batch, and after more than all."""
    make, options = MAKERS[name], dict[str, Any](num_workers=num_workers)
    whole = DataLoader(make(data, transform=noting), batch_size=None, **options)
    wanted = ids_of(whole)
    num_read = len(noting.take())
    following = ids_of(whole)
    for num_skipped in (0, 1, 7, len(wanted) - 2, len(wanted) + 3):
        loader = accelerator.prepare(ParquetLoader(make(data, transform=noting), **options))
        noting.take()
        assert ids_of(accelerate.skip_first_batches(loader, num_skipped)) == wanted[num_skipped:]
        read = noting.take()
        if "rows" in name or "mixes" in name:
            # A batch of a part is read where one of the mix begins within it.
            most = {len(wanted) - 2: num_read // 2, len(wanted) + 3: 0}
            assert len(read) <= most.get(num_skipped, num_read + 2 * max(num_workers, 1))
        else:
            assert sorted(read) == sorted(wanted[num_skipped:])
        if num_skipped in (7, len(wanted) + 3):
            assert ids_of(loader) == following


@pytest.mark.parametrize("make", [dataset_of, mixed_rows])
def test_workers_that_stay_skip_in_each_epoch(accelerator: Any, data: Path, make: Make) -> None:
    """As Accelerate's loader does, which drops its first batches whenever it is iterated."""
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
    whole = DataLoader(make(data), batch_size=None, **options)
    wanted = [ids_of(whole) for _ in range(2)]
    loader = accelerate.skip_first_batches(ParquetLoader(make(data), **options), 5)
    assert [ids_of(loader) for _ in range(2)] == [batches[5:] for batches in wanted]


def test_workers_that_are_spawned(data: Path, noting: Noting) -> None:
    """They have the loader on no stack; of a loader that no Accelerator has prepared."""
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn"}
    wanted = ids_of(DataLoader(dataset_of(data), batch_size=None, num_workers=2))
    loader = DataLoader(dataset_of(data, transform=noting), batch_size=None, **options)
    assert ids_of(accelerate.skip_first_batches(loader, 7)) == wanted[7:]
    assert sorted(noting.take()) == sorted(wanted[7:])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("name", ["data set", "rows, all"])
def test_bytes_of_skipped_row_groups_are_not_fetched(
    data: Path,
    origin: FaultyOrigin,  # noqa: F811
    name: str,
    num_workers: int,
) -> None:
    """The last batches of all shares are in the other two of three files."""
    origin.put_folder(data, "data")
    urls = [origin.url_of(f"data/{number}.parquet") for number in range(3)]
    one, other = (MAKERS[name](urls, shuffle=False, shuffle_window=None) for _ in range(2))
    wanted = ids_of(DataLoader(one, batch_size=None, num_workers=num_workers))
    loader = ParquetLoader(other, num_workers=num_workers)
    origin.requests.clear()
    assert ids_of(accelerate.skip_first_batches(loader, len(wanted) - 2)) == wanted[-2:]
    paths = {request.path for request in origin.requests}
    assert "/data/2.parquet" in paths
    assert "/data/0.parquet" not in paths


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("num_epochs", [2, None])
def test_an_iteration_of_several_epochs(data: Path, num_epochs: Any, num_workers: int) -> None:
    """Of about 50 batches each; several workers read what is dropped."""
    options: dict[str, Any] = {"num_workers": num_workers}
    endless = iter(DataLoader(uneven_shares(data, num_epochs=None), batch_size=None, **options))
    wanted = [next(endless)["row.id"].tolist() for _ in range(70)]
    del endless
    for num_skipped in (49, 55):
        loader = ParquetLoader(uneven_shares(data, num_epochs=num_epochs), **options)
        rest = iter(accelerate.skip_first_batches(loader, num_skipped))
        assert [next(rest)["row.id"].tolist() for _ in range(15)] == wanted[num_skipped:][:15]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_function_that_collates_gets_whole_batches(data: Path, num_workers: int) -> None:
    """Of batches that are dropped too, which are read then."""
    for batch_size, num_skipped in ((None, 7), (2, 3)):
        loader, other = (
            DataLoader(
                dataset_of(data),
                batch_size=batch_size,
                num_workers=num_workers,
                collate_fn=rows_of,
            )
            for _ in range(2)
        )
        wanted = list(other)[num_skipped:]
        assert list(accelerate.skip_first_batches(loader, num_skipped)) == wanted


def rows_of(batch: Any) -> Any:
    batches = [batch] if isinstance(batch, dict) else batch
    return [one["row.id"].tolist() for one in batches]


def test_a_loader_that_dispatches(accelerator: Any, data: Path) -> None:
    """Accelerate sends the batches of a data set that reads everything to its processes."""

    def prepared() -> Any:
        everything = dataset_of(data, rank=0, world_size=1)
        return accelerator.prepare(DataLoader(everything, batch_size=None))

    wanted = ids_of(prepared())
    assert sum(map(len, wanted)) == NUM_ROWS
    assert ids_of(accelerate.skip_first_batches(prepared(), 7)) == wanted[7:]
