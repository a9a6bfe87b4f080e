"""End to end against other packages, each by its own way to batches of tensors."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from generated.generated_files import click_logs
from passes.sides import CommandSide, ContentError, Pass, Side, SideError, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, Target, Verdict, median
from routes.contenders import LIKELY, fastest_routes, pyarrow_contenders, side, torchparquet_route
from routes.rival_environment import rival_pass, rival_versions, rivals_python
from routes.rival_routes import RIVALS, Rival

CODEC = "snappy"
MOST_SECONDS = 10.0
QUICK_SECONDS = 1.0


def _side(rival: Rival, path: Path, setting: Setting, most_seconds: float) -> CommandSide:
    # A conversion of another file of this name must not be read.
    name = f"{rival.name} {path.stat().st_mtime_ns:x}"
    folder = path.parent / "rivals" / name.replace(", ", "_").replace(" ", "_")
    folder.parent.mkdir(exist_ok=True)
    command = rival_pass(
        rivals_python(setting),
        rival.name,
        path,
        setting.batch_size,
        setting.num_threads,
        folder,
        most_seconds,
    )
    return CommandSide(rival.name, command, folder.with_suffix(".log"))


def _check(name: str, passes: list[Pass], ours: Pass, most_seconds: float) -> None:
    """Raises ContentError where a pass that was not cut short lacks rows or has other values."""
    for one in passes:
        totals, expected = one.totals, ours.totals
        if totals.num_rows != expected.num_rows and one.seconds < most_seconds:
            raise ContentError(f"{name}: {totals.num_rows} rows, not {expected.num_rows}")
        sums, wanted = sorted(totals.column_sums.values()), sorted(expected.column_sums.values())
        # Other dtypes, other bytes: then there is nothing to compare.
        if totals.num_bytes == expected.num_bytes and sums != wanted:
            raise ContentError(f"{name}: values differ from ours")


def _verdict(name: str, ours: list[Pass], theirs: list[Pass]) -> Verdict:
    rounds = [a.rows_per_second / b.rows_per_second for a, b in zip(ours, theirs, strict=True)]
    mine, other = _rate(ours), _rate(theirs)
    return Verdict(
        name,
        f"{mine / 1e6:.2f} Mrows/s",
        f"{other / 1e6:.3f} Mrows/s",
        mine / other,
        (min(rounds), max(rounds)),
        Target(1.0),
    )


def _rate(passes: list[Pass]) -> float:
    return median(passes, lambda one: one.rows_per_second)


def _outcome(versions: Mapping[str, str | None]) -> Outcome:
    """Returns an outcome without figures that names the packages."""
    outcome = Outcome(versions={package: v for package, v in versions.items() if v})
    missing = sorted(package for package, version in versions.items() if version is None)
    if missing:
        outcome.notes.append(f"Skipped, not installed: {', '.join(missing)}.")
    return outcome


def measure(setting: Setting) -> Outcome:
    """Rows per second of each, of those that cannot finish in time by what they got to.

    Each takes turns with ours alone: what some leave running would disturb the others.
    """
    path = click_logs(setting, (CODEC,))[CODEC]
    most_seconds = QUICK_SECONDS if setting.quick else MOST_SECONDS
    # Some take seconds to begin each pass.
    repeats = 1 if setting.quick else setting.repeats
    versions = rival_versions(setting, sorted({rival.package for rival in RIVALS}))
    outcome = _outcome(versions)
    ours = torchparquet_route(setting.num_threads)
    likely = [route for route in pyarrow_contenders(setting.num_threads) if route.name in LIKELY]
    best = fastest_routes([r for r in likely if r.shape == "exact"], path, setting.batch_size, 1)[0]
    starts: dict[str, Callable[[], Side]] = {
        f"pyarrow, {best.name}": lambda: side(best, path, setting.batch_size)
    }
    for rival in RIVALS:
        if versions[rival.package] is not None:
            starts[rival.name] = partial(_side, rival, path, setting, most_seconds)
    our_rates = []
    for name, start in starts.items():
        sides = [side(ours, path, setting.batch_size), start()]
        try:
            mine, theirs = take_turns(sides, repeats, content="unchecked").values()
        except SideError as error:
            outcome.notes.append(f"Failed: {error}.")
            continue
        _check(name, theirs, mine[0], most_seconds)
        outcome.verdicts.append(_verdict(name, mine, theirs))
        outcome.rates[name] = _rate(theirs)
        our_rates.append(_rate(mine))
    outcome.verdicts.sort(key=lambda verdict: -outcome.rates[verdict.case])
    outcome.rates[OURS] = statistics.median(our_rates)
    return outcome


ROWS = (
    Row(
        "rivals",
        f"click log ({CODEC}), end to end, for batch in ..., batches of 8192",
        "other packages: first of all",
        measure,
    ),
)
