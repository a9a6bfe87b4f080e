"""What the import of the package has to do; all else waits for the first data set."""

from __future__ import annotations

import contextlib
import os

import torch.distributed as dist

from torchparquet._impl.ranks.sharding import remember_inherited_group


def prepare_for_groups_and_forks() -> None:
    """Do what would be too late at the first data set, after a process group or a fork.

    `torch.distributed.nn.functional` takes the group that exists when it is imported as default of
    its arguments, and the first `DistributedDataParallel` imports it. `destroy_process_group()`
    then joins no thread of gloo, because the group lives on. One of them may free a tensor while
    the interpreter exits, which ends the process by SIGABRT. So it is imported before there is a
    group. Takes 3 ms.

    A child that is forked must not use the sockets of its parent's group, also if only the child
    makes a data set.
    """
    if not dist.is_available():
        return
    os.register_at_fork(after_in_child=remember_inherited_group)
    if not dist.is_initialized():
        # Older torch makes a directory for it. If there is no room, the first model says so.
        with contextlib.suppress(OSError):
            import torch.distributed.nn.functional  # noqa: F401
