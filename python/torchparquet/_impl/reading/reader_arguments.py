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

# Chunks or windows of each share that are asked for ahead of an epoch, if there is room.
_FIRST_STEPS = 16
_NONE = np.zeros(0, np.int64)
_NO_WINDOWS = Windows(_NONE, np.zeros(0, np.uint64), _NONE, _NONE)


def native_share(manifest: Manifest, share: Share) -> native.Share:
    """Return a share of the plan as the native reader's."""
    row_group = share.row_group
    windows = share.windows
    is_selected = manifest.selection is not None
    packed = manifest.packed
    first_row = manifest.row_group_first_row[row_group]
    if not is_selected:
        first_row = first_row + share.row_begin
    if windows is None:
        windows = _NO_WINDOWS
    return native.Share(
        rank=share.index,
        world_size=share.num_shares,
        chunk_file=manifest.row_group_file[row_group],
        chunk_row_group=manifest.row_group_in_file[row_group],
        chunk_begin=share.row_begin,
        chunk_num_rows=share.num_rows,
        chunk_first_row_id=first_row,
        chunk_valid=share.valid,
        window_num_chunks=windows.num_chunks,
        window_key=windows.key,
        window_begin=windows.begin,
        window_end=windows.end,
        chunk_selection=row_group if is_selected else _NONE,
        chunk_sequences=_NONE if packed is None else packed.num_units[row_group],
    )


def first_steps(
    manifest: Manifest, shares: Sequence[Share]
) -> list[list[tuple[int, int, int, int, int]]]:
    """Return the chunks that the native reader reads first, those at once together.

    A chunk is its file, its row group, its first row, its rows and the number of its selection.
    """
    steps = []
    for number in range(_FIRST_STEPS):
        for share in shares:
            windows = share.windows
            if windows is None:
                chunks = slice(number, number + 1)
            else:
                ends = windows.num_chunks[: number + 1].cumsum()
                if number >= len(ends):
                    continue
                chunks = slice(int(ends[number] - windows.num_chunks[number]), int(ends[number]))
            row_groups = share.row_group[chunks]
            is_selected = manifest.selection is not None
            columns = (
                manifest.row_group_file[row_groups],
                manifest.row_group_in_file[row_groups],
                share.row_begin[chunks],
                share.num_rows[chunks],
                row_groups if is_selected else np.full_like(row_groups, -1),
            )
            step = list(zip(*(column.tolist() for column in columns), strict=True))
            if step:
                steps.append(step)
    return steps


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
