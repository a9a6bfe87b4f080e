"""Which of the ranks this process is: from the arguments of a data set, and from the process."""

from __future__ import annotations

import contextlib
import os
from multiprocessing import parent_process
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

import torch.distributed as dist
from torch.utils.data import get_worker_info

from torchparquet._impl.checks import shown
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.divided_work import divided
from torchparquet._impl.ranks.peers import Peers
from torchparquet.options import Ranks

# The names of the two data-parallel dimensions in meshes of HSDP.
_SPLIT_DIMS = ("dp_replicate", "dp_shard")

# The default group of the parent of this fork, whose sockets this process must not use.
_inherited: list[object] = []


def is_distributed() -> bool:
    """Return whether torch.distributed is initialised in this process."""
    return dist.is_available() and dist.is_initialized()


def in_worker() -> bool:
    """Return whether this process is a DataLoader worker."""
    return get_worker_info() is not None


def _remember_inherited_group() -> None:
    """Note, in a forked child, the group of its parent."""
    _inherited[:] = [dist.group.WORLD] if is_distributed() else []


if dist.is_available():
    # At the first data set it would be too late, after a process group or a fork. A forked child
    # must not use its parent's sockets, even if it alone has a data set.
    os.register_at_fork(after_in_child=_remember_inherited_group)
    if not dist.is_initialized():
        # If the first `DistributedDataParallel` imported this module, it would keep the group of
        # that time as a default. Threads of gloo would then outlive `destroy_process_group()`, and
        # one that frees a tensor while the interpreter exits ends the process by SIGABRT. Older
        # torch makes a directory for it. If there is no room, the first model says so.
        with contextlib.suppress(OSError):
            import torch.distributed.nn.functional  # noqa: F401


class Membership:
    """The ranks that read one data set, as its arguments name them, and this process among them."""

    def __init__(self, rank: int | None, world_size: int | None, ranks: object) -> None:
        """Check the arguments as far as no group is needed; they are those of `ParquetDataset`."""
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together, got rank={rank}, world_size={world_size}"
            )
        self._explicit: tuple[int, int] | None = None
        if rank is not None and world_size is not None:
            explicit = Topology(rank, world_size)
            self._explicit = explicit.rank, explicit.world_size
        self.ranks = _ranks_of(ranks)
        self._lost_groups = False
        # With the process of the loader, whose children alone are its workers.
        self._of_loader: tuple[tuple[int, int], int] | None = None

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker.

        The first source present decides: explicit `rank` and `world_size`; the mesh or group of
        `ranks`; an initialised `torch.distributed`; the variables `RANK` and `WORLD_SIZE`;
        `LOCAL_RANK` and `LOCAL_WORLD_SIZE`, if `RANK` is unset and the world is one node; else rank
        0 of 1. Call this when iteration starts, not when a data set is made: a process group may be
        initialised in between, and only a worker itself knows its number.
        """
        worker = get_worker_info()
        return Topology(*self._rank(), *((worker.id, worker.num_workers) if worker else ()))

    def _rank(self) -> tuple[int, int]:
        """Return the rank, and the world size."""
        if in_worker() and self._of_loader is not None:
            of_loader, pid = self._of_loader
            parent = parent_process()
            if parent is not None and parent.pid == pid:
                return of_loader
        if self._lost_groups:
            raise ValueError(
                "the mesh, group and store of ranks= do not travel with a pickled ParquetDataset: "
                "make the data set in the process that reads it, or give rank and world_size"
            )
        if self._explicit is not None:
            return self._explicit
        claim = _claim_of(self.ranks)
        if not 0 <= claim.rank < claim.world_size:
            raise ValueError(f"rank must be >= 0 and below the world size, got {claim}")
        return claim.rank, claim.world_size

    def data_parallel_groups(self) -> list[dist.ProcessGroup | None]:
        """Return the groups that make up the data-parallel ranks; see `ParquetDataset`."""
        mesh = self.ranks.mesh
        if mesh is None:
            return [self.ranks.group]
        return [mesh.get_group(dim) for dim in _data_parallel_dims(self.ranks)]

    def peers(self) -> Peers | None:
        """Return the processes to compare with: those of the mesh, the group or the world."""
        if in_worker() or not is_distributed() or dist.get_backend() in ("fake", "mpi"):
            return None
        if _inherited and _inherited[0] is dist.group.WORLD:
            return None
        mesh, group = self.ranks.mesh, self.ranks.group
        if mesh is not None:
            # All dimensions count: model-parallel peers must read the same too.
            numbers = sorted(mesh.mesh.flatten().tolist())
        elif group is None:
            numbers = list(range(dist.get_world_size()))
        else:
            numbers = sorted(dist.get_process_group_ranks(group)) if _is_in(group) else []
        own = dist.get_rank()
        if len(numbers) < 2 or own not in numbers:
            return None
        return Peers(tuple(numbers), own, dist.distributed_c10d._get_default_store())

    def divided(self, *told: Any) -> list[bytes]:
        """Return the parts of work, each done by one rank for all; see `ranks.divided_work`."""
        return divided(self.peers(), *told)

    @property
    def is_alone(self) -> bool:
        """True if the arguments name a rank but no group or mesh that reads with it."""
        return self._explicit is not None and self.ranks.mesh is None and self.ranks.group is None

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without those that belong to this process alone."""
        ranks = self.ranks
        has_groups = any(part is not None for part in (ranks.mesh, ranks.group, ranks.store))
        state = self.__dict__ | {"ranks": Ranks(check=ranks.check)}
        state["_lost_groups"] = self._lost_groups or has_groups
        # A spawned DataLoader worker has no access to its parent's process groups. Any other
        # copy may go to another rank, which must find its rank itself.
        if get_spawning_popen() is not None and (has_groups or is_distributed()):
            state["_of_loader"] = (self._rank(), os.getpid())
        return state


class _Claim(NamedTuple):
    """This process's rank according to one source."""

    source: str
    rank: int
    world_size: int

    def __str__(self) -> str:
        return f"{self.source} (rank {self.rank} of {self.world_size})"


def _ranks_of(argument: object) -> Ranks:
    """Return what `ranks=` says: a `Ranks`, or one of the mesh or group that was given."""
    if argument is None or isinstance(argument, Ranks):
        ranks = argument or Ranks()
    elif hasattr(argument, "mesh_dim_names"):
        ranks = Ranks(mesh=argument)  # type: ignore[arg-type]
    else:
        ranks = Ranks(group=argument)  # type: ignore[arg-type]
    # Here, so that a wrong argument is told at once, and with `rank` too.
    if ranks.mesh is not None:
        _data_parallel_dims(ranks)
    # A group without this process is told of when it is read.
    group: object = ranks.group
    if not _is_in(group) and group not in (None, dist.GroupMember.NON_GROUP_MEMBER):
        raise TypeError(
            f"ranks must be a DeviceMesh, a ProcessGroup or a Ranks, got {shown(group)}"
        )
    return ranks


def _is_in(group: object) -> bool:
    """Return whether this process is in a group: `new_group` gives others another object."""
    return isinstance(group, dist.ProcessGroup)


def _data_parallel_dims(ranks: Ranks) -> tuple[int, ...]:
    """Return the data-parallel dimensions of the mesh, slowest first."""
    from torch.distributed.device_mesh import DeviceMesh

    mesh = ranks.mesh
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"the mesh of Ranks must be a DeviceMesh, got {shown(mesh)}")
    present = mesh.mesh_dim_names or ()
    if ranks.dims is not None:
        wanted = list(ranks.dims)
    elif "dp" in present:
        wanted = ["dp"]
    else:
        wanted = [name for name in _SPLIT_DIMS if name in present]
        if not wanted and mesh.ndim == 1:
            return (0,)
        if not wanted:
            raise ValueError(
                'the mesh must have a dimension "dp" or one dimension only (name the data-parallel '
                "ones by Ranks(mesh, dims=...), or pass their submesh), got "
                f"{mesh.ndim} dimensions named {present}"
            )
    for name in wanted:
        if name not in present:
            raise ValueError(f"dims must name dimensions of {present}, got {name!r}")
    return tuple(present.index(name) for name in wanted)


def _claim_of(ranks: Ranks) -> _Claim:
    """Return the rank according to the mesh, the group, or else the world."""
    mesh, group = ranks.mesh, ranks.group
    if mesh is not None:
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise ValueError("the mesh of ranks= must include this process, got a mesh without it")
        rank, world_size = 0, 1
        for dim in _data_parallel_dims(ranks):
            rank = rank * mesh.size(dim) + coordinate[dim]
            world_size *= mesh.size(dim)
        return _Claim("the mesh", rank, world_size)
    if group is None:
        return _claim_of_world()
    if not _is_in(group) or dist.get_rank(group) < 0:
        raise ValueError("the group of ranks= must include this process, got a group without it")
    return _Claim("the group", dist.get_rank(group), dist.get_world_size(group))


def _claim_of_world() -> _Claim:
    found = _variables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not is_distributed():
        return _claim_of_environment(found)
    world = _Claim("torch.distributed", dist.get_rank(), dist.get_world_size())
    # Some launchers set only one of the two, so each is compared if it is set.
    expected = {"RANK": world.rank, "WORLD_SIZE": world.world_size}
    present = {name: found[name] for name in expected if name in found}
    if any(expected[name] != value for name, value in present.items()):
        raise ValueError(f"ranks must agree, got {world} and the variables {_listed(present)}")
    return world


def _claim_of_environment(found: dict[str, int]) -> _Claim:
    if "RANK" in found and "WORLD_SIZE" in found:
        return _Claim("RANK and WORLD_SIZE", found["RANK"], found["WORLD_SIZE"])
    if not found:
        return _Claim("default", 0, 1)
    if "RANK" in found or not {"LOCAL_RANK", "LOCAL_WORLD_SIZE"} <= found.keys():
        # Taking rank 0 of 1 would give every process the whole data set.
        raise ValueError(f"RANK and WORLD_SIZE must be set together, got {_listed(found)}")
    local_world_size = found["LOCAL_WORLD_SIZE"]
    if found.get("WORLD_SIZE", local_world_size) != local_world_size:
        raise ValueError(f"RANK must be set in a world of several nodes, got {_listed(found)}")
    return _Claim("LOCAL_RANK and LOCAL_WORLD_SIZE", found["LOCAL_RANK"], local_world_size)


def _variables(*names: str) -> dict[str, int]:
    """Return the environment variables among `names` that are set."""
    found = {}
    for name in names:
        if name in os.environ:
            try:
                found[name] = int(os.environ[name])
            except ValueError:
                message = f"{name} must be an integer, got {os.environ[name]!r}"
                raise ValueError(message) from None
    return found


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in found.items())
