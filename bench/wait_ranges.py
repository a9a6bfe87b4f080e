"""The cost per batch of a check for a profiler that is not there."""

from __future__ import annotations

import timeit
from functools import partial

from torch.profiler import record_function

from torchparquet.metrics.wait_ranges import WAIT_RANGE, in_wait_range

_CALLS = 100_000
_REPEATS = 15


def fetch() -> None:
    """Return what is there already."""


def with_a_range() -> None:
    """Open and close a range whether or not anybody listens."""
    with record_function(WAIT_RANGE):
        fetch()


def nanoseconds(seconds: list[float], calls: int) -> float:
    """Return the least time of one call."""
    return min(seconds) / calls * 1e9


def main() -> None:
    """Print the least that is added to a call."""
    bare = nanoseconds(timeit.repeat(fetch, number=_CALLS, repeat=_REPEATS), _CALLS)
    asking = partial(in_wait_range, fetch)
    asked = nanoseconds(timeit.repeat(asking, number=_CALLS, repeat=_REPEATS), _CALLS)
    calls = _CALLS // 100
    ranged = nanoseconds(timeit.repeat(with_a_range, number=calls, repeat=_REPEATS), calls)
    print(f"asking whether a profiler is active: {asked - bare:.0f} ns a batch")
    print(f"a range without asking: {ranged - bare:.0f} ns a batch")


if __name__ == "__main__":
    main()
