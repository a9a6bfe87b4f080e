"""Streams whose batches are copied together from rows that they hold."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.reading.reader_arguments import ROW_VALID
from torchparquet._impl.reading.stream import Stream
from torchparquet._impl.reading.streams import StreamOpener


@dataclass(kw_only=True)
class HoldingOpener:
    """Opens such streams; `manifest` is that of the batches, or samples."""

    rows: StreamOpener
    manifest: Manifest
    pins_for_device: bool = True
    row_valid: bool = False

    @property
    def fields(self) -> tuple[Any, ...]:
        """The tensors of a batch, as they are read."""
        return self.rows.fields

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        return [*self.rows.names, ROW_VALID] if self.row_valid else self.rows.names

    def delivering(self, stream: Stream) -> Stream:
        """Return the stream, with its last stage where batches are delivered on a device."""
        return self.rows.delivering(stream, pin_memory=self.pins_for_device)

    def forget(self) -> None:
        """Free the memory of ended streams."""
        self.rows.forget()

    def __copy__(self) -> Self:
        """Return one with memory of its own."""
        return replace(self, rows=replace(self.rows))


class HoldingStream(Stream):
    """Makes each batch when it is asked for; an error closes the stream."""

    def __init__(self, rows: Stream, num_batches: int) -> None:
        """Read nothing yet."""
        super().__init__(rows)
        self.num_batches = num_batches
        self._num_taken = 0
        self._owner_pid = os.getpid()

    def __next__(self) -> Batch:
        """Return the next batch."""
        if os.getpid() != self._owner_pid:
            raise RuntimeError("the reader was begun in another process; begin a new iteration")
        try:
            made = self._made()
        except BaseException:
            self.close()
            raise
        self._num_taken += 1
        if self._num_taken == self.num_batches:
            self.close()
        return made

    @abstractmethod
    def _made(self) -> Batch:
        """Return the next batch; raise StopIteration after the last."""

    @abstractmethod
    def _drop(self) -> None:
        """Give up the rows that are held."""

    @property
    def num_taken(self) -> int:
        """Batches that `next` has returned."""
        return self._num_taken

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._source.close()
        self._drop()
