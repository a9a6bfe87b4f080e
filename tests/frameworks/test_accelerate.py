"""Accelerate: a loader that it leaves alone, and the loaders of its own that are refused."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import check_killed_and_resumed, dataset_of, ids_of, stream_of
from tests.frameworks.jobs.running import run, torchrun
from torchparquet import mix

accelerate = pytest.importorskip("accelerate")
from torchparquet.frameworks.accelerate import ParquetLoader  # noqa: E402

JOB = Path(__file__).parent / "jobs" / "accelerate_job.py"


@pytest.fixture
def accelerator() -> Any:
    yield accelerate.Accelerator(cpu=True)
    accelerate.state.AcceleratorState._reset_state(True)
    accelerate.state.GradientState._reset_state()


def loaded(data: Path, **options: Any) -> ParquetLoader:
    return ParquetLoader(dataset_of(data), **options)


def test_it_is_left_alone(accelerator: Any, data: Any) -> None:
    """Also where Accelerate would have rank 0 read, or have each rank read a part."""
    for dispatch in (None, False):
        configuration = accelerate.utils.DataLoaderConfiguration(dispatch_batches=dispatch)
        accelerator.dataloader_config = configuration
        loader = loaded(data)
        assert accelerator.prepare(loader) is loader
        assert ids_of(loader) == stream_of(data, 0, 1, range(1))[0]
        assert len(loader) == 25


def test_a_look_is_at_one_batch(accelerator: Any, data: Any) -> None:
    wanted = stream_of(data, 0, 1, range(2))
    loader = accelerator.prepare(loaded(data))
    for epoch in range(2):
        assert next(iter(loader))["row.id"].tolist() == wanted[epoch][0]
        assert loader.dataset.epoch == epoch
        assert ids_of(loader) == wanted[epoch]


def test_batches_that_are_skipped_are_not_read(accelerator: Any, data: Any) -> None:
    """Also from a loaded state on; epochs then go on as usual."""
    wanted = stream_of(data, 0, 1, range(2))
    read: list[list[int]] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        read.append(batch["row.id"].tolist())
        return batch

    loader = accelerator.prepare(ParquetLoader(dataset_of(data, transform=note)))
    for num_before in (0, 5):
        loader.set_epoch(0)
        if num_before:
            before = dataset_of(data)
            before.seek(num_before)
            loader.load_state_dict(before.state_dict())
        read.clear()
        rest = ids_of(accelerate.skip_first_batches(loader, 7))
        assert rest == wanted[0][num_before + 7 :] == read
    assert ids_of(loader) == wanted[1]


@pytest.mark.parametrize("stopping", ["first_exhausted", "all_exhausted", "repeat"])
@pytest.mark.parametrize("num_skipped", [1, 7, 30])
def test_skipped_batches_of_a_mix_are_not_read(
    accelerator: Any, data: Any, stopping: Any, num_skipped: int
) -> None:
    """Of a mix of a mix, in whose epoch one data set ends, or begins again, within 30 batches."""
    read: list[list[int]] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        read.append(batch["row.id"].tolist())
        return batch

    def mixed() -> Any:
        one, two, three = (dataset_of(data, seed=seed, transform=note) for seed in range(3))
        inner = mix([one, two], weights=[3, 1], stopping=stopping)
        return mix([inner, three], weights=[1, 2], stopping=stopping)

    plain = mixed()
    wanted = [ids_of(plain) for _ in range(2)]
    assert len(wanted[0]) > 30
    loader = accelerator.prepare(ParquetLoader(mixed()))
    read.clear()
    rest = ids_of(accelerate.skip_first_batches(loader, num_skipped))
    assert rest == wanted[0][num_skipped:] == read
    assert ids_of(loader) == wanted[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_states_count_what_was_delivered(
    accelerator: Any, tmp_path: Path, data: Any, num_workers: int
) -> None:
    pytest.importorskip("torchdata")
    options = {"num_workers": num_workers, "persistent_workers": num_workers > 0}
    whole = loaded(data, **options)
    wanted = [ids_of(whole) for _ in range(3)]
    num_steps = len(wanted[0])
    loader = accelerator.prepare(loaded(data, **options))
    taken: list[list[int]] = []
    for step in (4, num_steps - 1, num_steps):
        loader.set_epoch(1)
        batches = iter(loader)
        taken = ids_of(islice(batches, step))
        accelerator.save_state(tmp_path / str(step))
        state = loader.state_dict()
        accelerator.free_memory()
        for by_accelerate in (True, False):
            resumed = accelerator.prepare(loaded(data, **options))
            if by_accelerate:
                accelerator.load_state(tmp_path / str(step))
            else:
                resumed.load_state_dict(state)
            rest = ids_of(resumed)
            if step < num_steps:
                assert taken + rest == wanted[1]
            else:
                assert rest == wanted[2]
            accelerator.free_memory()
        loader = accelerator.prepare(loaded(data, **options))


def test_the_last_batch_is_known(accelerator: Any, data: Any) -> None:
    for dataset in (dataset_of(data), mix([dataset_of(data, seed=seed) for seed in (1, 2)])):
        loader = accelerator.prepare(ParquetLoader(dataset))
        ends = [accelerator.gradient_state.end_of_dataloader for _ in loader]
        assert ends == [False] * (len(ends) - 1) + [True]
        assert not accelerator.gradient_state.in_dataloader
        for _ in loader:
            break
        assert not accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize("make", [dataset_of, lambda data: mix([dataset_of(data)])])
def test_a_dispatching_loader_is_refused(accelerator: Any, data: Any, make: Any) -> None:
    """In one process too, so that it does not wait for the second one to be found."""
    for batch_size in (None, 2):
        loader = accelerator.prepare(DataLoader(make(data), batch_size=batch_size))
        with pytest.raises(ValueError, match=r"rank 0 only.*ParquetLoader"):
            next(iter(loader))


def test_arguments(accelerator: Any, data: Any) -> None:
    with pytest.raises(TypeError, match="got list"):
        ParquetLoader([1, 2])  # type: ignore[arg-type]


def test_it_needs_an_accelerator(data: Any) -> None:
    with pytest.raises(RuntimeError, match="make the Accelerator first"):
        ParquetLoader(dataset_of(data))


def test_two_processes_killed_and_resumed(tmp_path: Path, data: Any) -> None:
    """Saved after step 18, when no gradients are accumulated: those are in no checkpoint."""
    check_killed_and_resumed(partial(torchrun, 2, JOB), data, tmp_path, saved=18, kill=21)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_evaluation_counts_each_row_once(tmp_path: Path, data: Any, num_ranks: int) -> None:
    run(torchrun(num_ranks, JOB.parent / "accelerate_evaluate.py", data), tmp_path)
