"""One pass over a column for a value of every row, and the cache of what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.files.cache_file import row_values_by_pass
from torchparquet._impl.files.schemas import NANOSECONDS
from torchparquet._impl.native import hash_bytes
from torchparquet._impl.plan.order import split_mix
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.options import Number

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.remote.storage import StorageArguments
    from torchparquet._impl.reading.read_options import ReadOptions


@dataclass(frozen=True)
class RowValues:
    """Reads columns of the selected rows, row group by row group."""

    manifest: Manifest
    options: ReadOptions
    keys: FileKeys | None
    storage: StorageArguments

    def hashes(self, column: str, of_what: str) -> NDArray[np.uint64]:
        """Return a hash of the key of each row, uint64 `[n]`; equal for equal keys."""

        def of(field: Field, batch: Batch, row_group: int) -> NDArray[np.uint64]:
            self._refuse(~_valid(field, batch), f"{of_what} needs a key in every row", row_group)
            values = batch[column]
            if "float" in field.dtype and not field.has_strings:
                is_nan = np.isnan(values.double().numpy())
                self._refuse(
                    is_nan, f"{of_what} needs keys that equal themselves, not NaN", row_group
                )
            return _hashes(field, values)

        return self._pass(column, ["keys"], np.dtype(np.uint64), of)

    def weights(self, column: str) -> NDArray[np.float64]:
        """Return the weight of each row, float64 `[n]`, checked."""

        def of(field: Field, batch: Batch, row_group: int) -> NDArray[np.float64]:
            if field.has_strings:
                raise ValueError(f"Weights needs a column of numbers: {column!r} has strings")
            weights: NDArray[np.float64] = batch[column].double().numpy()
            self.check_weights(np.where(_valid(field, batch), weights, np.nan), row_group)
            return weights

        return self._pass(column, ["weights"], np.dtype(np.float64), of)

    def times(self, column: str) -> tuple[NDArray[Any], float]:
        """Return a number of each row, float64 or int64 `[n]`, and the seconds that 1 of it is.

        For what is no time, this is 1.
        """
        (field,) = resolve_columns([column], self.manifest, "mask")
        if field.has_strings:
            raise ValueError(f"order= of Window needs a column of numbers: {column!r} has strings")
        dtype = np.dtype(np.float64 if "float" in field.dtype else np.int64)

        def of(field: Field, batch: Batch, row_group: int) -> NDArray[Any]:
            values: NDArray[Any] = batch[column].numpy().astype(dtype)
            wrong = ~_valid(field, batch) | np.isnan(values)
            self._refuse(wrong, "order= of Window needs a number in every row", row_group)
            return values

        unit = field.unit or field.kinds[0][0].partition("[")[2].partition("]")[0].split(",")[0]
        seconds = NANOSECONDS[unit] / NANOSECONDS["s"] if unit in NANOSECONDS else 1.0
        return self._pass(column, ["times"], dtype, of), seconds

    def classes(self, column: str, values: Sequence[Any]) -> NDArray[np.uint16]:
        """Return the number of each row's class among the values, or how many there are."""

        def of(field: Field, batch: Batch, _row_group: int) -> NDArray[np.uint16]:
            wanted = np.array([_hash_of_value(field, value) for value in values], np.uint64)
            order = np.argsort(wanted)
            hashes = _hashes(field, batch[column])
            at = np.minimum(np.searchsorted(wanted[order], hashes), len(values) - 1)
            is_found = (wanted[order][at] == hashes) & _valid(field, batch)
            return np.where(is_found, order[at], len(values)).astype(np.uint16)

        told = ["classes", *map(repr, values)]
        return self._pass(column, told, np.dtype(np.uint16), of)

    def check_weights(self, weights: NDArray[np.float64], row_group: int) -> None:
        """Raise unless all weights of a row group are above 0 and finite."""
        wrong = np.flatnonzero(~((weights > 0) & np.isfinite(weights)))
        if len(wrong):
            row = int(wrong[0])
            raise ValueError(
                "weights must be above 0 and finite; leave out other rows with filters= or rows=: "
                f"{self.manifest.place_of(row_group, row)} has {weights[row]}"
            )

    def _refuse(self, wrong: NDArray[np.bool_], what: str, row_group: int) -> None:
        if wrong.any():
            place = self.manifest.place_of(row_group, int(wrong.argmax()))
            raise ValueError(f"{what}; leave out other rows with filters=: {place}")

    def _pass(
        self,
        column: str,
        told: Sequence[str],
        dtype: np.dtype[Any],
        value_of: Callable[[Field, Batch, int], NDArray[Any]],
    ) -> NDArray[Any]:
        manifest = self.manifest

        def read(row_groups: slice) -> NDArray[Any]:
            part, first = manifest.between(row_groups), row_groups.start
            fields = resolve_columns([column], manifest, "mask")
            (field,) = fields
            if field.num_offsets > 1 or field.length or field.shape or field.has_lists:
                raise ValueError(
                    f"rows cannot be sampled by lists: {column!r} is {field.kinds[0][0]}"
                )
            options = replace(self.options, pin_memory=False)
            opener = StreamOpener(part, fields, options, keys=self.keys)
            found, end = np.empty(part.num_rows, dtype), 0
            with closing(opener.read_row_groups(part.row_group_num_rows)) as read_row_groups:
                for row_group, batch in read_row_groups:
                    values = value_of(field, batch, first + row_group)
                    found[end : end + len(values)] = values
                    end += len(values)
            return found

        return row_values_by_pass(
            "samples",
            [column, *told],
            read,
            manifest=manifest,
            storage=self.storage,
            keys=self.keys,
        )


def _valid(field: Field, batch: Batch) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = batch[field.mask_names[-1]].reshape(-1).numpy()
    return valid


def _hashes(field: Field, values: Any) -> NDArray[np.uint64]:
    if field.has_strings:
        return split_mix(hash_bytes(values.values.numpy(), values.offsets.numpy()))
    numbers = values.double().numpy() + 0.0 if values.is_floating_point() else values.long().numpy()
    return split_mix(numbers.view(np.uint64))


def _hash_of_value(field: Field, value: Any) -> np.uint64:
    """Return the hash of a class that a user named."""
    is_text = isinstance(value, str | bytes)
    if is_text != field.has_strings:
        kind = "strings" if field.has_strings else "numbers"
        raise ValueError(f"classes must be values of the column, which has {kind}; got {value!r}")
    if is_text:
        content = np.frombuffer(value.encode() if isinstance(value, str) else value, np.uint8)
        made: Any = hash_bytes(content, np.array([0, len(content)]))
    elif "float" in field.dtype and isinstance(value, Number):
        # As the column stores it: 0.1 is another number in float32.
        stored = torch.tensor([float(value)], dtype=getattr(torch, field.dtype))
        made = (stored.double().numpy() + 0.0).view(np.uint64)
    elif not isinstance(value, Number) or value % 1 != 0 or not -(2**63) <= value < 2**64:
        raise ValueError(
            f"classes must be values of the column, which has whole numbers; got {value!r}"
        )
    else:
        made = np.array([int(value) % 2**64], np.uint64)
    return np.uint64(split_mix(made)[0])
