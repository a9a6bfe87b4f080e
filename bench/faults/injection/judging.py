"""Reads under a fault, and says whether what comes of it is what the package promises."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from faults.injection import shim
from faults.injection.reading import (
    Collected,
    Configuration,
    DifferenceError,
    batches_of,
    dataset_of,
    num_threads,
    open_descriptors,
    read_good,
)
from torchparquet import ParquetDataset, errors

DOCUMENTED: tuple[type[Exception], ...] = (
    OSError,
    MemoryError,
    *(
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
)
RIGHT = "right rows"
_SHARED_MEMORY = "the system gives no shared memory"
# A loop that goes on after an error gets it again, or the batch that was lost.
_MAX_ERRORS = 3


def judged(
    read: Callable[[], None], folder: Path, fault: shim.Fault, patience_seconds: float = 0
) -> str:
    """Call `read` under a fault.

    Args:
        read: Reads, and checks the rows.
        folder: Holds the files, whose path an error names.
        fault: The fault.
        patience_seconds: How long threads of others may take to end.

    Returns:
        That its rows were right, or the type of its error.

    Raises:
        Exception: The error is not clear, rows are wrong, or something was left.
    """
    read_good(folder)  # what a first reading loads stays
    gc.collect()
    before = num_threads(), open_descriptors()
    shim.arm(fault)
    try:
        read()
        label = RIGHT
    except DOCUMENTED as error:
        label = clear(error, folder)
    finally:
        shim.disarm()
    check_nothing_left(folder, *before, patience_seconds)
    return label


def clear(error: BaseException, folder: Path) -> str:
    """Return the type of an error that names what it is about, and raise any other.

    Memory is not about a file, so an error for want of it may name none.
    """
    is_of_memory = isinstance(error, MemoryError) or _SHARED_MEMORY in str(error)
    if not is_of_memory and str(folder) not in str(error):
        raise DifferenceError(f"names no path: {type(error).__name__}: {error}") from error
    return type(error).__name__


def check_nothing_left(
    folder: Path, threads: int, descriptors: set[str], patience_seconds: float = 0
) -> None:
    """Check that a good file is read, and that no thread or descriptor is left.

    Args:
        folder: Holds the good file.
        threads: The number before.
        descriptors: Those that were open before.
        patience_seconds: How long to wait for threads to end.

    Raises:
        DifferenceError: Something is.
    """
    read_good(folder)
    gc.collect()
    deadline = time.monotonic() + patience_seconds
    while num_threads() > threads and time.monotonic() < deadline:
        time.sleep(0.01)
    if num_threads() > threads:
        raise DifferenceError(f"{num_threads() - threads} threads are left")
    left = open_descriptors() - descriptors
    if left:
        raise DifferenceError(f"descriptors are left: {sorted(left)}")


def read_all(
    folder: Path, configuration: Configuration, collected: Collected, **options: Any
) -> None:
    """Read the files of a folder once, and go on after an error as long as that may help."""
    dataset = dataset_of(folder, configuration, **options)
    with closed_at_end(dataset):
        read_epoch(dataset, configuration, collected)


def read_epoch(dataset: ParquetDataset, configuration: Configuration, collected: Collected) -> None:
    """Read an open data set once, as `read_all` does."""
    iterator = batches_of(dataset, configuration)
    first: BaseException | None = None
    num_errors = 0
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        except DOCUMENTED as error:
            first = first or error
            num_errors += 1
            if configuration.num_workers or num_errors == _MAX_ERRORS:
                raise first from None
            continue
        collected.add(batch)
    collected.end()


@contextmanager
def closed_at_end(dataset: Any) -> Iterator[None]:
    """Close a data set, whatever happens."""
    try:
        yield
    finally:
        dataset.close()
