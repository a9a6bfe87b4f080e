"""The gain of a second thread, of a second rank, and of as many threads as there are cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from generated.generated_files import click_logs
from passes.ceiling import least_work_side
from passes.consumption import consume
from passes.sides import ForkedSide, Gang, Pass, take_turns
from report.verdicts import Outcome, Row, Setting, SkippedError, ratio
from routes.contenders import side, torchparquet_route

TWO_THREADS = 1.85
TWO_RANKS = 0.95
COUNTED_BATCH_ROWS = 65_536


def threads(setting: Setting) -> Outcome:
    """Two threads against one.

    With every byte read, one thread and its consumer have one core, two threads and theirs have
    two. With rows counted there is next to no consumer, and both have all cores. How far the
    least work scales, which decodes nothing, tells what the machine allows.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise SkippedError("two cores are required")
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        routes = [torchparquet_route(n, f"{n} thread{'s' * (n > 1)}") for n in (1, 2)]
        sides = [
            ForkedSide(
                route.name,
                lambda route=route, path=path: consume(route.batches(path, setting.batch_size)),  # type: ignore[misc]
                cpus=cores[: number + 1],
            )
            for number, route in enumerate(routes)
        ]
        counted = [side(route, path, COUNTED_BATCH_ROWS, read=False) for route in routes]
        for case, both in (
            (f"{codec}, bytes read, a core per thread", sides),
            (f"{codec}, rows counted, batches of {COUNTED_BATCH_ROWS}", counted),
        ):
            passes = take_turns(both, setting.repeats)
            one, two = (passes[route.name] for route in routes)
            outcome.verdicts.append(ratio(case, two, ("1 thread", one), TWO_THREADS))
        for what, read in (("bytes read", True), ("bytes stored", False)):
            least = [least_work_side(f"{n} threads", path, n, "codec", read=read) for n in (1, 2)]
            one, two = take_turns(least, setting.repeats).values()
            case = f"{codec}, the least work itself, {what}"
            outcome.verdicts.append(ratio(case, two, ("1 thread", one), None))
    return outcome


def ranks(setting: Setting) -> Outcome:
    """Two ranks of one thread each, at once, against one rank of two threads."""
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        routes = [
            torchparquet_route(1, f"rank {rank}", rank=rank, world_size=2, even="none")
            for rank in range(2)
        ]
        gang = Gang("2 ranks", [side(route, path, setting.batch_size) for route in routes])
        alone = side(torchparquet_route(2, "1 rank"), path, setting.batch_size)
        passes = take_turns([gang, alone], setting.repeats)
        against: tuple[str, list[Pass]] = ("1 rank of 2 threads", passes["1 rank"])
        outcome.verdicts.append(ratio(codec, passes["2 ranks"], against, TWO_RANKS))
    return outcome


def curve(setting: Setting) -> Outcome:
    """Threads from 1 to the number of cores, doubled, against one thread.

    Rows are counted: one loop that reads every byte would be the bound from a few threads on.
    """
    cores = len(os.sched_getaffinity(0))
    counts = [1 << n for n in range(cores.bit_length())]
    outcome = Outcome()
    logs = click_logs(setting)
    cases: list[tuple[str, Path, dict[str, Any]]]
    cases = [(codec, path, {}) for codec, path in logs.items()]
    cases += [(f"{codec}, shuffled", path, {"shuffle": True}) for codec, path in logs.items()]
    for case, path, options in cases:
        names = [f"{n} thread{'s' * (n > 1)}" for n in counts]
        routes = [
            torchparquet_route(n, name, **options) for n, name in zip(counts, names, strict=True)
        ]
        sides = [side(route, path, COUNTED_BATCH_ROWS, read=False) for route in routes]
        passes = take_turns(sides, setting.repeats)
        for route in routes[1:]:
            one = ("1 thread", passes["1 thread"])
            outcome.verdicts.append(ratio(f"{case}, {route.name}", passes[route.name], one, None))
    return outcome


ROWS = (
    Row("curve", "click log by all cores, rows counted", "by 1 thread", curve),
    Row("threads", "click log by 2 threads", "by 1 thread", threads),
    Row("ranks", "click log by 2 ranks of 1 thread", "1 rank of 2 threads", ranks),
)
