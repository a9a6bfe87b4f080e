"""Starts of jobs of up to 10,000 ranks, simulated, and checked against real processes.

    PYTHONPATH=bench python bench/scale/ranks.py constants
    PYTHONPATH=bench python bench/scale/ranks.py check --ranks 2 4 8 16 32
    PYTHONPATH=bench python bench/scale/ranks.py tables --ranks 100 1000 10000 --files 10000 100000

`check` compares the requests of both stores, which must be equal but for those that depend on how
often a rank looks while it waits, and the seconds.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import random
import statistics
import sys
from dataclasses import asdict
from typing import Any

from scale.constants import footer_seconds_per_column, machine, measured
from scale.real_runs import CONDITION, Job, run
from scale.simulation import Costs, World
from scale.start_of_job import FILES_AT_ONCE, Start, simulated

# Nodes of a cluster, not of this machine: the store's network, and what S3 answers.
_ROUND_TRIP, _BYTES_PER_SECOND = 100e-6, 3e9
_LATENCY_MS, _LIMIT = 50.0, 5500.0
_RANKS_PER_NODE = 8
_CHECKED_LATENCY_MS = 500.0
# How often they are asked depends on how long a rank waits.
_LOOKS = ("check", "multi_get", "multi_set", "get")


def _constants(costs: Costs) -> None:
    print("| constant | value |\n|---|---|")
    for name, value in asdict(costs).items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            print(f"| {name} {key} | {one:.3g} |")
    seconds, num_bytes = footer_seconds_per_column()
    print(f"| seconds of a footer for each column | {seconds:.3g} |")
    print(f"| bytes of a footer for each column | {num_bytes:.0f} |")


def _check(costs: Costs, ranks: list[int], files: int, latency: float, repeats: int) -> None:
    print("| ranks | phase | seconds, real | simulated | requests, real | simulated |")
    print("|---|---|---|---|---|---|")
    # With fewer files the requests of a condition depend on which rank takes which part.
    conditions = (None, CONDITION) if files >= FILES_AT_ONCE else (None,)
    for num_ranks, filters in itertools.product(ranks, conditions):
        job = Job(num_ranks, max(1, num_ranks // 2), files, latency, filters)
        real, made = [], []
        for _ in range(repeats):
            before = machine(num_ranks)
            real.append(run(job))
            between = before.mean(machine(num_ranks))
            world = World(costs, num_ranks, job.ranks_per_node, latency, machine=between)
            made.append(simulated(world, Start(files, has_condition=filters is not None)))
        for at, name in ((0, "open"), (2, "second batch")):
            seconds = statistics.median(of[at].seconds for of in real)
            expected = statistics.median(of.seconds[name] for of in made)
            counts = [
                {kind: count for kind, count in sorted(of.items()) if kind not in _LOOKS}
                for of in (
                    real[0][at].operations | (real[0][at].requests if at == 0 else {}),
                    made[0].operations[name] + made[0].requests[name],
                )
            ]
            shown = [" ".join(f"{kind} {count}" for kind, count in of.items()) for of in counts]
            shown_name = f"{name}{' with a condition' if filters else ''}"
            print(f"| {num_ranks} | {shown_name} | {seconds:.2f} | {expected:.2f} | {shown[0]} | "
                  f"{shown[1] if counts[0] != counts[1] else 'equal'} |", flush=True)  # fmt: skip
        print(f"of this machine: {between}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)


def _tables(
    costs: Costs, ranks: list[int], files: list[int], kinds: list[str], latency: float
) -> None:
    print("| ranks | files | start | phase | seconds | requests to the objects' store | 503 | "
          "given up | "
          "to torch's store | its server's seconds | GB it sends |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    # Ranges of 8 MB: for a first batch, ahead, and of each file in an epoch.
    reading: dict[str, Any] = {"first_ranges": 8, "ranges_ahead": 32, "range_seconds": 8e6 / 90e6}
    starts: dict[str, dict[str, Any]] = {
        "first": {**reading, "ranges_of_file": 4},
        "cached": {**reading, "is_cached": True},
        "with a condition": {"has_condition": True, "first_ranges": 0},
    }
    for num_ranks, num_files, kind in itertools.product(ranks, files, kinds):
        world = World(costs, num_ranks, min(num_ranks, _RANKS_PER_NODE), latency, _LIMIT)
        report = simulated(world, Start(num_files, **starts[kind]))
        for name in report.seconds:
            requests = report.requests[name]
            print(
                f"| {num_ranks:,} | {num_files:,} | {kind} | {name} | {report.seconds[name]:.1f} | "
                f"{requests.total() - requests['503'] - requests['given up']:,} | "
                f"{requests['503']:,} | {requests['given up']:,} | "
                f"{sum(report.operations[name].values()):,} | "
                f"{report.busy_seconds[name]:.1f} | {report.sent_bytes[name] / 1e9:.2f} |",
                flush=True,
            )


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("constants", "check", "tables"))
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--files", type=int, nargs="*", default=[64])
    parser.add_argument("--latency-ms", type=float)
    kinds = ("first", "cached", "with a condition")
    parser.add_argument("--starts", nargs="*", choices=kinds, default=kinds, help="of tables")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    random.seed(1)
    # Each simulated node would tell that it waits.
    logging.disable()
    costs = measured()
    if arguments.what == "constants":
        return _constants(costs)
    if arguments.what == "check":
        latency = (arguments.latency_ms or _CHECKED_LATENCY_MS) / 1e3
        return _check(costs, arguments.ranks, arguments.files[0], latency, arguments.repeats)
    nodes = asdict(costs) | {
        "round_trip": _ROUND_TRIP,
        "server_byte": max(costs.server_byte, 1 / _BYTES_PER_SECOND),
    }
    latency = (arguments.latency_ms or _LATENCY_MS) / 1e3
    return _tables(Costs(**nodes), arguments.ranks, arguments.files, arguments.starts, latency)


if __name__ == "__main__":
    main()
