"""An exception anywhere in `next`, as a signal's handler raises it: nothing is lost or twice.

Whoever catches it goes on with the iterator, or saves the state for another process.
"""

from __future__ import annotations

import dis
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import torchparquet
from torchparquet import ParquetDataset, mix

PACKAGE = str(Path(torchparquet.__file__).parent)
STOPPINGS = ("first_exhausted", "all_exhausted", "repeat")
# Nobody is told of what finalizers raise; a stream and a generator have some.
FINALIZERS = ("__del__", "close", "_stop", "end", "_sums_of", "<genexpr>")


class InterruptedHere(BaseException):
    """Raised within the package."""


class Interrupt:
    """Raises once, at one of the moments at which the interpreter runs the handlers of signals.

    These are the beginnings of functions and the ends of calls of compiled ones. So many such
    moments of the package pass before.
    """

    watch: Callable[[Any], None] = staticmethod(sys.setprofile)

    def __init__(self, num_before: int) -> None:
        self.num_before = num_before
        self.was_raised = False

    def call(self, function: Callable[[], Any]) -> list[Any]:
        """Return the function's result as a list of one; an empty list if it was interrupted."""
        self.watch(self._at)
        try:
            return [function()]
        except InterruptedHere:
            return []
        finally:
            self.watch(None)

    def _at(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Count a moment, and go on to watch the frame; not those of others."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or code.co_name in FINALIZERS:
            return None
        if self.is_moment(frame, event):
            if self.num_before == 0:
                self.was_raised = True
                raise InterruptedHere
            self.num_before -= 1
        return self._at

    def is_moment(self, frame: FrameType, event: str) -> bool:
        return event in ("call", "c_return")


class InterruptAtLine(Interrupt):
    """Raises once, before a line of the package that is executed."""

    watch = staticmethod(sys.settrace)

    def is_moment(self, frame: FrameType, event: str) -> bool:
        return event == "line" and not (is_after_the_count(frame) or leaves_a_with(frame))


def is_after_the_count(frame: FrameType) -> bool:
    """True if the item is counted: no call follows, and so no handler of a signal runs."""
    names = frame.f_locals
    if frame.f_code.co_name != "__next__" or not {"progress", "after"} <= names.keys():
        return False
    return bool(names["progress"].position is names["after"])


def leaves_a_with(frame: FrameType) -> bool:
    """True where a `with` ends: its exit is called without a moment for a handler before."""
    code = frame.f_code
    if None not in code.co_consts:
        return False
    none = bytes([dis.opmap["LOAD_CONST"], code.co_consts.index(None)])
    return code.co_code.startswith(none * 3, frame.f_lasti)  # the arguments of the exit


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
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


def of_batches(
    paths: list[Path], stopping: Any, weights: Sequence[int] = (3, 2, 1), key: str | None = None
) -> Any:
    return mix(datasets(paths), weights=weights, stopping=stopping, source_key=key)


def of_rows(paths: list[Path], stopping: Any) -> Any:
    return mix(
        datasets(paths), weights=[3, 2, 1], stopping=stopping, within_batch=True, batch_size=4
    )


def epochs(paths: list[Path]) -> ParquetDataset:
    return ParquetDataset(paths[2], batch_size=2, num_epochs=2, num_threads=1)


def shown(item: dict[str, Any]) -> Any:
    ids = item["id"]
    return ids.tolist() if hasattr(ids, "tolist") else ids


def items(iterator: Iterator[Any]) -> list[Any]:
    return [shown(item) for item in iterator]


def some_of(num_steps: int) -> list[int]:
    """The first steps, the last one, and some between: each takes a pass for each moment."""
    return sorted({0, 1, *range(2, num_steps, 4), num_steps - 1})


OPENED: dict[str, Callable[[list[Path]], Any]] = {
    "batches": lambda paths: datasets(paths)[0],
    "batches of epochs": epochs,
    "batches with a function": lambda paths: ParquetDataset(
        paths[0], batch_size=4, num_threads=1, transform=lambda batch: {"id": batch["id"] + 1}
    ),
    **{
        f"mix of batches, {name}": partial(of_batches, stopping=name, key="source")
        for name in STOPPINGS
    },
    **{f"mix of rows, {name}": partial(of_rows, stopping=name) for name in STOPPINGS},
    "rows of a data set": lambda paths: datasets(paths)[0].unbatched(),
    "rows of epochs": lambda paths: epochs(paths).unbatched(),
    "rows of a mix": lambda paths: of_batches(paths, "all_exhausted").unbatched(),
    "mix of a mix": lambda paths: mix([of_batches(paths, "repeat"), datasets(paths)[1]]),
    "mix of rows of a mix": lambda paths: mix(
        [of_batches(paths[2:], "all_exhausted", [1]), datasets(paths)[1]],
        stopping="repeat",
        within_batch=True,
        batch_size=4,
    ),
    "mix of mixed rows": lambda paths: mix(
        [of_rows(paths, "all_exhausted"), datasets(paths)[0]], stopping="all_exhausted"
    ),
}


@pytest.mark.parametrize("kind", OPENED)
@pytest.mark.parametrize("interrupt", [Interrupt, InterruptAtLine])
@pytest.mark.parametrize("stride", [67, pytest.param(7, marks=pytest.mark.soak)])
@pytest.mark.mostly_long(every=8)
def test_moments_of_every_step(
    paths: list[Path], kind: str, interrupt: type[Interrupt], stride: int
) -> None:
    dataset, resumed = OPENED[kind](paths), OPENED[kind](paths)
    expected = items(iter(dataset))
    num_interrupts = 0
    for step in some_of(len(expected)):
        num_before = 5 * step % stride
        while True:
            dataset.set_epoch(0)
            iterator = iter(dataset)
            found = [shown(next(iterator)) for _ in range(step)]
            present = interrupt(num_before)
            found += map(shown, present.call(partial(next, iterator)))
            state = json.loads(json.dumps(dataset.state_dict()))
            assert found + items(iterator) == expected, (step, num_before)
            if len(found) < len(expected):  # else the state leads to the next epoch
                resumed.load_state_dict(state)
                assert found + items(iter(resumed)) == expected, (step, num_before)
            if not present.was_raised:
                break
            num_interrupts += 1
            num_before += stride
    assert num_interrupts > 3


def test_a_function_that_asks_for_the_state_within_next_disturbs_nothing(paths: list[Path]) -> None:
    def opened(transform: Any = None) -> Any:
        options: dict[str, Any] = {"batch_size": 3, "num_threads": 1, "transform": transform}
        return mix([ParquetDataset(path, **options) for path in paths], weights=[3, 2, 1])

    def asking(batch: Any) -> Any:
        states.append(dataset.state_dict())
        return batch

    kinds: list[Callable[[Any], Any]] = [lambda mixed: mixed, lambda mixed: mixed.unbatched()]
    for kind in kinds:
        states: list[dict[str, Any]] = []
        dataset = kind(opened(asking))
        assert items(iter(dataset)) == items(iter(kind(opened())))
        assert len(states) > 3


@pytest.mark.parametrize("kind", ["batches", "rows of a data set", "rows of a mix"])
def test_an_epoch_that_is_set_stays_set(paths: list[Path], kind: str) -> None:
    fresh = OPENED[kind](paths)
    fresh.set_epoch(5)
    expected = items(iter(fresh))
    for num_before in range(0, 200, 7):
        dataset = OPENED[kind](paths)
        iterator = iter(dataset)
        Interrupt(num_before).call(partial(next, iterator))
        dataset.set_epoch(5)
        resumed = OPENED[kind](paths)
        resumed.load_state_dict(dataset.state_dict())
        assert items(iter(resumed)) == expected, num_before
        assert items(iter(dataset)) == expected, num_before


@pytest.mark.parametrize("kind", ["batches", "mix of rows, repeat", "rows of a mix"])
def test_an_iteration_that_could_not_begin_takes_no_epoch(paths: list[Path], kind: str) -> None:
    whole = OPENED[kind](paths)
    expected = [items(iter(whole)) for _ in range(2)]
    for num_before in range(0, 60, 3):
        dataset = OPENED[kind](paths)
        present = Interrupt(num_before)
        begun = present.call(lambda: iter(dataset))  # noqa: B023
        assert begun or present.was_raised
        assert [items(iter(dataset)) for _ in range(2)] == expected, num_before


def test_an_older_iterator_does_not_disturb_a_newer_one(paths: list[Path]) -> None:
    dataset = datasets(paths)[0].unbatched()
    whole = items(iter(dataset)), items(iter(dataset))
    for num_before in range(0, 80, 3):
        dataset = datasets(paths)[0].unbatched()
        older = iter(dataset)
        assert shown(next(older)) == whole[0][0]
        for _ in range(2):
            next(older)
        interrupted = not Interrupt(num_before).call(partial(next, older))
        newer = iter(dataset)
        found = [shown(next(newer))]
        if interrupted:
            assert shown(next(older)) == whole[0][3], num_before
        state = dataset.state_dict()
        assert found + items(newer) == whole[1], num_before
        resumed = datasets(paths)[0].unbatched()
        resumed.load_state_dict(state)
        assert found + items(iter(resumed)) == whole[1], num_before
