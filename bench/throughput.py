"""Throughput of torchparquet beside pyarrow's own routes, on one machine, in one run.

All contenders read the same files with the same two threads and hand every byte to the same
consumer. Page cache warm; medians over rounds in which all contenders take turns, each in a process
of its own, with an untimed pass before each timed one. The warm-up
round proves that all deliver the same rows in the same order, each timed pass that nothing is
missing.

    python bench/throughput.py                      # all codecs, all contenders
    python bench/throughput.py --only row_group     # contenders whose name contains this
    python bench/throughput.py --threads-scaling    # torchparquet with 1 and 2 threads, data unread
    python bench/throughput.py --memory             # torchparquet's peak memory
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import torch

from generated import click_log
from passes.consumption import PassContent, PassTotals, multiply
from passes.sides import ContentError, take_turns
from report.machine import OtherLoad, described, environment
from report.tables import markdown
from report.verdicts import OURS
from routes.contenders import contenders, side, torchparquet_route
from routes.pyarrow_routes import Route

MEMORY_PER_THREAD_BYTES = 64 << 20
_ARITHMETIC_ROUNDS = 50_000_000
_DIRECTORY = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Timing:
    """One contender's passes over one file."""

    route: Route
    seconds: list[float]
    totals: PassTotals

    @property
    def median_seconds(self) -> float:
        """The figure that counts."""
        return statistics.median(self.seconds)


def _gb_per_second(timing: Timing) -> float:
    return timing.totals.num_bytes / 1e9 / timing.median_seconds


def _check_content(route: Route, content: PassContent, first: PassContent, batch_size: int) -> None:
    if (content.num_rows, content.columns) != (first.num_rows, first.columns):
        names = first.columns.keys() | content.columns.keys()
        different = sorted(n for n in names if first.columns.get(n) != content.columns.get(n))
        raise ContentError(
            f"{route.name}: {content.num_rows} rows against {first.num_rows}, "
            f"columns that differ from the first contender's: {different}"
        )
    short = [rows for rows in content.batch_rows[:-1] if rows != batch_size]
    if route.shape == "exact" and short:
        raise ContentError(f"{route.name}: batches of {batch_size} rows expected, got {short[:5]}")


def time_routes(chosen: Sequence[Route], path: Path, batch_size: int, repeats: int) -> list[Timing]:
    """Times ``repeats`` rounds of one pass by each route, after a round that compares content.

    Raises:
        ContentError: A route's rows, their order, or a timed pass's totals differ.
    """
    sides = [side(route, path, batch_size) for route in chosen]
    first: PassContent | None = None
    for route, one in zip(chosen, sides, strict=True):
        content = one.ask("examine")
        first = first or content
        _check_content(route, content, first, batch_size)
    passes = take_turns(sides, repeats)
    return [
        Timing(route, [p.seconds for p in passes[route.name]], passes[route.name][0].totals)
        for route in chosen
    ]


def fastest(timings: Sequence[Timing], *, whole_row_groups: bool) -> Timing | None:
    """Returns pyarrow's fastest route among those that batch, or those that do not."""
    candidates = [
        timing
        for timing in timings
        if not timing.route.name.startswith(OURS)
        and (timing.route.shape == "row groups") == whole_row_groups
    ]
    return min(candidates, key=lambda timing: timing.median_seconds, default=None)


def timing_rows(timings: Sequence[Timing]) -> list[list[str]]:
    """Returns the cells of one codec's table, fastest first."""
    return [
        [
            timing.route.name,
            timing.route.shape,
            f"{timing.median_seconds:.3f}",
            f"{min(timing.seconds):.3f}-{max(timing.seconds):.3f}",
            f"{_gb_per_second(timing):.2f}",
            f"{timing.totals.num_rows / 1e6 / timing.median_seconds:.2f}",
        ]
        for timing in sorted(timings, key=lambda timing: timing.median_seconds)
    ]


def _versus(ours: Timing | None, other: Timing | None) -> list[str]:
    if other is None:
        return ["-", "-"]
    ratio = f"{other.median_seconds / ours.median_seconds:.2f}x" if ours else "-"
    return [f"{_gb_per_second(other):.2f}", ratio]


def compare(arguments: argparse.Namespace, paths: dict[str, Path]) -> dict[str, Any]:
    """Times the contenders on each file, prints the tables, returns the figures."""
    chosen = [
        route
        for route in contenders(arguments.num_threads)
        if not arguments.only or any(part in route.name for part in arguments.only)
    ]
    if not chosen:
        raise ValueError(f"no contender's name contains any of {arguments.only}")
    ratios, figures = [], {}
    for codec, path in paths.items():
        timings = time_routes(chosen, path, arguments.batch_size, arguments.repeats)
        header = ["contender", "shape", "seconds", "range", "GB/s", "Mrows/s"]
        print(f"\n### {codec}\n\n{markdown(header, timing_rows(timings))}", flush=True)
        ours = next((timing for timing in timings if timing.route.name == OURS), None)
        batching = fastest(timings, whole_row_groups=False)
        whole = fastest(timings, whole_row_groups=True)
        speed = f"{_gb_per_second(ours):.2f}" if ours else "-"
        ratios.append([codec, speed, *_versus(ours, batching), *_versus(ours, whole)])
        figures[codec] = {
            "output_bytes": timings[0].totals.num_bytes,
            "rows": timings[0].totals.num_rows,
            "seconds": {timing.route.name: timing.seconds for timing in timings},
            "fastest_pyarrow_batches": batching.route.name if batching else None,
            "fastest_pyarrow_row_groups": whole.route.name if whole else None,
        }
    header = ["codec", f"{OURS} GB/s", "pyarrow's fastest batches GB/s", "ratio"]
    header += ["pyarrow's fastest, whole row groups GB/s", "ratio"]
    print(f"\n### Summary\n\n{markdown(header, ratios)}")
    return figures


def _arithmetic_seconds(num_threads: int) -> float:
    """Times a fixed amount of arithmetic on each of ``num_threads`` threads at once."""
    threads = [Thread(target=multiply, args=(_ARITHMETIC_ROUNDS,)) for _ in range(num_threads)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def threads_scaling(arguments: argparse.Namespace, paths: dict[str, Path]) -> dict[str, Any]:
    """Times torchparquet with 1 and 2 threads and prints the ratio.

    Batches are only counted: reading their data would add the same to both. The gain of two threads
    of arithmetic without memory over one is measured before it: two virtual cores may be one
    physical core at times, and no program gains more from them.
    """
    rows, figures = [], {}
    chosen = [torchparquet_route(n, f"{OURS}, {n} threads") for n in (1, 2)]
    _arithmetic_seconds(1)  # compiles
    for codec, path in paths.items():
        machine = [
            2 * _arithmetic_seconds(1) / _arithmetic_seconds(2) for _ in range(arguments.repeats)
        ]
        sides = [side(route, path, arguments.batch_size, read=False) for route in chosen]
        passes = take_turns(sides, arguments.repeats)
        seconds = [[p.seconds for p in round_] for round_ in zip(*passes.values(), strict=True)]
        one, two = (statistics.median(times) for times in zip(*seconds, strict=True))
        gain = statistics.median(machine)
        cells = [f"{one:.3f}", f"{two:.3f}", f"{one / two:.2f}x", f"{gain:.2f}x"]
        rows.append([codec, *cells])
        figures[codec] = {"seconds_1_and_2_threads": seconds, "machine": machine}
    print("\n### Reader alone: batches and rows counted, their data not read\n")
    header = ["codec", "1 thread s", "2 threads s", "ratio", "arithmetic alone"]
    print(markdown(header, rows))
    return figures


def memory(arguments: argparse.Namespace, paths: dict[str, Path]) -> dict[str, Any]:
    """Prints torchparquet's peak memory over its baseline against the bound.

    The bound is max_memory and 64 MiB per thread.
    """
    rows, figures = [], {}
    for codec, path in paths.items():
        for max_memory_mib in arguments.max_memory_mib:
            command = [sys.executable, str(_DIRECTORY / "memory.py"), str(path)]
            command += ["--batch-size", str(arguments.batch_size)]
            command += ["--num-threads", str(arguments.num_threads)]
            command += ["--max-memory", f"{max_memory_mib}MiB"]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figure = json.loads(output)
            over_bytes = figure["peak_bytes"] - figure["baseline_bytes"]
            bound_bytes = (max_memory_mib << 20) + arguments.num_threads * MEMORY_PER_THREAD_BYTES
            mib = [f"{n / 2**20:.0f}" for n in (figure["baseline_bytes"], over_bytes, bound_bytes)]
            verdict = "within" if over_bytes <= bound_bytes else "OVER"
            rows.append([codec, str(max_memory_mib), *mib, verdict])
            figures[f"{codec}, {max_memory_mib} MiB"] = figure | {"bound_bytes": bound_bytes}
    header = ["codec", "max_memory MiB", "baseline MiB", "peak over it MiB", "bound MiB", ""]
    print("\n" + markdown(header, rows))
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data-dir", type=Path, default=_DIRECTORY / "data", help="where the files are kept")
    add("--rows", type=int, default=4_000_000)
    add("--row-group-rows", type=int, default=250_000)
    add("--codecs", nargs="+", choices=click_log.CODECS, default=list(click_log.CODECS))
    add("--batch-size", type=int, default=8192)
    add("--num-threads", type=int, default=2)
    add("--repeats", type=int, default=5)
    add("--only", nargs="+", metavar="PART", help="contenders whose name contains one of these")
    add("--arrow-pool", choices=pa.supported_memory_backends(), help="pyarrow's allocator")
    add("--json", type=Path, metavar="FILE", help="also write all figures there")
    add("--max-memory-mib", type=int, nargs="+", default=[256, 1024], help="for --memory")
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--threads-scaling", action="store_true")
    modes.add_argument("--memory", action="store_true")
    return parser


def main() -> int:
    """Runs the chosen mode; returns 1 where contenders delivered different data."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.batch_size % 8 or arguments.row_group_rows % 8:
        # The totals add up 8-byte words, which must not depend on where batches end.
        parser.error("--batch-size and --row-group-rows must be multiples of 8")
    if arguments.repeats < 1 or arguments.num_threads < 1:
        parser.error("--repeats and --num-threads must be at least 1")
    # Consumers only read, so tensors over Arrow's read-only buffers are fine.
    warnings.filterwarnings("ignore", message="The given buffer is not writable")
    pa.set_cpu_count(arguments.num_threads)
    torch.set_num_threads(arguments.num_threads)
    if arguments.arrow_pool:
        pa.set_memory_pool(getattr(pa, f"{arguments.arrow_pool}_memory_pool")())
    options = click_log.ClickLogOptions(arguments.rows, arguments.row_group_rows)
    paths = click_log.ensure_files(arguments.data_dir, tuple(arguments.codecs), options)
    machine = environment(arguments.num_threads)
    print(
        f"{described(machine)}; {options.num_rows:,} rows, batches of {arguments.batch_size}, "
        f"median of {arguments.repeats}",
        flush=True,
    )
    mode = compare
    if arguments.threads_scaling:
        mode = threads_scaling
    elif arguments.memory:
        mode = memory
    load = OtherLoad()
    try:
        figures = mode(arguments, paths)
    except ContentError as error:
        print(f"FAILED: {error}", file=sys.stderr)
        return 1
    machine["other_load_cores"] = round(load.cores(), 2)
    print(f"\nOther processes used {machine['other_load_cores']} cores meanwhile.")
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"environment": machine, "figures": figures}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
