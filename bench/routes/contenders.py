"""Those that read the click log: torchparquet, and pyarrow by each of its routes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from passes.consumption import consume, count, examine
from passes.sides import ForkedSide, take_turns
from report.verdicts import OURS
from routes import pyarrow_routes as routes
from routes.pyarrow_routes import Batch, Open, Route, ScanOptions

# For runs without time for all contenders: these were among the fastest.
LIKELY = (
    "row_group cut, prefetch, mmap",
    "row_group cut, one per thread, mmap",
    "row_group whole, one per thread, mmap",
)


def torchparquet_route(num_threads: int, name: str = OURS, **options: Any) -> Route:
    """Returns torchparquet as a contender; imports it on the first pass.

    A pass is an epoch of one data set, as in training. Its batch memory lives from pass to pass, as
    that of Arrow's memory pool does.

    Args:
        num_threads: Decode threads.
        name: Of the contender.
        **options: Of ``ParquetDataset``. A ``Jagged`` column becomes two entries of the batch.
    """

    @functools.cache
    def dataset(path: Path, batch_size: int | None) -> Any:
        from torchparquet import ParquetDataset

        return ParquetDataset(path, batch_size=batch_size, num_threads=num_threads, **options)

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        stream = iter(dataset(path, batch_size))
        for batch in stream:
            if all(isinstance(value, torch.Tensor) for value in batch.values()):
                yield batch
                yield from stream
                return
            yield _flat(batch)

    return Route(name, "exact", batches)


def _flat(batch: dict[str, Any]) -> Batch:
    flat: Batch = {}
    for name, value in batch.items():
        if isinstance(value, torch.Tensor):
            flat[name] = value
        else:
            flat |= {name: value.values, name + routes.OFFSETS: value.offsets}
    return flat


def pyarrow_contenders(num_threads: int) -> list[Route]:
    """Returns those of pyarrow's routes that were fastest or are most usual."""
    plain, mapped = Open(), Open(memory_map=True)
    buffered, both = Open(pre_buffer=True), Open(memory_map=True, pre_buffer=True)
    cut = routes.cut

    def one_per_thread(open_file: Open) -> routes.Read:
        return routes.parallel_row_groups(open_file, num_threads, num_threads)

    return [
        Route("iter_batches", "exact", routes.iter_batches(plain)),
        Route("iter_batches, mmap", "exact", routes.iter_batches(mapped)),
        Route("iter_batches x8, prefetch", "exact", routes.iter_large_batches(plain, 8, 2)),
        Route("row_group cut", "exact", cut(routes.row_groups(plain, 0))),
        Route("row_group cut, prefetch", "exact", cut(routes.row_groups(plain, 1))),
        Route("row_group cut, prefetch, mmap", "exact", cut(routes.row_groups(mapped, 1))),
        Route("row_group cut, prefetch, pre_buffer", "exact", cut(routes.row_groups(buffered, 1))),
        Route(
            "row_group cut, prefetch, mmap, pre_buffer", "exact", cut(routes.row_groups(both, 1))
        ),
        Route("row_group cut, one per thread", "exact", cut(one_per_thread(plain))),
        Route("row_group cut, one per thread, mmap", "exact", cut(one_per_thread(mapped))),
        Route("scanner", "cut at row groups", routes.scanner(ScanOptions())),
        Route(
            "scanner, readahead 4",
            "cut at row groups",
            routes.scanner(ScanOptions(batch_readahead=4)),
        ),
        Route(
            "scanner, no pre_buffer",
            "cut at row groups",
            routes.scanner(ScanOptions(pre_buffer=False)),
        ),
        *whole_row_groups(num_threads),
    ]


def whole_row_groups(num_threads: int) -> list[Route]:
    """Returns those of pyarrow's routes that cut nothing."""
    plain, mapped = Open(), Open(memory_map=True)
    both = Open(memory_map=True, pre_buffer=True)

    def one_per_thread(open_file: Open) -> routes.Read:
        return routes.parallel_row_groups(open_file, num_threads, num_threads)

    return [
        Route("row_group whole, prefetch", "row groups", routes.row_groups(plain, 1)),
        Route("row_group whole, prefetch, mmap", "row groups", routes.row_groups(mapped, 1)),
        Route(
            "row_group whole, prefetch, mmap, pre_buffer", "row groups", routes.row_groups(both, 1)
        ),
        Route("row_group whole, one per thread", "row groups", one_per_thread(plain)),
        Route("row_group whole, one per thread, mmap", "row groups", one_per_thread(mapped)),
    ]


def contenders(num_threads: int) -> list[Route]:
    """Returns torchparquet and pyarrow's routes."""
    return [torchparquet_route(num_threads), *pyarrow_contenders(num_threads)]


def side(route: Route, path: Path, batch_size: int | None, *, read: bool = True) -> ForkedSide:
    """Returns ``route`` over one file as a side, which ``examine`` may be asked of.

    Args:
        route: A contender.
        path: A Parquet file.
        batch_size: Rows.
        read: True to read all bytes; False counts rows only.
    """
    take = consume if read else count
    take([])  # whatever its first call costs is not to be timed
    return ForkedSide(
        route.name,
        lambda: take(route.batches(path, batch_size)),
        {"examine": lambda: examine(map(_values, route.batches(path, batch_size)))},
    )


def _values(batch: Batch) -> Batch:
    """Leaves out offsets, which depend on where batches begin."""
    return {name: v for name, v in batch.items() if not name.endswith(routes.OFFSETS)}


def fastest_routes(
    chosen: Sequence[Route], path: Path, batch_size: int | None, keep: int
) -> list[Route]:
    """Returns the ``keep`` fastest of ``chosen``, each tried alone in one timed pass."""
    if len(chosen) <= keep:
        return list(chosen)

    def tried(route: Route) -> float:
        return take_turns([side(route, path, batch_size)], 1)[route.name][0].seconds

    return sorted(chosen, key=tried)[:keep]
