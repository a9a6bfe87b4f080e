"""What the native reader is told, as arrays and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torchparquet.files.manifest import Manifest
    from torchparquet.plan.share import Share


def chunk_arrays(manifest: Manifest, lanes: Sequence[Share]) -> dict[str, Any]:
    """Return what to read of each chunk, lane after lane."""
    row_group = np.concatenate([lane.row_group for lane in lanes])
    row_begin = np.concatenate([lane.row_begin for lane in lanes])
    return {
        "chunk_file": manifest.row_group_file[row_group],
        "chunk_row_group": manifest.row_group_in_file[row_group],
        "chunk_begin": row_begin,
        "chunk_num_rows": np.concatenate([lane.num_rows for lane in lanes]),
        "chunk_first_row_id": manifest.row_group_first_row[row_group] + row_begin,
        "chunk_valid": np.concatenate([lane.valid for lane in lanes]),
    }


def window_arrays(lanes: Sequence[Share]) -> dict[str, Any]:
    """Return how the rows of each window are permuted, lane after lane."""
    windows = [lane.windows for lane in lanes]
    given = [one for one in windows if one is not None]
    no_counts = np.zeros(0, np.int64)
    return {
        "window_num_chunks": np.concatenate([no_counts, *(one.num_chunks for one in given)]),
        "window_key": np.concatenate([np.zeros(0, np.uint64), *(one.key for one in given)]),
        "window_begin": np.concatenate([no_counts, *(one.begin for one in given)]),
        "window_end": np.concatenate([no_counts, *(one.end for one in given)]),
        "lane_num_windows": [0 if one is None else len(one.num_chunks) for one in windows],
    }


def bit_pattern(value: float, dtype: str) -> int:
    """Return the bytes of `value` as `dtype`, as an unsigned little-endian number."""
    return bit_patterns([value], dtype)[0]


def bit_patterns(values: Sequence[float], dtype: str) -> list[int]:
    """Return the bytes of each value as `dtype`, as unsigned little-endian numbers."""
    # Not by torch, which would end the program if it met a daemon thread here at exit.
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
