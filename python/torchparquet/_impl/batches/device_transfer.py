"""How a batch reaches the loop: in the reader's memory, page-locked, or on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from torchparquet._impl.batches.packed_items import ItemTensors, PackedItems, in_own_memory

if TYPE_CHECKING:
    from torchparquet._impl.batches.packed_items import Items


class Parts(NamedTuple):
    """The parts that a batch is cut from: its slab, its number of rows, and the items."""

    slab: Tensor
    num_rows: int
    items: Sequence[ItemTensors]


# A batch on its way from the reader. The loop's thread calls it once, and gets parts that it may
# use on its current stream.
Arriving: TypeAlias = Callable[[], Parts]


class HandOver:
    """Leaves batches where they are, but page-locks the items of a page-locked slab."""

    takes_time = False  # If it does, beginning before the loop asks saves time.

    def __init__(self, pin_memory: bool) -> None:
        """Prepare for slabs that are page-locked if `pin_memory`."""
        self._pin_memory = pin_memory

    def begin(self, slab: Tensor, num_rows: int, items: Sequence[Items]) -> Arriving:
        """Begin to hand a batch over."""
        if items and self._pin_memory:
            packed = PackedItems(items, pin_memory=True)
            tensors = packed.tensors_in(packed.memory)
        else:
            tensors = in_own_memory(items)
        parts = Parts(slab, num_rows, tensors)
        return lambda: parts


class DeviceHandOver(HandOver):
    """Copies batches to a device: the slab in one copy, all items in another.

    Copies from page-locked memory run on a separate stream, while the loop computes.
    """

    takes_time = True

    def __init__(self, device: torch.device, pin_memory: bool) -> None:
        """Prepare to copy to `device`, which has an index unless it is the CPU."""
        super().__init__(pin_memory)
        self._streams = _streams_of(device)

    def begin(self, slab: Tensor, num_rows: int, items: Sequence[Items]) -> Arriving:
        """Begin to copy a batch; return at once if its memory is page-locked."""
        packed = PackedItems(items, self._pin_memory) if items else None
        sources = [slab] if packed is None else [slab, packed.memory]
        # Nobody has to hold the sources. torch's host allocator tracks copies from page-locked
        # memory, and copies from other memory have read it when `begin_copies` returns.
        copies, done = self._streams.begin_copies(sources)

        def arrive() -> Parts:
            self._streams.await_copies(copies, done)
            tensors = [] if packed is None else packed.tensors_in(copies[1])
            return Parts(copies[0], num_rows, tensors)

        return arrive


class CopyStreams:
    """The stream that copies to a device, separate from those that compute there."""

    def __init__(self, device: torch.device) -> None:
        """Create a stream of the device; the CPU has none and copies at once."""
        self._device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device=device)

    def begin_copies(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], torch.Event | None]:
        """Return copies under way, and the event that they are done."""
        if self._stream is None:
            return [source.clone() for source in sources], None
        # This stream writes to memory allocated here after all its earlier work. record_stream
        # makes it wait for other streams that used the same memory, too.
        with self._own_handle(self._stream) as stream:
            copies = [source.to(self._device, non_blocking=True) for source in sources]
            return copies, stream.record_event()

    @staticmethod
    def _own_handle(stream: torch.Stream) -> torch.Stream:
        """Return a new object for the stream, because entering it stores state in the object."""
        return torch.Stream(
            stream_id=stream.stream_id,
            device_index=stream.device_index,
            device_type=stream.device_type,
        )

    def await_copies(self, copies: Sequence[Tensor], done: torch.Event | None) -> None:
        """Make the current stream, but not the calling thread, wait for copies."""
        if done is None:
            return
        current = torch.accelerator.current_stream(self._device)
        current.wait_event(done)
        for copied in copies:
            copied.record_stream(current)


@functools.cache
def _streams_of(device: torch.device) -> CopyStreams:
    """Return a device's streams, which all data sets share, because memory belongs to a stream."""
    return CopyStreams(device)


def parsed_device(device: object) -> torch.device | None:
    """Return the device to copy to; None if batches stay on the CPU."""
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
    """Return the device with an index: that of the current device if `device` has none."""
    if device.type == "cpu":
        return device
    if not hasattr(torch.Stream, "__enter__"):
        raise RuntimeError(f"device={str(device)!r} needs torch 2.7, got {torch.__version__}")
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
        raise RuntimeError(f"device={str(device)!r}: this process has {num_devices} of its kind")
    return torch.device(device.type, index)
