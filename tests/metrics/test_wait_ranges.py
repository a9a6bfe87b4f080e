"""Waits for batches as ranges in the traces that torch.profiler exports, and for NVTX."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader

from tests.fixtures.datasets import opener
from torchparquet import CorruptFileError, mix
from torchparquet._impl.metrics import wait_ranges
from torchparquet._impl.metrics.wait_ranges import WAIT_RANGE

NUM_BATCHES = 7


@pytest.fixture
def data(tmp_path: Path) -> str:
    table = pa.table({"id": np.arange(10 * NUM_BATCHES)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=16)
    return str(tmp_path)


open_dataset = opener(rank=0, world_size=1, batch_size=10)


def traced(batches: Iterable[Any], path: Path, **options: Any) -> list[dict[Any, Any]]:
    """The events of a loop over the batches, as the profiler exports them."""
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for batch in batches:
            with record_function("train"):
                sum(batch.values()).double().sum()
            profiler.step()
    if not options:
        profiler.export_chrome_trace(str(path))
    return [event for event in json.loads(path.read_text())["traceEvents"] if "dur" in event]


def named(events: list[dict[Any, Any]], name: str) -> list[dict[Any, Any]]:
    return sorted((event for event in events if event["name"] == name), key=lambda e: e["ts"])


@pytest.mark.parametrize("how", ["plain", "loader", "dynamic"])
def test_each_wait_is_a_range_between_the_steps(data: Any, tmp_path: Path, how: str) -> None:
    dataset = open_dataset(data, even="dynamic" if how == "dynamic" else "split")
    num_batches = sum(1 for _ in dataset)
    batches: Any = DataLoader(dataset, batch_size=None) if how == "loader" else dataset
    events = traced(batches, tmp_path / "trace.json")
    waits, steps = named(events, WAIT_RANGE), named(events, "train")
    assert len(steps) == num_batches
    # The last wait finds that the epoch is over.
    assert len(waits) == num_batches + 1
    assert {event["tid"] for event in waits} == {event["tid"] for event in steps}
    for wait, step, after in zip(waits, steps, waits[1:], strict=False):
        assert wait["ts"] + wait["dur"] <= step["ts"]
        assert step["ts"] + step["dur"] <= after["ts"]


def test_the_sources_of_a_mix(data: Any, tmp_path: Path) -> None:
    mixed = mix([open_dataset(data), open_dataset(data)])
    # A mix knows beforehand where it ends, and asks no source then.
    assert len(mixed) == 2 * NUM_BATCHES
    waits = named(traced(mixed, tmp_path / "trace.json"), WAIT_RANGE)
    assert len(waits) == 2 * NUM_BATCHES


def test_a_schedule_sees_the_waits_of_its_steps(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = traced(
        open_dataset(data),
        path,
        schedule=schedule(wait=2, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    )
    assert len(named(events, "train")) == 3
    assert len(named(events, WAIT_RANGE)) == 3


def test_nobody_who_traces_nothing_pays_for_ranges(data: Any, monkeypatch: Any) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(wait_ranges, "record_function", refuse)
    assert sum(1 for _ in open_dataset(data)) == NUM_BATCHES
    with profile(activities=[ProfilerActivity.CPU]), pytest.raises(AssertionError):
        next(iter(open_dataset(data)))


@pytest.fixture
def nvtx_ranges(monkeypatch: Any) -> list[str | None]:
    """The calls to NVTX if CUDA is available: a name opens a range, None closes it."""
    told: list[str | None] = []
    monkeypatch.setattr(wait_ranges, "_has_nvtx", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: told.append(None))
    return told


def test_nvtx_ranges_open_and_close(data: Any, nvtx_ranges: list[str | None]) -> None:
    """Also at an error. The profiler makes NVTX ranges of its own where it is asked to."""
    dataset = open_dataset(data)
    with profile(activities=[ProfilerActivity.CPU]):
        assert sum(1 for _ in dataset) == NUM_BATCHES
    assert not nvtx_ranges
    for _ in dataset:
        assert nvtx_ranges[-1] is None
    assert nvtx_ranges == [WAIT_RANGE, None] * (NUM_BATCHES + 1)
    nvtx_ranges.clear()
    dataset = open_dataset(data)
    (Path(data) / "a.parquet").write_bytes(b"another file")
    with pytest.raises(CorruptFileError):
        next(iter(dataset))
    assert nvtx_ranges == [WAIT_RANGE, None]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")
def test_nvtx_where_cuda_is_available(data: Any, monkeypatch: Any) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", told.append)
    assert sum(1 for _ in open_dataset(data)) == NUM_BATCHES
    assert set(told) == {WAIT_RANGE}
