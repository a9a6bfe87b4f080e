"""Rows of batches as records: what a row has of all columns lies side by side, to be read alone.

    record:  place of its items (int64) | counts of items (int32 each) | values of all columns
    items:   for each list of lists the lengths of the inner ones, then the values, then their mask

Strings and lists are items, which lie row after row behind the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _from_dlpack

from torchparquet._impl.batches.batch_rows import ELEMENT_MASK
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.native import (
    RowItems,
    SlabPiece,
    SlabPool,
    gather_items,
    gather_records,
    pack_items,
    pack_records,
)
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.reading.reader_arguments import field_spec
from torchparquet.jagged import Jagged
from torchparquet.keyed_jagged import KeyedJagged

_PLACE, _COUNT = 8, 4  # bytes


class Memory(Protocol):
    """Where records and items are."""

    def records(self, rows: Int64Array) -> tuple[Int64Array, NDArray[np.uint64]]:
        """Return the pieces of rows, int64 `[B]`, and the addresses of their records."""

    def items(self, piece: Int64Array, places: Int64Array, sizes: Int64Array) -> NDArray[np.uint64]:
        """Return the addresses, uint64 `[B]`, of items by piece, place and size in bytes."""


class _Column(NamedTuple):
    """A tensor of a batch, `[B, *shape]`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return torch.Size(self.shape).numel() * _dtype(self.dtype).itemsize


class _Items(NamedTuple):
    """Items of a batch; a row has `counts[counted]` of them. The shape is that of one item."""

    counted: int
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def item_bytes(self) -> int:
        return torch.Size(self.shape).numel() * _dtype(self.dtype).itemsize


class _Lists(NamedTuple):
    """A `Jagged`, or one key of a `KeyedJagged`: its kinds of items, the values last but masks.

    `depth` is the levels of offsets.
    """

    depth: int
    items: tuple[_Items, ...]


def _parsed(items: Sequence[Any]) -> tuple[_Items, ...]:
    return tuple(_Items(count, dtype, tuple(shape)) for count, dtype, shape in items)


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Layout:
    """The columns of a batch in records. `order` has the keys of a batch."""

    order: tuple[str, ...]
    columns: tuple[_Column, ...]
    lists: tuple[tuple[str, tuple[str, ...], tuple[_Lists, ...]], ...]
    num_counts: int

    @classmethod
    def of(cls, batch: Batch) -> Layout:
        """Return the layout of batches like this one."""
        columns: list[_Column] = []
        lists: list[tuple[str, tuple[str, ...], tuple[_Lists, ...]]] = []
        num_counts = 0
        for name, value in batch.items():
            if isinstance(value, Jagged):
                mask = batch.get(name + ELEMENT_MASK)
                found = _lists_of(value, mask, num_counts)
                lists.append((name, (), (found,)))
                num_counts += found.depth
            elif isinstance(value, KeyedJagged):
                keys = []
                for _ in value.keys:
                    of_key = [_Items(num_counts, _name_of(value.values.dtype))]
                    if value.weights is not None:
                        of_key.append(_Items(num_counts, _name_of(value.weights.dtype)))
                    keys.append(_Lists(1, tuple(of_key)))
                    num_counts += 1
                lists.append((name, tuple(value.keys), tuple(keys)))
            elif not _is_element_mask(batch, name):
                columns.append(_Column(name, _name_of(value.dtype), tuple(value.shape[1:])))
        # Those of one width side by side, as the kernel copies four of them at once.
        columns.sort(key=lambda column: -column.row_bytes)
        return cls(tuple(batch), tuple(columns), tuple(lists), num_counts)

    @classmethod
    def parsed(cls, parts: Sequence[Any]) -> Layout:
        """Return the layout that `parts`, read from JSON, say."""
        order, columns, lists, num_counts = parts
        return cls(
            tuple(order),
            tuple(_Column(name, dtype, tuple(shape)) for name, dtype, shape in columns),
            tuple(
                (name, tuple(keys), tuple(_Lists(depth, _parsed(of)) for depth, of in parts))
                for name, keys, parts in lists
            ),
            num_counts,
        )

    @property
    def parts(self) -> Sequence[Any]:
        """What `parsed` takes, as JSON."""
        return self.order, self.columns, self.lists, self.num_counts

    @cached_property
    def kinds(self) -> list[_Items]:
        """All kinds of items, in the order in which a row has them."""
        return [one for _, _, parts in self.lists for part in parts for one in part.items]

    @cached_property
    def record_bytes(self) -> int:
        """The bytes of a record."""
        return self._head_bytes + sum(column.row_bytes for column in self.columns)

    @property
    def _head_bytes(self) -> int:
        return _PLACE + _COUNT * self.num_counts if self.num_counts else 0

    @cached_property
    def _places(self) -> tuple[Int64Array, Int64Array]:
        """The sizes of all parts of a record, the head included, and their places."""
        sizes = [_PLACE, *[_COUNT] * self.num_counts] if self.num_counts else []
        found = np.array([*sizes, *(column.row_bytes for column in self.columns)], np.int64)
        return found, np.cumsum(found) - found

    def pack(self, batch: Batch, place: int) -> tuple[Tensor, Tensor]:
        """Return the records of a batch, uint8 `[B, R]`, and its items, uint8 `[N]`.

        `place` is that of the first item among all items.
        """
        if Layout.of(batch) != self:
            raise RuntimeError("batches of one data set differ in their columns")
        tensors = [batch[column.name].contiguous() for column in self.columns]
        num_rows = len(batch[self.order[0]])
        head: list[Tensor] = []
        items: list[Tensor] = []
        for name, keys, _ in self.lists:
            value, mask = batch[name], batch.get(name + ELEMENT_MASK)
            parts = [value[key] for key in keys] if keys else [value]
            weights = value.weights if keys else None
            begins = [0]
            for part in parts:
                counts, own = _unpacked(part, mask)
                head += counts
                items += own
                if weights is not None:
                    begins.append(begins[-1] + len(own[-1]))
                    items.append(weights[begins[-2] : begins[-1]].contiguous())
        records = torch.empty(num_rows, self.record_bytes, dtype=torch.uint8)
        packed = torch.empty(0, dtype=torch.uint8)
        if self.num_counts:
            sizes = self._item_bytes(head)
            ends = sizes.cumsum(0)
            packed = torch.empty(int(ends[-1]), dtype=torch.uint8)
            pack_items(self._row_items(items, head), num_rows, packed.data_ptr())
            head = [ends - sizes + place, *head]
        addresses = _addresses([*head, *tensors])
        pack_records(addresses, *self._places, num_rows, self.record_bytes, records.data_ptr())
        return records, packed

    def _item_bytes(self, counts: Sequence[Tensor]) -> Tensor:
        """Return the bytes of all items of each row, int64 `[B]`."""
        sizes = torch.zeros(len(counts[0]), dtype=torch.int64)
        for kind in self.kinds:
            sizes += counts[kind.counted].to(torch.int64) * kind.item_bytes
        return sizes

    def _row_items(self, items: Sequence[Tensor], counts: Sequence[Tensor]) -> list[Any]:
        return [
            RowItems(tensor.data_ptr(), kind.item_bytes, counts[kind.counted].data_ptr())
            for tensor, kind in zip(items, self.kinds, strict=True)
        ]

    def gather(self, memory: Memory, rows: Int64Array, slabs: Slabs) -> list[Batch]:
        """Return batches of rows by number, int64 `[n]`; the last one may be short."""
        piece, records = memory.records(rows)
        ends = range(slabs.batch_rows, len(rows) + slabs.batch_rows, slabs.batch_rows)
        of_batches = [slice(end - slabs.batch_rows, end) for end in ends]
        return [self._gather(memory, piece[of], records[of], slabs) for of in of_batches]

    def _gather(
        self, memory: Memory, piece: Int64Array, records: NDArray[np.uint64], slabs: Slabs
    ) -> Batch:
        num_rows = len(records)
        batch: Batch = dict.fromkeys(self.order)
        addresses = slabs.add_columns(batch, num_rows)
        head: list[Tensor] = []
        if self.num_counts:
            head.append(torch.empty(num_rows, dtype=torch.int64))
            head += torch.empty(self.num_counts, num_rows, dtype=torch.int32).unbind()
            addresses = np.append(_addresses(head), addresses)
        gather_records(records, self.record_bytes, addresses, *self._places)
        if self.num_counts:
            self._gather_items(batch, memory, piece, head[0], head[1:])
        return batch

    def _gather_items(
        self, batch: Batch, memory: Memory, piece: Int64Array, places: Tensor, counts: list[Tensor]
    ) -> None:
        totals = [int(count.sum()) for count in counts]
        items: list[Tensor] = []
        for name, keys, parts in self.lists:
            if keys:
                # The values of all keys lie in one tensor, one key's after another's.
                per_key = [totals[part.items[0].counted] for part in parts]
                whole = [torch.empty(sum(per_key), dtype=_dtype(k.dtype)) for k in parts[0].items]
                cut = [torch.split(one, per_key) for one in whole]
                items += [kind for of_key in zip(*cut, strict=True) for kind in of_key]
                lengths = torch.cat([counts[part.items[0].counted] for part in parts])
                weights = whole[1] if len(whole) > 1 else None
                batch[name] = KeyedJagged(keys, whole[0], lengths, weights, per_key)
                continue
            (part,) = parts
            own = [
                torch.empty((totals[kind.counted], *kind.shape), dtype=_dtype(kind.dtype))
                for kind in part.items
            ]
            items += own
            if len(own) > part.depth:
                batch[name + ELEMENT_MASK] = own[-1]
            batch[name] = (part.depth, own, counts[part.items[0].counted])
        rows = memory.items(piece, places.numpy(), self._item_bytes(counts).numpy())
        gather_items(rows, self._row_items(items, counts))
        for name, keys, _ in self.lists:
            if not keys:
                batch[name] = _packed(*batch[name])


class _Cut(NamedTuple):
    """How a slab is cut into the tensors of so many rows; `places` are bytes, by column."""

    places: NDArray[np.uint64]
    pieces: list[SlabPiece]
    splits: list[tuple[torch.dtype, list[int]]]
    names: list[str]
    shapes: list[tuple[str, tuple[int, ...]]]


class Slabs:
    """The memory of batches of one layout, which is used again when a batch's last tensor dies."""

    def __init__(self, layout: Layout, batch_rows: int, num_kept: int) -> None:
        """Take no memory yet, later that of `num_kept` batches, or of more that are in use."""
        self.batch_rows = batch_rows
        self._columns = layout.columns
        by_dtype: dict[str, list[int]] = {}
        for number, column in enumerate(layout.columns):
            by_dtype.setdefault(column.dtype, []).append(number)
        # Wide ones first, so that all items are aligned.
        self._by_dtype = sorted(
            ((_dtype(name), numbers) for name, numbers in by_dtype.items()),
            key=lambda of: -of[0].itemsize,
        )
        slab_bytes = batch_rows * sum(column.row_bytes for column in layout.columns)
        self._pool = SlabPool(slab_bytes, num_kept * slab_bytes)
        self._cut = self._cut_of(batch_rows)

    def _cut_of(self, num_rows: int) -> _Cut:
        cut = _Cut(np.zeros(len(self._columns), np.uint64), [], [], [], [])
        begin = 0
        for dtype, numbers in self._by_dtype:
            columns = [self._columns[number] for number in numbers]
            sizes = [num_rows * column.row_bytes for column in columns]
            cut.places[numbers] = begin + np.cumsum(sizes) - sizes
            end = begin + sum(sizes)
            cut.pieces.append(SlabPiece(dtype="uint8", begin=begin, last=end, row_bytes=0))
            cut.splits.append((dtype, [size // dtype.itemsize for size in sizes]))
            cut.names.extend(column.name for column in columns)
            cut.shapes.extend((c.name, (num_rows, *c.shape)) for c in columns if c.shape)
            begin = end
        return cut

    def add_columns(self, batch: Batch, num_rows: int) -> NDArray[np.uint64]:
        """Give a batch tensors for the columns of rows; return their addresses."""
        cut = self._cut if num_rows == self.batch_rows else self._cut_of(num_rows)
        tensors: list[Tensor] = []
        address = 0
        capsules = self._pool.acquire(cut.pieces)
        for capsule, (dtype, sizes) in zip(capsules, cut.splits, strict=True):
            piece = _from_dlpack(capsule)
            address = address or piece.data_ptr()
            tensors += piece.view(dtype).unsafe_split_with_sizes(sizes)
        batch.update(zip(cut.names, tensors, strict=True))
        for name, shape in cut.shapes:
            batch[name] = batch[name].view(shape)
        return cut.places + np.uint64(address)


def _addresses(tensors: Sequence[Tensor]) -> NDArray[np.uint64]:
    return np.array([tensor.data_ptr() for tensor in tensors], np.uint64)


def _lists_of(value: Jagged, mask: Tensor | None, count: int) -> _Lists:
    items: list[_Items] = []
    depth = 1
    inner: Tensor | Jagged = value.values
    while isinstance(inner, Jagged):
        # The lengths of a row's lists are as many as its lists.
        items.append(_Items(count + depth - 1, "int32"))
        inner, depth = inner.values, depth + 1
    last = count + depth - 1
    items.append(_Items(last, _name_of(inner.dtype), tuple(inner.shape[1:])))
    if mask is not None:
        items.append(_Items(last, _name_of(mask.dtype), tuple(mask.shape[1:])))
    return _Lists(depth, tuple(items))


def _unpacked(value: Jagged, mask: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    """Return how many items rows have at each level, int32 `[B]` each, and the items."""
    ends = value.offsets
    counts = [ends.diff().to(torch.int32)]
    items: list[Tensor] = []
    inner: Tensor | Jagged = value.values
    while isinstance(inner, Jagged):
        items.append(inner.offsets.diff().to(torch.int32))
        ends = inner.offsets[ends]
        counts.append(ends.diff().to(torch.int32))
        inner = inner.values
    items.append(inner.contiguous())
    if mask is not None:
        items.append(mask.contiguous())
    return counts, items


def _packed(depth: int, items: Sequence[Tensor], counts: Tensor) -> Jagged:
    """Return the rows of lists whose lengths and values these are."""
    values: Tensor | Jagged = items[depth - 1]
    for lengths in reversed(items[: depth - 1]):
        values = Jagged(values, _offsets(lengths))
    return Jagged(values, _offsets(counts))


def _offsets(lengths: Tensor) -> Tensor:
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    torch.cumsum(lengths, 0, out=offsets[1:])
    return offsets


def _is_element_mask(batch: Mapping[str, Any], name: str) -> bool:
    owner = name.removesuffix(ELEMENT_MASK)
    return owner != name and isinstance(batch.get(owner), Jagged)


def bytes_of_rows(fields: Sequence[Field]) -> tuple[float, bool]:
    """Return the bytes that a row takes, and whether they are exact: without lists they are."""
    fixed, listed, num_counts = 0, 0.0, 0
    for field in fields:
        spec = field_spec(field)
        if spec.num_offsets:
            levels = spec.num_offsets * (len(field.sources) if field.keyed else 1)
            listed += field.row_bytes
            num_counts += levels
            fixed += spec.has_valid
        else:
            values = spec.width * spec.cell_items * spec.item_bytes
            fixed += values + spec.has_valid * spec.width * spec.valid_items
    head = _PLACE + _COUNT * num_counts if num_counts else 0
    return fixed + head + listed, not num_counts
