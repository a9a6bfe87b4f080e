"""ByLength: rows of similar length in one batch, padded to the longest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.batches.fields import check_padding
from torchparquet._impl.sequences.length_pass import Counted, LengthPass, RowGroupLengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet.options import ByLength

_MAX = 2**31


def padded(by_length: ByLength, length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the lengths that lists are padded to where these are the longest, int64 `[n]`."""
    lengths = -(-np.maximum(length, 1) // by_length.multiple_of) * by_length.multiple_of
    if by_length.max_tokens is None:
        return lengths
    most: NDArray[np.int64] = np.minimum(lengths, by_length.max_tokens)
    return np.maximum(length, most)


def batches_of(by_length: ByLength, row_group: RowGroupLengths) -> list[NDArray[np.int64]]:
    """Return the rows of each batch of a row group, ascending, int64 `[B]` each."""
    lengths = row_group.lengths
    if by_length.max_tokens is None:
        return _of_buckets(by_length, lengths)
    too_long = np.flatnonzero(lengths > by_length.max_tokens)
    if len(too_long):
        row = int(too_long[0])
        raise ValueError(
            f"max_tokens must hold every list of {by_length.column!r}, and is "
            f"{by_length.max_tokens}: "
            f"{row_group.place_of(row)} has {lengths[row]}; leave out long rows with filters="
        )
    order = np.argsort(lengths, kind="stable")
    # Of each row, as the longest of its batch: how many rows of that length fit.
    most = by_length.max_tokens // padded(by_length, lengths[order])
    most = np.minimum(most, by_length.max_rows or _MAX).tolist()
    begins = [0]
    for place, rows in enumerate(most):
        if place + 1 - begins[-1] > rows:
            begins.append(place)
    return [np.sort(rows) for rows in np.split(order, begins[1:])]


def _of_buckets(by_length: ByLength, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    sizes = by_length.bucket_batch_sizes or ()
    bucket = np.searchsorted(np.array(by_length.bucket_boundaries), lengths, side="right")
    found = []
    for number, size in enumerate(sizes):
        rows = np.flatnonzero(bucket == number)
        found += [rows[begin : begin + size] for begin in range(0, len(rows), size)]
    return found


def group_rows(length_pass: LengthPass, by_length: ByLength, fields: Sequence[Field]) -> Manifest:
    """Return the manifest of the batches that rows become."""
    named = {field.name: field for field in fields}
    for name, value in by_length.padding_of.items():
        if name not in named:
            raise ValueError(f"ByLength names {name!r}, but the columns are {list(named)}")
        check_padding(named[name], value)
    field = named[by_length.column]

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        batches = batches_of(by_length, row_group)
        longest = np.array([lengths[rows].max() for rows in batches], np.int64)
        num_rows = np.array([len(rows) for rows in batches], np.int64)
        num_places = int((padded(by_length, longest) * num_rows).sum())
        return Counted(len(batches), int(lengths.sum()), num_places, len(lengths))

    rules = [
        by_length.max_tokens,
        by_length.max_rows,
        by_length.multiple_of,
        by_length.bucket_boundaries,
        by_length.bucket_batch_sizes,
    ]
    packed = length_pass.count([field], "batch", rules, count)
    return length_pass.manifest.pack(packed)
