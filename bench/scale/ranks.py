"""Starts of jobs of up to 10,000 ranks, simulated, and checked against real processes.

    PYTHONPATH=bench python bench/scale/ranks.py constants
    PYTHONPATH=bench python bench/scale/ranks.py check --ranks 2 4 8 16 32
    PYTHONPATH=bench python bench/scale/ranks.py tables --ranks 100 1000 10000 --files 10000 100000

`check` compares the requests of both stores, which must be equal but for those that depend on how
often a rank looks while it waits, and the seconds.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
from dataclasses import asdict

from scale.constants import footer_seconds_per_column, measured, num_other_programs
from scale.real_runs import Job, run
from scale.simulation import Costs, World
from scale.start_of_job import Start, simulated

# Nodes of a cluster, not of this machine: the store's network, and what S3 answers.
_ROUND_TRIP, _BYTES_PER_SECOND = 100e-6, 3e9
_LATENCY, _LIMIT = 0.05, 5500.0
_RANKS_PER_NODE = 8
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
    for num_ranks in ranks:
        job = Job(num_ranks, max(1, num_ranks // 2), files, latency)
        real, made = [], []
        for _ in range(repeats):
            before = num_other_programs()
            real.append(run(job))
            machine = os.cpu_count() or 1, (before + num_other_programs()) / 2
            world = World(costs, num_ranks, job.ranks_per_node, latency, machine=machine)
            made.append(simulated(world, Start(files)))
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
            print(f"| {num_ranks} | {name} | {seconds:.2f} | {expected:.2f} | {shown[0]} | "
                  f"{shown[1] if counts[0] != counts[1] else 'equal'} |", flush=True)  # fmt: skip


def _tables(costs: Costs, ranks: list[int], files: list[int]) -> None:
    print("| ranks | files | start | phase | seconds | requests to the objects' store | 503 | "
          "given up | "
          "to torch's store | its server's seconds | GB it sends |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for num_ranks in ranks:
        for num_files in files:
            for is_cached in (False, True):
                world = World(costs, num_ranks, _RANKS_PER_NODE, _LATENCY, _LIMIT)
                start = Start(num_files, 8, 32, 8e6 / 90e6, is_cached, 0 if is_cached else 4)
                report = simulated(world, start)
                for name in report.seconds:
                    requests = report.requests[name]
                    print(
                        f"| {num_ranks:,} | {num_files:,} | "
                        f"{'cached' if is_cached else 'first'} | {name} | "
                        f"{report.seconds[name]:.1f} | "
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
    parser.add_argument("--latency-ms", type=float, default=500)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    random.seed(1)
    # Each simulated node would tell that it waits.
    logging.disable()
    costs = measured()
    if arguments.what == "constants":
        return _constants(costs)
    if arguments.what == "check":
        latency = arguments.latency_ms / 1e3
        return _check(costs, arguments.ranks, arguments.files[0], latency, arguments.repeats)
    nodes = asdict(costs) | {
        "round_trip": _ROUND_TRIP,
        "server_byte": max(costs.server_byte, 1 / _BYTES_PER_SECOND),
    }
    return _tables(Costs(**nodes), arguments.ranks, arguments.files)


if __name__ == "__main__":
    main()
