"""A data set of single rows, for pipelines by row and for `collate_fn`s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchparquet._impl.batches.batch_rows import Row
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.mixing.row_iteration import RowIteration, RowSession
from torchparquet._impl.ranks.loaders import (
    IterableOnly,
    end_orphaned_worker,
    num_workers_of_caller,
)
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.dataset_session import DatasetSession


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
        dataset: IterableOnly[Batch],
        processors: Mapping[str, Processor] | None,
        transform: Transform | None,
    ) -> None:
        """See `ParquetDataset.unbatched`."""
        super().__init__()
        has_functions = processors is not None or transform is not None
        transforms = Transforms(processors, transform) if has_functions else None
        self._session = RowSession(dataset, transforms)

    @property
    def dataset(self) -> Any:
        """The data set of these rows."""
        return self._session.dataset

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else of the next one."""
        return self._session.session.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a loaded state of that epoch stays in force.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative.
        """
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> RowIteration:
        """Return an iterator over the rows of the next epoch, or of the rest of one.

        Raises:
            ValueError: A state within a batch of a mix was taken in another world.
        """
        iteration = self._session.iterate()
        end_orphaned_worker()
        return iteration

    def __len__(self) -> int:
        """Return the rows of the epoch, of this rank in the present world, repeats included.

        Rows before a state of the same world count too. `len(loader)` covers all workers.

        Raises:
            TypeError: The data set is a mix, or `even="dynamic"`.
        """
        session = self._session.session
        if not isinstance(session, DatasetSession):
            raise TypeError("rows of a mix have no len; the mix has one, in batches")
        num_workers = 0 if in_worker() else num_workers_of_caller(self)
        return session.end_rows(num_workers)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration: the rows that it has returned.

        For a `ParquetDataset` it is a state of the data set itself. It is the same on all ranks
        that have returned equally many rows, and another world can resume at it too.

        Raises:
            RuntimeError: DataLoader workers have iterated the data set.
        """
        return self._session.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`; a live iterator does too.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is not the state of such a data set.
        """
        self._session.load_state_dict(state)

    def metrics(self, *, all_iterations: bool = False) -> Metrics:
        """Return the metrics of this process; see `ParquetDataset.metrics`.

        Raises:
            RuntimeError: DataLoader workers iterate the data set, each with metrics of its own.
        """
        return self._session.session.metrics(all_iterations=all_iterations)

    def close(self) -> None:
        """End all iterations and free their memory. The data set stays usable."""
        self._session.session.close()
