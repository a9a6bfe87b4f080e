"""A stream of batches: what one stage of the pipeline delivers to the next; see README.md."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torchparquet._impl.batches.tensors import Batch

if TYPE_CHECKING:
    from torchparquet._impl.reading.batch_stream import BatchStream


class Stream(Iterator[Batch]):
    """Batches in order. An error comes at its place in the order, and again at each later `next`.

    Attributes:
        num_batches: Batches of the whole stream.
        num_rows_given: Rows of the latest batch that functions were given; None without functions.
    """

    num_batches: int
    num_rows_given: int | None = None

    def __init__(self, source: Stream) -> None:
        """Make batches of those of `source`, which this stage closes."""
        self._source = source
        self.num_batches = source.num_batches

    @abstractmethod
    def __next__(self) -> Batch:
        """Return the next batch."""

    @property
    def reader(self) -> BatchStream:
        """The first stage, which decodes and counts; it alone has no source."""
        return self._source.reader

    @property
    def at_hand(self) -> Iterable[Batch]:
        """The batches that `next` returns before it asks for more; a false value for none."""
        return ()

    @property
    def num_taken(self) -> int:
        """Batches that `next` has taken: more than it returned if an exception lost one."""
        return self._source.num_taken

    @property
    def next_is_ready(self) -> bool:
        """True if `next` need not wait, and has not ended."""
        return self._source.next_is_ready

    @property
    def closed(self) -> bool:
        """True if the stream was closed or has ended."""
        return self._source.closed

    def close(self) -> None:
        """Join the threads and give up the batches in flight. Idempotent."""
        self._source.close()
