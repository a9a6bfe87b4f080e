"""The data-parallel rank and DataLoader worker of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

import torch.distributed as dist
from torch.utils.data import DataLoader, default_collate, get_worker_info

from torchparquet._impl.plan.topology import Topology

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# The names of the two data-parallel dimensions in meshes of HSDP.
_SPLIT_DIMS = ("dp_replicate", "dp_shard")


class _Claim(NamedTuple):
    """This process's rank according to one source."""

    source: str
    rank: int
    world_size: int

    def __str__(self) -> str:
        return f"{self.source} (rank {self.rank} of {self.world_size})"


def resolve_topology(
    rank: int | None = None,
    world_size: int | None = None,
    process_group: dist.ProcessGroup | None = None,
    device_mesh: DeviceMesh | None = None,
    mesh_dims: str | Sequence[str] | None = None,
) -> Topology:
    """Find this process's data-parallel rank and DataLoader worker.

    The first source present decides: explicit `rank` and `world_size`; `device_mesh` or
    `process_group`; an initialised `torch.distributed`; the variables `RANK` and `WORLD_SIZE`;
    `LOCAL_RANK` and `LOCAL_WORLD_SIZE`, if `RANK` is unset and the world is one node; else rank 0
    of 1. Call this when iteration starts, not when a data set is made: a process group may be
    initialised in between, and only a worker itself knows its number.

    Args:
        process_group: The data-parallel group. It may be a part of the world, so it is not
            compared with the global rank.

    Raises:
        ValueError: An argument or variable is out of range or lacks its counterpart, this
            process is outside the group or mesh, or two sources disagree.
    """
    worker = get_worker_info()
    worker_id, num_workers = (worker.id, worker.num_workers) if worker else (0, 1)
    if rank is not None or world_size is not None:
        if rank is None or world_size is None:
            raise ValueError(
                "rank and world_size must be given together, "
                f"got rank={rank}, world_size={world_size}"
            )
        return Topology(rank, world_size, worker_id, num_workers)
    mesh_claim = None if device_mesh is None else _from_mesh(device_mesh, mesh_dims)
    group_claim = None if process_group is None else _from_process_group(process_group)
    if mesh_claim and group_claim and mesh_claim[1:] != group_claim[1:]:
        raise ValueError(f"ranks must agree, got {mesh_claim} and {group_claim}")
    claim = mesh_claim or group_claim or _from_world()
    if not 0 <= claim.rank < claim.world_size:
        raise ValueError(f"rank must be >= 0 and below the world size, got {claim}")
    return Topology(claim.rank, claim.world_size, worker_id, num_workers)


def data_parallel_dims(
    device_mesh: DeviceMesh, mesh_dims: str | Sequence[str] | None = None
) -> tuple[int, ...]:
    """Return the data-parallel dimensions of a mesh, slowest first.

    Args:
        mesh_dims: The name of one dimension, or of several whose ranks count as one: row-major,
            the last name fastest. None for "dp", or else "dp_replicate" and "dp_shard" as far as
            they exist, in this order, or else the only dimension.
    """
    from torch.distributed.device_mesh import DeviceMesh

    if not isinstance(device_mesh, DeviceMesh):
        raise TypeError(f"device_mesh must be a DeviceMesh, got {device_mesh!r}")
    present = device_mesh.mesh_dim_names or ()
    if mesh_dims is None:
        split = [name for name in _SPLIT_DIMS if name in present]
        wanted = ["dp"] if "dp" in present else split
        if not wanted and device_mesh.ndim == 1:
            return (0,)
        if not wanted:
            raise ValueError(
                'device_mesh must have a dimension "dp" or one dimension only (name the '
                "data-parallel ones in mesh_dims, or pass their submesh), got "
                f"{device_mesh.ndim} dimensions named {present}"
            )
    else:
        wanted = checked_mesh_dims(mesh_dims)
    for name in wanted:
        if name not in present:
            raise ValueError(f"mesh_dims must name dimensions of {present}, got {name!r}")
    return tuple(present.index(name) for name in wanted)


def checked_mesh_dims(mesh_dims: str | Sequence[str]) -> list[str]:
    """Return the names as a list."""
    names = [mesh_dims] if isinstance(mesh_dims, str) else list(mesh_dims)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"mesh_dims must be a name or names, got {mesh_dims!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"mesh_dims must name each dimension once, got {mesh_dims!r}")
    return names


def _from_mesh(device_mesh: DeviceMesh, mesh_dims: str | Sequence[str] | None) -> _Claim:
    dims = data_parallel_dims(device_mesh, mesh_dims)
    coordinate = device_mesh.get_coordinate()
    if coordinate is None:
        raise ValueError("device_mesh must include this process, got a mesh without it")
    rank, world_size = 0, 1
    for dim in dims:
        rank = rank * device_mesh.size(dim) + coordinate[dim]
        world_size *= device_mesh.size(dim)
    return _Claim("device_mesh", rank, world_size)


def check_process_group(process_group: object) -> None:
    """Make sure that it is a group, or torch's marker for a group without this process."""
    if process_group == dist.GroupMember.NON_GROUP_MEMBER:
        return
    if not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(f"process_group must be a ProcessGroup, got {process_group!r}")


def _from_process_group(process_group: object) -> _Claim:
    # torch.distributed.new_group returns this marker to processes outside the new group.
    if process_group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("process_group must include this process, got a group without it")
    check_process_group(process_group)
    assert isinstance(process_group, dist.ProcessGroup)  # noqa: S101
    rank = dist.get_rank(process_group)
    if rank < 0:
        raise ValueError("process_group must include this process, got a group without it")
    return _Claim("process_group", rank, dist.get_world_size(process_group))


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


def _self_of(frame: FrameType | None, method: str) -> object:
    """Return the `self` of the method that a frame runs; None if it runs another function.

    Reading a frame's locals keeps them alive until it ends, so only methods of that name, or
    qualified name, are read.
    """
    if frame is None or not f".{frame.f_code.co_qualname}".endswith(f".{method}"):
        return None
    return frame.f_locals.get("self")


def refuse_second_batching(dataset: object) -> None:
    """Raise if the DataLoader that asks for an iterator would stack the batches of `dataset`.

    The loader's fetcher, which is the caller of the caller, knows; the data set does not.
    """
    fetcher = _self_of(sys._getframe(1).f_back, "_IterableDatasetFetcher.__init__")
    if getattr(fetcher, "dataset", None) is not dataset:
        return
    collates = getattr(fetcher, "auto_collation", False) is True
    if collates and getattr(fetcher, "collate_fn", None) is default_collate:
        raise ValueError(
            "this DataLoader would stack several batches (batch_size, 1 by default) of a data set "
            "that makes batches itself: give the loader batch_size=None, or "
            "dataset.unbatched(), whose items are rows, or a collate_fn for lists of batches"
        )


def num_workers_of_caller(dataset: object) -> int:
    """Return the number of workers of the DataLoader that asks for the length of `dataset`.

    `len(loader)` calls `len(loader.dataset)` without naming the loader. The number of workers
    affects the number of batches, so this looks at the callers of the caller: first come the
    `__len__` of subclasses, and of data sets that read this one, then that of the loader. It
    returns 0 if there is no loader.
    """
    frame = sys._getframe(1).f_back
    while (caller := _self_of(frame, "__len__")) is not None:
        if isinstance(caller, DataLoader):
            return caller.num_workers if caller.dataset is dataset else 0
        assert frame is not None  # noqa: S101
        dataset, frame = caller, frame.f_back
    return 0
