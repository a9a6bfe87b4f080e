"""Faults that lose something at a kill, planted one after the other, and what is found of each.

Prints a JSON object: of each plant the faults that were found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from faults import kills
from torchparquet import ParquetDataset
from torchparquet._impl.files.cache_file import CacheFile
from torchparquet.tools.rewrite.output_place import LocalOutput

load = ParquetDataset.load_state_dict


def forget_the_state(dataset: Any, state: Any) -> None:
    if dataset.topology().rank == 0:
        load(dataset, state)


def pass_over_a_batch(dataset: Any, state: Any) -> None:
    load(dataset, state)
    dataset.skip(1)


@contextmanager
def write_in_place(output: Any, name: str) -> Iterator[Path]:
    yield output.directory / name


def write_by_halves(file: Any, content: bytes) -> None:
    path = Path(file.shown)
    path.write_bytes(content[:100])
    with path.open("ab") as to:
        to.write(content[100:])


PLANTS: dict[str, tuple[str, Any, str, Any]] = {
    "forget the state": (
        "training, other ranks",
        ParquetDataset,
        "load_state_dict",
        forget_the_state,
    ),
    "pass over a batch": (
        "training, the same ranks",
        ParquetDataset,
        "load_state_dict",
        pass_over_a_batch,
    ),
    "write in place": ("rewrite", LocalOutput, "new_file", write_in_place),
    "write by halves": ("caches", CacheFile, "write", write_by_halves),
}

if __name__ == "__main__":
    found = {}
    for name, (kind, owner, attribute, plant) in PLANTS.items():
        with mock.patch.object(owner, attribute, plant):
            findings = kills.kill(kind, 200, seed=1)
        found[name] = sorted(fault for fault, number in findings.faults.items() if number)
    print(json.dumps(found))
