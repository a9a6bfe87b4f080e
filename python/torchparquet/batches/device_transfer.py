"""How a batch gets from the reader's memory to the loop: as it is, page-locked, or on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from torchparquet.batches.packed_items import ItemTensors, PackedItems, in_own_memory

if TYPE_CHECKING:
    from torchparquet.batches.packed_items import Items


class Parts(NamedTuple):
    """What a batch is cut from: its slab, its number of rows, and the items beside the slab."""

    slab: Tensor
    num_rows: int
    items: Sequence[ItemTensors]


# A batch that was taken from the reader, on its way. The loop's thread calls it, once, for what
# it may use on its current stream.
Arriving: TypeAlias = Callable[[], Parts]


class HandOver:
    """Leaves batches where they are; what lies beside a page-locked slab gets page-locked too."""

    takes_time = False  # so that it is worth while to begin before the loop asks

    def __init__(self, pin_memory: bool) -> None:
        """Prepare for slabs that are page-locked, or not."""
        self._pin_memory = pin_memory

    def begin(self, slab: Tensor, num_rows: int, items: Sequence[Items]) -> Arriving:
        """Begin to hand over a batch."""
        if items and self._pin_memory:
            packed = PackedItems(items, pin_memory=True)
            tensors = packed.tensors_in(packed.memory)
        else:
            tensors = in_own_memory(items)
        parts = Parts(slab, num_rows, tensors)
        return lambda: parts


class DeviceHandOver(HandOver):
    """Copies batches to a device: the slab in one copy, all that lies beside it in another.

    Copies run on a stream of their own, beside the loop's computing, out of page-locked memory.
    """

    takes_time = True

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        """Prepare to copy to `device`, which has an index unless it is the CPU."""
        super().__init__(pin_memory)
        self._streams = _streams_of(device)

    def begin(self, slab: Tensor, num_rows: int, items: Sequence[Items]) -> Arriving:
        """Begin to copy a batch; returns at once where memory is page-locked."""
        packed = PackedItems(items, self._pin_memory) if items else None
        sources = [slab] if packed is None else [slab, packed.memory]
        # Where they are page-locked torch's host allocator knows of copies under way, where they
        # are not the copy has left them: the sources need not be kept.
        copies, done = self._streams.begin_copies(sources)

        def arrive() -> Parts:
            self._streams.await_copies(copies, done)
            tensors = [] if packed is None else packed.tensors_in(copies[1])
            return Parts(copies[0], num_rows, tensors)

        return arrive


class CopyStreams:
    """The stream that copies to a device, beside those that compute there."""

    def __init__(self, device: torch.device) -> None:
        """Take a stream of the device's; the CPU has none and copies at once."""
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device=device)

    def begin_copies(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], torch.Event | None]:
        """Return copies under way, and the event that tells that they are done."""
        if self._stream is None:
            return [source.clone() for source in sources], None
        # What is allocated here is written to on this stream, behind all that was done on it and,
        # thanks to record_stream, behind what other streams have done with the same memory.
        with self._own_handle(self._stream) as stream:
            copies = [source.to(self._device, non_blocking=True) for source in sources]
            return copies, stream.record_event()

    @staticmethod
    def _own_handle(stream: torch.Stream) -> torch.Stream:
        """Return the same stream, to be entered: what it left is kept in the object entered."""
        return torch.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )

    def await_copies(self, copies: Sequence[Tensor], done: torch.Event | None) -> None:
        """Make the current stream wait for copies; the calling thread does not."""
        if done is None:
            return
        current = torch.accelerator.current_stream(self._device)
        current.wait_event(done)
        for copied in copies:
            copied.record_stream(current)


@functools.cache
def _streams_of(device: torch.device) -> CopyStreams:
    """Return the streams of a device: the same for all data sets, as memory belongs to a stream."""
    return CopyStreams(device)


def parsed_device(device: object) -> torch.device | None:
    """Return the device to copy to; None where nothing is to be copied.

    Raises:
        TypeError: It is neither a device nor a name.
        ValueError: There is no device of that name, or no data on it.
    """
    if device is None:
        return None
    if not isinstance(device, str | torch.device):
        raise TypeError(f"device must be a torch.device, a str or None, got {device!r}")
    try:
        parsed = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be one of torch's, got {device!r}: {error}") from None
    if parsed.type == "meta":
        raise ValueError("device must hold data, which 'meta' does not")
    return None if parsed.type == "cpu" else parsed


def resolved_device(device: torch.device) -> torch.device:
    """Return the device with its index: that of the current one where none is given.

    Raises:
        RuntimeError: There is no such device here.
    """
    if device.type == "cpu":
        return device
    if not hasattr(torch.Stream, "__enter__"):
        raise RuntimeError(f"device={str(device)!r} needs torch 2.7, here is {torch.__version__}")
    found = torch.accelerator.is_available() and torch.accelerator.current_accelerator()
    if not found or found.type != device.type:
        raise RuntimeError(
            f"device={str(device)!r}: torch {torch.__version__} finds no such device"
        )
    index: int | None = device.index
    if index is None:
        index = torch.accelerator.current_device_index()
    num_devices = torch.accelerator.device_count()
    if index >= num_devices:
        raise RuntimeError(f"device={str(device)!r}: there are {num_devices} of its kind")
    return torch.device(device.type, index)
