"""Bugs in reading, planted one after the other, and what the fuzzer makes of each.

Prints a JSON object: of each bug the labels of what was found.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import torch

import fuzz
import fuzz_reading

# Enough to meet a file that is read, and more where its damage must be of one kind.
NUM_CASES = {"wait_forever": 12, "pass_over_damage": 400}
read = fuzz_reading.ParquetDataset.__iter__
garbage: list[bytes] = []


def drop_last_batch(dataset):
    yield from list(read(dataset))[:-1]


def shorten_one_column(dataset):
    for batch in read(dataset):
        yield batch | {"row.id": batch["row.id"][1:]}


def pass_over_damage(dataset):
    try:
        yield from list(read(dataset))
    except fuzz_reading.CorruptFileError:
        num_rows = dataset.manifest.num_rows
        if num_rows > 1 << 20:
            raise
        yield {"row.id": torch.arange(num_rows), "wrong": torch.zeros(num_rows)}


def end_the_process(dataset):
    os.abort()


def wait_forever(dataset):
    time.sleep(1000)


def allocate_much(dataset):
    garbage.append(bytes(1 << 30))


def touch_much(dataset):
    garbage.append(b"1" * (100 << 20))
    garbage.clear()
    yield from read(dataset)


def raise_another_error(dataset):
    raise RuntimeError(dataset.manifest.files[0])


def raise_an_escape_sequence(dataset):
    raise fuzz_reading.CorruptFileError(f"{dataset.manifest.files[0]} \x9b31m")


def name_no_path(dataset):
    raise fuzz_reading.CorruptFileError("file is damaged")


PLANTS = (
    drop_last_batch,
    shorten_one_column,
    pass_over_damage,
    end_the_process,
    wait_forever,
    allocate_much,
    touch_much,
    raise_another_error,
    raise_an_escape_sequence,
    name_no_path,
)


def main() -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        targets = fuzz.make_targets(Path(folder), None)
        for plant in PLANTS:
            fuzz_reading.ParquetDataset.__iter__ = plant
            # So short that the others would take it for a hang on a busy machine.
            fuzz.TIME_LIMIT_SECONDS = 1 if plant is wait_forever else 30
            cases = range(NUM_CASES.get(plant.__name__, 40))
            labels = set()
            for result in fuzz.run_cases(targets, 3, cases, Path(folder)):
                if result.outcome.is_finding:
                    labels.add(result.outcome.label)
                    if plant is wait_forever:
                        break  # each costs a second in which nothing happens
            found[plant.__name__] = sorted(labels)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
