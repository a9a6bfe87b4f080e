"""The rows that a share delivers, in order, by the definition of the order alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

MASK64 = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def word(key: int, stream: int, number: int) -> int:
    """Return a word of 32 bits of one of the key's streams."""
    start = mix((key + stream * GOLDEN) & MASK64)
    return mix((start + (number + 1) * GOLDEN) & MASK64) >> 32


def table(key: int, stream: int, size: int) -> list[int]:
    """Return a permutation of `size` numbers, as Fisher and Yates make it."""
    numbers = list(range(size))
    for i in range(size):
        j = word(key, stream, i) * (i + 1) >> 32
        numbers[i], numbers[j] = numbers[j], numbers[i]
    return numbers


def tables(key: int, stream: int, size: int, use: int, most: int) -> list[list[int]]:
    """Return the tables that so many strips or buckets read from."""
    count = 1 << (min(use, most).bit_length() - 1)
    return [table(key, stream + i, size) for i in range(count)]


def places_of_strips(key: int, bucket: int, num_strips: int) -> dict[int, int]:
    """Return where each strip's run stands in a bucket: blocks of eight in an order of its own."""
    blocks = [*table(key, 128 + bucket, num_strips // 8), num_strips // 8]
    strips = [s for block in blocks for s in range(8 * block, min(8 * block + 8, num_strips))]
    return {strip: place for place, strip in enumerate(strips)}


@lru_cache(maxsize=64)
def permuted(key: int, n: int) -> np.ndarray:
    """Return the position of each of `n` rows, int64 `[n]`, n being 2**22 at most."""
    num_buckets = 1 << max((n - 1).bit_length() - 13, 0)
    strip_rows = max(2048, 8 * num_buckets)
    run_rows = strip_rows // num_buckets
    num_strips = n // strip_rows if num_buckets > 1 else 0
    # The contents of each bucket: a run of each strip, somewhere, and rows of the tail.
    buckets = [[-1] * (num_strips * run_rows) for _ in range(num_buckets)]
    places_of = [places_of_strips(key, bucket, num_strips) for bucket in range(num_buckets)]
    strip_tables = tables(key, 64, strip_rows, -(-num_strips // 4), 32) if num_strips else []
    for strip in range(num_strips):
        rows = strip_tables[word(key, 1, 2 * strip) % len(strip_tables)]
        turn = word(key, 1, 2 * strip + 1) % num_buckets
        for number, bucket in enumerate(buckets):
            run = (number ^ turn) * run_rows
            begin = places_of[number][strip] * run_rows
            own = [strip * strip_rows + row for row in rows[run : run + run_rows]]
            bucket[begin : begin + run_rows] = own
    tail = list(range(num_strips * strip_rows, n))
    if num_buckets > 1:
        tail = [tail[i] for i in table(key, 3, len(tail))]
    for number, row in enumerate(tail):
        buckets[number % num_buckets].append(row)
    # And in which order.
    order: list[int] = []
    bucket_tables = tables(key, 16, n // num_buckets, num_buckets, 16)
    for number, bucket in enumerate(buckets):
        size = len(bucket)
        entries = bucket_tables[number % len(bucket_tables)]
        entries = entries + list(range(len(entries), size))
        first = word(key, 2, number) * size >> 32
        order += [bucket[entries[(i + first) % size]] for i in range(size)]
    places = np.empty(n, dtype=np.int64)
    places[order] = np.arange(n)
    places.setflags(write=False)
    return places


def chunks_of(share: Any) -> Any:
    """Return the chunks of a `Share` as lists of (row group, row, valid)."""
    chunks = share.chunks
    columns = (chunks.row_group, chunks.row_begin, chunks.num_rows, chunks.valid)
    return [
        [(group, row, valid) for row in range(begin, begin + rows)]
        for group, begin, rows, valid in zip(*(c.tolist() for c in columns), strict=True)
    ]


def rows_of_share(share: Any) -> Any:
    """Return (row group, row, valid) of every row that a `Share` delivers."""
    stored = [row for chunk in chunks_of(share) for row in chunk]
    windows = share.windows
    if windows is None:
        return stored
    rows, next_row = [], 0
    for count, key, begin, end in zip(
        *(c.tolist() for c in (windows.stored_rows, windows.key, windows.begin, windows.end)),
        strict=True,
    ):
        own = stored[next_row : next_row + count]
        next_row += count
        ordered = [None] * len(own)
        for row, place in zip(own, permuted(key, len(own)).tolist(), strict=True):
            ordered[place] = row
        rows += ordered[begin:end]
    return rows
