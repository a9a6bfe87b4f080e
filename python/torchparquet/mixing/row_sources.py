"""The rows of one data set of a mix, and the states behind those that were taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchparquet.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet.batches.tensors import Batch
from torchparquet.iteration.state import after_rows
from torchparquet.mixing.mix_sources import Mixable, RowMixable, go_back, mark_of, rows_left


class RowSource:
    """The rows of one data set, and where they were taken from.

    A state is that of the data set before the first batch that is not used up, and how many rows
    of this are: it fits the same batches only.
    """

    def __init__(self, dataset: Mixable, state: dict[str, Any] | None, epoch: int) -> None:
        """Go on with `epoch` of the data set, which `state` is of; None for its start."""
        self.dataset = dataset
        self._skipped = self.taken = 0
        if state is not None:
            self._load(state)
        self._begin(epoch)

    def _load(self, state: dict[str, Any]) -> None:
        load_source(self.dataset, state)
        self._skipped, self.taken = state["used"], state["taken"]

    def _begin(self, epoch: int) -> None:
        self.batches: Iterator[Batch] = iter(self.dataset)
        # Batches that are not used up, each with the state before it and its number of rows.
        self._held: tuple[tuple[Any, Batch, int], ...] = ()
        self._before_read: Any = None  # while one is read
        self._used = 0  # rows of the first of them
        self._held_rows = 0
        self._find_end(epoch)

    def _find_end(self, epoch: int) -> None:
        (left,) = rows_left(self.dataset, epoch, self.taken)
        self._end = None if left is None else self.taken + left

    def begin_round(self, epoch: int) -> None:
        """Go on with another epoch of the data set."""
        self.dataset.set_epoch(epoch)
        self.taken = 0
        self._begin(epoch)

    @property
    def left(self) -> int | None:
        """Rows that all ranks can still take of the round; None if the data set does not say."""
        return None if self._end is None else self._end - self.taken

    def available(self, wanted: int) -> int:
        """Return how many of `wanted` rows there are, after reading as many batches as it takes."""
        if self.left is not None:
            wanted = min(wanted, self.left)
        while self._held_rows < wanted and self._read():
            pass
        return max(0, min(wanted, self._held_rows))

    def _read(self) -> bool:
        """Read a batch, where there is one."""
        # An exception may have hit between reading a batch and holding it.
        go_back(self.batches, self._before_read)
        self._before_read = mark_of(self.batches)
        state = self._state_of_batch()
        batch = next(self.batches, None)
        if batch is None:
            self._before_read = None
            return False
        num_rows = num_rows_of(batch)
        check_rows(batch, getattr(self.batches, "num_rows_read", None))
        held = (*self._held, (state, batch, num_rows))
        # No call among these, so that no signal's handler can raise between them.
        self._held = held
        self._held_rows += num_rows - self._skipped
        self._used += self._skipped
        self._skipped = 0
        self._before_read = None
        return True

    def take(self, wanted: int) -> list[Batch]:
        """Return the next rows, which must be available, in pieces."""
        pieces = []
        self.taken += wanted
        self._held_rows -= wanted
        while wanted:
            _, batch, num_rows = self._held[0]
            end = min(num_rows, self._used + wanted)
            pieces.append(sliced(batch, self._used, end))
            wanted -= end - self._used
            self._used = end
            if end == num_rows:
                self._held = self._held[1:]
                self._used = 0
        return pieces

    @property
    def example(self) -> Batch | None:
        """A batch of the data set, if one was read and is not used up."""
        return self._held[0][1] if self._held else None

    def _state_of_batch(self) -> Any:
        return self.dataset.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Return from where on rows have not been taken."""
        used = self._used + self._skipped
        state = self._held[0][0] if self._held else self.dataset.state_dict()
        return {"state": state, "used": used, "taken": self.taken}


class PreciseRowSource(RowSource):
    """Rows of a data set whose own states lead to a row, also in another world."""

    dataset: Any

    def _begin(self, epoch: int) -> None:
        super()._begin(epoch)
        self.state_dict()  # what has no states behind rows says so before the first batch

    def _load(self, state: dict[str, Any]) -> None:
        load_source(self.dataset, state)
        self._loaded = state["state"]

    def _find_end(self, epoch: int) -> None:
        (reach,) = self.dataset.reaches()
        self._has_epoch = reach.epoch == epoch
        self.taken, self._end = (reach.num_rows, reach.end_rows) if self._has_epoch else (0, 0)

    def _state_of_batch(self) -> Any:
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return from where on rows have not been taken."""
        if not self._has_epoch:
            # There was no row left for this world.
            return {"state": self._loaded}
        return {"state": self.dataset.state_at_row(self.taken)}


def row_source(dataset: Mixable, state: dict[str, Any] | None, epoch: int) -> RowSource:
    """Return the rows of `epoch` of a data set, which `state` is of; None for its start."""
    kind = PreciseRowSource if isinstance(dataset, RowMixable) else RowSource
    return kind(dataset, state, epoch)


def load_source(dataset: Mixable, state: dict[str, Any]) -> None:
    """Make a data set go on where `RowSource.state_dict` was called."""
    of_dataset = state["state"]
    if isinstance(dataset, RowMixable) and state.get("used"):
        of_dataset = after_rows(of_dataset, state["used"])
    dataset.load_state_dict(of_dataset)
