"""Fault: the disk is full, or over its quota, at each write of a cache or of a rewrite."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from faults.injection import shim
from faults.injection.children import Case, run_case
from faults.injection.judging import RIGHT, clear, judged, read_all
from faults.injection.origin import origin_of
from faults.injection.reading import CONFIGURATIONS, Collected, DifferenceError, oracle
from faults.injection.shim import Call, Effect, Fault
from torchparquet.cli.arguments import Data
from torchparquet.cli.preparing.writing import RewriteOptions
from torchparquet.cli.rewrite import rewrite

_CALLS = (Call.OPEN, Call.WRITE, Call.RENAME, Call.CLOSE, Call.TRUNCATE)
_MAX_CALLS = 25  # of each kind, drawn by the seed
_CODES = ("ENOSPC", "EDQUOT")
_NEW_MOUNTS, _PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC and MS_PRIVATE
_SIZES = (0, 1, 2, 4, 8, 16, 32)  # KiB
_SHARED_SIZES = (4, 64, 128, 256, 1024)
_PAGE_KIB = 4
_LOADER_SECONDS = 8

Work = Callable[[], None]


class Writer:
    """Something that writes to a folder, and the check of the rows that come of it."""

    def __init__(self, folder: Path, urls: list[str]) -> None:
        """Write to `folder/written`; `urls` are those of the files."""
        self.folder = folder
        self.urls = urls
        self.place = folder / "written"

    def manifest_cache(self) -> None:
        """Read with a manifest cache."""
        collected = Collected(oracle(self.folder))
        cache = self.place / "manifest.cache"
        read_all(self.folder, CONFIGURATIONS["plain"], collected, manifest_cache=cache)

    def block_cache(self) -> None:
        """Read from a store, and keep its bytes on disk."""
        collected = Collected(oracle(self.folder))
        options = {"paths": self.urls, "cache_dir": self.place / "blocks"}
        for _ in range(2):
            read_all(self.folder, CONFIGURATIONS["plain"], collected.anew(), **options)

    def rewrite(self) -> None:
        """Rewrite the files in their order."""
        self._rewritten(shuffle=False)

    def shuffled_rewrite(self) -> None:
        """Rewrite the files in a random order."""
        self._rewritten(shuffle=True)

    def _rewritten(self, *, shuffle: bool) -> None:
        output = self.place / "output"
        data = Data([str(self.folder / "data")])
        options = RewriteOptions(row_group_rows=100, row_groups_per_file=3, shuffle=shuffle)
        try:
            rewrite(data, str(output), options)
        except OSError as error:
            clear(error, self.folder)
            shim.disarm()
            with _unlimited():
                rewrite(data, str(output), options)
                self._check(output)
            raise
        self._check(output)

    def _check(self, output: Path) -> None:
        import pyarrow.parquet as pq

        tables = [pq.read_table(path) for path in sorted(output.glob("*.parquet"))]
        rows = [row for table in tables for row in table.to_pylist()]
        if sorted(rows, key=lambda row: row["id"]) != oracle(self.folder):
            raise DifferenceError(f"{output} holds other rows than the input")


@contextmanager
def _unlimited() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _warm(writer: Writer, work: Work) -> None:
    """Do it once without a fault: libraries keep threads, and connections to a store."""
    import pyarrow as pa

    # Its threads come one by one as there is work for them, and stay.
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    warnings.simplefilter("ignore")
    writer.place.mkdir()
    work()
    shutil.rmtree(writer.place)
    writer.place.mkdir()


def _judged(writer: Writer, work: Work, fault: Fault) -> str:
    _warm(writer, work)
    shim.watch_folder(writer.place)
    label = judged(work, writer.folder, fault)
    unfinished = [path.name for path in writer.place.iterdir() if path.name.startswith(".")]
    shutil.rmtree(writer.place)
    if unfinished:
        raise DifferenceError(f"unfinished files are left: {unfinished}")
    return label


def _injected(writer: Writer, rng: random.Random, share: float) -> Iterator[Case]:
    works = (writer.manifest_cache, writer.block_cache, writer.rewrite, writer.shuffled_rewrite)
    for work in works:
        shown = work.__name__.replace("_", " ")
        count = Case("", "", partial(_judged, writer, work, shim.COUNT_ONLY))
        result = run_case(count, writer.folder)
        shutil.rmtree(writer.place, ignore_errors=True)
        if result.is_finding:
            raise RuntimeError(f"{shown} without a fault: {result.label}: {result.detail}")
        for call, num_calls in {call: shim.count(call) for call in _CALLS}.items():
            num_drawn = min(num_calls, max(1, round(_MAX_CALLS * share)))
            for first in sorted(rng.sample(range(1, num_calls + 1), num_drawn)):
                for code in _CODES:
                    for times in (1, shim.ALWAYS):
                        fault = Fault(call, first, times, Effect.FAIL, getattr(errno, code))
                        run = partial(_judged, writer, work, fault)
                        where = f"{call.name.lower()} {first} of {num_calls}"
                        yield Case(f"{shown}: {code}", f"{where}, {times} times", run)
                        shutil.rmtree(writer.place, ignore_errors=True)


def _of_limit(writer: Writer, work: Work, size: int) -> str:
    """Let no file of this process be larger than `size` KiB."""
    _warm(writer, work)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 1024, hard))
        try:
            work()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    label = judged(limited, writer.folder, shim.COUNT_ONLY)
    return f"{label}|{int(label != RIGHT)}"


def _mount(target: Path, size_kib: int) -> None:
    """Put a file system of some KiB at `target`, for this process alone.

    Raises:
        OSError: This is not permitted.
    """
    system = ctypes.CDLL(None, use_errno=True)
    options = f"size={max(size_kib, _PAGE_KIB)}k".encode()
    for failed in (
        system.unshare(_NEW_MOUNTS) != 0
        or system.mount(b"none", b"/", None, _PRIVATE, None) != 0
        or system.mount(b"none", os.fsencode(target), b"tmpfs", 0, options) != 0,
    ):
        if failed:
            raise OSError(ctypes.get_errno(), "cannot mount a small file system", str(target))


def _on_small_disk(writer: Writer, work: Work, size: int) -> str:
    _warm(writer, work)
    _mount(writer.place, size)
    label = judged(work, writer.folder, shim.COUNT_ONLY)
    status = os.statvfs(writer.place)
    return f"{label}|{int(label != RIGHT or status.f_bavail == 0)}"


def _with_small_shared_memory(writer: Writer, size: int) -> str:
    """Read in DataLoader workers, with a /dev/shm of `size` KiB.

    A loader of torch 2 without a timeout waits for ever if a worker finds no room for a batch: the
    thread that sends it prints the error and goes on to the next.
    """
    _mount(Path("/dev/shm"), size)
    configuration = CONFIGURATIONS["workers"]._replace(timeout_seconds=_LOADER_SECONDS)

    def read() -> None:
        read_all(writer.folder, configuration, Collected(oracle(writer.folder)))

    try:
        return f"{judged(read, writer.folder, shim.COUNT_ONLY, 10)}|1"
    except (DifferenceError, RuntimeError) as error:
        # The loader's own locks and queues have no room, which it says in its words.
        trace = traceback.extract_tb((error.__cause__ or error).__traceback__)
        if not any(part in trace[-1].filename for part in ("multiprocessing", "torch/")):
            raise
        return f"{type(error.__cause__ or error).__name__} of the loader|1"


def _mounting_is_permitted(folder: Path) -> bool:
    def run() -> str:
        _mount(folder / "other", _PAGE_KIB)
        return RIGHT

    return not run_case(Case("", "", run), folder).is_finding


def _full(writer: Writer, rng: random.Random, share: float) -> Iterator[Case]:
    works = (writer.manifest_cache, writer.block_cache, writer.rewrite, writer.shuffled_rewrite)
    may_mount = _mounting_is_permitted(writer.folder)
    if not may_mount:
        print("small disks are left out: mounting is not permitted here", file=sys.stderr)
    for number, size in enumerate(_SIZES):
        if rng.random() >= share and number > 0:
            continue
        for work in works:
            shown = work.__name__.replace("_", " ")
            run = partial(_of_limit, writer, work, size)
            yield Case("RLIMIT_FSIZE", f"{shown}, {size} KiB", run, counts_itself=True)
            shutil.rmtree(writer.place, ignore_errors=True)
            if may_mount:
                run = partial(_on_small_disk, writer, work, size)
                yield Case("full disk (tmpfs)", f"{shown}, {size} KiB", run, counts_itself=True)
                shutil.rmtree(writer.place, ignore_errors=True)
    for size in _SHARED_SIZES if may_mount else ():
        run = partial(_with_small_shared_memory, writer, size)
        yield Case("full /dev/shm", f"{size} KiB", run, counts_itself=True)


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    oracle(folder)
    rng = random.Random(seed)
    with origin_of(folder) as urls:
        writer = Writer(folder, urls)
        yield from _injected(writer, rng, share)
        yield from _full(writer, rng, share)
