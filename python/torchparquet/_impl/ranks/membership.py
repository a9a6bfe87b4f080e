"""How a data set finds this process's rank: from its arguments and from the process itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing import parent_process
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch.utils.data import get_worker_info

from torchparquet._impl.plan.topology import Topology
from torchparquet._impl.ranks.agreement import find_peers
from torchparquet._impl.ranks.job_start import Peers
from torchparquet._impl.ranks.sharding import (
    check_process_group,
    checked_mesh_dims,
    data_parallel_dims,
    is_distributed,
    resolve_topology,
)

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh


class Membership:
    """The ranks that read one data set, as its arguments name them.

    Pickling drops groups, mesh and store, because they belong to one process. A copy for a spawned
    DataLoader worker contains the rank of its loader.
    """

    def __init__(
        self,
        rank: int | None,
        world_size: int | None,
        device_mesh: DeviceMesh | None,
        mesh_dims: str | Sequence[str] | None,
        process_group: dist.ProcessGroup | None,
        store: Store | None,
    ) -> None:
        """Check the arguments as far as no group is needed; they are those of `ParquetDataset`."""
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together, got rank={rank}, world_size={world_size}"
            )
        if rank is not None and world_size is not None:
            Topology(rank, world_size)
        if mesh_dims is not None:
            checked_mesh_dims(mesh_dims)
            if device_mesh is None:
                raise ValueError(f"mesh_dims needs device_mesh, got mesh_dims={mesh_dims!r}")
        # Here, so that a wrong argument is told at once, and with `rank` too.
        if device_mesh is not None:
            data_parallel_dims(device_mesh, mesh_dims)
        if process_group is not None:
            check_process_group(process_group)
        self._rank = rank
        self._world_size = world_size
        self._mesh_dims = mesh_dims
        self.device_mesh = device_mesh
        self.process_group = process_group
        self.store = store
        self._lost_groups = False
        # With the process of the loader, whose children alone are its workers.
        self._of_loader: tuple[Topology, int] | None = None

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker.

        Raises:
            ValueError: The environment and the arguments disagree about it, or pickling dropped
                the group, mesh or store.
        """
        worker = get_worker_info()
        if worker is not None and self._of_loader is not None:
            loader, pid = self._of_loader
            parent = parent_process()
            if parent is not None and parent.pid == pid:
                return Topology(loader.rank, loader.world_size, worker.id, worker.num_workers)
        if self._lost_groups:
            raise ValueError(
                "device_mesh, process_group and store do not travel with a pickled "
                "ParquetDataset: make the data set in the process that reads it, or give rank "
                "and world_size"
            )
        return resolve_topology(
            self._rank, self._world_size, self.process_group, self.device_mesh, self._mesh_dims
        )

    def data_parallel_groups(self) -> list[dist.ProcessGroup | None]:
        """Return the groups that make up the data-parallel ranks; see `ParquetDataset`."""
        mesh = self.device_mesh
        if mesh is None:
            return [self.process_group]
        return [mesh.get_group(dim) for dim in data_parallel_dims(mesh, self._mesh_dims)]

    def peers(self) -> Peers | None:
        """Return the processes to compare with; None if there are none."""
        return find_peers(self.process_group, self.device_mesh)

    @property
    def is_alone(self) -> bool:
        """True if the arguments name a rank but no group or mesh that reads with it."""
        return self._rank is not None and self.device_mesh is None and self.process_group is None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those that belong to this process alone."""
        groups = (self.device_mesh, self.process_group, self.store)
        has_groups = any(group is not None for group in groups)
        state = self.__dict__ | {"device_mesh": None, "process_group": None, "store": None}
        state["_lost_groups"] = self._lost_groups or has_groups
        # A spawned DataLoader worker has no access to its parent's process groups. Any other
        # copy may go to another rank, which must find its rank itself.
        if get_spawning_popen() is not None and (has_groups or is_distributed()):
            state["_of_loader"] = (self.topology(), os.getpid())
        return state
