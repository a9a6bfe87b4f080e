"""Slabs, the memory of batches, and how they are cut into named tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise, repeat, starmap
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _from_dlpack

from torchparquet._impl.batches.fields import Field, PackedColumn
from torchparquet._impl.native import FieldPlace, SlabPiece, cumulative_lengths, documents_of
from torchparquet.errors import ListLengthError
from torchparquet.jagged import Jagged
from torchparquet.keyed_jagged import KeyedJagged

# Of a field, outside of the slab: offsets of all lists but the outermost, the values, and
# their mask or None.
Items: TypeAlias = tuple[list[NDArray[np.int64]], NDArray[np.generic], NDArray[np.bool_] | None]

# The same as tensors: int64 [lists + 1], [values] or their bytes, and bool or uint8 [values].
ItemTensors: TypeAlias = tuple[list[Tensor], Tensor, Tensor | None]
_ALIGNMENT_BYTES = 64

# The marks of packed tokens, until they are boundaries.
MARKS = "<marks>"

# Values are Tensor, Jagged or KeyedJagged. A union type would make users state which at every use.
Batch: TypeAlias = dict[str, Any]


# Every torch takes these by DLPack.
_DLPACK_DTYPES = {
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
}


class _Span(NamedTuple):
    """Where the items of one tensor are in a slab; `begin` counts items."""

    name: str
    dtype: torch.dtype
    begin: int
    width: int | None = None
    num_extra: int = 0


class _Cuts(NamedTuple):
    """How slabs are cut into the tensors of `num_rows` rows: for each dtype, and which parts."""

    num_rows: int
    splits: list[tuple[torch.dtype, list[int]]]
    pick: Callable[[Sequence[Tensor]], Iterable[Tensor]]


class BatchViews:
    """Cuts slabs into the tensors of batches, all of one dtype by one call, which is cheap.

    The cut is torch's "unsafe" split: autograd does not treat the parts as views of one tensor, so
    changing one in place does not invalidate another.
    """

    def __init__(
        self,
        fields: Sequence[Field],
        places: Sequence[FieldPlace],
        names: Sequence[str],
        slab_bytes: int,
        *,
        in_pieces: bool,
    ) -> None:
        """Prepare to cut slabs into tensors named `names`; into storages of their own `in_pieces`.

        Pieces, one tensor for each dtype, can be pickled or shared alone. Not all slabs allow them.
        """
        spans = [span for placed in zip(fields, places, strict=True) for span in _spans(*placed)]
        self._spans: dict[torch.dtype, list[_Span]] = {}
        for span in sorted(spans, key=lambda span: span.begin):
            self._spans.setdefault(span.dtype, []).append(span)
        in_pieces = in_pieces and not any(field.num_offsets for field in fields)
        self._slab_bytes = 0 if in_pieces and self._spans.keys() <= _DLPACK_DTYPES else slab_bytes
        whole = SlabPiece(dtype="uint8", begin=0, last=slab_bytes, row_bytes=0)
        self.pieces = [whole] if self._slab_bytes else list(starmap(_piece, self._spans.items()))
        own = {span.name for span in spans}
        self._own_names = [name for name in names if name in own]
        self._own_names += [field.name for field in fields if field.weighs is not None]
        marked = [(f.pack, f.mask_names) for f in fields if f.pack and f.has_mask]
        self._packed = marked[0] if marked else None
        self._own_names += [MARKS] if self._packed is not None else []
        self._names = None if self._own_names == list(names) else list(names)
        keyed = {field.name for field in fields if field.keyed}
        wide = [span for span in spans if span.name not in keyed]
        self._wide = [(span.name, span.width) for span in wide if span.width is not None]
        self._jagged = [field for field in fields if field.num_offsets]
        self._shaped = [field for field in fields if field.shape]
        self._cuts = _Cuts(-1, [], tuple)

    def _cuts_of(self, num_rows: int) -> _Cuts:
        if self._cuts.num_rows == num_rows:  # as of all batches but the last
            return self._cuts
        splits: list[tuple[torch.dtype, list[int]]] = []
        found: dict[str, int] = {}
        num_parts = 0
        for dtype, spans in self._spans.items():
            sizes: list[int] = []
            end = 0 if self._slab_bytes else spans[0].begin
            for span in spans:
                num_items = (num_rows + span.num_extra) * (span.width or 1)
                sizes += [span.begin - end] * (span.begin > end) + [num_items]
                found[span.name] = num_parts + len(sizes) - 1
                end = span.begin + num_items
            rest = self._slab_bytes // dtype.itemsize - end
            sizes += [rest] * (rest > 0)
            splits.append((dtype, sizes))
            num_parts += len(sizes)
        chosen = [found[name] for name in self._own_names]
        is_all = chosen == list(range(num_parts))
        first = slice(chosen[0], chosen[0] + 1)
        pick = tuple if is_all else itemgetter(*(chosen if len(chosen) > 1 else [first]))
        self._cuts = cuts = _Cuts(num_rows, splits, pick)
        return cuts

    def cut_all(self, memories: Iterable[Sequence[Any]], num_rows: int) -> Iterator[Batch]:
        """Return the batches of slabs, given as capsules of their pieces, without other items.

        No line of Python runs for a batch where its tensors are parts of pieces as they are: it
        would cost as much as a narrow batch itself.
        """
        cuts = self._cuts_of(num_rows)
        sizes = [sizes for _, sizes in cuts.splits]
        names = repeat(self._own_names)
        if self._slab_bytes or self._wide or self._packed or self._shaped:
            return map(self.cut, map(map, repeat(_from_dlpack), memories), repeat(num_rows))
        if sizes == [[num_rows]]:
            tensors = map(_from_dlpack, chain.from_iterable(memories))
            return map(dict.fromkeys, names, tensors)
        rows: Iterator[Iterable[Tensor]] = map(map, repeat(_from_dlpack), memories)
        if any(len(parts) > 1 for parts in sizes):
            split = Tensor.unsafe_split_with_sizes
            rows = map(chain.from_iterable, map(map, repeat(split), rows, repeat(sizes)))
        if cuts.pick is not tuple:
            rows = map(cuts.pick, map(tuple, rows))
        return map(dict, map(zip, names, rows))

    def cut(
        self, pieces: Iterable[Tensor], num_rows: int, items: Sequence[ItemTensors] = ()
    ) -> Batch:
        """Return the tensors of a batch; a whole slab is the only piece."""
        cuts = self._cuts_of(num_rows)
        tensors: list[Tensor] = []
        bases = repeat(*pieces) if self._slab_bytes else pieces
        for (dtype, sizes), piece in zip(cuts.splits, bases, strict=False):
            base = piece if piece.dtype == dtype else piece.view(dtype)
            tensors += base.unsafe_split_with_sizes(sizes)
        batch: Batch = dict(zip(self._own_names, cuts.pick(tensors), strict=True))
        for name, width in self._wide:
            batch[name] = batch[name].view(num_rows, width)
        if self._packed is not None:
            packed, names = self._packed
            found = boundaries_of(batch.pop(MARKS), packed)
            batch.update(zip(names, found, strict=True))
        weights: dict[str | None, Tensor] = {
            field.weighs: _values(field, of_field)
            for field, of_field in zip(self._jagged, items, strict=True)
            if field.weighs is not None
        }
        for field, of_field in zip(self._jagged, items, strict=True):
            if field.keyed:
                lengths, of_values = batch[field.name], weights.get(field.name)
                batch[field.name] = _keyed(field, lengths, of_field, of_values)
                continue
            batch[field.name] = _jagged(field, batch[field.name], of_field)
            if of_field[2] is not None:
                batch[field.mask_names[1]] = of_field[2].view(torch.bool)
        for field in self._shaped:
            _shape(field, batch)
        return batch if self._names is None else {name: batch[name] for name in self._names}


def _spans(field: Field, place: FieldPlace) -> Iterator[_Span]:
    """Yield the tensors of a field that are in the slab: of a jagged one, its row offsets."""
    if field.keyed:
        begin = place.values_offset // torch.int32.itemsize
        yield _Span(field.name, torch.int32, begin, len(field.sources))
        return
    if field.num_offsets:
        begin = place.values_offset // torch.int64.itemsize
        yield _Span(field.name, torch.int64, begin, num_extra=1)
        if field.nulls == "mask":
            yield _Span(field.mask_names[0], torch.bool, place.valid_offset)
        return
    dtype: torch.dtype = getattr(torch, field.dtype)
    yield _Span(field.name, dtype, place.values_offset // dtype.itemsize, field.trailing)
    if field.pack is not None and field.has_mask:
        yield _Span(MARKS, torch.uint8, place.valid_offset, field.length)
    elif field.has_mask:
        width = field.width or field.length
        yield _Span(field.mask_names[0], torch.bool, place.valid_offset, width)


def _piece(dtype: torch.dtype, spans: Sequence[_Span]) -> SlabPiece:
    """Return the tensor of all spans of a dtype, which ends with the rows of the last."""
    size, last = dtype.itemsize, spans[-1]
    return SlabPiece(
        dtype=str(dtype).removeprefix("torch."),
        begin=spans[0].begin * size,
        last=last.begin * size,
        row_bytes=(last.width or 1) * size,
    )


def boundaries_of(marks: Tensor, pack: PackedColumn) -> list[Any]:
    """Return what a batch says of documents, in the order of `PackedColumn.names`.

    Of marks, uint8 `[B, L]`, bit 0 is a token, not padding, and bit 1 the first token of a
    document, or the first of the padding that belongs to none.
    """
    found: list[Any] = []
    if pack.boundaries in ("tokens", "both"):
        found += map(torch.from_numpy, documents_of(marks.numpy()))
    if pack.boundaries in ("cu_seqlens", "both"):
        cu_seqlens = cumulative_lengths(marks.numpy())
        found += [torch.from_numpy(cu_seqlens), int(np.diff(cu_seqlens).max())]
        if pack.pad_documents_to > 1:
            is_token = marks.numpy().reshape(-1) & 1
            lengths = np.add.reduceat(is_token, cu_seqlens[:-1], dtype=np.int32)
            found.append(torch.from_numpy(lengths))
    return found


def _values(field: Field, items: ItemTensors) -> Tensor:
    dtype: torch.dtype = getattr(torch, field.dtype)
    stored = items[1]
    return stored if stored.dtype == dtype else stored.view(dtype)


def _keyed(
    field: Field, lengths: Tensor, items: ItemTensors, weights: Tensor | None
) -> KeyedJagged:
    begins = items[0][0].tolist()
    per_key = [end - begin for begin, end in pairwise(begins)]
    return KeyedJagged(field.sources, _values(field, items), lengths, weights, per_key)


def _jagged(field: Field, offsets: Tensor, items: ItemTensors) -> Jagged:
    inner_offsets, stored = items[0], _values(field, items)
    if field.items is not None:
        stored = stored.view(-1, field.items)
    values: Tensor | Jagged = stored
    for inner in reversed(inner_offsets):
        values = Jagged(values, inner)
    return Jagged(values, offsets)


def _shape(field: Field, batch: Batch) -> None:
    """Give the values of a field, and its mask of values, the shape of its rows."""
    if not field.num_offsets:
        order = field.order or range(len(field.shape))
        for name in (field.name, *field.mask_names):
            rows = batch[name].view(-1, *field.shape)
            batch[name] = rows.permute(0, *(dimension + 1 for dimension in order))
        return
    lists: Jagged = batch[field.name]
    batch[field.name] = _dense(lists, None, field, field.shape, field.fill)
    if len(field.mask_names) > 1:
        values = field.mask_names[1]
        batch[values] = _dense(lists, batch[values], field, field.shape, False)


def _dense(
    lists: Jagged, leaves: Tensor | None, field: Field, shape: tuple[int, ...], fill: float
) -> Tensor:
    """Return lists of lists as `[B, *shape]`; null lists, which are empty, are filled."""
    inner = lists.values
    if isinstance(inner, Jagged):
        values = _dense(inner, leaves, field, shape[1:], fill)
    else:
        values = inner if leaves is None else leaves
    lengths = lists.lengths
    full = lengths == shape[0]
    rows = values.view(-1, shape[0], *values.shape[1:]) if full.any() else None
    if rows is not None and len(rows) == len(lengths) and bool(full.all()):
        return rows
    wrong = lengths[~full & (lengths != 0)]
    if len(wrong):
        raise ListLengthError(
            f"list of {int(wrong[0])} is not of the length {shape[0]} that the Arrow schema in the "
            'files says; Column(..., length="any") reads lists of any length: column '
            f"{field.name!r}"
        )
    made = values.new_full((len(lengths), shape[0], *values.shape[1:]), fill)
    if rows is not None:
        made[full] = rows
    return made


def slab_order(fields: Sequence[Field]) -> list[Field]:
    """Return the fields in the order of the slab, where those of a dtype are side by side."""
    dtypes = [_slab_dtype(field) for field in fields]
    kinds = [(d, f.has_mask, f.num_offsets > 0) for d, f in zip(dtypes, fields, strict=True)]
    first_of = {kind: place for place, kind in reversed([*enumerate(kinds)])}
    return [fields[at] for at in sorted(range(len(fields)), key=lambda at: first_of[kinds[at]])]


def _slab_dtype(field: Field) -> str:
    if field.keyed:
        return "int32"  # of lengths
    return "int64" if field.num_offsets else field.dtype


def batch_names(fields: Sequence[Field]) -> list[str]:
    """Return the keys of a batch in the user's order, masks after their values."""
    named = [field for field in fields if field.weighs is None]
    return [name for field in named for name in (field.name, *field.mask_names)]


def tensors_of_items(
    items: Sequence[Items], *, in_one_piece: bool = False, pin_memory: bool = False
) -> list[ItemTensors]:
    """Return the items of each field: the decoded memory, or copied to a piece that can be sent."""
    arrays = [
        array
        for inner_offsets, values, mask in items
        for array in (*inner_offsets, values, *([] if mask is None else [mask]))
    ]
    if in_one_piece:
        sizes = [array.nbytes for array in arrays]
        padded = (-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes)
        *begins, total = accumulate(padded, initial=0)
        memory = torch.empty(total, dtype=torch.uint8, pin_memory=pin_memory)
        tensors = list(map(memory.narrow, repeat(0), begins, sizes))
        for tensor, array in zip(tensors, arrays, strict=True):
            tensor.numpy()[:] = array.view("u1")
    else:
        tensors = list(map(torch.from_numpy, arrays))
    left = iter(tensors)
    return [
        (
            [next(left).view(torch.int64) for _ in inner_offsets],
            next(left),
            None if mask is None else next(left),
        )
        for inner_offsets, _, mask in items
    ]
