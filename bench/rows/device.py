"""Batches on an accelerator: how fast they are copied, what the loop waits for, what arrives."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from generated.generated_files import click_logs
from report.verdicts import Outcome, Row, Setting, SkippedError, Target, Verdict
from torchparquet import ParquetDataset
from torchparquet._impl.reading.device_stage import CopyStreams, resolved_device

_NUM_COPIES = 200
_NUM_SUMMED = 10_000
_NAME = "label"


def measure(setting: Setting) -> Outcome:
    """Copies by the loader's own streams; a loop with and without its data; sums of batches."""
    if not torch.accelerator.is_available():
        raise SkippedError("torch finds no accelerator")
    found = torch.accelerator.current_accelerator()
    assert found is not None
    device = resolved_device(found)
    path = click_logs(setting, ("none",))["none"]
    outcome = Outcome()
    outcome.verdicts.append(_copy_rate(device, path, setting))
    outcome.verdicts.append(_overlap(device, path, setting))
    outcome.verdicts.append(_correctness(device, path, setting))
    return outcome


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    torch.accelerator.synchronize(device)
    begin = time.perf_counter()
    work()
    torch.accelerator.synchronize(device)
    return time.perf_counter() - begin


def _in_turns(
    device: torch.device, ours: Callable[[], object], other: Callable[[], object], repeats: int
) -> tuple[float, float, list[float]]:
    """The median seconds of both, and how many times as fast ours is in each round."""
    rounds = [(_seconds(device, ours), _seconds(device, other)) for _ in range(repeats)]
    own, against = (statistics.median(side) for side in zip(*rounds, strict=True))
    return own, against, [theirs / mine for mine, theirs in rounds]


def _copy_rate(device: torch.device, path: Path, setting: Setting) -> Verdict:
    """The slabs of batches as the loader copies them, beside plain copies of as many bytes."""
    dataset = ParquetDataset(path, batch_size=setting.batch_size)
    slab_bytes = next(iter(dataset))[_NAME].untyped_storage().nbytes()
    slabs = [torch.zeros(slab_bytes, dtype=torch.uint8).pin_memory() for _ in range(2)]
    into = [torch.empty(slab_bytes, dtype=torch.uint8, device=device) for _ in range(2)]
    streams = CopyStreams(device)

    def ours() -> None:
        before = None
        for number in range(_NUM_COPIES):
            arriving = streams.begin_copies([slabs[number % 2]])
            if before is not None:
                streams.await_copies(*before)
            before = arriving

    def plain() -> None:
        for number in range(_NUM_COPIES):
            into[number % 2].copy_(slabs[number % 2], non_blocking=True)

    for warm_up in (ours, plain):
        warm_up()
    own, other, ratios = _in_turns(device, ours, plain, setting.repeats)
    gigabytes = _NUM_COPIES * slab_bytes / 1e9
    return Verdict(
        "copies",
        f"{gigabytes / own:.2f} GB/s",
        f"plain copies out of page-locked memory: {gigabytes / other:.2f} GB/s",
        statistics.median(ratios),
        (min(ratios), max(ratios)),
        Target(0.9),
    )


def _overlap(device: torch.device, path: Path, setting: Setting) -> Verdict:
    """A loop that computes half as long again as reading takes, with its data and without."""
    dataset = ParquetDataset(path, batch_size=setting.batch_size, device=device)
    num_steps = sum(1 for _ in dataset)
    reading = _seconds(device, lambda: deque(dataset, maxlen=0)) / num_steps
    matrix = torch.ones(1024, 1024, device=device)
    matrix @ matrix  # loads the kernel
    once = _seconds(device, lambda: [matrix @ matrix for _ in range(20)]) / 20
    num_products = max(1, round(1.5 * reading / once))

    def compute(batches: Iterable[Any]) -> None:
        for _ in batches:
            for _ in range(num_products):
                matrix @ matrix

    own, without, ratios = _in_turns(
        device, lambda: compute(dataset), lambda: compute(range(num_steps)), setting.repeats
    )
    milliseconds = 1e3 / num_steps
    return Verdict(
        "overlap",
        f"{milliseconds * own:.2f} ms a step",
        f"computing alone: {milliseconds * without:.2f} ms (reading alone: {1e3 * reading:.2f} ms)",
        statistics.median(ratios),
        (min(ratios), max(ratios)),
    )


def _sums(batches: Iterable[dict[str, Tensor]]) -> list[Tensor]:
    """One number for each batch, of all its tensors; on a device it is there later."""
    sums = []
    for batch in batches:
        values = (value.sum() for value in batch.values())
        sums.append(torch.stack(list(values)))
        if len(sums) == _NUM_SUMMED:
            break
    return sums


def _correctness(device: torch.device, path: Path, setting: Setting) -> Verdict:
    """Sums taken on the device, beside the loop, while memory of earlier batches is used again."""
    options: dict[str, Any] = {"batch_size": 64 if setting.quick else 256, "num_epochs": None}
    options |= {"columns": [f"category_{i:02d}" for i in range(26)], "max_memory": "4MB"}
    on_device = _sums(ParquetDataset(path, **options, device=device))
    on_host = _sums(ParquetDataset(path, **options))
    equal = sum(
        torch.equal(mine.cpu(), other) for mine, other in zip(on_device, on_host, strict=True)
    )
    share = equal / len(on_host)
    return Verdict(
        "sums of batches",
        f"{equal:,} equal",
        f"{len(on_host):,} on the host",
        share,
        None,
        Target(1.0),
    )


ROWS = (
    Row(
        "device",
        "click log, uncompressed, delivered on an accelerator",
        "plain copies; computing without data; sums on the host",
        measure,
    ),
)
