"""The cost of rows, or of batches of similar rows, by their lengths."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.checks import shown
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Int64Array
from torchparquet._impl.plan.step_costs import Float64Array, RowCosts
from torchparquet._impl.sequences.by_length import sizes_of_batches
from torchparquet._impl.sequences.delivered_rows import first_rows
from torchparquet._impl.sequences.length_pass import LengthPass
from torchparquet.errors import users_level
from torchparquet.options import ByLength, Cost

# Rows whose costs are computed at once.
_PART = 1 << 20


def cost_rows(
    length_pass: LengthPass, by_length: ByLength, field: Field, num_units: Int64Array
) -> RowCosts:
    """Return the costs of the rows of each row group, or of the batches that they become."""
    assert by_length.cost is not None  # noqa: S101
    if by_length.rows is not None:
        assert length_pass.known is not None  # noqa: S101
        return row_costs(by_length.cost, length_pass.known, num_units)
    num_rows, longest = sizes_of_batches(length_pass, by_length, field)
    return row_costs(by_length.cost, longest, num_units, num_rows)


def row_costs(
    cost: Cost,
    lengths: NDArray[Any],
    num_units: Int64Array,
    times: Int64Array | None = None,
) -> RowCosts:
    """Return costs from lengths, `[N]`, each of them `times` over; 4 bytes a row.

    `num_units` is how many of them each row group has.
    """
    function = _function_of(cost)
    costs = np.empty(len(lengths), np.float32)
    parts = [slice(at, at + _PART) for at in range(0, len(lengths), _PART)]
    for part in parts:
        found = _checked(function, lengths[part].astype(np.int64))
        costs[part] = found if times is None else found * times[part]
    most = float(costs.max(initial=0))
    if not 0 < most < np.inf:
        wrong = "0 for every row" if most == 0 else f"{most} for a batch, which float32 cannot hold"
        raise ValueError(f"cost= must tell rows of different lengths apart, and is {wrong}")
    # Sums of integers are the same on every machine.
    scale = (2**32 - 1) / most
    of_row = costs.view(np.uint32)
    for part in parts:
        of_row[part] = np.rint(costs[part].astype(np.float64) * scale)
    if len(of_row) > 1 and int(of_row.sum(dtype=np.int64)) < 2 * (2**32 - 1):
        unit = "row" if times is None else "batch"
        longest = int(lengths[int(of_row.argmax())])
        warnings.warn(
            f"one {unit}, of length {longest}, costs more than all others together, so steps of "
            "equal cost are impossible: leave it out with filters=, or cap cost=",
            stacklevel=users_level(),
        )
    digest = hashlib.blake2b(of_row.astype("<u4", copy=False).data, digest_size=16).hexdigest()
    of_row.flags.writeable = False
    return RowCosts(of_row, np.cumsum(num_units) - num_units, digest)


def costs_of_steps(
    plan: EpochPlan, costs: RowCosts, shares: Sequence[int], num_steps: int
) -> Int64Array:
    """Return the cost of the first steps of shares, int64 `[shares, steps]`; of fewer 0."""
    found = np.zeros((len(shares), num_steps), np.int64)
    for number, index in enumerate(shares):
        share = plan.share(index)
        row_group, row = first_rows(share, share.rows_of_first(num_steps))
        of_row = costs.of_row[costs.first[row_group] + row]
        begins = np.arange(0, len(of_row), share.batch_size or 1)
        if len(begins):
            found[number, : len(begins)] = np.add.reduceat(of_row, begins, dtype=np.int64)
    return found


def _function_of(cost: Cost) -> Callable[[Int64Array], Any]:
    if callable(cost):
        return cost
    a, b = (1.0, 0.0) if isinstance(cost, str) else map(float, cost)  # integers would overflow
    return lambda lengths: lengths * (a + b * lengths)


def _checked(function: Callable[[Int64Array], Any], lengths: Int64Array) -> Float64Array:
    """Return the costs of lengths; raise unless each has one that can be compared."""
    given = function(lengths.copy())
    try:
        found = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"cost= must return a number for each length, and returned {shown(given)}"
        ) from None
    if found.shape != lengths.shape:
        raise ValueError(
            "cost= must return one number for each length: for lengths of shape "
            f"{list(lengths.shape)} it returned shape {list(found.shape)}"
        )
    wrong = np.flatnonzero(~((found >= 0) & (found <= np.finfo(np.float32).max)))
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            "costs must be finite and not negative: cost= returned "
            f"{found[at]} for length {lengths[at]}"
        )
    return found
