"""A seed for each batch, for functions that draw numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

_present: ContextVar[int | None] = ContextVar("torchparquet.batch_seed", default=None)


def batch_seed() -> int:
    """Return a number in `[0, 2**63)` that belongs to the batch at hand.

    For `processors` and `transform` of a `ParquetDataset`. It follows from the data set's seed,
    the epoch, the rank and the batch's number, whichever thread or process works on the batch. So
    a batch that is read again after a resume in the same world gets the same number.

    Raises:
        RuntimeError: No function on a batch is running in this thread.
    """
    seed = _present.get()
    if seed is None:
        raise RuntimeError("batch_seed() is for processors and transform of a ParquetDataset")
    return seed


def with_seed(seed: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a batch whose seed this is."""
    token = _present.set(seed)
    try:
        return function(*arguments)
    finally:
        _present.reset(token)


def mixed_seed(*numbers: int) -> int:
    """Return a seed that follows from all numbers."""
    content = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") >> 1
