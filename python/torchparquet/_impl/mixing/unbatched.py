"""A data set of single rows, for pipelines by row and for `collate_fn`s."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torchparquet._impl.batches.iterable_only import IterableOnly
from torchparquet._impl.batches.rows import Row, texts_of
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.mixing.members import Metered, Mixable, RowMixable, worlds
from torchparquet._impl.mixing.mix_state import copied
from torchparquet._impl.mixing.row_cursor import RowCursor, RowPlace
from torchparquet._impl.mixing.row_iteration import EpochRowCursor, RowIteration
from torchparquet._impl.ranks.orphans import end_orphaned_worker
from torchparquet._impl.ranks.sharding import in_worker, num_workers_of_caller
from torchparquet._impl.session.course import Course

_FORMAT = "torchparquet.UnbatchedDataset"


class UnbatchedDataset(IterableOnly[Row]):
    """The rows of a data set one by one, as dicts; `unbatched()` makes it.

    A row has the columns of its batch. A column `[B]` becomes a tensor without dimensions, `[B,
    ...]` a tensor `[...]`, a list a tensor `[n]`, a string a `str`, binary `bytes`, and lists of
    strings lists of these. Tensors are views, and keep their batch in memory.

    Shares, epochs and DataLoader workers are those of the data set; the DataLoader's `batch_size`
    counts rows. All ranks and workers give the same number of rows, unless `even="none"` or
    "dynamic".
    """

    _noun, _item = "data set of rows", "row"

    def __init__(
        self,
        dataset: Mixable,
        processors: Mapping[str, Processor] | None,
        transform: Transform | None,
    ) -> None:
        """See `ParquetDataset.unbatched`."""
        super().__init__()
        self._dataset = dataset
        has_functions = processors is not None or transform is not None
        self._transforms = Transforms(processors, transform) if has_functions else None
        # Of a loaded state within a batch: the rows taken, the state before it, the world.
        self._skipped = 0
        self._skipped_in: Any = None
        self._world: list[Any] | None = None
        self._course: Course[RowPlace] | None = None
        self._latest: weakref.ref[RowIteration] | None = None

    @property
    def dataset(self) -> Mixable:
        """The data set of these rows."""
        return self._dataset

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else of the next one."""
        dataset: Any = self._dataset
        return int(dataset.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a loaded state of that epoch stays in force.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative.
        """
        self._dataset.set_epoch(epoch)
        self._course = None

    def __iter__(self) -> RowIteration:
        """Return an iterator over the rows of the next epoch, or of the rest of one.

        Raises:
            ValueError: A state within a batch of a mix was taken in another world.
        """
        state, skipped = self._skip()
        texts: dict[str, Any] = {}
        for dataset in self._members():
            texts |= texts_of(getattr(dataset, "fields", ()))
        kind = EpochRowCursor if isinstance(self._dataset, RowMixable) else RowCursor
        cursor = kind(self._dataset)
        self._course = Course(cursor.begin(None, skipped, skipped, state))
        iteration = RowIteration(self, cursor, self._course, self._transforms, texts)
        self._latest = weakref.ref(iteration)
        end_orphaned_worker()
        return iteration

    def _skip(self) -> tuple[Any, int]:
        """Return the rows that the next iteration skips because of a loaded state.

        Returns:
            The data set's state before the first batch, None if no row is skipped; and the number
            of rows of that batch to skip.
        """
        skipped = self._num_to_skip
        if skipped and self._world != self._present_world():
            raise ValueError(
                "a state within a batch of a mix fits the same ranks and workers only, got "
                f"[world_size, num_workers] of its data sets {self._world}, here "
                f"{self._present_world()}; take it between two batches"
            )
        return copied(self._skipped_in) if skipped else None, skipped

    @property
    def _num_to_skip(self) -> int:
        """The rows that the next iteration skips, as long as the mix resumes at their batch."""
        present = getattr(self._dataset, "loaded_state", None)
        return self._skipped if present is not None and present is self._skipped_in else 0

    def __len__(self) -> int:
        """Return the rows of the epoch, of this rank in the present world, repeats included.

        Rows before a state of the same world count too. `len(loader)` covers all workers.

        Raises:
            TypeError: The data set is a mix, or `even="dynamic"`.
        """
        if not isinstance(self._dataset, RowMixable):
            raise TypeError("rows of a mix have no len; the mix has one, in batches")
        num_workers = 0 if in_worker() else num_workers_of_caller(self)
        return sum(reach.end_rows for reach in self._dataset.reaches(num_workers))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration: the rows that it has returned.

        For a `ParquetDataset` it is a state of the data set itself. It is the same on all ranks
        that have returned equally many rows, and another world can resume at it too.

        Raises:
            RuntimeError: DataLoader workers have iterated the data set.
        """
        place, course = self._present_place(), self._course
        is_read = place is not None and place.batch.num_rows is not None
        if isinstance(self._dataset, RowMixable):
            if place is not None and is_read:
                return self._dataset.state_at_row(place.taken)
            return self._dataset.state_dict()
        state, num_rows, world = self._dataset.state_dict(), self._num_to_skip, self._world
        if course is not None:
            num_rows, world = 0, self._present_world()
            if place is not None and not place.is_at_end and (is_read or place.used):
                state, num_rows = place.batch.state, place.used
        return {"format": _FORMAT, "state": state, "rows": num_rows, "world": world}

    def _present_place(self) -> RowPlace | None:
        """Return the place of the latest iteration; None if none is under way."""
        latest = None if self._latest is None else self._latest()
        course = self._course
        if course is None or course.has_ended or course.position is None:
            return None
        if latest is None or latest.course is not course:
            return course.position
        latest.cursor.settle()
        return latest.cursor.known(course.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`; a live iterator does too.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is not the state of such a data set.
        """
        if isinstance(self._dataset, RowMixable):
            self._dataset.load_state_dict(state)
        else:
            if not isinstance(state, dict):
                raise TypeError(f"state must be a dict, got {type(state).__name__}")
            if state.get("format") != _FORMAT:
                raise ValueError(
                    f"state must be a state of the rows of a mix, got keys {sorted(state)}"
                )
            self._dataset.load_state_dict(state["state"])
            self._skipped, self._world = state["rows"], state["world"]
            self._skipped_in = getattr(self._dataset, "loaded_state", None)
        self._course = None
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            before, skipped = self._skip()
            latest.course.move(latest.cursor.restart(skipped, before))
            self._course = latest.course

    def metrics(self, *, all_iterations: bool = False) -> Metrics:
        """Return the metrics of this process; see `ParquetDataset.metrics`.

        Raises:
            RuntimeError: DataLoader workers iterate the data set, each with metrics of its own.
            TypeError: The data set has no metrics.
        """
        if not isinstance(self._dataset, Metered):
            raise TypeError(f"{type(self._dataset).__name__} has no metrics")
        return self._dataset.metrics(all_iterations=all_iterations)

    def close(self) -> None:
        """End all iterations and free their memory. The data set stays usable."""
        close = getattr(self._dataset, "close", None)
        if close is not None:
            close()

    def _members(self) -> list[Any]:
        return getattr(self._dataset, "datasets", [self._dataset])

    def _present_world(self) -> list[list[int]]:
        return [[of.world_size, of.num_workers] for of in worlds(self._members())]

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the iteration under way."""
        return self.__dict__ | {"_course": None, "_latest": None}
