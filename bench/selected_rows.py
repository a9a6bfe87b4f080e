"""Reading some rows of the click log, beside pyarrow.dataset, DuckDB and Polars with a filter.

    python bench/selected_rows.py                     # every selectivity, codec none and snappy
    python bench/selected_rows.py --codecs zstd --shares 0.01 --places scattered

The click log of bench/throughput.py has two more columns: one of random numbers, by which rows are
scattered, and one of ascending numbers, by which they are clustered. A filter on one of them leaves
the share of rows that a line names. Every byte of every batch is read, page cache warm, two
threads, sides in turn, each in a process of its own, medians. A pass of torchparquet is an epoch
of one data set: the condition was evaluated when the data set was made, as the column "made" tells.
The others evaluate it in each pass. "all, then drop" reads all rows with torchparquet and drops
those that are not wanted by their mask.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generated import click_log
from passes.sides import Pass, take_turns
from report.verdicts import OURS
from routes.contenders import side
from routes.pyarrow_routes import Batch, Route, record_batch_tensors

_DIRECTORY = Path(__file__).resolve().parent / "data"
_THREADS = 2
_BATCH_SIZE = 8192
_SHARES = (0.001, 0.01, 0.1, 0.5, 0.9)
_PLACES = {"scattered": "spread", "clustered": "place"}
_SCALE = 1_000_000
ALL_THEN_DROP = "all, then drop"


def _file(codec: str, num_rows: int) -> Path:
    """Returns the click log with the columns that filters are on, written if it is missing."""
    path = _DIRECTORY / f"selected_{num_rows}_{codec}.parquet"
    if path.exists():
        return path
    _DIRECTORY.mkdir(parents=True, exist_ok=True)
    options = click_log.ClickLogOptions(num_rows=num_rows)
    rng = np.random.Generator(np.random.PCG64(1))
    partial_path = path.with_suffix(".partial")
    schema = click_log.schema()
    for name in _PLACES.values():
        schema = schema.append(pa.field(name, pa.int32()))
    begin = 0
    with pq.ParquetWriter(partial_path, schema, compression=codec) as writer:
        for table in click_log.row_groups(options):
            end = begin + len(table)
            spread = rng.integers(0, _SCALE, len(table), dtype=np.int32)
            place = (np.arange(begin, end) * _SCALE // num_rows).astype(np.int32)
            columns = [*table.columns, pa.array(spread), pa.array(place)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            begin = end
    partial_path.replace(path)
    return path


def _columns() -> list[str]:
    return list(click_log.schema().names)


def _ours(column: str, limit: int) -> Route:
    @cache
    def dataset(path: Path, batch_size: int | None) -> Any:
        from torchparquet import ParquetDataset

        filters = [(column, "<", limit)]
        return ParquetDataset(
            path, batch_size=batch_size, columns=_columns(), filters=filters, num_threads=_THREADS
        )

    return Route(OURS, "exact", lambda path, batch_size: iter(dataset(path, batch_size)))


def _all_then_drop(column: str, limit: int) -> Route:
    @cache
    def dataset(path: Path, batch_size: int | None) -> Any:
        from torchparquet import ParquetDataset

        columns = [*_columns(), column]
        return ParquetDataset(path, batch_size=batch_size, columns=columns, num_threads=_THREADS)

    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        for batch in dataset(path, batch_size):
            mask = batch.pop(column) < limit
            if not mask.any():
                continue
            yield {name: value[mask] for name, value in batch.items()}

    return Route(ALL_THEN_DROP, "exact", batches)


def _pyarrow(column: str, limit: int) -> Route:
    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        import pyarrow.compute as pc
        import pyarrow.dataset as pads

        pa.set_cpu_count(_THREADS)
        scanner = pads.dataset(path).scanner(
            columns=_columns(), filter=pc.field(column) < limit, batch_size=batch_size
        )
        yield from map(record_batch_tensors, filter(len, scanner.to_batches()))

    return Route("pyarrow.dataset", "cut at row groups", batches)


def _duckdb(column: str, limit: int) -> Route:
    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        import duckdb

        connection = duckdb.connect(config={"threads": _THREADS})
        names = ", ".join(_columns())
        query = f"SELECT {names} FROM read_parquet('{path}') WHERE {column} < {limit}"
        reader = connection.sql(query).to_arrow_reader(batch_size or _BATCH_SIZE)
        yield from map(record_batch_tensors, filter(len, reader))

    return Route("DuckDB", "exact", batches)


def _polars(column: str, limit: int) -> Route:
    def batches(path: Path, batch_size: int | None) -> Iterator[Batch]:
        import polars
        import torch

        scan = polars.scan_parquet(path).filter(polars.col(column) < limit).select(_columns())
        frames = scan.collect_batches(chunk_size=batch_size, maintain_order=True)
        for frame in filter(len, frames):
            yield {one.name: torch.from_numpy(one.to_numpy()) for one in frame.get_columns()}

    return Route("Polars", "exact", batches)


_ROUTES: dict[str, Callable[[str, int], Route]] = {
    OURS: _ours,
    ALL_THEN_DROP: _all_then_drop,
    "pyarrow.dataset": _pyarrow,
    "DuckDB": _duckdb,
    "Polars": _polars,
}


def _made_ms(path: Path, column: str, limit: int, repeats: int) -> float:
    from torchparquet import ParquetDataset

    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        ParquetDataset(path, batch_size=_BATCH_SIZE, filters=[(column, "<", limit)])
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken) * 1e3


def _line(path: Path, name: str, share: float, chosen: list[str], repeats: int) -> str:
    column, limit = _PLACES[name], round(share * _SCALE)
    sides = [side(_ROUTES[route](column, limit), path, _BATCH_SIZE) for route in chosen]
    passes = take_turns(sides, repeats, content="same rows")
    seconds = {route: _median(those) for route, those in passes.items()}
    ours = seconds[OURS]
    rivals = {r: s for r, s in seconds.items() if r not in (OURS, ALL_THEN_DROP)}
    best = min(rivals, key=lambda route: rivals[route]) if rivals else ""
    ratios = [f"{seconds[route] / ours:.2f}x" if route in seconds else "" for route in _ROUTES]
    made = _made_ms(path, column, limit, repeats)
    rows = passes[OURS][0].totals.num_rows
    return (
        f"| {name} | {share:.1%} | {rows:,} | {ours * 1e3:.1f} | {' | '.join(ratios[1:])} | "
        f"{best} | {made:.1f} |"
    )


def _median(passes: list[Pass]) -> float:
    return statistics.median(one.seconds for one in passes)


def main() -> None:
    """Prints a table for each codec."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--codecs", nargs="+", default=["none", "snappy"])
    parser.add_argument("--shares", nargs="+", type=float, default=_SHARES)
    parser.add_argument("--places", nargs="+", choices=_PLACES, default=list(_PLACES))
    parser.add_argument("--only", nargs="+", choices=_ROUTES, default=list(_ROUTES))
    given = parser.parse_args()
    print(f"{platform.machine()}, {datetime.date.today()}, {given.rows:,} rows of 40 columns")
    line = partial(_line, chosen=given.only, repeats=given.repeats)
    for codec in given.codecs:
        path = _file(codec, given.rows)
        print(f"\n{codec}: time of the others as a multiple of torchparquet's\n")
        print(f"| rows | share | number | ms | {' | '.join(list(_ROUTES)[1:])} | best | made ms |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
        for name in given.places:
            for share in given.shares:
                print(line(path, name, share), flush=True)


if __name__ == "__main__":
    main()
