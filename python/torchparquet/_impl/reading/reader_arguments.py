"""Converts shares, tensors and values of the plan to the native reader's types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchparquet._impl import native
from torchparquet._impl.native import FieldSpec, PackRequest
from torchparquet._impl.plan.share import Windows

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.share import Share

_NONE = np.zeros(0, np.int64)
_NO_WINDOWS = Windows(_NONE, np.zeros(0, np.uint64), _NONE, _NONE)


def native_row_groups(manifest: Manifest) -> native.RowGroups:
    """Return the row groups of a manifest as the native reader takes them."""
    packed = manifest.packed
    return native.RowGroups(
        file=manifest.row_group_file,
        in_file=manifest.row_group_in_file,
        first_row=manifest.row_group_first_row,
        num_sequences=None if packed is None else packed.num_units,
        are_selected=manifest.selection is not None,
    )


def native_shares(row_groups: native.RowGroups, shares: Sequence[Share]) -> list[native.Share]:
    """Return shares of the plan as the native reader's, with one sequence for all."""
    sequences: dict[int, native.Sequence] = {}
    return [_native_share(row_groups, share, sequences) for share in shares]


def _native_share(
    row_groups: native.RowGroups, share: Share, sequences: dict[int, native.Sequence]
) -> native.Share:
    order, further = share.sequence, share.further
    if id(order) not in sequences:
        sequences[id(order)] = native.Sequence(
            row_groups=row_groups,
            row_group=order.row_group,
            begin=order.row_begin,
            num_rows=order.num_rows,
        )
    windows = _NO_WINDOWS if share.windows is None else share.windows
    return native.Share(
        sequence=sequences[id(order)],
        rank=share.index,
        world_size=share.num_shares,
        dealt_rows=share.dealt_rows,
        skipped_rows=share.skipped_rows,
        row_group=further.row_group,
        begin=further.row_begin,
        num_rows=further.num_rows,
        valid=further.valid,
        window_rows=windows.stored_rows,
        window_key=windows.key,
        window_begin=windows.begin,
        window_end=windows.end,
        is_claimed=share.claims is not None,
    )


def native_selections(manifest: Manifest) -> native.Selections | None:
    """Return the selected rows of a manifest as the native reader takes them; None for all."""
    selection = manifest.selection
    if selection is None:
        return None
    return native.Selections(
        form=selection.form,
        begin=selection.begin,
        words=selection.words,
        num_rows=selection.num_rows,
    )


def field_spec(field: Field) -> FieldSpec:
    """Return a tensor of a batch as the native reader's field."""
    if field.num_offsets:
        # The slab holds the offsets of rows; the values are outside of it.
        return FieldSpec(
            item_bytes=8,
            width=1,
            cell_items=1,
            has_valid=field.nulls == "mask",
            valid_items=1,
            num_offsets=field.num_offsets,
            has_item_valid=field.nulls == "mask" and field.has_lists,
            row_bytes=field.row_bytes,
        )
    return FieldSpec(
        item_bytes=getattr(torch, field.dtype).itemsize,
        width=field.width or 1,
        cell_items=(field.length or 1) * (field.items or 1),
        has_valid=field.has_mask,
        valid_items=field.length or 1,
        num_offsets=0,
        has_item_valid=False,
        row_bytes=0.0,
    )


def pack_request(field: Field) -> PackRequest | None:
    """Return how the native reader packs a field; None if it does not."""
    pack = field.pack
    if pack is None:
        return None
    assert field.length is not None  # noqa: S101
    return PackRequest(
        length=field.length,
        strategy=pack.strategy,
        has_separator=pack.separator is not None,
        window_documents=pack.window,
        separator_bits=bit_pattern(pack.separator or 0, field.dtype),
        padding_bits=bit_pattern(pack.padding, field.dtype),
    )


def bit_pattern(value: float, dtype: str) -> int:
    """Return the bytes of `value` as `dtype`, as an unsigned little-endian number."""
    return bit_patterns([value], dtype)[0]


def bit_patterns(values: Sequence[float], dtype: str) -> list[int]:
    """Return the bytes of each value as `dtype`, as unsigned little-endian numbers."""
    # Without torch, which would abort the program if a daemon thread were here at exit.
    if dtype == "bfloat16":
        single = np.array(values, dtype=np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        # To the nearest, ties to even, in the upper half.
        stored = np.where(np.isnan(single), 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
        stored = stored.astype(np.uint16)
    else:
        stored = np.array(values, dtype=dtype)
    patterns: list[int] = stored.view(f"<u{stored.itemsize}").tolist()
    return patterns
