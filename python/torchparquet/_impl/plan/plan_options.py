"""The options that shape the order of an epoch, and the processes that share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.checks import (
    checked_bool,
    checked_int,
    checked_word,
    set_checked,
    shown,
)
from torchparquet.options import Order

DEFAULT_WINDOW = 8  # chunks
# The `shuffle_window` of windows that are told in rows: as many chunks as `window_rows` holds.
ANY_CHUNKS = 2**31 - 1

Even = Literal["split", "drop", "pad", "none", "dynamic"]
Int64Array = NDArray[np.int64]


@dataclass(frozen=True)
class PlanOptions:
    """The options that, with the row counts, determine an epoch's order."""

    batch_size: int | None
    shuffle: bool = False
    seed: int = 0
    epoch: int = 0
    world_size: int = 1
    num_workers: int = 1
    even: Even = "split"
    drop_last: bool = False
    shuffle_window: int = 0  # chunks whose rows are permuted together; 0 for none
    # The most rows of a window; 0 for no bound. A longer chunk is permuted in several ranges. With
    # `ANY_CHUNKS`, a longer row group is several units of the order.
    window_rows: int = 0
    order: Order = field(default_factory=Order)
    rows_together: int = 1  # even="split" cuts at multiples of so many rows, in each row group
    # Row group i * ranks_together + r is part r of one that all ranks read together, in step: each
    # has `batch_size` parts. 0 if ranks read what they are dealt.
    ranks_together: int = 0
    leg: int = 0  # how often the world has changed within the epoch

    def __post_init__(self) -> None:
        """Check every field; integers of numpy become plain ones."""
        bounds = {
            "seed": (0, 2**64),
            "epoch": (0, 2**64),
            "world_size": (1, 2**31),
            "num_workers": (1, 2**31),
            "shuffle_window": (0, 2**31),
            "window_rows": (0, 2**62),
            "rows_together": (1, 2**31),
            "ranks_together": (0, 2**31),
            "leg": (0, 2**31),
        }
        numbers = {of: checked_int(of, getattr(self, of), *bounds[of]) for of in bounds}
        set_checked(self, **numbers)
        if self.batch_size is not None:
            others = ", None for a batch of each row group, or ByLength(...)"
            size = checked_int("batch_size", self.batch_size, 1, 2**63, others)
            set_checked(self, batch_size=size)
        for name in ("shuffle", "drop_last"):
            checked_bool(name, getattr(self, name))
        checked_word("even", self.even, get_args(Even))
        if not isinstance(self.order, Order):
            raise TypeError(f"order must be an Order or None, got {shown(self.order)}")
        self._check_together()

    def _check_together(self) -> None:
        if self.even == "dynamic":
            check_dynamic(
                {
                    "balance": (self.order.balance, "rows"),
                    "within_rank": (self.order.within_rank, False),
                    "shuffle_window": (
                        f"{self.window_rows} rows" if self.window_rows else self.shuffle_window,
                        0,
                    ),
                }
            )
        if not self.shuffle:
            if self.shuffle_window:
                text = window_text(self.shuffle_window, self.window_rows)
                raise ValueError(f"shuffle_window needs shuffle=True, got {text}")
            if self.order.within_rank:
                raise ValueError("Order(within_rank=True) needs shuffle=True")
        if self.order.balance == "bytes" and self.even == "split":
            raise ValueError(
                'balance="bytes" needs even="drop", "pad" or "none": even="split" gives shares '
                "equal rows"
            )

    def check_world(self) -> None:
        """Check that the options go with this world, once that is known."""
        if self.ranks_together not in (0, (self.batch_size or 1) * self.world_size):
            raise ValueError(
                "Unique(across_ranks=True) needs the number of ranks when the data set is made, "
                f"and it was not {self.world_size} then: make the data set after "
                "init_process_group, or give rank= and world_size="
            )
        canonical = self.order.canonical_world_size
        if canonical is None:
            return
        if canonical % self.world_size:
            raise ValueError(
                "world_size must divide canonical_world_size, got "
                f"{self.world_size} and {canonical}"
            )
        if self.num_workers > 1:
            raise ValueError(
                "canonical_world_size needs num_workers=0, because decode threads do the work of "
                f"workers, got {self.num_workers} workers"
            )
        if self.batch_size is None or self.batch_size * self.world_size % canonical:
            raise ValueError(
                "canonical_world_size must divide batch_size * world_size, got "
                f"{canonical}, {self.batch_size} and {self.world_size}"
            )
        if self.drop_last and self.steps_may_differ and canonical != self.world_size:
            raise ValueError(
                'drop_last=True with canonical_world_size needs even="split", "drop" or "pad": '
                'with even="none" the shares of a rank end at different batches, and later batches '
                "are not full"
            )

    @property
    def steps_may_differ(self) -> bool:
        """True if ranks may take different numbers of steps."""
        return self.even in ("none", "dynamic")

    @property
    def cuts_row_groups(self) -> bool:
        """True if the ranges of a long row group are ordered as if each were a row group."""
        return self.shuffle_window == ANY_CHUNKS and self.window_rows > 0

    @property
    def num_shares(self) -> int:
        """The number of shares that divide the epoch's rows."""
        return self.order.canonical_world_size or self.world_size * self.num_workers

    @property
    def share_batch_size(self) -> int | None:
        """The rows of each batch that come from one share; None for one batch per chunk."""
        if self.order.canonical_world_size is None or self.batch_size is None:
            return self.batch_size
        return self.batch_size * self.world_size // self.order.canonical_world_size

    def shares_of(self, rank: int, worker: int = 0) -> range:
        """Return the shares whose rows make up the batches of a rank's worker, side by side."""
        first = worker * self.world_size + rank
        end = self.num_shares if self.order.canonical_world_size else first + 1
        return range(first, end, self.world_size)


@dataclass(frozen=True)
class Topology:
    """One DataLoader worker of one data-parallel rank; worker 0 of 1 without workers."""

    rank: int
    world_size: int
    worker_id: int = 0
    num_workers: int = 1

    def __post_init__(self) -> None:
        """Check every field; integers of numpy become plain ones."""
        for place, size in (("rank", "world_size"), ("worker_id", "num_workers")):
            count = checked_int(size, getattr(self, size), 1, 2**31)
            number = checked_int(place, getattr(self, place), 0, count)
            set_checked(self, **{size: count, place: number})

    @property
    def share_index(self) -> int:
        """The index of the worker's share: `worker_id * world_size + rank`."""
        return self.worker_id * self.world_size + self.rank

    @property
    def num_shares(self) -> int:
        """The number of shares of all workers: `world_size * num_workers`."""
        return self.world_size * self.num_workers


def requested_window(shuffle_window: int | str | None) -> tuple[int, int] | None:
    """Return the user's `shuffle_window` as that of `PlanOptions` and `window_rows`; or None."""
    if shuffle_window is None:
        return None
    if not isinstance(shuffle_window, str):
        return checked_int("shuffle_window", shuffle_window, 0, ANY_CHUNKS), 0
    text = shuffle_window.strip()
    count = text.removesuffix("rows" if text.endswith("rows") else "row").rstrip()
    digits = count.replace("_", "").replace(",", "")
    if count == text or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(
            'shuffle_window must be a number of row groups, or of rows such as "1_000_000 rows", '
            f"got {shuffle_window!r}"
        )
    return ANY_CHUNKS, checked_int("shuffle_window", int(digits), 1, 2**62)


def window_text(shuffle_window: int, window_rows: int) -> str:
    """Return a window as the user tells it, without a bound by memory."""
    return f"{window_rows} rows" if shuffle_window == ANY_CHUNKS else str(shuffle_window)


def check_dynamic(options: dict[str, tuple[Any, Any]]) -> None:
    """Check that every option has the value that `even="dynamic"` needs."""
    for name, (value, possible) in options.items():
        if value != possible:
            raise ValueError(f'even="dynamic" needs {name}={possible!r}, got {value!r}')
