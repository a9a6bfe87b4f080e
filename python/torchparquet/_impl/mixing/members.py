"""The data sets of a mix: their methods, and what is left of each."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.plan.row_places import Reach
from torchparquet._impl.session.course import ExactIterator
from torchparquet._impl.session.iteration import Iteration


class Mixable(Protocol):
    """A data set with the methods of `ParquetDataset` that a mix needs."""

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or resume at a loaded state."""

    def __len__(self) -> int:
        """Return the batches of the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the epoch of the next iteration."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the latest iteration after the batches that it has returned."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`."""


@runtime_checkable
class RowMixable(Protocol):
    """A data set that another world can resume with each row once, as `ParquetDataset` can."""

    def begin_epoch(self, epoch: int) -> None:
        """Make the next iteration read `epoch` from its start, whatever state was loaded."""

    def reaches(self, num_workers: int = 0) -> list[Reach]:
        """Return the progress of each worker of this rank."""

    def state_at_row(self, num_rows: int) -> dict[str, Any]:
        """Return a state after `num_rows` rows of each rank in the present world."""


@runtime_checkable
class Metered(Protocol):
    """A data set with metrics."""

    def metrics(self, *, all_iterations: bool = False) -> Metrics:
        """Return the metrics of this process."""


def own_copies(datasets: Sequence[Mixable]) -> list[Mixable]:
    """Return copies whose epochs no other DataLoader worker counts.

    Workers share the numbers of iterations. But each worker begins the rounds of its mix at its own
    time, and resumes at its own states.
    """
    return [copy.copy(data) if hasattr(data, "__copy__") else data for data in datasets]


def begin_epoch(dataset: Mixable, epoch: int) -> None:
    """Make the next iteration read `epoch` from its start, whatever state was loaded."""
    if isinstance(dataset, RowMixable):
        dataset.begin_epoch(epoch)
        return
    # Otherwise a state of this epoch would stay in a data set that was not drawn since.
    dataset.set_epoch(epoch + 1)
    dataset.set_epoch(epoch)


def batches_left(dataset: Mixable, epoch: int, delivered: int, num_workers: int = 0) -> list[int]:
    """Return the remaining batches of a data set's `epoch`, for each worker."""
    if not isinstance(dataset, RowMixable):
        return [len(dataset) - delivered if _stands_in(dataset, epoch) else 0]
    reaches = dataset.reaches(num_workers)
    return [of.end_steps - of.num_steps if of.epoch == epoch else 0 for of in reaches]


def rows_left(dataset: Mixable, epoch: int, taken: int, num_workers: int = 0) -> list[int | None]:
    """Return the rows that all ranks can still take of a data set's `epoch`, for each worker.

    A number is None if the data set does not tell. See `batches_left` for the arguments, which
    count rows here.
    """
    inner = getattr(dataset, "datasets", None)
    if inner is not None and any(topology.world_size > 1 for topology in worlds(inner)):
        raise ValueError(
            "rows of a mix cannot be mixed with others on several ranks, which may differ in their "
            "number: mix the rows of its data sets, each by the product of its weights"
        )
    if isinstance(dataset, RowMixable):
        reaches = dataset.reaches(num_workers)
        return [of.end_rows - of.num_rows if of.epoch == epoch else 0 for of in reaches]
    if not _stands_in(dataset, epoch):
        return [0]
    rows = _rows_per_epoch(dataset)
    return [None if rows is None else rows - taken]


def _stands_in(dataset: Mixable, epoch: int) -> bool:
    """Return whether a data set is in the epoch; True if it does not say."""
    return bool(getattr(dataset, "epoch", epoch) == epoch)


def _rows_per_epoch(dataset: Any) -> int | None:
    """Return how many rows of a data set each rank can take; None if it has no plan."""
    if not hasattr(dataset, "plan") or not hasattr(dataset, "topology"):
        return None
    plan, topology = dataset.plan(), dataset.topology()
    options = plan.options
    ranks = [topology.rank] if options.steps_may_differ else range(options.world_size)
    workers = range(options.num_workers)
    worker = min(topology.worker_id, options.num_workers - 1)
    rows = [
        int(plan.share_rows[list(options.shares_of(rank, of))].sum())
        for rank in ranks
        for of in ([worker] if options.steps_may_differ else workers)
    ]
    batch_size = options.batch_size
    return min(rows) if batch_size is None else min(*rows, len(dataset) * batch_size)


def worlds(datasets: Sequence[Any]) -> list[Any]:
    """Return the present rank and world of each data set that says so."""
    return [data.topology() for data in datasets if hasattr(data, "topology")]


def mark_of(iterator: Any) -> Any:
    """Return a mark of the present position for `go_back`; None if the iterator cannot go back."""
    return iterator.marked() if isinstance(iterator, ExactIterator) else None


def go_back(iterator: Any, mark: Any) -> None:
    """Have an iterator deliver again the items since `mark`, if it can."""
    if mark is not None:
        iterator.go_back(mark)


def hold_epoch(iterator: Any, is_held: bool) -> None:
    """Say whether an iterator takes its epoch with its second batch or only with the mix."""
    if isinstance(iterator, Iteration):
        iterator.is_held = is_held


def close_iterator(iterator: Any) -> None:
    """End the threads of an iterator, if it has any."""
    close = getattr(iterator, "close", None)
    if close is not None:
        close()
