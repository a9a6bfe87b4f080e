"""Waits for batches as named ranges in the traces of torch.profiler and of NVIDIA's tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch
from torch._C._autograd import _profiler_enabled
from torch.profiler import record_function
from torch.utils.data import get_worker_info

WAIT_RANGE = "torchparquet.wait"

_T = TypeVar("_T")


def in_wait_range(fetch: Callable[[], _T]) -> _T:
    """Return the result of `fetch`; traces of this thread show the call as `WAIT_RANGE`.

    An active torch profiler gets a range, which it passes on to NVTX if it was told to. Without a
    profiler, NVTX gets a range if CUDA is available. Without a listener there is no
    record_function, which takes microseconds even then.
    """
    if _profiler_enabled():
        with record_function(WAIT_RANGE):
            return fetch()
    if not _has_nvtx():
        return fetch()
    torch.cuda.nvtx.range_push(WAIT_RANGE)  # type: ignore[no-untyped-call]
    try:
        return fetch()
    finally:
        torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


@cache
def _has_nvtx() -> bool:
    # A DataLoader worker does not ask, since CUDA may not survive its fork.
    return get_worker_info() is None and torch.cuda.is_available()
