"""The life of the process group, which DistributedDataParallel would prolong."""

from __future__ import annotations

import contextlib

import torch.distributed as dist


def import_torch_functions_without_group() -> None:
    """Import a module of torch before there is a process group that it would hold for ever.

    `torch.distributed.nn.functional` takes the group that exists when it is imported as default of
    its arguments, and the first `DistributedDataParallel` imports it. `destroy_process_group()`
    then joins no thread of gloo, because the group lives on. One of them may free a tensor while
    the interpreter exits, which ends the process by SIGABRT. Takes 3 ms.
    """
    if not dist.is_available() or dist.is_initialized():
        return
    # Older torch makes a directory for it. If there is no room, the first model says so.
    with contextlib.suppress(OSError):
        import torch.distributed.nn.functional  # noqa: F401
