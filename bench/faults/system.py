"""Faults of the system: each gives right rows or a clear error, and nothing else.

A library that stands before the system's functions makes calls fail, be short, be late or wait, in
forked children with limits of time and memory. The rows are compared with those that pyarrow read
before. After an error the child reads a good file, and no thread or descriptor may be left. An
error must name the path, except one for want of memory.

    python bench/faults/system.py                       # all of them
    python bench/faults/system.py --only calls --seed 3
    python bench/faults/system.py --share 0.01          # one case of a hundred

"bindings" runs only if it is named: pybind11 ends the process if it has no memory to register an
object, which is one of some hundred allocations of our code on the main thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# The rooms of the bench, and the store that the tests read from.
sys.path.extend(map(str, Path(__file__).resolve().parents[1:3]))

from faults.injection import calls, changes, disks, groups, machine, memory, shim, stuck
from faults.injection.children import Case, Table, in_child, seconds_since
from faults.injection.reading import write_files, write_oracle

_LEFT_OUT = ("bindings",)
Cases = Callable[[Path, int, float], Iterator[Case]]
FAULTS: dict[str, Cases] = {
    "calls": calls.cases,
    "disks": disks.cases,
    "memory": memory.cases,
    "groups": groups.cases,
    "bindings": memory.cases_of_bindings,
    "stuck": stuck.cases,
    "changes": changes.cases,
    "machine": machine.cases,
}


def _prepare(folder: Path) -> None:
    for root, salt in ((folder, 0), (folder / "other", 1)):
        write_files(root, salt)
        write_oracle(root)


def main() -> int:
    """Run; returns 1 if a promise was broken or a fault did not fire."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    usual = [name for name in FAULTS if name not in _LEFT_OUT]
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=usual)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, drawn by the seed")
    arguments = parser.parse_args()
    shim.begin()
    table = Table()
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name).resolve()
        in_child(lambda: _prepare(folder))
        shim.watch_folder(folder)
        shim.watch_code("_core.", "_arrow_")
        for fault in arguments.only:
            begin = time.perf_counter()
            table.run(FAULTS[fault](folder, arguments.seed, arguments.share), folder)
            print(f"{fault}: {seconds_since(begin)}", flush=True)
    table.print()
    return int(table.has_failed)


if __name__ == "__main__":
    sys.exit(main())
