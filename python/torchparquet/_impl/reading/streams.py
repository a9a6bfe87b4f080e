"""Opens the native reader for a data set: its files, columns and memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchparquet._impl.batches.tensors import batch_names
from torchparquet._impl.files.manifest_reading import native_keys
from torchparquet._impl.native import ReaderMemory
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.reading.batch_stream import BatchStream
from torchparquet._impl.reading.device_stage import DeviceStage, resolved_device
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.reader_arguments import (
    ROW_ID_FIELD,
    ROW_VALID_FIELD,
    StreamParts,
)
from torchparquet.errors import users_level

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.reading.stream import Stream

_OF_PROCESS = ("_memory", "_parts", "_resolved_device")


@dataclass
class StreamOpener:
    """Opens streams of one data set in this process; each hands its memory on to the next."""

    manifest: Manifest
    fields: tuple[Field, ...]
    options: ReadOptions
    row_ids: bool = False
    row_valid: bool = False
    keys: FileKeys | None = None
    device: torch.device | None = None

    def __post_init__(self) -> None:
        """Begin without memory."""
        self._begin()

    def forget(self) -> None:
        """Free the memory of ended streams, and their footers; end the threads of a store."""
        if self._parts is not None and self._owner_pid == os.getpid():
            self._parts.close()
        self._begin()

    def _begin(self) -> None:
        self._memory = ReaderMemory()
        self._parts: StreamParts | None = None
        self._resolved_device: torch.device | None = None
        self._owner_pid = os.getpid()

    @property
    def tensors(self) -> list[Field]:
        """The fields, and after them `row.id` and `row.valid` if they are wanted."""
        wanted = ((ROW_ID_FIELD, self.row_ids), (ROW_VALID_FIELD, self.row_valid))
        return [*self.fields, *(field for field, is_wanted in wanted if is_wanted)]

    @property
    def names(self) -> list[str]:
        """Keys of a batch, in its order."""
        return batch_names(self.tensors)

    def open(
        self, shares: Sequence[Share], num_workers: int, manifest: Manifest | None = None
    ) -> BatchStream:
        """Open a stream of shares whose rows are side by side in each batch.

        The shares may be of another manifest of the same files.
        """
        if self._owner_pid != os.getpid():
            # Inherited by a fork: a thread that does not exist here may hold its lock.
            self.forget()
        device = self._present_device()
        threads = self.options.threads_per_worker(num_workers)
        if self._parts is None or manifest is not None:
            keys = self.keys
            self._parts = StreamParts(
                manifest or self.manifest,
                self.tensors,
                decryption=None if keys is None else native_keys(self.manifest, keys, threads),
                num_workers=num_workers,
            )
        stream = BatchStream(
            self._parts,
            shares,
            num_threads=threads,
            max_memory_bytes=self.options.memory_per_worker(num_workers),
            pin_memory=self._pins_memory(device),
            memory=self._memory,
            packs_items=device is not None,
        )
        self._memory = stream.memory
        return stream

    def shares_to_read(self, shares: Sequence[Share]) -> Sequence[Share]:
        """Return the shares as they are: those of rows."""
        return shares

    def delivering(self, stream: Stream, *, pin_memory: bool | None = None) -> Stream:
        """Return the stream, with its last stage where batches are delivered on a device."""
        device = self._present_device()
        if device is None:
            return stream
        if pin_memory is None:
            pin_memory = self._pins_memory(device)
        return DeviceStage(stream, device, pin_memory=pin_memory)

    def read_once(
        self, plan: EpochPlan, begin: int = 0, end: int | None = None
    ) -> Generator[Batch, None, None]:
        """Read steps `[begin, end)` of the only share of a plan, and free what that takes."""
        try:
            stream = self.open([plan.share(0).steps(begin, end)], 1)
            yield from stream
            stream.close()
        finally:
            self.forget()

    def read_row_groups(self, num_rows: Int64Array) -> Generator[tuple[int, Batch], None, None]:
        """Read row groups as `read_once` does, those with 0 of `num_rows` not: number and rows."""
        plan = EpochPlan(num_rows, PlanOptions(batch_size=None))
        with closing(self.read_once(plan)) as batches:
            yield from zip(np.flatnonzero(num_rows).tolist(), batches, strict=True)

    def _present_device(self) -> torch.device | None:
        if self.device is None:
            return None
        if in_worker():
            raise ValueError(
                f"device={str(self.device)!r} needs a DataLoader with num_workers=0: decoding runs "
                "on threads of the process that trains, which alone may use the device"
            )
        if self._resolved_device is None:
            self._resolved_device = resolved_device(self.device)
        return self._resolved_device

    def _pins_memory(self, device: torch.device | None) -> bool:
        if device is not None:
            return self.options.pin_memory is not False
        if in_worker():
            # A worker sends its batches through shared memory, and CUDA may not survive its fork.
            return False
        wanted = self.options.pin_memory
        if wanted is False or torch.cuda.is_available():
            return wanted is not False
        if wanted:
            warnings.warn(
                "pin_memory=True has no effect: CUDA is not available", stacklevel=users_level()
            )
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those that belong to this process alone."""
        return {k: v for k, v in self.__dict__.items() if k not in _OF_PROCESS}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without memory in this process."""
        self.__dict__.update(state)
        self._begin()
