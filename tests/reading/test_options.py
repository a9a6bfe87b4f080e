"""Options of the reader: sizes, threads, pinning."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
import torch
import torch.distributed as dist

from torchparquet import ParquetDataset
from torchparquet._impl.reading.read_options import ReadOptions, parse_size

SIZES = {1: 1, "1B": 1, "512MiB": 512 << 20, "1GiB": 1 << 30, "1.5 GiB": 3 << 29, "2gb": 2 * 10**9}
SIZES |= {" 3 KB ": 3000, "1G": 10**9, "64k": 64_000, "2Gi": 2 << 30, "1TiB": 1 << 40}


@pytest.mark.parametrize("size", SIZES)
def test_sizes(size: Any) -> None:
    assert parse_size("max_memory", size) == SIZES[size]
    assert ReadOptions(max_memory=size).memory_per_worker(4) == SIZES[size] // 4


SLURM = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_CPUS_ON_NODE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve processors, and no variable that divides them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    for name in ("LOCAL_WORLD_SIZE", *SLURM):
        monkeypatch.delenv(name, raising=False)


def test_processors_are_shared_by_ranks_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ReadOptions().threads_per_worker(1) == 12
    assert ReadOptions().threads_per_worker(5) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ReadOptions().threads_per_worker(1) == 3
    assert ReadOptions().threads_per_worker(100) == 1
    assert ReadOptions(num_threads=7).threads_per_worker(3) == 7


@pytest.mark.parametrize(
    ("slurm", "usable", "threads"),
    [
        (("4", "0", "12"), 12, 3),
        (("4(x2),2", "1", "12"), 12, 3),
        (("4(x2),2", "2", "12"), 12, 6),
        (("4(x2),2", "", "12"), 12, 3),
        # Tasks that are bound to processors of their own, or of a socket.
        (("4", "0", "12"), 3, 3),
        (("4", "0", "12"), 6, 3),
        (("4", "0", ""), 12, 3),
        (("1", "0", "12"), 12, 12),
        (("a lot", "0", "12"), 12, 12),
    ],
)
def test_processors_are_shared_by_tasks_of_slurm(
    monkeypatch: pytest.MonkeyPatch, slurm: tuple[str, ...], usable: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    for name, value in zip(SLURM, slurm, strict=True):
        monkeypatch.setenv(name, value)
    assert ReadOptions().threads_per_worker(1) == threads
    # A launcher within the task knows better.
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(usable))
    assert ReadOptions().threads_per_worker(1) == 1


@pytest.mark.parametrize(("host", "threads"), [("localhost", 3), ("127.0.0.1", 3), (None, 12)])
def test_processors_are_shared_by_ranks_whose_store_is_of_this_machine(
    host: str | None, threads: int
) -> None:
    """As under `torch.multiprocessing.spawn`. Of other stores nobody knows who uses them."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    store = fake.FakeStore()
    if host is not None:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    dist.init_process_group("fake", store=store, rank=0, world_size=4)
    try:
        assert ReadOptions().threads_per_worker(1) == threads
    finally:
        dist.destroy_process_group()
    assert ReadOptions().threads_per_worker(1) == 12


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_pinning_without_cuda_warns_and_reads() -> None:
    dataset = ParquetDataset(pa.table({"a": range(10)}), batch_size=4, pin_memory=True)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        batches = list(dataset)
    assert torch.cat([batch["a"] for batch in batches]).tolist() == list(range(10))
