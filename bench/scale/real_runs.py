"""Real ranks, as processes of this machine, with every request of both stores counted.

Ranks are forked after imports, so these are outside of all times. Each has a connection of its own
to a TCPStore of this process. Consecutive ranks are on one node: a node is a folder that its ranks
share. Phases begin together.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import s3fs  # noqa: F401, imported before ranks are forked
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from stores.nginx import Distance, Place, store
from stores.readers import options_of_s3
from torchparquet import ParquetDataset
from torchparquet._impl.files.remote import node_files

# Statistics do not decide it.
CONDITION = "user % 7 = 3"
PHASES = ("open", "first batch", "second batch")
_SECONDS = 300


@dataclass(frozen=True)
class Job:
    """A run of real ranks.

    Attributes:
        num_ranks: Of the job.
        ranks_per_node: Of each node but the last.
        num_files: Of one folder, of one row group each.
        latency_seconds: Before each answer of the store of objects.
        filters: A condition; None for all rows.
        has_cache: A manifest cache that nobody has written yet.
        again: Ranks open the data set twice, the second time from the cache: a restart.
    """

    num_ranks: int
    ranks_per_node: int
    num_files: int
    latency_seconds: float
    filters: str | None = None
    has_cache: bool = False


@dataclass(frozen=True)
class Phase:
    """The requests and seconds of all ranks in a phase.

    Attributes:
        seconds: Of the slowest rank.
        operations: Of torch.distributed's store, by name.
        requests: Of the store of objects: lists, looks, whole objects and ranges.
        answered_bytes: Of the store of torch.distributed, to all ranks.
    """

    seconds: float
    operations: dict[str, int]
    requests: dict[str, int]
    answered_bytes: int


class CountedStore:
    """A store of torch.distributed that counts what is asked of it."""

    def __init__(self, inner: Any) -> None:
        """Count nothing yet."""
        self._inner, self.counts, self.answered_bytes = inner, Counter[str](), 0

    def __getattr__(self, name: str) -> Any:
        """Return a counting function of the store, or a value."""
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def counted(*given: Any) -> Any:
            answer = found(*given)
            self.counts[name] += 1
            answers = answer if isinstance(answer, list) else [answer]
            self.answered_bytes += sum(len(one) for one in answers if isinstance(one, bytes))
            return answer

        return counted


def write_files(folder: Path, num_files: int, rows: int = 200) -> None:
    """Writes files of two columns, one row group each."""
    rng = np.random.default_rng(5)
    for number in range(num_files):
        columns = {"user": rng.integers(0, 1000, rows), "value": rng.random(rows)}
        pq.write_table(pa.table(columns), folder / f"{number:06}.parquet")


def run(job: Job) -> list[Phase]:
    """Runs the ranks of a job, and returns what they did in each phase."""
    with (
        tempfile.TemporaryDirectory() as files,
        tempfile.TemporaryDirectory() as work,
        tempfile.TemporaryDirectory(prefix="torchparquet-store-") as folder,
    ):
        write_files(Path(files), job.num_files)
        distance = Distance(job.latency_seconds * 1e3, late_share=0, connection_kb_per_second=0)
        log = Path(work) / "requests.log"
        with store(Path(folder), {"files": Path(files)}, [distance], log) as (endpoint,):
            context = multiprocessing.get_context("fork")
            barrier, results = context.Barrier(job.num_ranks), context.SimpleQueue()
            ports = context.SimpleQueue()
            ranks = [
                context.Process(
                    target=_rank,
                    args=(rank, job, endpoint, ports, Path(work), barrier, results),
                )
                for rank in range(job.num_ranks)
            ]
            for one in ranks:
                one.start()
            # Its thread looks up names, under a lock that a rank forked meanwhile never gets.
            server = TCPStore(
                "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True
            )
            for _ in ranks:
                ports.put(server.port)
            found = [results.get() for _ in ranks]
            for one in ranks:
                one.join()
            lines = [line.split() for line in log.read_text().splitlines()]
    phases = []
    for number in range(len(PHASES)):
        of_ranks = [of[number] for of in found]
        if any(isinstance(of, str) for of in of_ranks):
            raise RuntimeError(next(of for of in of_ranks if isinstance(of, str)))
        begins, ends, counts, num_bytes = zip(*of_ranks, strict=True)
        between = (min(begins), max(ends))
        requests = Counter(
            _kind(line) for line in lines if between[0] <= float(line[0]) <= between[1] + 0.002
        )
        operations = sum((Counter(of) for of in counts), Counter[str]())
        phases.append(
            Phase(between[1] - between[0], dict(operations), dict(requests), sum(num_bytes))
        )
    return phases


def _kind(line: list[str]) -> str:
    _, method, address, range_, _ = line
    if re.search(r"[?&]list-type=2", address):
        return "list"
    if method == "HEAD":
        return "look"
    return "object" if range_ == "-" else "range"


def _rank(
    rank: int, job: Job, endpoint: str, ports: Any, work: Path, barrier: Any, results: Any
) -> None:
    """Be one rank, and tell when each phase began and ended, what was asked, and bytes."""
    node = rank // job.ranks_per_node
    here = min(job.ranks_per_node, job.num_ranks - node * job.ranks_per_node)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.num_ranks)}
    os.environ |= {"LOCAL_RANK": str(rank % job.ranks_per_node), "LOCAL_WORLD_SIZE": str(here)}
    node_files._FOLDER = work / f"node{node}"
    node_files._FOLDER.mkdir(exist_ok=True)
    timeout = timedelta(seconds=_SECONDS)
    dist.init_process_group(
        "gloo",
        store=TCPStore("127.0.0.1", ports.get(), is_master=False, timeout=timeout),
        rank=rank,
        world_size=job.num_ranks,
    )
    counted: Any = CountedStore(dist.distributed_c10d._get_default_store())
    dist.distributed_c10d._get_default_store = lambda: counted
    place = Place(endpoint, "files/")
    options: dict[str, Any] = {"storage_options": options_of_s3(place), "batch_size": 8}
    options |= {"filters": job.filters, "num_threads": 1}
    if job.has_cache:
        options["manifest_cache"] = work / "cache"
    held: dict[str, Any] = {}

    def open_() -> None:
        held["dataset"] = ParquetDataset(place.s3_url, **options)

    def first() -> None:
        held["batches"] = iter(held["dataset"])
        next(held["batches"])

    told: list[Any] = []
    for act in (open_, first, lambda: next(held["batches"])):
        told.append(_timed(act, counted, barrier))
    results.put(told)
    barrier.wait(_SECONDS)
    held["batches"].close()
    os._exit(0)


def _timed(act: Callable[[], object], counted: CountedStore, barrier: Any) -> Any:
    barrier.wait(_SECONDS)
    counted.counts.clear()
    counted.answered_bytes = 0
    begin = time.time()
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    end = time.time()
    barrier.wait(_SECONDS)
    return begin, end, dict(counted.counts), counted.answered_bytes
