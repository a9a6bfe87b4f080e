"""Fault: another process changes a file between any two calls of a reader."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from faults.injection.calls import counts_of
from faults.injection.children import Case
from faults.injection.judging import judged, read_all
from faults.injection.reading import CODECS, CONFIGURATIONS, NUM_ROWS, Collected, Rows, oracle
from faults.injection.shim import Call, Effect, Fault

_MOMENTS = 100
Change = Callable[[Path, Path], None]


def _replace(path: Path, other: Path) -> None:
    new = path.with_name("new")
    shutil.copy(other, new)
    new.replace(path)


def _overwrite(path: Path, other: Path) -> None:
    content = other.read_bytes()
    with path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))


def _truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _delete(path: Path, other: Path) -> None:
    path.unlink()


def _append(path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(other.read_bytes())


CHANGES: dict[str, Change] = {
    "replaced by rename": _replace,
    "overwritten in place": _overwrite,
    "truncated": _truncate,
    "deleted": _delete,
    "appended to": _append,
}


def _read(folder: Path, name: str, fault: Fault, new: Rows) -> str:
    collected = Collected(oracle(folder.parent), new)
    return judged(lambda: read_all(folder, CONFIGURATIONS[name], collected), folder, fault)


def _change(change: Change, path: Path, other: Path, pipe: int, child: int) -> None:
    change(path, other)
    os.write(pipe, b"\n")


def _with_file_of(old: Rows, new: Rows, number: int) -> Rows:
    begin, end = number * NUM_ROWS, (number + 1) * NUM_ROWS
    return old[:begin] + new[begin:end] + old[end:]


def cases(folder: Path, seed: int, share: float) -> Iterator[Case]:
    """Yield the cases, or a share of them drawn from the seed."""
    rng = random.Random(seed)
    old, new = oracle(folder), oracle(folder / "other")
    calls = {name: counts_of(folder, name) for name in ("plain", "windows")}
    for shown, change in CHANGES.items():
        for number in range(max(2, round(_MOMENTS * share))):
            name = ("plain", "windows")[number % 2]
            call = rng.choice((Call.OPEN, Call.STAT, Call.READ, Call.READ))
            first = rng.randint(1, calls[name][call])
            which = rng.randrange(len(CODECS))
            copy = folder / "changing"
            shutil.copytree(folder / "data", copy / "data")
            shutil.copy(folder / "good.parquet", copy)
            file = sorted((copy / "data").iterdir())[which]
            read_end, write_end = os.pipe()
            fault = Fault(call, first, 1, Effect.WAIT, read_end)
            run = partial(_read, copy, name, fault, _with_file_of(old, new, which))
            other = folder / "other" / "data" / file.name
            during = partial(_change, change, file, other, write_end)
            where = f"{name}, {file.name}, before {call.name.lower()} {first}"
            yield Case(f"file {shown}", where, run, during=during)
            os.close(read_end)
            os.close(write_end)
            shutil.rmtree(copy)
