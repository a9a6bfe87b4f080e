"""Images per second and memory: decoding on threads of one process, beside DataLoader workers.

    python bench/sequences/images.py

4,000 JPEG pictures of 256 x 256, decoded by Pillow to uint8 [3, 224, 224] and stacked to batches of
64. Sides take turns, each in a process of its own; a pass that does not count comes first; page
cache warm; medians. Memory is the most that the process and its workers had together, by their
proportional set sizes, sampled 50 times a second.
"""

from __future__ import annotations

import argparse
import datetime
import io
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader

from torchparquet import Ahead, Column, ParquetDataset

_PATH = Path(__file__).resolve().parents[1] / "data" / "pictures.parquet"
_PICTURES, _BATCH = 4_000, 64


def _write() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    rows, columns = np.mgrid[:256, :256]
    files = []
    for _ in range(_PICTURES):
        waves = rng.uniform(0.01, 0.2, (3, 2))
        pixels = np.stack([128 + 100 * np.sin(a * rows + b * columns) for a, b in waves], -1)
        pixels += rng.normal(0, 12, pixels.shape)
        file = io.BytesIO()
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "jpeg", quality=90)
        files.append({"bytes": file.getvalue(), "path": None})
    _PATH.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"image": files, "label": range(_PICTURES)})
    pq.write_table(table, _PATH, row_group_size=100, compression="none")


def decoded(data: bytes) -> torch.Tensor:
    """Returns a picture, uint8 [3, 224, 224]."""
    with Image.open(io.BytesIO(data)) as picture:
        pixels = np.array(picture.convert("RGB").crop((16, 16, 240, 240)))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _dataset(**options: Any) -> ParquetDataset:
    columns: Any = {"image": Column("image", decode=decoded, stack=True), "label": "label"}
    return ParquetDataset(_PATH, batch_size=_BATCH, columns=columns, shuffle=True, **options)


def _workers(number: int) -> Iterable[Any]:
    return DataLoader(_dataset(num_threads=1), None, num_workers=number, persistent_workers=True)


_SIDES: dict[str, Callable[[], Iterable[Any]]] = {
    "the loop itself": lambda: _dataset(),
    "Ahead(threads=2)": lambda: _dataset(transform=Ahead(threads=2)),
    "Ahead(processes=2)": lambda: _dataset(transform=Ahead(processes=2)),
    "DataLoader, 2 workers": lambda: _workers(2),
}


class _Memory:
    """The most memory of this process and its children."""

    def __init__(self) -> None:
        self.peak = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        own = psutil.Process()
        while not self._is_over.wait(0.02):
            self.peak = max(self.peak, sum(self._sizes(own)))

    @staticmethod
    def _sizes(own: psutil.Process) -> Iterator[int]:
        for process in [own, *own.children(recursive=True)]:
            try:
                yield process.memory_full_info().pss
            except psutil.Error:
                continue


def _run_side(name: str) -> None:
    torch.set_num_threads(1)
    batches = _SIDES[name]()
    for _ in batches:
        pass
    with _Memory() as memory:
        begin = time.perf_counter()
        num_pictures = sum(len(batch["image"]) for batch in batches)
        seconds = time.perf_counter() - begin
    print(num_pictures / seconds, memory.peak)


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--side", choices=_SIDES)
    given = parser.parse_args()
    if not _PATH.exists():
        _write()
    if given.side:
        _run_side(given.side)
        return
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in _SIDES}
    for _ in range(given.repeats):
        for name in _SIDES:
            command = [sys.executable, __file__, "--side", name]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
            rate, peak = done.stdout.split()[-2:]
            found[name].append((float(rate), float(peak)))
    print(f"{platform.machine()}, {datetime.date.today()}\n")
    print("| side | images a second | memory, MiB |\n| --- | ---: | ---: |")
    for name, measured in found.items():
        rate, peak = (statistics.median(numbers) for numbers in zip(*measured, strict=True))
        print(f"| {name} | {rate:,.0f} | {peak / 2**20:,.0f} |")


if __name__ == "__main__":
    main()
