"""A data set of single rows, for pipelines by row and for `collate_fn`s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchparquet._impl.batches.batch_rows import Row
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.mixing.mix_session import Member
from torchparquet._impl.mixing.row_cursor import RowPlace
from torchparquet._impl.mixing.row_iteration import (
    RowIteration,
    load_state_of_rows,
    rows_to_skip,
    state_of_rows,
)
from torchparquet._impl.mixing.session_dataset import SessionDataset
from torchparquet._impl.ranks.loaders import end_orphaned_worker, num_workers_of_caller
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.dataset_session import DatasetSession
from torchparquet._impl.session.session_iterator import Progress


class UnbatchedDataset(SessionDataset[Row]):
    """The rows of a data set one by one, as dicts; `unbatched()` makes it.

    A row has the columns of its batch. A column `[B]` becomes a tensor without dimensions, `[B,
    ...]` a tensor `[...]`, a list a tensor `[n]`, a string a `str`, binary `bytes`, and lists of
    strings lists of these. Tensors are views, and keep their batch in memory.

    Shares, epochs and DataLoader workers are those of the data set; the DataLoader's `batch_size`
    counts rows. All ranks and workers give the same number of rows, unless `even="none"` or
    "dynamic". A state of the rows of a `ParquetDataset` is one of the data set itself.
    """

    _noun, _item = "data set of rows", "row"

    def __init__(
        self,
        dataset: SessionDataset[Batch],
        processors: Mapping[str, Processor] | None,
        transform: Transform | None,
    ) -> None:
        """See `ParquetDataset.unbatched`."""
        super().__init__()
        has_functions = processors is not None or transform is not None
        self._transforms = Transforms(processors, transform) if has_functions else None
        self._dataset = dataset
        # How far the latest iteration is in batches, and in rows.
        self._latest: tuple[Progress[Any], Progress[RowPlace]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the iteration under way."""
        return self.__dict__ | {"_latest": None}

    @property
    def dataset(self) -> Any:
        """The data set of these rows."""
        return self._dataset

    @property
    def _session(self) -> Member:  # type: ignore[override]  # copies of the data set have their own
        return self._dataset._session

    def __iter__(self) -> RowIteration:
        """Return an iterator over the rows of the next epoch, or of the rest of one.

        Raises:
            ValueError: A state within a batch of a mix was taken in another world.
        """
        rows_to_skip(self._session, is_beginning=True)
        iteration = RowIteration(self, self._session, iter(self.dataset), self._transforms)
        self._latest = iteration.batches.progress, iteration.progress
        end_orphaned_worker()
        return iteration

    def __len__(self) -> int:
        """Return the rows of the epoch, of this rank in the present world, repeats included.

        Rows before a state of the same world count too. `len(loader)` covers all workers.

        Raises:
            TypeError: The data set is a mix, or `even="dynamic"`.
        """
        session = self._session
        if not isinstance(session, DatasetSession):
            raise TypeError("rows of a mix have no len; the mix has one, in batches")
        return session.end_rows(0 if in_worker() else num_workers_of_caller(self))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration; see `ParquetDataset.state_dict`."""
        session, latest = self._session, self._latest
        session.check_seen()
        if latest is None or not session.is_latest(latest[0]):
            return state_of_rows(session, None)
        return state_of_rows(session, latest[1])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`; a live iterator does too.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is not the state of such a data set.
        """
        load_state_of_rows(self._session, state)
