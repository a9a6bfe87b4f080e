"""Bugs in reading, planted one after the other, and what the faults of the system make of each.

Prints a JSON object: of each bug the label of the outcome.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from faults.injection import children, judging, reading, shim
from faults.injection.shim import Call, Effect, Fault
from torchparquet import ParquetDataset

READ_FAILS = Fault(Call.READ, 20, 1, Effect.FAIL, errno.EIO)
read = ParquetDataset.__iter__


def drop_last_batch(dataset: Any) -> Iterator[Any]:
    yield from list(read(dataset))[:-1]


def pass_over_errors(dataset: Any) -> Iterator[Any]:
    try:
        yield from read(dataset)
    except OSError:
        return


def say_nothing_of_the_path(dataset: Any) -> Iterator[Any]:
    try:
        yield from read(dataset)
    except OSError:
        raise OSError("cannot read") from None


def end_the_process(dataset: Any) -> Iterator[Any]:
    try:
        yield from read(dataset)
    except OSError:
        os.abort()


def wait_forever(dataset: Any) -> Iterator[Any]:
    try:
        yield from read(dataset)
    except OSError:
        threading.Event().wait()


def leave_a_descriptor(dataset: Any) -> Iterator[Any]:
    os.dup(1)
    yield from read(dataset)


def run(plant: Any, fault: Fault, folder: Path) -> str:
    setattr(ParquetDataset, "__iter__", plant)  # noqa: B010
    collected = reading.Collected(reading.oracle(folder))
    configuration = reading.CONFIGURATIONS["plain"]
    work = partial(judging.read_all, folder, configuration, collected)
    case = children.Case("", "", partial(judging.judged, work, folder, fault), seconds=5)
    return children.run_case(case, folder).label


def main() -> None:
    shim.begin(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        children.in_child(partial(reading.write_files, folder))
        children.in_child(partial(reading.write_oracle, folder))
        shim.watch_folder(folder)
        plants = {
            read: READ_FAILS,
            drop_last_batch: shim.COUNT_ONLY,
            pass_over_errors: READ_FAILS,
            say_nothing_of_the_path: READ_FAILS,
            end_the_process: READ_FAILS,
            wait_forever: READ_FAILS,
            leave_a_descriptor: shim.COUNT_ONLY,
        }
        found = {plant.__name__: run(plant, fault, folder) for plant, fault in plants.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
