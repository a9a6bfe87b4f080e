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
from torchparquet._impl.sampling.windows import Episodes, Windows
from torchparquet.options import Balanced, Unique, Weights, Window

# The values of `sample=`, `unique=` and `pack=`.
Sampling: TypeAlias = Balanced | Weights | Window | Unique


@dataclass(frozen=True)
class Policies:
    """Makes the policies of one data set.

    `block_rows` is about how many samples a block has; `most_rows` may be held.
    """

    values: RowValues
    options: PlanOptions
    block_rows: int
    most_rows: int

    def policy(self, sampling: Sampling) -> Policy:
        """Return the policy of the options."""
        if isinstance(sampling, Balanced):
            return self._classes(sampling)
        if isinstance(sampling, Window):
            return self._windows(sampling)
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
            f"{'shuffled' if options.shuffle else 'in file order'}, in blocks of about "
            f"{self.block_rows:,} rows by shuffle_window and max_memory",
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

    def _windows(self, window: Window) -> Policy:
        episodes = self._episodes(window)
        policy = Windows(self._order, episodes, window, self.block_rows, self.most_rows)
        if not len(policy.anchors):
            longest = int(np.diff(episodes.begins).max())
            larger = "" if window.tolerance is None else "take a larger tolerance, "
            raise ValueError(
                f"no window fits an episode, the longest of which has {longest} rows: {larger}"
                'shorten windows, take edges="repeat" or "pad", or sort the rows by episode when '
                "you write the files"
            )
        policy.rules = ["window", *map(repr, vars(window).values())]
        return policy

    def _episodes(self, window: Window) -> Episodes:
        """Return the episodes of a window, whose order is checked."""
        num_rows = self.values.manifest.num_rows
        begins = np.zeros(1, np.int64)
        if window.by is not None:
            keys = self.values.hashes(window.by, "by= of Window")
            begins = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
        begins = np.append(begins, num_rows)
        if window.order is None:
            return Episodes(begins, None, 0.0)
        times, seconds = self.values.times(window.order)
        descends = times[1:] < times[:-1]
        descends[begins[1:-1] - 1] = False
        if descends.any():
            row = int(descends.argmax()) + 1
            raise ValueError(
                f"order={window.order!r} must not descend within an episode; sort the rows when "
                "you write the files, as by Table.sort_by of pyarrow: "
                f"{self._place_of(row)} has {times[row]} after {times[row - 1]}"
            )
        if window.tolerance is None:
            return Episodes(begins, None, 0.0)
        # Each episode begins at the time at which the one before ends.
        steps = np.diff(times, prepend=times[:1])
        steps[begins[:-1]] = 0
        return Episodes(begins, np.cumsum(steps) * seconds, window.tolerance)

    def _place_of(self, row: int) -> str:
        """Return in words where a row is stored."""
        firsts = self._order.first_row
        row_group = int(np.searchsorted(firsts, row, side="right")) - 1
        return self.values.manifest.place_of(row_group, row - int(firsts[row_group]))

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

    def _unique(self, unique: Unique) -> Policy:
        column, batch_size = unique.column, self.options.batch_size
        num_ranks, drop_last = max(1, self.options.ranks_together), self.options.drop_last
        keys = self.values.hashes(column, "unique")
        assert batch_size is not None  # noqa: S101
        batch, batches = ("batch", "batches") if num_ranks == 1 else ("step", "steps of all ranks")
        step_rows, (most_equal, row) = num_ranks * batch_size, most_frequent(keys)
        num_full, rest = divmod(len(keys), step_rows)
        if most_equal > max(1, num_full):
            raise ValueError(
                f"unique={column!r} needs a full {batch} for each row of a key: one key has "
                f"{most_equal:,} rows, and there are {max(1, num_full):,} {batches} of "
                f"{step_rows:,}; make batches smaller, or leave out rows of it with filters=. It "
                f"is the key of {self._place_of(row)}"
            )
        if drop_last and not num_full:
            raise ValueError(
                f"{len(keys)} rows make no {batch} of {step_rows}, with drop_last=True"
            )
        if not drop_last and 0 < rest < num_ranks:
            raise ValueError(
                f"all ranks take the last step, and {rest} rows are left for {num_ranks} ranks: "
                "give drop_last=True, or another batch_size"
            )
        policy = UniqueKeys(
            self._order,
            keys,
            batch_size,
            max(1, self.block_rows // batch_size),
            most_equal=most_equal,
            num_ranks=num_ranks,
            drop_last=drop_last,
        )
        policy.rules = ["unique", column, batch_size, drop_last]
        if num_ranks > 1:
            policy.rules.append(num_ranks)
        return policy
