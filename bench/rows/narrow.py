"""Tables of a few columns, and small batches: what a batch costs beside its bytes."""

from __future__ import annotations

import functools
import time
from pathlib import Path

from generated import generated_files
from passes.consumption import PassTotals
from passes.sides import ForkedSide, take_turns
from report.verdicts import OURS, Outcome, Row, Setting, Target, Verdict, median, ratio, seconds
from routes import pyarrow_routes
from routes.contenders import side, torchparquet_route
from routes.pyarrow_routes import Open, Route, ScanOptions
from rows.by_hand import loops

# Of pyarrow's batches, and of its row groups cut by torch, which makes a view a column.
TARGETS = (5.0, 2.0)
# Microseconds of the loop's thread in `next` for each batch of so few rows, by columns.
PYTHON_MICROSECONDS = {1: 8.0, 4: 10.0, 40: 25.0}
_SMALL = 32
_NUM_STEPS = 20_000


def _batches(path: Path) -> list[Route]:
    scanner = pyarrow_routes.scanner(ScanOptions())
    return [*loops(path), Route("scanner", "cut at row groups", scanner)]


def _splits() -> list[Route]:
    return [
        Route(f"row groups, split{name}", "exact", pyarrow_routes.cut(read))
        for name, read in (
            ("", pyarrow_routes.row_groups(Open(), 0)),
            (", prefetch", pyarrow_routes.row_groups(Open(), 1)),
        )
    ]


def _python_seconds(path: Path) -> float:
    """Returns the processor time of the loop's thread for a batch, the least of five epochs."""
    from torchparquet import ParquetDataset

    dataset = ParquetDataset(path, batch_size=_SMALL, num_threads=2, limit_steps=_NUM_STEPS)
    found = []
    for _ in range(6):  # the first one opens the file
        begin, num_batches = time.thread_time(), 0
        for _batch in dataset:
            num_batches += 1
        found.append((time.thread_time() - begin) / num_batches)
    return min(found)


def measure(setting: Setting) -> Outcome:
    """Rows are counted, and data left unread: reading it would add the same to all sides."""
    outcome = Outcome()
    for num_columns, target in PYTHON_MICROSECONDS.items():
        path = generated_files.integers(setting, num_columns)
        process = ForkedSide("", PassTotals, {"python": functools.partial(_python_seconds, path)})
        rounds = [1e6 * process.ask("python") for _ in range(setting.repeats)]
        process.close()
        case = f"Python for a batch of {_SMALL}, {num_columns} columns"
        spread = (min(rounds), max(rounds))
        limit = Target(target, " \u00b5s", at_most=True)
        outcome.verdicts.append(Verdict(case, "", "", min(rounds), spread, limit, " \u00b5s"))
    for num_columns in (1, 4):
        path = generated_files.integers(setting, num_columns)
        for batch_size in (256, setting.batch_size):
            groups = (_batches(path), _splits())
            routes = [torchparquet_route(setting.num_threads), *groups[0], *groups[1]]
            sides = [side(route, path, batch_size, read=False) for route in routes]
            passes = take_turns(sides, setting.repeats)
            for group, target in zip(groups, TARGETS, strict=True):
                name = min((r.name for r in group), key=lambda name: median(passes[name], seconds))
                case = f"{num_columns} columns, batches of {batch_size}"
                outcome.verdicts.append(ratio(case, passes[OURS], (name, passes[name]), target))
    return outcome


ROWS = (
    Row(
        "narrow",
        "1, 4 and 40 int64 columns, PLAIN, uncompressed, batches of 32, 256 and 8192, unread",
        "pyarrow's batches: iter_batches, scanner, row groups cut; its row groups split by torch",
        measure,
    ),
)
