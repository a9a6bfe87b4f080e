"""Kills of processes that read or write: each kind by the thousand, and what they lose.

Processes are ended by SIGKILL at moments that are drawn from a seed, and begin again until they
come to their end. The exit code is 1 if a row or a batch is lost or comes twice, if a file is left
that is not whole, or if a repeat fails.

    python bench/faults/kills.py --count 1000
    python bench/faults/kills.py --count 50 --kinds rewrite --seed 3
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

from faults.processes.findings import FAULTS, Findings
from faults.processes.killed_caches import KilledCaches
from faults.processes.killed_rewrites import KilledRewrites
from faults.processes.killed_training import KilledTraining, write_rows
from faults.processes.moments import NEVER, run

KINDS: dict[str, Callable[[Path, int], Any]] = {
    "training, the same ranks": lambda f, s: KilledTraining(f, s, changes_world=False),
    "training, other ranks": lambda f, s: KilledTraining(f, s, changes_world=True),
    "rewrite": KilledRewrites,
    "caches": KilledCaches,
}


def kill(kind: str, count: int, seed: int) -> Findings:
    """Run rounds of a kind until so many processes were killed.

    This process must have no threads.

    Args:
        kind: Of `KINDS`.
        count: Kills.
        seed: Of their moments.
    """
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        run([lambda _: write_rows(folder / "rows")], NEVER, folder / "log")
        kills = KINDS[kind](folder, seed)
        while kills.findings.kills < count and not kills.findings.faults.total():
            kills.round()
        return kills.findings  # type: ignore[no-any-return]
    finally:
        shutil.rmtree(folder)


def main() -> int:
    """Run; returns 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="kills of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    gc.freeze()
    begin = time.perf_counter()
    num_faulty = 0
    print(f"| kind | kills | runs that ended | {' | '.join(FAULTS)} |")
    print("|---|" + "---:|" * (len(FAULTS) + 2), flush=True)
    for kind in arguments.kinds:
        findings = kill(kind, arguments.count, arguments.seed)
        cells = [f"{findings.kills:>5}", f"{findings.rounds:>15}"]
        cells += [f"{findings.faults[name]:>{len(name)}}" for name in FAULTS]
        print(f"| {kind:<24} | {' | '.join(cells)} |", flush=True)
        if not findings.holds:
            num_faulty += 1
            print(f"FAULT: {findings.shown or 'nothing was killed'}", flush=True)
    print(f"{num_faulty} rows with faults, {time.perf_counter() - begin:.0f} s")
    return 1 if num_faulty else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
