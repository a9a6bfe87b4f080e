"""All interleavings of small cases of how threads meet, checked by Spin.

    python bench/faults/models.py            # every case, and every planted fault
    python bench/faults/models.py --quick    # the smallest ones

Needs `spin` and a C compiler. Exits with 1 if a case has an error, or if a planted fault has none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report.tables import markdown

_MODELS = Path(__file__).resolve().parents[2] / "cpp" / "models"
# A limit that Spin reports when it is reached.
_MAX_DEPTH = 1_000_000
_SMALLEST = "THREADS=2 SLICES=3 ROOM=1 ENOUGH=1 COLUMNS=1 FAILS STOPS"


class Case(NamedTuple):
    """A model, its options, and the fault that is planted in it; 0 for none."""

    model: str
    options: str
    plant: int = 0


class Outcome(NamedTuple):
    """The result of Spin."""

    states: int
    errors: int


QUICK = [
    Case("reader", _SMALLEST),
    Case("reader", "THREADS=2 SLICES=2 COLUMNS=2 ROOM=2 ENOUGH=1 LENT"),
    Case("reader", "THREADS=2 SLICES=2 COLUMNS=1 ROOM=2 ENOUGH=1 SPANNING FAILS"),
    Case("reader", "THREADS=2 SLICES=4 COLUMNS=1 ROOM=3 ENOUGH=1 WAKE_ROOM=2 SPANNING"),
    Case("cursor", "THREADS=2 POSITIONS=5 WORLD=2 RANK=1"),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=1 ENOUGH=1", 1),
    Case("reader", _SMALLEST, 2),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=1 ENOUGH=1", 3),
    Case("reader", "THREADS=1 SLICES=3 COLUMNS=1 ROOM=1 ENOUGH=1 STOPS", 4),
    Case("reader", "THREADS=1 SLICES=3 COLUMNS=2 ROOM=1 ENOUGH=1", 5),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=1 ROOM=2 ENOUGH=1 FAILS", 6),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=1 ENOUGH=2", 7),
    Case("cursor", "THREADS=2 POSITIONS=5 WORLD=2 RANK=1", 1),
]
FULL = [
    *QUICK,
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=2 ENOUGH=1 FAILS STOPS"),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=2 ENOUGH=2 LENT FAILS STOPS"),
    Case("reader", "THREADS=2 SLICES=3 COLUMNS=2 ROOM=3 ENOUGH=1 SPANNING FAILS STOPS"),
    Case("reader", "THREADS=2 SLICES=5 COLUMNS=1 ROOM=3 ENOUGH=2 FAILS STOPS"),
    Case("reader", "THREADS=3 SLICES=3 COLUMNS=1 ROOM=2 ENOUGH=1 FAILS"),
    Case("reader", "THREADS=2 SLICES=5 COLUMNS=1 ROOM=3 ENOUGH=1 WAKE_ROOM=3 FAILS STOPS"),
    Case("reader", "THREADS=3 SLICES=3 COLUMNS=1 ROOM=2 ENOUGH=1 LENT STOPS"),
    Case("cursor", "THREADS=3 POSITIONS=10 WORLD=3 RANK=2"),
    Case("cursor", "THREADS=4 POSITIONS=6 WORLD=1 RANK=0"),
]


def check(case: Case) -> Outcome:
    """Check all interleavings of a case.

    Raises:
        RuntimeError: Spin could not check all of them.
    """
    model = _MODELS / f"{case.model}.pml"
    defines = [f"-D{option}" for option in (*case.options.split(), f"PLANT={case.plant}")]
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: str) -> str:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")
            return done.stdout

        run("spin", "-a", *defines, str(model))
        run("cc", "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c")
        said = run("./pan", f"-m{_MAX_DEPTH}")
    states = re.search(r"(\d+) states, stored", said)
    errors = re.search(r"errors: (\d+)", said)
    if ("Search not completed" in said and "errors: 0" in said) or not states or not errors:
        raise RuntimeError(f"not all interleavings were checked: {said}")
    return Outcome(int(states[1]), int(errors[1]))


def main() -> int:
    """Check the cases and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=["reader", "cursor"], help="the cases of one model")
    arguments = parser.parse_args()
    rows, is_good = [], True
    for case in QUICK if arguments.quick else FULL:
        if arguments.only not in (None, case.model):
            continue
        found = check(case)
        is_good &= (found.errors > 0) == (case.plant > 0)
        planted = str(case.plant) if case.plant else ""
        rows.append([case.model, case.options, planted, f"{found.states:,}", str(found.errors)])
    print(markdown(["model", "case", "planted fault", "states", "errors"], rows))
    print("all as it must be" if is_good else "a case has an error, or a planted fault has none")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
