"""Opening many files."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from generated.generated_files import many_files
from passes.consumption import PassTotals
from passes.sides import ForkedSide, Pass, take_turns
from report.verdicts import Outcome, Row, Setting, Target, Verdict, median, seconds

FOOTERS = 4.0
CACHED_MILLISECONDS = 100.0


def _open(path: Path, num_threads: int, cache: Path | None = None) -> PassTotals:
    from torchparquet import ParquetDataset

    dataset = ParquetDataset(
        path,
        batch_size=64,
        num_threads=num_threads,
        rank=0,
        world_size=1,
        drop_last=False,
        manifest_cache=cache,
    )
    return PassTotals(64 * len(dataset))


def _read_footers(path: Path) -> PassTotals:
    footers = [pq.read_metadata(file) for file in sorted(path.iterdir())]
    return PassTotals(sum(footer.num_rows for footer in footers))


def milliseconds(one: Pass) -> float:
    """Returns how long ``one`` took."""
    return 1e3 * one.seconds


def measure(setting: Setting) -> Outcome:
    """A data set that knows its length, against the footers alone, one by one."""
    path = many_files(setting)
    cache = path.with_suffix(".manifest")
    sides = [
        ForkedSide("ours", lambda: _open(path, setting.num_threads)),
        # The untimed pass writes the cache.
        ForkedSide("again", lambda: _open(path, setting.num_threads, cache)),
        ForkedSide("pyarrow", lambda: _read_footers(path)),
    ]
    passes = take_turns(sides, setting.repeats)
    ours, again, theirs = passes["ours"], passes["again"], passes["pyarrow"]
    rounds = [b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]
    mine, other = median(ours, seconds), median(theirs, seconds)
    count = sum(1 for _ in path.iterdir())
    cached = Target(CACHED_MILLISECONDS, " ms", at_most=True)
    return Outcome(
        [
            Verdict(
                f"{count:,} files",
                f"{1e3 * mine:.0f} ms",
                f"pyarrow's footers one by one: {1e3 * other:.0f} ms",
                other / mine,
                (min(rounds), max(rounds)),
                Target(FOOTERS),
            ),
            Verdict(
                f"{count:,} files again, from a manifest cache",
                f"{median(again, milliseconds):.0f} ms",
                "-",
                median(again, milliseconds),
                (min(map(milliseconds, again)), max(map(milliseconds, again))),
                cached,
                " ms",
            ),
        ]
    )


ROWS = (
    Row("opening", "opening 2,000 files of 40 columns", "pyarrow's footers one by one", measure),
)
