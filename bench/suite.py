"""Every row of the table of speed, or some: ratio, spread, and whether the target is met.

    python -m bench                                 # all, and writes bench/results/RESULTS.md
    python -m bench --quick                         # on small data: does everything work?
    python -m bench --only batches ceiling          # some
    python -m bench --rivals-python PYTHON          # who is in bench/requirements.txt, too

Two threads, page cache warm, the sides of a row in turns on the same files, each in a process of
its own, every byte of the output read, medians over rounds.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
import warnings
from pathlib import Path

import pyarrow as pa
import torch

from report.machine import OtherLoad, described, environment
from report.readme import tables
from report.results import Measured, section, summary, write
from report.verdicts import Row, Setting, SkippedError
from rows import (
    by_hand,
    click_log_reading,
    device,
    first_batch,
    jollyjack,
    least_work,
    lists_and_strings,
    narrow,
    opening,
    peak_memory,
    rivals,
    scaling,
)

_DIRECTORY = Path(__file__).resolve().parent
_MODULES = (
    click_log_reading,
    least_work,
    jollyjack,
    lists_and_strings,
    by_hand,
    narrow,
    rivals,
    scaling,
    first_batch,
    peak_memory,
    opening,
    device,
)
ROWS: dict[str, Row] = {row.name: row for module in _MODULES for row in module.ROWS}


def _measured(row: Row, setting: Setting) -> Measured:
    load = OtherLoad()
    try:
        outcome = row.measure(setting)
    except SkippedError as error:
        return Measured(row, None, f"skipped: {error}")
    except Exception as error:
        return Measured(row, None, f"failed: {type(error).__name__}: {error}")
    return Measured(row, outcome, other_cores=load.cores())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=ROWS, metavar="ROW", help=f"some of: {', '.join(ROWS)}")
    add("--quick", action="store_true", help="small files, two rounds at most")
    add("--repeats", type=int, help="rounds; 5, or 2 with --quick")
    add(
        "--data-dir",
        type=Path,
        default=_DIRECTORY / "data",
        help="where files of several GB are kept",
    )
    add("--rivals-python", metavar="PYTHON", help="an interpreter that has the rivals")
    add(
        "--results",
        type=Path,
        metavar="FILE",
        help="by default bench/results/RESULTS.md for all rows",
    )
    return parser


def _command(arguments: argparse.Namespace, repeats: int) -> str:
    """Returns the command that takes the same figures."""
    words = ["--quick"] if arguments.quick else []
    words += ["--only", *arguments.only] if arguments.only else []
    words += ["--rivals-python", "PYTHON"] if arguments.rivals_python else []
    words += ["--repeats", str(repeats)]
    return shlex.join(["python", "-m", "bench", *words])


def main() -> int:
    """Measures, prints, writes; returns 1 where a row failed."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.repeats is not None and arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    setting = Setting(
        arguments.data_dir,
        arguments.quick,
        arguments.repeats or (2 if arguments.quick else 5),
        arguments.rivals_python,
    )
    # Consumers only read, so tensors over Arrow's read-only buffers are fine.
    warnings.filterwarnings("ignore", message="The given .* is not writable")
    pa.set_cpu_count(setting.num_threads)
    torch.set_num_threads(setting.num_threads)
    machine = environment(setting.num_threads)
    print(f"{described(machine)}; median of {setting.repeats}\n", flush=True)
    rows = []
    for name in arguments.only or ROWS:
        begin = time.perf_counter()
        rows.append(_measured(ROWS[name], setting))
        print(section(rows[-1]))
        print(f"{name} took {time.perf_counter() - begin:.0f} s.\n", flush=True)
    print(summary(rows))
    if speed := tables(rows):
        print(f"\nFor README.md, in GB/s:\n\n{speed}")
    path = arguments.results
    if path is None and not (arguments.only or arguments.quick):
        path = _DIRECTORY / "results" / "RESULTS.md"
    if path is not None:
        write(path, machine, rows, _command(arguments, setting.repeats))
    return int(any(measured.reason.startswith("failed") for measured in rows))


if __name__ == "__main__":
    sys.exit(main())
