"""A stream of batches: what one stage of the pipeline delivers to the next.

    decode ──► group by length ──► functions ──► device ──► the iteration

Each stage wraps the stream before it and is a stream itself; only decoding is always there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torchparquet._impl.batches.tensors import Batch

if TYPE_CHECKING:
    from torchparquet._impl.reading.batch_stream import BatchStream


class Stream(Iterator[Batch], ABC):
    """Batches in order. An error comes at its place in the order, and again at each later `next`.

    Attributes:
        num_batches: Batches of the whole stream.
        num_rows_given: Rows of the latest batch that functions were given; None without functions.
    """

    num_batches: int
    num_rows_given: int | None = None

    @property
    @abstractmethod
    def reader(self) -> BatchStream:
        """The first stage, which decodes and counts."""

    @property
    def at_hand(self) -> Iterable[Batch]:
        """The batches that `next` returns before it asks for more; a false value for none."""
        return ()

    @property
    @abstractmethod
    def num_taken(self) -> int:
        """Batches that `next` has taken: more than it returned if an exception lost one."""

    @property
    @abstractmethod
    def next_is_ready(self) -> bool:
        """True if `next` need not wait, and has not ended."""

    @property
    @abstractmethod
    def closed(self) -> bool:
        """True if the stream was closed or has ended."""

    @abstractmethod
    def close(self) -> None:
        """Join the threads and give up the batches in flight. Idempotent."""


class Stage(Stream):
    """A stream that makes its batches of another one's."""

    def __init__(self, source: Stream) -> None:
        """Take the batches of `source`, which this stage closes."""
        self._source = source
        self.num_batches = source.num_batches

    @property
    def reader(self) -> BatchStream:
        """The first stage."""
        return self._source.reader

    @property
    def num_taken(self) -> int:
        """Batches that `next` has taken of the source."""
        return self._source.num_taken

    @property
    def next_is_ready(self) -> bool:
        """True if the source need not wait."""
        return self._source.next_is_ready

    @property
    def closed(self) -> bool:
        """True if the source is."""
        return self._source.closed

    def close(self) -> None:
        """Close the source."""
        self._source.close()
