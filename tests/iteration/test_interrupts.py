"""An exception at any line of `next`, as a signal's handler raises it: nothing is lost or twice.

Whoever catches it goes on with the iterator, or saves the state for another process.
"""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import torchparquet
from torchparquet import ParquetDataset, mix

PACKAGE = Path(torchparquet.__file__).parent
STOPPINGS = ("first_exhausted", "all_exhausted", "repeat")
# What brings a batch or a row to the loop, above the streams of single data sets.
MODULES = {
    str(PACKAGE / "mixing" / f"{name}.py")
    for name in (
        "batch_mixing",
        "mix_order",
        "mix_sources",
        "mixture",
        "row_iteration",
        "row_mixing",
        "row_sources",
    )
}
# Behind these comments no call follows, so that no signal's handler runs.
COMMENTS = ("# No call follows", "# No call among")


class InterruptedHere(BaseException):
    """Raised at a line of the package."""


def lines_without_calls() -> set[tuple[str, int]]:
    found = set()
    for module in MODULES:
        lines = linecache.getlines(module)
        for number, line in enumerate(lines, 1):
            if line.strip().startswith(COMMENTS):
                # The comment may go on; a signal may come before the first statement.
                first = number + 1
                while lines[first - 1].strip().startswith("#"):
                    first += 1
                after = first + 1
                while after <= len(lines) and lines[after - 1].strip():
                    found.add((module, after))
                    after += 1
    return found


BEHIND = lines_without_calls()


def interrupted_at(stop_at: int, call: Callable[[], Any]) -> tuple[bool, Any]:
    """Call, and raise at the line that is passed so-manieth; whether it came to that, and what
    was returned otherwise."""
    passed = 0

    def trace(frame: Any, event: Any, argument: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in MODULES:
            return None
        if event == "line" and (frame.f_code.co_filename, frame.f_lineno) not in BEHIND:
            passed += 1
            if passed == stop_at:
                raise InterruptedHere
        return trace

    sys.settrace(trace)
    try:
        return False, call()
    except InterruptedHere:
        return True, None
    finally:
        sys.settrace(None)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: Any) -> list[Path]:
    """Three data sets; `id` says which one and which row."""
    root = tmp_path_factory.mktemp("interrupts")
    made = []
    for number, rows in enumerate((10, 6, 3)):
        made.append(root / f"{number}.parquet")
        ids = np.arange(rows) + 1000 * number
        pq.write_table(pa.table({"id": ids}), made[-1], row_group_size=4)
    return made


def datasets(paths: list[Path]) -> list[ParquetDataset]:
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 4, "num_threads": 1}
    return [ParquetDataset(path, **options) for path in paths]


def of_batches(paths: Any, stopping: Any) -> Any:
    return mix(datasets(paths), weights=[3, 2, 1], stopping=stopping, source_key="source")


def of_rows(paths: Any, stopping: Any) -> Any:
    return mix(
        datasets(paths), weights=[3, 2, 1], stopping=stopping, within_batch=True, batch_size=4
    )


def shown(item: dict[str, Any]) -> Any:
    ids = item["id"]
    return ids.tolist() if hasattr(ids, "tolist") else ids


def items(iterator: Iterator[Any]) -> list[Any]:
    return [shown(item) for item in iterator]


def some_of(num_steps: int) -> list[int]:
    """The first steps, the last one, and some between: each takes a pass for each line."""
    return sorted({0, 1, *range(2, num_steps, 4), num_steps - 1})


OPENED = {
    **{f"batches, {name}": partial(of_batches, stopping=name) for name in STOPPINGS},
    "rows of a data set": lambda paths: datasets(paths)[0].unbatched(),
    "rows of epochs": lambda paths: ParquetDataset(
        paths[2], batch_size=2, num_epochs=2, num_threads=1
    ).unbatched(),
    "rows of a mix": lambda paths: of_batches(paths, "all_exhausted").unbatched(),
}


@pytest.mark.parametrize("kind", OPENED)
def test_every_line_of_every_step(paths: list[Path], kind: Any) -> None:
    expected = items(iter(OPENED[kind](paths)))  # type: ignore[operator]
    num_interrupts = 0
    for step in some_of(len(expected)):
        stop_at = 0
        while True:
            stop_at += 1
            dataset = OPENED[kind](paths)  # type: ignore[operator]
            iterator = iter(dataset)
            found = [shown(next(iterator)) for _ in range(step)]
            interrupted, item = interrupted_at(stop_at, lambda: next(iterator))  # noqa: B023
            if not interrupted:
                found.append(shown(item))
            num_interrupts += interrupted
            state = json.loads(json.dumps(dataset.state_dict()))
            assert found + items(iterator) == expected, (step, stop_at)
            if len(found) < len(expected):  # else the state leads to the next epoch
                resumed = OPENED[kind](paths)  # type: ignore[operator]
                resumed.load_state_dict(state)
                assert found + items(iter(resumed)) == expected, (step, stop_at)
            if not interrupted:
                break
    assert num_interrupts > len(expected)


@pytest.mark.parametrize("stopping", STOPPINGS)
def test_a_batch_of_rows_is_whole_or_the_mix_says_so(paths: list[Path], stopping: str) -> None:
    expected = items(iter(of_rows(paths, stopping)))
    num_torn = 0
    for step in some_of(len(expected)):
        stop_at = 0
        while True:
            stop_at += 1
            dataset = of_rows(paths, stopping)
            iterator = iter(dataset)
            found = [shown(next(iterator)) for _ in range(step)]
            interrupted, item = interrupted_at(stop_at, lambda: next(iterator))  # noqa: B023
            if not interrupted:
                found.append(shown(item))
            try:
                dataset.state_dict()
            except RuntimeError:
                num_torn += 1
                with pytest.raises(RuntimeError, match="interrupted within a batch"):
                    next(iterator)
            else:
                assert found + items(iterator) == expected, (step, stop_at)
            if not interrupted:
                break
    assert num_torn > 20


def test_a_function_that_asks_for_the_state_within_next_disturbs_nothing(paths: list[Path]) -> None:
    def opened(transform: Any = None) -> Any:
        options: dict[str, Any] = {"batch_size": 3, "num_threads": 1, "transform": transform}
        return mix([ParquetDataset(path, **options) for path in paths], weights=[3, 2, 1])

    def asking(batch: Any) -> Any:
        states.append(dataset.state_dict())
        return batch

    for kind in (lambda dataset: dataset, lambda dataset: dataset.unbatched()):
        states: list[dict[str, Any]] = []
        dataset = kind(opened(asking))  # type: ignore[no-untyped-call]
        assert items(iter(dataset)) == items(iter(kind(opened())))  # type: ignore[no-untyped-call]
        assert len(states) > 3


@pytest.mark.parametrize("kind", ["rows of a data set", "rows of a mix"])
def test_an_epoch_that_is_set_stays_set(paths: list[Path], kind: str) -> None:
    fresh = OPENED[kind](paths)  # type: ignore[operator]
    fresh.set_epoch(5)
    expected = items(iter(fresh))
    for stop_at in range(1, 60, 3):
        dataset = OPENED[kind](paths)  # type: ignore[operator]
        iterator = iter(dataset)
        interrupted_at(stop_at, lambda: next(iterator))  # noqa: B023
        dataset.set_epoch(5)
        resumed = OPENED[kind](paths)  # type: ignore[operator]
        resumed.load_state_dict(dataset.state_dict())
        assert items(iter(resumed)) == expected, stop_at
        assert items(iter(dataset)) == expected, stop_at


def test_an_older_iterator_does_not_disturb_a_newer_one(paths: list[Path]) -> None:
    dataset = datasets(paths)[0].unbatched()
    whole = items(iter(dataset)), items(iter(dataset))
    for stop_at in range(1, 40, 2):
        dataset = datasets(paths)[0].unbatched()
        older = iter(dataset)
        assert shown(next(older)) == whole[0][0]
        for _ in range(2):
            next(older)
        interrupted, _ = interrupted_at(stop_at, lambda: next(older))  # noqa: B023
        newer = iter(dataset)
        found = [shown(next(newer))]
        if interrupted:
            assert shown(next(older)) == whole[0][3], stop_at
        state = dataset.state_dict()
        assert found + items(newer) == whole[1], stop_at
        resumed = datasets(paths)[0].unbatched()
        resumed.load_state_dict(state)
        assert found + items(iter(resumed)) == whole[1], stop_at
