"""The data-parallel rank and DataLoader worker of this process."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch.distributed as dist
from torch.utils.data import get_worker_info

from torchparquet._impl.checks import shown
from torchparquet._impl.plan.plan_options import Topology
from torchparquet.options import Ranks

# The names of the two data-parallel dimensions in meshes of HSDP.
_SPLIT_DIMS = ("dp_replicate", "dp_shard")


class _Claim(NamedTuple):
    """This process's rank according to one source."""

    source: str
    rank: int
    world_size: int

    def __str__(self) -> str:
        return f"{self.source} (rank {self.rank} of {self.world_size})"


def ranks_of(argument: object) -> Ranks:
    """Return what `ranks=` says: a `Ranks`, or one of the mesh or group that was given."""
    if argument is None or isinstance(argument, Ranks):
        ranks = argument or Ranks()
    elif hasattr(argument, "mesh_dim_names"):
        ranks = Ranks(mesh=argument)  # type: ignore[arg-type]
    else:
        ranks = Ranks(group=argument)  # type: ignore[arg-type]
    # Here, so that a wrong argument is told at once, and with `rank` too.
    if ranks.mesh is not None:
        data_parallel_dims(ranks)
    if ranks.group is not None:
        _check_group(ranks.group)
    return ranks


def resolve_topology(rank: int | None, world_size: int | None, ranks: Ranks) -> Topology:
    """Find this process's data-parallel rank and DataLoader worker.

    The first source present decides: explicit `rank` and `world_size`; the mesh or group of
    `ranks`; an initialised `torch.distributed`; the variables `RANK` and `WORLD_SIZE`;
    `LOCAL_RANK` and `LOCAL_WORLD_SIZE`, if `RANK` is unset and the world is one node; else rank 0
    of 1. Call this when iteration starts, not when a data set is made: a process group may be
    initialised in between, and only a worker itself knows its number.
    """
    worker = get_worker_info()
    worker_id, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
    if rank is not None and world_size is not None:
        return Topology(rank, world_size, worker_id, num_workers)
    if ranks.mesh is not None:
        claim = _from_mesh(ranks)
    else:
        claim = _from_world() if ranks.group is None else _from_group(ranks.group)
    if not 0 <= claim.rank < claim.world_size:
        raise ValueError(f"rank must be >= 0 and below the world size, got {claim}")
    return Topology(claim.rank, claim.world_size, worker_id, num_workers)


def data_parallel_dims(ranks: Ranks) -> tuple[int, ...]:
    """Return the data-parallel dimensions of the mesh, slowest first."""
    from torch.distributed.device_mesh import DeviceMesh

    mesh = ranks.mesh
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"the mesh of Ranks must be a DeviceMesh, got {shown(mesh)}")
    present = mesh.mesh_dim_names or ()
    if ranks.dims is None:
        split = [name for name in _SPLIT_DIMS if name in present]
        wanted = ["dp"] if "dp" in present else split
        if not wanted and mesh.ndim == 1:
            return (0,)
        if not wanted:
            raise ValueError(
                'the mesh must have a dimension "dp" or one dimension only (name the data-parallel '
                "ones by Ranks(mesh, dims=...), or pass their submesh), got "
                f"{mesh.ndim} dimensions named {present}"
            )
    else:
        wanted = list(ranks.dims)
    for name in wanted:
        if name not in present:
            raise ValueError(f"dims must name dimensions of {present}, got {name!r}")
    return tuple(present.index(name) for name in wanted)


def _from_mesh(ranks: Ranks) -> _Claim:
    mesh = ranks.mesh
    assert mesh is not None  # noqa: S101
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("the mesh of ranks= must include this process, got a mesh without it")
    rank, world_size = 0, 1
    for dim in data_parallel_dims(ranks):
        rank = rank * mesh.size(dim) + coordinate[dim]
        world_size *= mesh.size(dim)
    return _Claim("the mesh", rank, world_size)


def _check_group(group: object) -> None:
    """Check that it is a process group; one without this process is told of when it is read."""
    if group != dist.GroupMember.NON_GROUP_MEMBER and not isinstance(group, dist.ProcessGroup):
        raise TypeError(
            f"ranks must be a DeviceMesh, a ProcessGroup or a Ranks, got {shown(group)}"
        )


def _from_group(group: object) -> _Claim:
    # torch.distributed.new_group returns another object to processes outside the new group.
    rank = dist.get_rank(group) if isinstance(group, dist.ProcessGroup) else -1
    if rank < 0:
        raise ValueError("the group of ranks= must include this process, got a group without it")
    return _Claim("the group", rank, dist.get_world_size(group))  # type: ignore[arg-type]


def _from_world() -> _Claim:
    found = _variables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if not is_distributed():
        return _from_environment(found)
    world = _Claim("torch.distributed", dist.get_rank(), dist.get_world_size())
    # Some launchers set only one of the two, so each is compared if it is set.
    expected = {"RANK": world.rank, "WORLD_SIZE": world.world_size}
    if any(found.get(name, value) != value for name, value in expected.items()):
        present = {name: found[name] for name in expected if name in found}
        raise ValueError(f"ranks must agree, got {world} and the variables {_listed(present)}")
    return world


def _from_environment(found: dict[str, int]) -> _Claim:
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
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            found[name] = int(text)
        except ValueError:
            raise ValueError(f"{name} must be an integer, got {text!r}") from None
    return found


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in found.items())


def is_distributed() -> bool:
    """Return whether torch.distributed is initialised in this process."""
    return dist.is_available() and dist.is_initialized()


def in_worker() -> bool:
    """Return whether this process is a DataLoader worker."""
    return get_worker_info() is not None
