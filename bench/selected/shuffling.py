"""How well rows are shuffled that were sorted by label, and what it costs.

    python bench/selected/shuffling.py              # all tables
    python bench/selected/shuffling.py --rows 1000000
    python bench/selected/shuffling.py --cold       # a store that is larger than memory

Rows have 20 floats and a label, 0 in the first half and 1 in the second. An epoch of each kind is
read in turn, page cache warm, two threads, and every byte is added up; medians of the epochs after
the first. Processor time, which other work changes less, has the adding up too.

`--cold` needs no small machine: whenever a quarter of the store has come from the disk, all of it
leaves the page cache. So at most a quarter of it is in memory, half of that on average.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from torchparquet import ParquetDataset

_DIRECTORY = Path(__file__).resolve().parents[1] / "data"
_ROW_GROUP = 32_768
_BATCH_SIZE = 4096
_CODECS = ("none", "snappy", "zstd")


def _file(num_rows: int, codec: str) -> Path:
    path = _DIRECTORY / f"sorted_{num_rows}" / f"{codec}.parquet"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {f"x{at}": rng.random(num_rows, dtype=np.float32) for at in range(20)}
    columns["label"] = (np.arange(num_rows) >= num_rows // 2).astype(np.int64)
    columns["row"] = np.arange(num_rows)
    pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP, compression=codec)
    return path


def _kinds(path: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    rewritten = path.with_suffix(".shuffled")
    if not rewritten.exists():
        command = [sys.executable, "-m", "torchparquet", "rewrite", str(path), "--shuffle"]
        rows = ["--row-group-rows", str(_ROW_GROUP)]
        subprocess.run(
            [*command, "--output", str(rewritten), *rows], check=True, capture_output=True
        )
    return {
        "in file order": (path, {}),
        "windows of 8 row groups": (path, {"shuffle": True}),
        "windows of 32 row groups": (path, {"shuffle": True, "shuffle_window": 32}),
        "`rewrite --shuffle`, in file order": (rewritten, {}),
        "`rewrite --shuffle`, windows of 8": (rewritten, {"shuffle": True}),
        'shuffle="global"': (path, {"shuffle": "global", "cache_dir": path.with_suffix(".cache")}),
    }


def _quality(num_rows: int) -> None:
    print("| an epoch | serial correlation | label share of a batch | drift | neighbours |")
    print("|---|---|---|---|---|")
    for name, (path, options) in _kinds(_file(num_rows, "none")).items():
        dataset = ParquetDataset(
            path, batch_size=_BATCH_SIZE, columns=["label", "row"], drop_last=True, **options
        )
        batches = [(b["label"].numpy(), b["row"].numpy()) for b in dataset]
        labels, rows = (np.concatenate(of).astype(float) for of in zip(*batches, strict=True))
        serial = np.corrcoef(labels[:-1], labels[1:])[0, 1]
        shares = [label.mean() for label, _ in batches]
        random = num_rows / np.sqrt(12 * _BATCH_SIZE)
        drift = np.std([row.mean() for _, row in batches]) / random
        apart = np.abs(np.diff(rows)).mean() / (num_rows / 3)
        print(
            f"| {name} | {serial:.3f} | {np.min(shares):.2f} to {np.max(shares):.2f} | "
            f"{drift:.1f} | {apart:.3f} |",
            flush=True,
        )


def _epoch(dataset: ParquetDataset) -> tuple[float, float]:
    """Returns seconds, and those of processors, of an epoch of which every byte is read."""
    begin, used, rows, total = time.perf_counter(), time.process_time(), 0, 0
    for batch in dataset:
        rows += len(batch["row"])
        for values in batch.values():
            total ^= int(values.numpy().view(np.uint64).sum())
    return (time.perf_counter() - begin) / rows, (time.process_time() - used) / rows


def _rates(num_rows: int, repeats: int) -> None:
    rates: dict[str, list[str]] = {}
    work: dict[str, list[str]] = {}
    for codec in _CODECS:
        path = _file(num_rows, codec)
        shutil.rmtree(path.with_suffix(".cache"), ignore_errors=True)
        kinds = _kinds(path)
        kinds['shuffle="global", in memory'] = path, {"shuffle": "global", "max_memory": "4GiB"}
        datasets = {
            name: ParquetDataset(of, batch_size=_BATCH_SIZE, num_threads=2, **options)
            for name, (of, options) in kinds.items()
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in datasets}
        for _ in range(repeats + 1):
            for name, dataset in datasets.items():
                found[name].append(_epoch(dataset))
        for name, epochs in found.items():
            seconds, used = (statistics.median(of) for of in zip(*epochs[1:], strict=True))
            is_global = "global" in name
            first = f" (first epoch {1e-6 / epochs[0][0]:.2f})" if is_global else ""
            rates.setdefault(name, []).append(f"{1e-6 / seconds:.2f}{first}")
            first = f" (first epoch {epochs[0][1] * 1e9:.0f})" if is_global else ""
            work.setdefault(name, []).append(f"{used * 1e9:.0f}{first}")
    for unit, cells_of in (
        ("an epoch, millions of rows per second", rates),
        ("an epoch, nanoseconds of processor per row", work),
    ):
        print(f"\n| {unit} | {' | '.join(_CODECS)} |\n|---|" + "---|" * len(_CODECS))
        for name, cells in cells_of.items():
            print(f"| {name} | {' | '.join(cells)} |")


def _evict() -> None:
    """Drops the pages of mapped stores from memory: first from the map, then from the cache."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"(\w+)-(\w+) .* (\S+\.rows)$", line)
        if found:
            begin, end = (int(of, 16) for of in found.groups()[:2])
            size = ctypes.c_size_t(end - begin)
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), size, mmap.MADV_DONTNEED)
            with Path(found[3]).open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_bytes() -> int:
    """Returns the bytes that this process has had read from disks."""
    return int(Path("/proc/self/io").read_text().split("read_bytes: ")[1].split()[0])


def _cold(num_rows: int, seconds: float) -> None:
    path = _file(num_rows, "none")
    print("| threads | rows per second | KiB of disk per row | reads per second |")
    print("|---|---|---|---|")
    for num_threads in (1, 2, 8):
        dataset = ParquetDataset(
            path,
            batch_size=_BATCH_SIZE,
            num_threads=num_threads,
            shuffle="global",
            cache_dir=path.with_suffix(".cache"),
        )
        for _ in dataset:  # all blocks are compared with their digests
            pass
        os.sync()
        _evict()
        begin, rows, read, evicted = time.perf_counter(), 0, _read_bytes(), _read_bytes()
        before = read
        for batch in dataset:
            rows += len(batch["row"])
            read = _read_bytes()
            if read - evicted > (dataset.decoded_bytes or 0) // 4:
                _evict()
                evicted = read
            if time.perf_counter() - begin > seconds:
                break
        took = time.perf_counter() - begin
        kib = (read - before) / 1024
        print(
            f"| {num_threads} | {rows / took:,.0f} | {kib / rows:.2f} | {kib / 4 / took:,.0f} |",
            flush=True,
        )
        dataset.close()


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    if arguments.cold:
        _cold(arguments.rows, 10)
        return
    _quality(arguments.rows)
    _rates(arguments.rows, arguments.repeats)


if __name__ == "__main__":
    main()
