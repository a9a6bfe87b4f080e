"""Windows per second beside the same windows cut by hand, and beside memory's rate of copying.

    python bench/sequences/windows.py

Rows are steps of 14 float32 (a list column) in episodes of 1,000. A window has 51 steps around its
anchor, every row whose window is whole is one. By hand, pyarrow reads all rows into an array first,
whose windows are indexed; the array on disk (memory-mapped, page cache warm) needs no reading. The
limit copies as many bytes from one tensor to another. All values are added up. Each kind takes its
turn: two decode threads, one of torch; medians, and processor time, which other work on the machine
changes less.

Others cut windows one by one, so they read few of them, shuffled. Written from their documents:
LeRobot's `delta_timestamps` selects the rows of each window in a `datasets.Dataset` and stacks
their tensors; the `TimeSeriesDataSet` of pytorch-forecasting holds all steps as a tensor, and finds
each window in a frame of pandas. Both are collated by torch. Lance takes the rows of a batch from
its own format, if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from torchparquet import Column, ParquetDataset, Window

_DIRECTORY = Path(__file__).resolve().parents[1] / "data"
_ROW_GROUP = 65_536
_EPISODE = 1_000
_PAST, _FUTURE, _WIDTH = 10, 40, 14
_LENGTH = _PAST + 1 + _FUTURE
_FEW = 64  # windows of a batch, where each is cut by itself

_Cut: TypeAlias = Callable[[NDArray[np.int64]], torch.Tensor]


def _files(num_rows: int) -> tuple[Path, Path]:
    """Return the Parquet file, and the same steps as an array on disk."""
    path = _DIRECTORY / f"steps_{num_rows}.parquet"
    array = path.with_suffix(".npy")
    if not array.exists():
        _DIRECTORY.mkdir(parents=True, exist_ok=True)
        steps = np.random.default_rng(1).random((num_rows, _WIDTH), dtype=np.float32)
        rows = np.arange(num_rows)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(steps.reshape(-1)), _WIDTH)
        columns = {"state": lists, "episode": rows // _EPISODE, "frame": rows % _EPISODE}
        pq.write_table(pa.table(columns), path, row_group_size=_ROW_GROUP, compression="none")
        np.save(array, steps)
    return path, array


def _anchors(num_rows: int, *, shuffled: bool) -> NDArray[np.int64]:
    frame = np.arange(num_rows) % _EPISODE
    anchors = np.flatnonzero((frame >= _PAST) & (frame < _EPISODE - _FUTURE))
    return np.random.default_rng(2).permutation(anchors) if shuffled else anchors


def _by_hand(path: Path, num_rows: int, batch_size: int) -> Iterator[torch.Tensor]:
    column = pq.read_table(path, columns=["state"])["state"].combine_chunks()
    steps = column.flatten().to_numpy().reshape(-1, _WIDTH)
    yield from _indexed(steps, num_rows, batch_size)


def _of_array(path: Path, num_rows: int, batch_size: int) -> Iterator[torch.Tensor]:
    yield from _indexed(np.load(path, mmap_mode="r"), num_rows, batch_size)


def _indexed(steps: NDArray[np.float32], num_rows: int, batch_size: int) -> Iterator[torch.Tensor]:
    anchors = _anchors(num_rows, shuffled=True)
    places = np.arange(-_PAST, _FUTURE + 1)
    for begin in range(0, len(anchors), batch_size):
        rows = anchors[begin : begin + batch_size]
        yield torch.from_numpy(steps[rows[:, None] + places])


def _copied(num_rows: int, batch_size: int) -> Iterator[torch.Tensor]:
    source = torch.rand((8, batch_size, _LENGTH, _WIDTH))
    for number in range(len(_anchors(num_rows, shuffled=False)) // batch_size):
        yield source[number % 8].clone()


def _by_lerobot(path: Path) -> _Cut:
    rows = datasets.Dataset.from_parquet(str(path), cache_dir=str(path.with_suffix(".cache")))
    rows.set_transform(
        lambda batch: {name: [torch.tensor(one) for one in batch[name]] for name in batch}
    )

    def window(anchor: int) -> dict[str, torch.Tensor]:
        item: dict[str, torch.Tensor] = rows[anchor]
        first = anchor - int(item["frame"])
        places = [
            max(first, min(first + _EPISODE - 1, anchor + delta))
            for delta in range(-_PAST, _FUTURE + 1)
        ]
        return item | {"state": torch.stack(rows.select(places)["state"][:])}

    return lambda anchors: _collated(window, anchors)


def _by_forecasting(path: Path, num_rows: int) -> _Cut:
    column = pq.read_table(path, columns=["state"])["state"].combine_chunks()
    steps = torch.from_numpy(column.flatten().to_numpy().reshape(-1, _WIDTH).copy())
    first = np.arange(num_rows) - _PAST
    index = pd.DataFrame({"index_start": first, "index_end": first + _LENGTH - 1})

    def window(anchor: int) -> dict[str, torch.Tensor]:
        of = index.iloc[anchor]
        return {"state": steps[of.index_start : of.index_end + 1].clone()}

    return lambda anchors: _collated(window, anchors)


def _collated(
    window: Callable[[int], dict[str, torch.Tensor]], anchors: NDArray[np.int64]
) -> torch.Tensor:
    batch = default_collate([window(anchor) for anchor in anchors.tolist()])
    found: torch.Tensor = batch["state"]
    return found


def _by_lance(path: Path) -> _Cut:
    import lance

    folder = path.with_suffix(".lance")
    if not folder.exists():
        lance.write_dataset(pq.read_table(path), folder)
    rows = lance.dataset(folder)
    places = np.arange(-_PAST, _FUTURE + 1)

    def cut(anchors: NDArray[np.int64]) -> torch.Tensor:
        wanted = (anchors[:, None] + places).reshape(-1)
        column = rows.take(wanted, columns=["state"])["state"].combine_chunks()
        return torch.from_numpy(column.flatten().to_numpy().reshape(-1, _LENGTH, _WIDTH).copy())

    return cut


def _batches(cut: _Cut, num_rows: int, num_windows: int) -> Iterator[torch.Tensor]:
    anchors = _anchors(num_rows, shuffled=True)[:num_windows]
    for begin in range(0, num_windows, _FEW):
        yield cut(anchors[begin : begin + _FEW])


def _read(path: Path, batch_size: int, *, shuffle: bool) -> ParquetDataset:
    return ParquetDataset(
        path,
        batch_size=batch_size,
        columns=[Column("state", length=_WIDTH)],
        pack=Window("state", by="episode", order="frame", past=_PAST, future=_FUTURE),
        shuffle=shuffle,
        num_threads=2,
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--few", type=int, default=1024, help="windows that others cut one by one")
    arguments = parser.parse_args()
    num_rows, batch_size = arguments.rows, arguments.batch_size
    torch.set_num_threads(1)  # more wait for each other where the machine is shared
    path, array = _files(num_rows)
    begin = time.perf_counter()
    in_order = _read(path, batch_size, shuffle=False)
    print(f"made in {time.perf_counter() - begin:.2f} s, anchors: {in_order.manifest.num_rows:,}\n")
    shuffled = _read(path, batch_size, shuffle=True)
    cuts = {
        "LeRobot's way": _by_lerobot(path),
        "pytorch-forecasting's way": _by_forecasting(path, num_rows),
    }
    if importlib.util.find_spec("lance"):
        cuts["Lance"] = _by_lance(path)
    kinds: dict[str, Callable[[], Iterator[torch.Tensor]]] = {
        "torchparquet, in file order": lambda: (batch["state"] for batch in in_order),
        "torchparquet, shuffled": lambda: (batch["state"] for batch in shuffled),
        "by hand, shuffled": lambda: _by_hand(path, num_rows, batch_size),
        "an array on disk, shuffled": lambda: _of_array(array, num_rows, batch_size),
        "memory's own copies": lambda: _copied(num_rows, batch_size),
    } | {name: partial(_batches, cut, num_rows, arguments.few) for name, cut in cuts.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(arguments.repeats):
        for name, kind in kinds.items():
            begin, used, windows = time.perf_counter(), time.process_time(), 0
            for batch in kind():
                windows += len(batch)
                batch.sum().item()
            seconds, used = time.perf_counter() - begin, time.process_time() - used
            found[name].append((windows / seconds, windows / used))
    print("| | windows per second, thousands | per processor second, thousands |")
    print("|---|---|---|")
    for name, rates in found.items():
        wall, processor = (statistics.median(of) / 1e3 for of in zip(*rates, strict=True))
        print(f"| {name} | {wall:,.4g} | {processor:,.4g} |")


if __name__ == "__main__":
    main()
