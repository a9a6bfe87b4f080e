"""ByLength: rows of similar length in one batch, padded to the longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet._impl.batches.fields import check_padding
from torchparquet._impl.checks import checked_int, plain_number
from torchparquet._impl.sequences.length_pass import Counted, LengthPass, RowGroupLengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.files.manifest import Manifest

_Number = int | float | bool
_MAX = 2**31


@dataclass(frozen=True)
class ByLength:
    """A `batch_size` that varies: a batch has rows of one row group with lists of similar length.

    Each row group is cut into batches by itself, and always in the same way; `shuffle` permutes
    batches. Shares, shuffle windows, lengths and states count batches. Give either `max_tokens`, or
    `bucket_boundaries` and `bucket_batch_sizes`.

    A list column in `padding` becomes a tensor ``[B, L]``, padded to the longest list of the batch.
    ``"<column>.length"``, int64 ``[B]``, has the lengths.

    Attributes:
        column: The list column whose lengths count. It is padded.
        max_tokens: The most entries, padding included, that a batch's ``[B, L]`` tensor of this
            column has. Rows are sorted by length, and batches filled up. A longer row raises.
        bucket_boundaries: Lengths, ascending: rows below the first one share batches, then those
            below the second, and so on, and those from the last one on.
        bucket_batch_sizes: Rows of a batch, for each bucket: one more than there are boundaries.
            The last batch of a row group's bucket may have fewer.
        max_rows: With `max_tokens`, the most rows of a batch; None for no limit.
        padding: The value of padding: a number for `column`, or a dict from list column to number
            for others too.
        multiple_of: L is rounded up to a multiple of this, within `max_tokens`.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of its range, or the wrong ones are given together.
    """

    column: str
    max_tokens: int | None = None
    bucket_boundaries: Sequence[int] | None = None
    bucket_batch_sizes: Sequence[int] | None = None
    max_rows: int | None = None
    padding: _Number | Mapping[str, _Number] = 0
    multiple_of: int = 1

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if not isinstance(self.column, str):
            raise TypeError(f"column must be a str; got {self.column!r}")
        for name in ("max_tokens", "max_rows", "multiple_of"):
            if getattr(self, name) is not None:
                self._set(name, checked_int(name, getattr(self, name), 1, _MAX))
        for name, least in (("bucket_boundaries", 1), ("bucket_batch_sizes", 1)):
            values = getattr(self, name)
            if values is not None:
                self._set(name, tuple(checked_int(name, value, least, _MAX) for value in values))
        self._check_together()
        given: Any = self.padding
        if isinstance(given, tuple | Mapping):
            padding = {self.column: 0} | dict(given)
        else:
            padding = {self.column: given}
        padding = {name: plain_number(value) for name, value in padding.items()}
        for value in padding.values():
            if not isinstance(value, int | float):
                raise TypeError(
                    f"padding must be a number or a dict of numbers; got {self.padding!r}"
                )
        self._set("padding", tuple(padding.items()))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        boundaries, sizes = self.bucket_boundaries, self.bucket_batch_sizes
        if (self.max_tokens is None) == (boundaries is None):
            raise ValueError(
                "ByLength needs either max_tokens or bucket_boundaries; got "
                f"max_tokens={self.max_tokens}, bucket_boundaries={boundaries}"
            )
        if (boundaries is None) != (sizes is None) or len(sizes or ()) != len(boundaries or ()) + (
            boundaries is not None
        ):
            raise ValueError(
                "bucket_batch_sizes must have one size more than there are bucket_boundaries; got "
                f"{sizes} and {boundaries}"
            )
        if boundaries is not None and list(boundaries) != sorted(set(boundaries)):
            raise ValueError(f"bucket_boundaries must ascend; got {boundaries}")
        if self.max_tokens is None and self.max_rows is not None:
            raise ValueError(f"max_rows goes with max_tokens; got max_rows={self.max_rows}")

    @property
    def padding_of(self) -> dict[str, _Number]:
        """The value of padding of each column that is padded."""
        return dict(self.padding)  # type: ignore[arg-type]

    def padded(self, length: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths that lists are padded to where these are the longest, int64 `[n]`."""
        lengths = -(-np.maximum(length, 1) // self.multiple_of) * self.multiple_of
        if self.max_tokens is None:
            return lengths
        padded: NDArray[np.int64] = np.maximum(length, np.minimum(lengths, self.max_tokens))
        return padded

    def batches(self, row_group: RowGroupLengths) -> list[NDArray[np.int64]]:
        """Return the rows of each batch of a row group, ascending, int64 `[B]` each.

        Raises:
            ValueError: A row is longer than `max_tokens`.
        """
        lengths = row_group.lengths
        if self.max_tokens is None:
            return self._of_buckets(lengths)
        too_long = np.flatnonzero(lengths > self.max_tokens)
        if len(too_long):
            row = int(too_long[0])
            raise ValueError(
                f"max_tokens must hold every list of {self.column!r}, and is {self.max_tokens}: "
                f"{row_group.place_of(row)} has {lengths[row]}; leave out long rows with filters="
            )
        order = np.argsort(lengths, kind="stable")
        # Of each row, as the longest of its batch: how many rows of that length fit.
        most = self.max_tokens // self.padded(lengths[order])
        most = np.minimum(most, self.max_rows or _MAX).tolist()
        begins = [0]
        for place, rows in enumerate(most):
            if place + 1 - begins[-1] > rows:
                begins.append(place)
        return [np.sort(rows) for rows in np.split(order, begins[1:])]

    def _of_buckets(self, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        sizes = self.bucket_batch_sizes or ()
        bucket = np.searchsorted(np.array(self.bucket_boundaries), lengths, side="right")
        found = []
        for number, size in enumerate(sizes):
            rows = np.flatnonzero(bucket == number)
            found += [rows[begin : begin + size] for begin in range(0, len(rows), size)]
        return found


def group_rows(length_pass: LengthPass, by_length: ByLength, fields: Sequence[Field]) -> Manifest:
    """Return the manifest of the batches that rows become.

    Args:
        length_pass: Reads the lengths. No row group is without rows.
        by_length: Says which rows a batch has.
        fields: The tensors of a batch.

    Raises:
        CorruptFileError: A file cannot be read.
        ValueError: A column to pad has no lists of numbers, or its padding does not fit; a row is
            too long, or all lists are empty.
    """
    named = {field.name: field for field in fields}
    for name, value in by_length.padding_of.items():
        if name not in named:
            raise ValueError(f"ByLength names {name!r}, but the columns are {list(named)}")
        check_padding(named[name], value)
    field = named[by_length.column]

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        batches = by_length.batches(row_group)
        longest = np.array([lengths[rows].max() for rows in batches], np.int64)
        num_rows = np.array([len(rows) for rows in batches], np.int64)
        num_places = int((by_length.padded(longest) * num_rows).sum())
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
