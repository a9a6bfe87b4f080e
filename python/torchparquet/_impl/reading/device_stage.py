"""The stage that copies batches to a device, while the loop works on the one before."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.reading.stream import Stream
from torchparquet.jagged import Jagged

# Of the device's memory: dtypes of any size begin at a multiple.
_ALIGNMENT_BYTES = 64
_HOST = torch.device("cpu")
# Tensors that lie in one piece of memory are copied by one call, unless they leave more of it out.
_MOST_WASTE = 2


class _Arriving(NamedTuple):
    """A batch on its way: it may be used once the loop's stream waits for the copies."""

    batch: Batch
    copies: Sequence[Tensor]
    done: torch.Event | None
    num_rows_given: int | None


class DeviceStage(Stream):
    """Delivers batches on a device. The next one is on its way while the loop has this one."""

    def __init__(self, source: Stream, device: torch.device, *, pin_memory: bool) -> None:
        """Prepare to copy, from page-locked memory or not; tests take the CPU for a device."""
        super().__init__(source)
        self._streams = _streams_of(device)
        self._pin_memory = pin_memory
        self._ahead: _Arriving | None = None
        self._failure: Exception | None = None

    def __next__(self) -> Batch:
        """Return the next batch."""
        arriving = self._ahead
        if arriving is None:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            arriving = self._begin(next(self._source))
        following = None
        if self._source.next_is_ready:
            try:
                following = self._begin(next(self._source))
            except StopIteration:
                pass
            except Exception as error:
                self._failure = error  # It comes after this batch.
        self._streams.await_copies(arriving.copies, arriving.done)
        self._ahead, self.num_rows_given = following, arriving.num_rows_given
        return arriving.batch

    def _begin(self, batch: Batch) -> _Arriving:
        """Begin to copy a batch; return at once if its memory is page-locked."""
        tensors: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            tensors.append(tensor)
            return tensor

        _mapped(batch, note)
        made, spans = list(tensors), _spans(tensors, self._streams.device)
        sources = [span.source for span in spans]
        if self._pin_memory:
            sources = [one if one.is_pinned() else one.pin_memory() for one in sources]
        # Nobody has to hold the sources. torch's host allocator tracks copies from page-locked
        # memory, and copies from other memory have read it when `begin_copies` returns.
        copies, done = self._streams.begin_copies(sources)
        for span, copied in zip(spans, copies, strict=True):
            for index in span.indices:
                made[index] = (
                    copied if span.begin < 0 else _view(copied, tensors[index], span.begin)
                )
        following = iter(made)
        made_batch = _mapped(batch, lambda _: next(following))
        return _Arriving(made_batch, copies, done, self._source.num_rows_given)

    @property
    def num_taken(self) -> int:
        """Batches that `next` has taken: more than it returned if an exception lost one."""
        return self._source.num_taken - (self._ahead is not None)

    @property
    def next_is_ready(self) -> bool:
        """True if a batch is on its way or the source need not wait."""
        return self._ahead is not None or self._source.next_is_ready

    @property
    def closed(self) -> bool:
        """True if no batch is left, or the stream was closed before its end."""
        return self._source.closed and self._ahead is None

    def close(self) -> None:
        """Give up the batch that is on its way, and close the source. Idempotent."""
        self._ahead = None
        self._source.close()


class _Span(NamedTuple):
    """Memory to copy by one call: a tensor (begin is -1), or bytes of a storage from `begin` on."""

    source: Tensor
    begin: int
    indices: list[int]


def _spans(tensors: Sequence[Tensor], device: torch.device) -> list[_Span]:
    """Return what is to be copied: once for the tensors of each storage, where that pays."""
    by_storage: dict[int, list[int]] = {}
    spans = []
    for index, tensor in enumerate(tensors):
        if tensor.device == device != _HOST:
            continue
        if _is_plain(tensor) and tensor.device == _HOST and tensor.numel():
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(index)
        else:
            spans.append(_Span(tensor, -1, [index]))
    for indices in by_storage.values():
        members = [tensors[index] for index in indices]
        begin = min(map(_begin_of, members)) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
        end = max(map(_end_of, members))
        if end - begin > _MOST_WASTE * sum(member.nbytes for member in members):
            spans += [_Span(tensors[index], -1, [index]) for index in indices]
            continue
        storage = members[0].untyped_storage()
        source = torch.empty(0, dtype=torch.uint8).set_(storage, begin, (end - begin,), (1,))
        spans.append(_Span(source, begin, indices))
    return spans


def _is_plain(tensor: Tensor) -> bool:
    """Return whether the bytes, the dtype, the shape and the strides say all of a tensor."""
    has_more = tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    is_strided = type(tensor) is Tensor and tensor.layout == torch.strided
    return is_strided and not has_more and not tensor.requires_grad


def _view(copied: Tensor, tensor: Tensor, begin: int) -> Tensor:
    """Return the copy of a tensor in that of its storage from byte `begin`."""
    place = (_begin_of(tensor) - begin) // tensor.dtype.itemsize
    made = copied.new_empty(0, dtype=tensor.dtype)
    return made.set_(copied.untyped_storage(), place, tensor.shape, tensor.stride())


def _begin_of(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) * tensor.dtype.itemsize


def _end_of(tensor: Tensor) -> int:
    """Return the end of a tensor in its storage, in bytes; it has an element."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(_begin_of(tensor) + (last + 1) * tensor.dtype.itemsize)


def _mapped(value: Any, made_of: Callable[[Tensor], Tensor]) -> Any:
    """Return a value with other tensors, in dicts, lists, tuples, dataclasses and Jagged too."""
    if isinstance(value, Tensor):
        return made_of(value)
    if isinstance(value, Jagged):
        return Jagged(_mapped(value.values, made_of), made_of(value.offsets))
    if isinstance(value, dict):
        return {key: _mapped(one, made_of) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(one, made_of) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(_mapped(one, made_of) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        copied = copy.copy(value)
        for one in fields(value):
            # Fields may be frozen, or no arguments.
            object.__setattr__(copied, one.name, _mapped(getattr(value, one.name), made_of))
        return copied
    return value


class CopyStreams:
    """The stream that copies to a device, separate from those that compute there."""

    def __init__(self, device: torch.device) -> None:
        """Create a stream of the device; the CPU has none and copies at once."""
        self.device = device
        self._stream = None if device.type == "cpu" else torch.Stream(device=device)

    def begin_copies(self, sources: Sequence[Tensor]) -> tuple[list[Tensor], torch.Event | None]:
        """Return copies under way, and the event that they are done."""
        if self._stream is None:
            return [source.clone() for source in sources], None
        # This stream writes to memory allocated here after all its earlier work. record_stream
        # makes it wait for other streams that used the same memory, too.
        with _own_handle(self._stream) as stream:
            copies = [source.to(self.device, non_blocking=True) for source in sources]
            return copies, stream.record_event()

    def await_copies(self, copies: Sequence[Tensor], done: torch.Event | None) -> None:
        """Make the current stream, but not the calling thread, wait for copies."""
        if done is None:
            return
        current = torch.accelerator.current_stream(self.device)
        current.wait_event(done)
        for copied in copies:
            copied.record_stream(current)


def _own_handle(stream: torch.Stream) -> torch.Stream:
    """Return a new object for the stream, because entering it stores state in the object."""
    return torch.Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )


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
