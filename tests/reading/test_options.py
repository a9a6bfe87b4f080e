"""Options of the reader: sizes, threads, pinning."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from torchparquet._impl.reading.read_options import ReadOptions, parse_size


@pytest.mark.parametrize(
    ("size", "num_bytes"),
    [
        (1, 1),
        ("1B", 1),
        ("512MiB", 512 << 20),
        ("1GiB", 1 << 30),
        ("1.5 GiB", 3 << 29),
        ("2gb", 2 * 10**9),
        (" 3 KB ", 3000),
        ("1G", 10**9),
        ("64k", 64_000),
        ("2Gi", 2 << 30),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes(size: int | str, num_bytes: int) -> None:
    assert parse_size("max_memory", size) == num_bytes


@pytest.mark.parametrize("size", [0, -1, "", "GiB", "1", "1 XB", "-1GiB", "0GiB", "1e3MB"])
def test_what_is_no_size_is_refused(size: int | str) -> None:
    with pytest.raises(ValueError, match="max_memory"):
        parse_size("max_memory", size)


@pytest.mark.parametrize("size", [1.5, None, True, b"1GiB"])
def test_what_has_no_size_type_is_refused(size: object) -> None:
    with pytest.raises(TypeError, match="max_memory"):
        parse_size("max_memory", size)  # type: ignore[arg-type]


@pytest.mark.parametrize("num_threads", [0, -1, 1025])
def test_number_of_threads_is_bounded(num_threads: int) -> None:
    with pytest.raises(ValueError, match="num_threads"):
        ReadOptions(num_threads=num_threads)


def test_processors_are_shared_by_ranks_and_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert ReadOptions().threads_per_worker(1) == 12
    assert ReadOptions().threads_per_worker(5) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ReadOptions().threads_per_worker(1) == 3
    assert ReadOptions().threads_per_worker(100) == 1
    assert ReadOptions(num_threads=7).threads_per_worker(3) == 7


SLURM = ("SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", "SLURM_CPUS_ON_NODE")


@pytest.mark.parametrize(
    ("tasks", "node", "of_node", "usable", "threads"),
    [
        ("4", "0", "12", 12, 3),
        ("4(x2),2", "1", "12", 12, 3),
        ("4(x2),2", "2", "12", 12, 6),
        ("4(x2),2", "", "12", 12, 3),
        # Tasks that are bound to processors of their own, or of a socket.
        ("4", "0", "12", 3, 3),
        ("4", "0", "12", 6, 3),
        ("4", "0", "", 12, 3),
        ("1", "0", "12", 12, 12),
        ("a lot", "0", "12", 12, 12),
    ],
)
def test_processors_are_shared_by_tasks_of_slurm(
    monkeypatch: pytest.MonkeyPatch,
    tasks: str,
    node: str,
    of_node: str,
    usable: int,
    threads: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for name, value in zip(SLURM, (tasks, node, of_node), strict=True):
        monkeypatch.setenv(name, value)
    assert ReadOptions().threads_per_worker(1) == threads
    # A launcher within the task knows better.
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(usable))
    assert ReadOptions().threads_per_worker(1) == 1


@pytest.mark.parametrize(("host", "threads"), [("localhost", 3), ("127.0.0.1", 3), (None, 12)])
def test_processors_are_shared_by_ranks_whose_store_is_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str | None, threads: int
) -> None:
    """As under `torch.multiprocessing.spawn`. Of other stores nobody knows who uses them."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    for name in ("LOCAL_WORLD_SIZE", *SLURM):
        monkeypatch.delenv(name, raising=False)
    store = fake.FakeStore()
    if host is not None:
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    dist.init_process_group("fake", store=store, rank=0, world_size=4)
    try:
        assert ReadOptions().threads_per_worker(1) == threads
    finally:
        dist.destroy_process_group()
    assert ReadOptions().threads_per_worker(1) == 12


def test_memory_is_shared_by_workers() -> None:
    assert ReadOptions(max_memory="1GiB").memory_per_worker(4) == 1 << 28


def test_pin_memory_is_a_bool() -> None:
    with pytest.raises(TypeError, match="pin_memory"):
        ReadOptions(pin_memory=1)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is available")
def test_pinning_without_cuda_warns_and_reads(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from torchparquet import ParquetDataset

    pq.write_table(pa.table({"a": range(10)}), tmp_path / "a.parquet")
    dataset = ParquetDataset(tmp_path, batch_size=4, pin_memory=True)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        batches = list(dataset)
    assert torch.cat([batch["a"] for batch in batches]).tolist() == list(range(10))
