"""Metrics on their way to loggers: each point is of the steps since the one before."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import BATCH_SIZE, dataset_of
from torchparquet import mix
from torchparquet.frameworks.metrics import MetricsLog


class Writer:
    """Keeps what it is given, as TensorBoard's writer would."""

    def __init__(self) -> None:
        self.scalars: dict[str, list[tuple[int, float]]] = {}
        self.texts: list[tuple[str, str, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.scalars.setdefault(tag, []).append((global_step, scalar_value))

    def add_text(self, tag: str, text_string: str, global_step: int) -> None:
        self.texts.append((tag, text_string, global_step))


@pytest.mark.parametrize("in_loader", [False, True])
def test_points_are_of_intervals(data: Any, in_loader: bool) -> None:
    dataset, writer = dataset_of(data), Writer()
    loader = DataLoader(dataset, batch_size=None) if in_loader else dataset
    log = MetricsLog(loader, writer, every_n_steps=10)
    written = []
    for _ in range(2):  # epochs of 25 steps
        for _ in loader:
            written.append(log.step())
    assert [metrics is not None for metrics in written] == [n % 10 == 9 for n in range(50)]
    assert writer.scalars["data/batches"] == [(step, 10) for step in (10, 20, 30, 40, 50)]
    assert sum(rows for _, rows in writer.scalars["data/rows"]) == 2 * 400
    assert writer.scalars["data/rows"][:1] == [(10, 10 * BATCH_SIZE)]
    assert not any("column" in tag for tag in writer.scalars)
    assert [(tag, step) for tag, _, step in writer.texts] == [
        ("data/bottleneck", step) for step in (10, 20, 30, 40, 50)
    ]


def test_columns_and_steps_of_the_caller(data: Any) -> None:
    dataset, writer = dataset_of(data), Writer()
    log = MetricsLog(dataset, writer, every_n_steps=5, columns=True, prefix="train/")
    for number, _ in enumerate(dataset):
        log.step(number * 100)
    points = writer.scalars["train/column/x0/bytes_produced"]
    assert points[0] == (400, 5 * BATCH_SIZE * 4)


def test_a_mix_is_logged(data: Any) -> None:
    dataset, writer = mix([dataset_of(data), dataset_of(data, seed=4)]), Writer()
    log = MetricsLog(dataset, writer, every_n_steps=10)
    for _ in dataset:
        log.step()
    assert writer.scalars["data/batches"][0] == (10, 10)


def test_what_cannot_be_logged(data: Any) -> None:
    loader = DataLoader(dataset_of(data), batch_size=None, num_workers=2)
    with pytest.raises(ValueError, match="num_workers=2"):
        MetricsLog(loader, Writer())
    with pytest.raises(TypeError, match="got list"):
        MetricsLog([], Writer())
    with pytest.raises(ValueError, match="every_n_steps must be at least 1, got 0"):
        MetricsLog(dataset_of(data), Writer(), every_n_steps=0)


# Lightning


def fit(
    tmp_path: Path, loader: Any, package: str, **options: Any
) -> list[tuple[int, dict[Any, Any]]]:
    """Train for two epochs; what a logger of Lightning's was given of the data."""
    pl = pytest.importorskip(package)
    from tests.frameworks.jobs.lightning_modules import recording_module, trainer_of
    from torchparquet.frameworks.lightning import metrics_callback

    loggers = pytest.importorskip(f"{package}.loggers")
    given: list[tuple[int, dict[Any, Any]]] = []

    class Recording(loggers.logger.DummyLogger):  # type: ignore[name-defined]
        def log_metrics(self, metrics: Any, step: Any = None) -> None:
            given.append((step, dict(metrics)))

    callback = metrics_callback(10, package=package, **options)
    trainer = trainer_of(pl, tmp_path, max_epochs=2, logger=Recording())
    trainer.callbacks.append(callback)
    trainer.fit(recording_module(pl, lambda line: None), loader)
    return [(step, one) for step, one in given if any(name.startswith("data/") for name in one)]


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_logs_intervals(tmp_path: Path, data: Any, package: str) -> None:
    points = fit(tmp_path, dataset_of(data), package)
    assert [step for step, _ in points] == [10, 20, 35, 45]
    # Batches that Lightning has taken ahead are in the interval in which they were read.
    taken = [one["data/batches"] for _, one in points]
    assert sum(taken) in range(45, 48)
    assert all(8 <= batches <= 16 for batches in taken)


def test_lightning_logs_several(tmp_path: Path, data: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", module="lightning")
        loaders = {"a": dataset_of(data), "b": [DataLoader(dataset_of(data), batch_size=None)]}
        points = fit(tmp_path, loaders, "lightning.pytorch", columns=True)
    assert {"data/0/rows", "data/1/rows", "data/1/column/x0/bytes_read"} <= set(points[0][1])


def test_lightning_says_that_workers_read(tmp_path: Path, data: Any) -> None:
    loader = DataLoader(dataset_of(data), batch_size=None, num_workers=1)
    with pytest.warns(UserWarning, match="known to the workers only"):
        assert fit(tmp_path, loader, "lightning.pytorch") == []
