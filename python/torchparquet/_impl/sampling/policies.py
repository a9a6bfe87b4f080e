"""The policy of a data set's samples, from its options and one pass over a column."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.files.manifest import Manifest, PackedRows
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.sampling.policy import Policy, RowOrder
from torchparquet._impl.sampling.row_values import RowValues
from torchparquet._impl.sampling.unique import UniqueKeys, most_frequent
from torchparquet._impl.sampling.weighted import Classes, Weighted, checked_length, round_of
from torchparquet.options import Balanced, Weights

# What the arguments `sample=` and `unique=` say.
Sampling: TypeAlias = Balanced | Weights | str


@dataclass(frozen=True)
class Policies:
    """Makes the policies of one data set; `block_rows` is about how many samples a block has."""

    values: RowValues
    options: PlanOptions
    block_rows: int

    def policy(self, sampling: Sampling) -> Policy:
        """Return the policy of the options."""
        if isinstance(sampling, Balanced):
            return self._classes(sampling)
        return self._weighted(sampling) if isinstance(sampling, Weights) else self._unique(sampling)

    def manifest(self, policy: Policy) -> Manifest:
        """Return the manifest of samples, or batches of them, whose row groups are blocks."""
        rows, options = self.values.manifest, self.options
        is_batch = policy.rows_of_unit > 1 or isinstance(policy, UniqueKeys)
        told = [*policy.rules, options.shuffle, self.block_rows, rows.content_fingerprint]
        units, samples = policy.units, np.diff(policy.bounds)
        packed = PackedRows(
            "batch" if is_batch else "sample",
            json.dumps(told),
            units,
            np.zeros_like(units),
            np.zeros_like(units),
            samples,
        )
        num_bytes = rows.row_group_num_bytes.sum() * (samples / samples.sum())
        return rows.in_blocks(packed, num_bytes.astype(np.int64))

    @property
    def _order(self) -> RowOrder:
        return RowOrder(self.values.manifest.row_group_num_rows, self.options)

    def _block(self, num_samples: int) -> int:
        """Return the samples of a block, fewer where it would be of more rows than a window."""
        num_rows = self.values.manifest.num_rows
        return max(1, self.block_rows * min(num_samples, num_rows) // num_rows)

    def _classes(self, balanced: Balanced) -> Policy:
        names: list[Any] = [value for value, _ in balanced.proportions]
        parts = round_of([part for _, part in balanced.proportions])
        classes = self.values.classes(balanced.column, names)
        counts = np.bincount(classes, minlength=len(names))[: len(names)]
        for name, count in zip(names, counts.tolist(), strict=True):
            if not count:
                raise ValueError(
                    f"Balanced needs rows of every class, and {balanced.column!r} has none of "
                    f"{name!r}: leave the class out, or look at filters= and split="
                )
        num_rounds = max(1, int((counts // parts).min()))
        if balanced.length is not None:
            num_rounds = checked_length(balanced.length, len(classes)) // sum(parts)
            if not num_rounds:
                raise ValueError(
                    f"an epoch must have a round of the proportions, {sum(parts)} samples; got "
                    f"length={balanced.length}"
                )
        length = checked_length(num_rounds * sum(parts), len(classes))
        policy = Classes(self._order, classes, parts, num_rounds, self._block(length))
        policy.rules = ["balanced", balanced.column, *map(repr, names), parts, num_rounds]
        return policy

    def _weighted(self, weights: Weights) -> Policy:
        if isinstance(weights.of, str):
            found, told = self.values.weights(weights.of), weights.of
        else:
            found = self._of_array(weights.of)
            told = hashlib.blake2b(found.astype("<f8").tobytes(), digest_size=16).hexdigest()
        length = len(found) if weights.length is None else weights.length
        checked_length(length, len(found))
        policy = Weighted(self._order, found, length, self._block(length))
        policy.rules = ["weights", told, length]
        return policy

    def _of_array(self, given: Any) -> NDArray[np.float64]:
        """Return the weights of the rows that are read."""
        manifest = self.values.manifest
        num_rows = int(manifest.file_num_rows.sum())
        weights = np.asarray(given, np.float64)
        if weights.shape != (num_rows,):
            raise ValueError(
                f"Weights must have one weight for each of the files' {num_rows} rows, got the "
                f"shape {list(weights.shape)}"
            )
        parts = [np.zeros(0)]
        for row_group, count in enumerate(manifest.row_group_num_rows.tolist()):
            stored = manifest.stored_rows(row_group, np.arange(count))
            parts.append(weights[manifest.row_group_first_row[row_group] + stored])
            self.values.check_weights(parts[-1], row_group)
        return np.concatenate(parts)

    def _unique(self, column: str) -> Policy:
        keys, batch_size = self.values.hashes(column), self.options.batch_size
        assert batch_size is not None  # noqa: S101
        most_equal, row = most_frequent(keys)
        num_full = max(1, len(keys) // batch_size)
        if most_equal > num_full:
            order = self._order
            row_group = int(np.searchsorted(order.first_row, row, side="right")) - 1
            place = self.values.manifest.place_of(row_group, row - int(order.first_row[row_group]))
            raise ValueError(
                f"unique={column!r} needs a full batch for each row of a key: one key has "
                f"{most_equal:,} rows, and there are {num_full:,} batches of {batch_size:,}; make "
                f"batches smaller, or leave out rows of it with filters=. It is the key of {place}"
            )
        if self.options.drop_last and len(keys) < batch_size:
            raise ValueError(f"{len(keys)} rows make no batch of {batch_size}, with drop_last=True")
        policy = UniqueKeys(
            self._order,
            keys,
            most_equal,
            batch_size,
            max(1, self.block_rows // batch_size),
            drop_last=self.options.drop_last,
        )
        policy.rules = ["unique", column, batch_size, self.options.drop_last]
        return policy
