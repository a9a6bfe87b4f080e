"""Waits for batches as named ranges in the traces of torch.profiler and of NVIDIA's tools."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from torch._C._autograd import _profiler_enabled
from torch.profiler import record_function
from torch.utils.data import get_worker_info

WAIT_RANGE = "torchparquet.wait"


def wait_range() -> AbstractContextManager[Any] | None:
    """Return a range to wait within, which traces of this thread show; None if nobody listens."""
    # A record_function takes microseconds even without a listener. The profiler tells NVTX of it.
    if _profiler_enabled():
        return record_function(WAIT_RANGE)
    return torch.cuda.nvtx.range(WAIT_RANGE) if _has_nvtx() else None


def shows_in_nvtx() -> bool:
    """Return True if each `next` is a range for NVTX where there is no profiler."""
    return _has_nvtx()


@cache
def _has_nvtx() -> bool:
    # A DataLoader worker does not ask, since CUDA may not survive its fork.
    return get_worker_info() is None and torch.cuda.is_available()
