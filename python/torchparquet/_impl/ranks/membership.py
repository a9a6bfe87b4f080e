"""How a data set finds this process's rank: from its arguments and from the process itself."""

from __future__ import annotations

import os
from multiprocessing import parent_process
from multiprocessing.context import get_spawning_popen
from typing import Any

import torch.distributed as dist
from torch.utils.data import get_worker_info

from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.agreement import find_peers
from torchparquet._impl.ranks.job_start import Peers
from torchparquet._impl.ranks.sharding import (
    data_parallel_dims,
    is_distributed,
    ranks_of,
    resolve_topology,
)
from torchparquet.options import Ranks


class Membership:
    """The ranks that read one data set, as its arguments name them.

    Pickling drops groups, mesh and store, because they belong to one process. A copy for a spawned
    DataLoader worker contains the rank of its loader.
    """

    def __init__(self, rank: int | None, world_size: int | None, ranks: object) -> None:
        """Check the arguments as far as no group is needed; they are those of `ParquetDataset`."""
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together, got rank={rank}, world_size={world_size}"
            )
        if rank is not None and world_size is not None:
            Topology(rank, world_size)
        self._rank = rank
        self._world_size = world_size
        self.ranks = ranks_of(ranks)
        self._lost_groups = False
        # With the process of the loader, whose children alone are its workers.
        self._of_loader: tuple[Topology, int] | None = None

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker."""
        worker = get_worker_info()
        if worker is not None and self._of_loader is not None:
            loader, pid = self._of_loader
            parent = parent_process()
            if parent is not None and parent.pid == pid:
                return Topology(loader.rank, loader.world_size, worker.id, worker.num_workers)
        if self._lost_groups:
            raise ValueError(
                "the mesh, group and store of ranks= do not travel with a pickled ParquetDataset: "
                "make the data set in the process that reads it, or give rank and world_size"
            )
        return resolve_topology(self._rank, self._world_size, self.ranks)

    def data_parallel_groups(self) -> list[dist.ProcessGroup | None]:
        """Return the groups that make up the data-parallel ranks; see `ParquetDataset`."""
        mesh = self.ranks.mesh
        if mesh is None:
            return [self.ranks.group]
        return [mesh.get_group(dim) for dim in data_parallel_dims(self.ranks)]

    def peers(self) -> Peers | None:
        """Return the processes to compare with; None if there are none."""
        return find_peers(self.ranks)

    @property
    def is_alone(self) -> bool:
        """True if the arguments name a rank but no group or mesh that reads with it."""
        return self._rank is not None and self.ranks.mesh is None and self.ranks.group is None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those that belong to this process alone."""
        ranks = self.ranks
        has_groups = any(part is not None for part in (ranks.mesh, ranks.group, ranks.store))
        state = self.__dict__ | {"ranks": Ranks(check=ranks.check)}
        state["_lost_groups"] = self._lost_groups or has_groups
        # A spawned DataLoader worker has no access to its parent's process groups. Any other
        # copy may go to another rank, which must find its rank itself.
        if get_spawning_popen() is not None and (has_groups or is_distributed()):
            state["_of_loader"] = (self.topology(), os.getpid())
        return state
