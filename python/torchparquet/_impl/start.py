"""What the import of the package has to do; all else waits for the first data set."""

from __future__ import annotations

import contextlib
import os

import torch.distributed as dist

from torchparquet._impl.ranks.sharding import remember_inherited_group


def prepare_for_groups_and_forks() -> None:
    """Do what would be too late at the first data set, after a process group or a fork."""
    if not dist.is_available():
        return
    # A forked child must not use its parent's sockets, even if it alone has a data set.
    os.register_at_fork(after_in_child=remember_inherited_group)
    if not dist.is_initialized():
        # If the first `DistributedDataParallel` imported this module, it would keep the group of
        # that time as a default. Threads of gloo would then outlive `destroy_process_group()`, and
        # one that frees a tensor while the interpreter exits ends the process by SIGABRT. Older
        # torch makes a directory for it. If there is no room, the first model says so.
        with contextlib.suppress(OSError):
            import torch.distributed.nn.functional  # noqa: F401
