"""The click log against pyarrow: exact batches, any shape, processor time."""

from __future__ import annotations

from pathlib import Path

from generated.generated_files import click_logs
from passes.sides import Pass, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, Target, Verdict, cpu_seconds, median, ratio
from routes.contenders import LIKELY, fastest_routes, pyarrow_contenders, side, torchparquet_route
from routes.pyarrow_routes import Route

BATCHES = {"none": 4.0, "lz4": 4.0, "snappy": 3.0, "zstd": 2.2}
ANY_SHAPE = {"none": 3.2, "lz4": 2.8, "snappy": 2.2, "zstd": 1.8}
CPU = 0.5
# Routes that take turns with ours, after each has been tried alone.
FINALISTS = 3


def _passes(
    setting: Setting, path: Path, routes: list[Route]
) -> tuple[list[Pass], str, list[Pass]]:
    """Returns our passes, the name of pyarrow's fastest route, and its passes."""
    if setting.quick:
        routes = [route for route in routes if route.name in LIKELY]
    finalists = fastest_routes(routes, path, setting.batch_size, FINALISTS)
    chosen = [torchparquet_route(setting.num_threads), *finalists]
    sides = [side(route, path, setting.batch_size) for route in chosen]
    passes = take_turns(sides, setting.repeats)
    ours = passes.pop(OURS)
    name = min(passes, key=lambda name: median(passes[name], lambda one: one.seconds))
    return ours, name, passes[name]


def _batching(setting: Setting) -> list[Route]:
    routes = pyarrow_contenders(setting.num_threads)
    return [route for route in routes if route.shape != "row groups"]


def batches(setting: Setting) -> Outcome:
    """Against pyarrow's fastest route that yields batches."""
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        ours, name, theirs = _passes(setting, path, _batching(setting))
        outcome.verdicts.append(ratio(codec, ours, (f"pyarrow, {name}", theirs), BATCHES[codec]))
    return outcome


def any_shape(setting: Setting) -> Outcome:
    """Against pyarrow's fastest route, whatever it yields."""
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        routes = pyarrow_contenders(setting.num_threads)
        ours, name, theirs = _passes(setting, path, routes)
        outcome.verdicts.append(ratio(codec, ours, (f"pyarrow, {name}", theirs), ANY_SHAPE[codec]))
    return outcome


def cpu(setting: Setting) -> Outcome:
    """Processor seconds of all threads, beside pyarrow's fastest batches."""
    outcome = Outcome()
    for codec, path in click_logs(setting).items():
        ours, name, theirs = _passes(setting, path, _batching(setting))
        millions = ours[0].totals.num_rows / 1e6
        mine, other = median(ours, cpu_seconds), median(theirs, cpu_seconds)
        rounds = [a.cpu_seconds / b.cpu_seconds for a, b in zip(ours, theirs, strict=True)]
        outcome.verdicts.append(
            Verdict(
                codec,
                f"{mine / millions:.3f} s per million rows",
                f"pyarrow, {name}: {other / millions:.3f}",
                mine / other,
                (min(rounds), max(rounds)),
                Target(CPU, at_most=True),
            )
        )
    return outcome


ROWS = (
    Row(
        "batches",
        "click log, batches of 8192",
        "pyarrow's fastest route that yields batches of 8192",
        batches,
    ),
    Row(
        "any-shape",
        "click log, batches of 8192",
        "pyarrow's fastest route of any shape, whole row groups as well",
        any_shape,
    ),
    Row(
        "cpu",
        "click log, batches of 8192, processor time",
        "pyarrow's fastest route that yields batches of 8192",
        cpu,
    ),
)
