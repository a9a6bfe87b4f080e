"""Lightning: epochs, states and lengths, in this process and in jobs of two."""

from __future__ import annotations

import importlib.metadata
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import (
    NUM_ROWS,
    assert_each_row_once,
    dataset_of,
    ids_of,
    read_lines,
    stream_of,
    streams,
)
from tests.frameworks.jobs.running import python, run
from torchparquet import MixedDataset, mix

pl = pytest.importorskip("lightning.pytorch")
from tests.frameworks.jobs.lightning_modules import FailedStepError, recording_module, trainer_of  # noqa: E402

HERE = Path(__file__).parent
NUM_STEPS = 25  # of one rank
GROUP = "lightning.pytorch.callbacks_factory"

if not any(one.name == "torchparquet" for one in importlib.metadata.entry_points(group=GROUP)):
    pytest.skip(
        "torchparquet is not installed, so Lightning cannot find it", allow_module_level=True
    )


def loader_of(kind: str, data: Path) -> Any:
    dataset = dataset_of(data)
    kind, _, num_workers = kind.partition(":")
    if kind == "bare":
        return dataset
    if kind == "plain":
        return DataLoader(dataset, batch_size=None, num_workers=int(num_workers))
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    return stateful(dataset, batch_size=None, num_workers=int(num_workers))


def expected(kind: str, data: Path, epochs: range) -> Any:
    """The stream of a loader that is not interrupted, by a loop without Lightning."""
    return stream_of(data, 0, 1, epochs, num_workers=int(kind.partition(":")[2] or 0))


def of(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"] == what]


class Fit:
    """One `fit`, and what it was trained on."""

    def __init__(
        self,
        tmp_path: Path,
        loader: Any,
        *,
        fail_at: int | None = None,
        resume: object = None,
        **options: Any,
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        stop = None if fail_at is None else ("raise", fail_at)
        self.module = recording_module(pl, self.lines.append, stop)
        self.trainer = trainer_of(pl, tmp_path, **({"max_epochs": 3} | options))
        checkpoint = None if resume is None else tmp_path / f"{resume}.ckpt"
        try:
            self.trainer.fit(self.module, loader, ckpt_path=checkpoint)
        except FailedStepError:
            assert fail_at is not None

    def of(self, what: str) -> list[dict[str, Any]]:
        return of(self.lines, what)

    @property
    def weights(self) -> list[float]:
        return torch.cat([one.flatten() for one in self.module.parameters()]).tolist()


KINDS = ["bare", "plain:0", "stateful:0", "stateful:2"]


@pytest.mark.parametrize("kind", [*KINDS, "plain:2"])
def test_epochs_are_lightnings(tmp_path: Path, data: Any, kind: str) -> None:
    """Also in a second `fit` of the same data set, which begins with epoch 0 again."""
    loader = loader_of(kind, data)
    wanted = expected(kind, data, range(2))
    for _ in range(2):
        fit = Fit(tmp_path, loader, max_epochs=2)
        assert streams(fit.of("train")) == wanted
        assert fit.module.num_steps == 2 * len(wanted[0])
        assert {line["number"] for line in fit.of("length")} == {len(wanted[0])}


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_goes_on_exactly(tmp_path: Path, data: Any, kind: str) -> None:
    """From within an epoch, from its last batch and after it; with the weights of no stop."""
    wanted = expected(kind, data, range(3))
    num_steps = len(wanted[0])
    steps = (5, num_steps - 1, num_steps, num_steps + 1, 2 * num_steps)
    whole = Fit(tmp_path, loader_of(kind, data), save_at=steps)
    assert streams(whole.of("train")) == wanted
    for step in steps:
        rest = Fit(tmp_path, loader_of(kind, data), resume=step)
        assert streams(whole.of("train")[:step] + rest.of("train")) == wanted, step
        assert len(rest.of("train")) == 3 * num_steps - step
        assert rest.weights == whole.weights


@pytest.mark.parametrize("kind", ["bare", "plain:0"])
@pytest.mark.parametrize("step", [3, NUM_STEPS + 4])
def test_the_batch_of_a_step_that_failed_is_read_again(
    tmp_path: Path, data: Any, kind: str, step: Any
) -> None:
    wanted = expected(kind, data, range(3))
    first = Fit(tmp_path, loader_of(kind, data), fail_at=step)
    rest = Fit(tmp_path, loader_of(kind, data), resume="failed")
    assert streams(first.of("train") + rest.of("train")) == wanted
    assert len(first.of("train")) == step
    assert len(rest.of("train")) == 3 * NUM_STEPS - step


@pytest.mark.parametrize("kind", ["bare", "plain"])
def test_several_data_sets_and_a_mix(tmp_path: Path, data: Any, kind: str) -> None:
    """Loaders in a dict: a mix, a data set in a plain DataLoader."""

    def mixed() -> MixedDataset:
        return mix([dataset_of(data, seed=5), dataset_of(data, seed=6)], seed=1)

    def loaders() -> dict[str, Any]:
        first = mixed() if kind == "bare" else DataLoader(mixed(), batch_size=None)
        return {"a": first, "b": [DataLoader(dataset_of(data), batch_size=None)]}

    dataset = mixed()
    wanted = {epoch: ids_of(dataset) for epoch in range(3)}
    steps = (3, len(wanted[0]) - 2, len(wanted[0]) + 4)
    whole = Fit(tmp_path, loaders(), save_at=steps)
    assert streams(whole.of("train")) == wanted
    for step in steps:
        rest = Fit(tmp_path, loaders(), resume=step)
        for what in ("train", "other"):
            assert whole.of(what)[step:] == rest.of(what), (step, what)
        assert rest.weights == whole.weights


def test_workers_of_a_plain_loader_have_no_state(tmp_path: Path, data: Any) -> None:
    kind = "plain:2"
    with pytest.warns(UserWarning, match="StatefulDataLoader"):
        Fit(tmp_path, loader_of(kind, data), max_epochs=1, save_at=[5])
    with pytest.raises(ValueError, match="rows would be read twice"):
        Fit(tmp_path, loader_of(kind, data), resume=5)


def test_lengths(tmp_path: Path, data: Any) -> None:
    """Validation by a fraction of an epoch, epochs by a fraction of a data set."""
    dataset, validation = dataset_of(data), dataset_of(data, shuffle=False, shuffle_window=None)
    lines: list[dict[str, Any]] = []
    trainer = trainer_of(pl, tmp_path, max_epochs=2, val_check_interval=0.4)
    trainer.fit(recording_module(pl, lines.append), dataset, validation)
    seen = [line["step"] for line in of(lines, "validate")]
    assert sorted(set(seen)) == [10, 20, 35, 45]
    assert len(seen) == 4 * len(validation)
    fit = Fit(tmp_path, dataset, max_epochs=2, limit_train_batches=0.2)
    wanted = expected("bare", data, range(2))
    assert streams(fit.of("train")) == {epoch: wanted[epoch][:5] for epoch in wanted}


def test_a_state_loaded_by_hand_stays_or_is_said_to_go(tmp_path: Path, data: Any) -> None:
    """Lightning's first epoch is 0. What its own checkpoints lead to drops no state."""
    wanted = expected("bare", data, range(2))
    for epoch in range(2):
        dataset = dataset_of(data)
        dataset.set_epoch(epoch)
        dataset.seek(4)
        resumed = dataset_of(data)
        resumed.load_state_dict(dataset.state_dict())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = Fit(tmp_path, resumed, max_epochs=1)
        said = [one for one in caught if "ckpt_path" in str(one.message)]
        assert len(said) == epoch
        assert streams(fit.of("train"))[0] == wanted[0][4 if epoch == 0 else 0 :]


def test_the_other_package(tmp_path: Path, data: Any) -> None:
    """`import pytorch_lightning` finds a callback of its own."""
    other = pytest.importorskip("pytorch_lightning")
    lines: list[dict[str, Any]] = []
    dataset = dataset_of(data)
    for _ in range(2):
        trainer = trainer_of(other, tmp_path, max_epochs=1)
        trainer.fit(recording_module(other, lines.append), dataset)
    ids = [line["ids"] for line in of(lines, "train")]
    assert ids == 2 * expected("bare", data, range(1))[0]


# Two processes


def test_spawned_processes(tmp_path: Path, data: Any) -> None:
    """A Trainer of other data goes to them too, and loads nothing of this package."""
    program = HERE / "jobs" / "lightning_spawn.py"
    output = run(python(program), tmp_path)
    for words in ("rank 0: 8 rows, False", "rank 1: 8 rows, False", "main: False"):
        assert words in output
    output = run(python(program, data), tmp_path)
    for rank in range(2):
        assert f"rank {rank}: {NUM_ROWS // 2} rows, True" in output


def job(data: Path, out: Path, *arguments: str, fails: bool = False) -> list[list[dict[str, Any]]]:
    """Run the job, which starts its second process itself; what each rank wrote down."""
    out.mkdir(exist_ok=True)
    run(python(HERE / "jobs" / "lightning_job.py", data, out, *arguments), out, fails)
    return [read_lines(out, rank) for rank in range(2)]


def test_two_processes_killed_and_resumed(tmp_path: Path, data: Any) -> None:
    """Each reads its half, nothing twice; killed within an epoch they end as if they were not."""
    wanted = [stream_of(data, rank, 2, range(3)) for rank in range(2)]
    whole = job(data, tmp_path / "whole", "--validate")
    for rank in range(2):
        assert streams(of(whole[rank], "train")) == wanted[rank]
        steps = [line["step"] for line in of(whole[rank], "validate")]
        assert sorted(set(steps)) == [6, 12, 19, 25, 32, 38]
        assert {line["number"] for line in of(whole[rank], "length")} == {13}
    for epoch in range(3):
        assert_each_row_once([streams(of(rank, "train"))[epoch] for rank in whole])
    for what in ("test", "predict"):
        assert_each_row_once([[line["ids"] for line in of(rank, what)] for rank in whole])

    out = tmp_path / "killed"
    first = job(data, out, "--save-at", "20", "--kill", "22", fails=True)
    assert all(len(of(rank, "train")) in (22, 23) for rank in first)
    job(data, out, "--resume", str(out / "20.ckpt"))
    for rank in range(2):
        lines = of(read_lines(out, rank), "train")
        # Batches after the checkpoint were trained on again.
        assert streams(lines) == wanted[rank]
        assert len(lines) == len(of(first[rank], "train")) + 3 * 13 - 20
        weights = [torch.load(folder / f"{rank}.pt") for folder in (tmp_path / "whole", out)]
        assert str(weights[0]) == str(weights[1])
        assert all(map(torch.equal, *(one.values() for one in weights)))
