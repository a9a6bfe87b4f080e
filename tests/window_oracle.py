"""Which rows a share delivers, in order, by the definition of the order and nothing of ours."""

from __future__ import annotations

import math

import numpy as np

MASK64 = 2**64 - 1


def round_keys(key: int) -> list[int]:
    keys = []
    for i in range(1, 7):
        z = (key + i * 0x9E3779B97F4A7C15) & MASK64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        keys.append((z ^ (z >> 31)) >> 32)
    return keys


def mixed(values: np.ndarray, key: int, bound: int) -> np.ndarray:
    h = (values.astype(np.uint64) + np.uint64(key)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    h = h * np.uint64(0x7FEB352D) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(15)
    h = h * np.uint64(0x846CA68B) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(16)
    return ((h >> np.uint64(16)) * np.uint64(bound)) >> np.uint64(16)


def permuted(key: int, n: int) -> np.ndarray:
    """Return the position of each of `n` rows, int64 `[n]`."""
    if n == 1:
        return np.zeros(1, dtype=np.int64)
    a = math.isqrt(n - 1) + 1
    b = -(-n // a)
    keys = round_keys(key)
    places = np.arange(n, dtype=np.int64)
    pending = np.arange(n)
    while pending.size:
        left, right = places[pending] % a, places[pending] // a
        for i in range(0, 6, 2):
            left = (left + mixed(right, keys[i], a).astype(np.int64)) % a
            right = (right + mixed(left, keys[i + 1], b).astype(np.int64)) % b
        places[pending] = right * a + left
        pending = pending[places[pending] >= n]
    return places


def rows_of_share(share) -> list[tuple[int, int, bool]]:
    """Return (row group, row, valid) of every row that a `Share` delivers."""
    columns = (share.row_group, share.row_begin, share.num_rows, share.valid)
    chunks = [
        [(group, row, valid) for row in range(begin, begin + rows)]
        for group, begin, rows, valid in zip(*(c.tolist() for c in columns), strict=True)
    ]
    if share.windows is None:
        return [row for chunk in chunks for row in chunk]
    rows, next_chunk = [], 0
    windows = share.windows
    for count, key, begin, end in zip(
        *(c.tolist() for c in (windows.num_chunks, windows.key, windows.begin, windows.end)),
        strict=True,
    ):
        own = [row for chunk in chunks[next_chunk : next_chunk + count] for row in chunk]
        next_chunk += count
        ordered = [None] * len(own)
        for row, place in zip(own, permuted(key, len(own)).tolist(), strict=True):
            ordered[place] = row
        rows += ordered[begin:end]
    return rows
