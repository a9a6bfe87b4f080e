"""Bugs in reading, planted one after the other: the fuzzer finds each, and nothing else."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import torch

import fuzz
from fuzzing import fuzz_reading

# Enough to meet a file that is read, and more where its damage must be of one kind.
NUM_CASES = {"wait_forever": 12, "pass_over_damage": 400}
read = fuzz_reading.ParquetDataset.__iter__  # type: ignore[attr-defined]
garbage: list[bytes] = []


def drop_last_batch(dataset: Any) -> Iterator[Any]:
    yield from list(read(dataset))[:-1]


def shorten_one_column(dataset: Any) -> Iterator[Any]:
    for batch in read(dataset):
        yield batch | {"row.id": batch["row.id"][1:]}


def pass_over_damage(dataset: Any) -> Iterator[Any]:
    try:
        yield from list(read(dataset))
    except fuzz_reading.CorruptFileError:  # type: ignore[attr-defined]
        num_rows = dataset.manifest.num_rows
        if num_rows > 1 << 20:
            raise
        yield {"row.id": torch.arange(num_rows), "wrong": torch.zeros(num_rows)}


def end_the_process(dataset: Any) -> None:
    os.abort()


def wait_forever(dataset: Any) -> None:
    threading.Event().wait()


def allocate_much(dataset: Any) -> None:
    garbage.append(bytes(1 << 30))


def touch_much(dataset: Any) -> Iterator[Any]:
    garbage.append(b"1" * (100 << 20))
    garbage.clear()
    yield from read(dataset)


def raise_another_error(dataset: Any) -> None:
    raise RuntimeError(dataset.manifest.files[0])


def raise_an_escape_sequence(dataset: Any) -> None:
    raise fuzz_reading.CorruptFileError(f"{dataset.manifest.files[0]} \x9b31m")  # type: ignore[attr-defined]


def name_no_path(dataset: Any) -> None:
    raise fuzz_reading.CorruptFileError("file is damaged")  # type: ignore[attr-defined]


PLANTS = {
    drop_last_batch: "short",
    shorten_one_column: "unequal columns",
    pass_over_damage: "wrong values",
    end_the_process: "crash",
    wait_forever: "hang",
    allocate_much: "out of memory",
    touch_much: "memory growth",
    raise_another_error: "undocumented error",
    raise_an_escape_sequence: "unprintable message",
    name_no_path: "message without path",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make = partial(fuzz_reading.Case.make, fuzz.make_targets(Path(folder), None), 3)
        for plant, label in PLANTS.items():
            fuzz_reading.ParquetDataset.__iter__ = plant  # type: ignore[assignment, attr-defined, method-assign]
            # So short that the others would take it for a hang on a busy machine.
            fuzz.TIME_LIMIT_SECONDS = 1 if plant is wait_forever else 30
            cases = range(NUM_CASES.get(plant.__name__, 40))
            labels = set()
            for result in fuzz.run_cases(make, cases, Path(folder)):
                if result.outcome.is_finding:
                    labels.add(result.outcome.label)
                    if plant is wait_forever:
                        break  # each costs a second in which nothing happens
            assert labels == {label}, (plant.__name__, labels)


if __name__ == "__main__":
    main()
