"""The rank of a process: every source, their order, and their disagreements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, IterableDataset

from torchparquet import ParquetDataset, Ranks
from torchparquet._impl.plan.topology import Topology

TABLE = pa.table({"x": [0]})
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: Any) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def environment(monkeypatch: Any) -> Any:
    def set_variables(**variables: Any) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, str(value))

    return set_variables


@pytest.fixture
def gloo(tmp_path: Path) -> Iterator[Any]:
    """A real process group of one process."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def rank_5_of_8() -> Iterator[Any]:
    """A process group without peers, whose calls communicate nothing."""
    fake_pg = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    dist.init_process_group("fake", store=fake_pg.FakeStore(), rank=5, world_size=8)
    yield dist.group.WORLD
    dist.destroy_process_group()


def resolve_topology(**arguments: Any) -> Topology:
    return ParquetDataset(TABLE, batch_size=1, **arguments).topology()


def resolved(**arguments: Any) -> Any:
    topology = resolve_topology(**arguments)
    assert (topology.worker_id, topology.num_workers) == (0, 1)
    return topology.rank, topology.world_size


# Sources, one at a time


def test_nothing_said_is_one_rank() -> None:
    assert resolve_topology() == Topology(0, 1)


def test_explicit() -> None:
    assert resolved(rank=2, world_size=3) == (2, 3)
    topology = resolve_topology(rank=np.int64(2), world_size=np.int32(3))
    assert (type(topology.rank), type(topology.world_size)) == (int, int)


def test_environment(environment: Any) -> None:
    environment(RANK=3, WORLD_SIZE=4)
    assert resolved() == (3, 4)


def test_environment_is_read_at_every_call(environment: Any) -> None:
    environment(RANK=0, WORLD_SIZE=4)
    assert resolved() == (0, 4)
    environment(RANK=1)
    assert resolved() == (1, 4)


def test_local_rank_on_one_node(environment: Any) -> None:
    environment(LOCAL_RANK=1, LOCAL_WORLD_SIZE=2)
    assert resolved() == (1, 2)
    environment(WORLD_SIZE=2)
    assert resolved() == (1, 2)


def test_rank_goes_before_local_rank(environment: Any) -> None:
    environment(RANK=5, WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    assert resolved() == (5, 8)


def test_process_group(gloo: Any) -> None:
    assert resolved() == (0, 1)
    assert resolved(ranks=gloo) == (0, 1)


def test_initialised_distributed(rank_5_of_8: Any) -> None:
    assert resolved() == (5, 8)


def test_sub_group(rank_5_of_8: Any) -> None:
    group = dist.new_group([4, 5, 6])
    assert resolved(ranks=group) == (1, 3)


def test_device_mesh_of_one_process(gloo: Any) -> None:
    mesh = init_device_mesh("cpu", (1,))
    assert resolved(ranks=mesh) == (0, 1)


def test_device_mesh_takes_the_data_parallel_dimension(rank_5_of_8: Any) -> None:
    # Rank 5 of a 2 x 4 mesh stands in row 1, column 1.
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert resolved(ranks=mesh) == (1, 2)
    assert resolved(ranks=mesh["dp"]) == (1, 2)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("pp", "dp"))
    assert resolved(ranks=mesh) == (1, 4)


def test_device_mesh_of_one_dimension_needs_no_name(rank_5_of_8: Any) -> None:
    assert resolved(ranks=init_device_mesh("cpu", (8,))) == (5, 8)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("replicas", "tp"))
    assert resolved(ranks=mesh["replicas"]) == (2, 4)


@pytest.mark.parametrize(
    ("names", "mesh_dims", "expected"),
    [
        # Rank 5 of a 2 x 2 x 2 mesh stands at 1, 0, 1.
        (("dp_replicate", "dp_shard", "tp"), None, (2, 4)),
        (("dp_shard", "dp_replicate", "tp"), None, (1, 4)),
        (("dp_replicate", "tp", "dp_shard"), None, (3, 4)),
        (("tp", "cp", "dp_shard"), None, (1, 2)),
        (("dp", "dp_shard", "tp"), None, (1, 2)),
        (("dp", "tp", "cp"), "cp", (1, 2)),
        (("dp", "tp", "cp"), ["tp"], (0, 2)),
        (("dp", "tp", "cp"), ("tp", "dp"), (1, 4)),
        (("a", "b", "c"), ["a", "b", "c"], (5, 8)),
        (("a", "b", "c"), ["c", "b", "a"], (5, 8)),
        (("a", "b", "c"), ["b", "c", "a"], (3, 8)),
    ],
)
def test_device_mesh_dimensions_count_as_one_row_major(
    rank_5_of_8: Any, names: Any, mesh_dims: Any, expected: Any
) -> None:
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=names)
    assert resolved(ranks=Ranks(mesh, dims=mesh_dims)) == expected


def test_device_mesh_dimensions_of_different_sizes(rank_5_of_8: Any) -> None:
    # Rank 5 of a 4 x 2 mesh stands at 2, 1.
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    assert resolved(ranks=mesh) == (2 * 2 + 1, 8)
    assert resolved(ranks=Ranks(mesh, dims=["dp_shard", "dp_replicate"])) == (1 * 4 + 2, 8)


@pytest.mark.parametrize(
    ("mesh_dims", "error", "message"),
    [
        ("pp", ValueError, r"dims must name dimensions of \('dp', 'tp'\), got 'pp'"),
        (["dp", "cp"], ValueError, "got 'cp'"),
        (["dp", "dp"], ValueError, "only once"),
        ([], ValueError, "at least one"),
        ([0], TypeError, "dims must hold names"),
    ],
)
def test_wrong_mesh_dims(
    rank_5_of_8: Any, mesh_dims: list[Any] | str, error: Any, message: str
) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    with pytest.raises(error, match=message):
        resolve_topology(ranks=Ranks(mesh, dims=mesh_dims))


# Precedence and disagreement


def test_explicit_wins_over_everything(gloo: Any, environment: Any) -> None:
    environment(RANK="many", WORLD_SIZE=4, LOCAL_RANK=9)
    mesh = init_device_mesh("cpu", (1,))
    assert resolved(rank=2, world_size=3, ranks=gloo) == (2, 3)
    assert resolved(rank=2, world_size=3, ranks=mesh) == (2, 3)


def test_groups_win_over_the_environment(rank_5_of_8: Any, environment: Any) -> None:
    """A data-parallel group is a part of the world: no disagreement."""
    environment(RANK=5, WORLD_SIZE=8)
    assert resolved(ranks=dist.new_group([5])) == (0, 1)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert resolved(ranks=mesh) == (1, 2)


def test_mesh_or_group(rank_5_of_8: Any) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert resolved(ranks=Ranks(group=mesh.get_group("dp"))) == (1, 2)
    with pytest.raises(ValueError, match="a mesh or a group, not both"):
        Ranks(mesh, group=mesh.get_group("dp"))


def test_environment_that_agrees_with_the_process_group(rank_5_of_8: Any, environment: Any) -> None:
    environment(LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    assert resolved() == (5, 8)
    environment(WORLD_SIZE=8)
    assert resolved() == (5, 8)
    environment(RANK=5)
    assert resolved() == (5, 8)


@pytest.mark.parametrize(
    "variables", [{"RANK": 1, "WORLD_SIZE": 1}, {"WORLD_SIZE": 4}, {"RANK": 1}]
)
def test_environment_must_agree_with_the_process_group(
    gloo: Any, environment: Any, variables: dict[str, Any]
) -> None:
    environment(**variables)
    with pytest.raises(ValueError, match=r"torch.distributed \(rank 0 of 1\)") as caught:
        resolve_topology()
    assert all(f"{name}={value}" in str(caught.value) for name, value in variables.items())


# Incomplete or wrong


@pytest.mark.parametrize("arguments", [{"rank": 1}, {"world_size": 2}, {"rank": 0}])
def test_explicit_needs_both(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="rank and world_size go together"):
        resolve_topology(**arguments)


@pytest.mark.parametrize(
    ("rank", "world_size", "error", "message"),
    [
        (2, 2, ValueError, "rank must be < 2, got 2"),
        (-1, 2, ValueError, "rank must be >= 0, got -1"),
        (0, 0, ValueError, "world_size must be >= 1, got 0"),
        (0, -3, ValueError, "world_size must be >= 1, got -3"),
        (0.0, 2, TypeError, "rank must be an int, got 0.0"),
        ("0", 2, TypeError, "rank must be an int, got '0'"),
        (True, 2, TypeError, "rank must be an int, got True"),
        (0, True, TypeError, "world_size must be an int, got True"),
        (np.False_, 2, TypeError, "rank must be an int"),
    ],
)
def test_explicit_must_be_a_rank(
    rank: Any, world_size: bool | int, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        resolve_topology(rank=rank, world_size=world_size)


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": 1},
        {"RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2},
        {"WORLD_SIZE": 2},
        {"LOCAL_RANK": 0},
        {"WORLD_SIZE": 2, "LOCAL_RANK": 0},
        {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2},
    ],
)
def test_environment_needs_rank_and_world_size(environment: Any, variables: dict[str, Any]) -> None:
    environment(**variables)
    with pytest.raises(ValueError, match="RANK and WORLD_SIZE must be set together") as caught:
        resolve_topology()
    assert all(f"{name}={value}" in str(caught.value) for name, value in variables.items())


def test_local_rank_is_no_rank_on_several_nodes(environment: Any) -> None:
    environment(WORLD_SIZE=8, LOCAL_RANK=1, LOCAL_WORLD_SIZE=4)
    with pytest.raises(ValueError, match=r"several nodes, got WORLD_SIZE=8, .*LOCAL_WORLD_SIZE=4"):
        resolve_topology()


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("text", ["", "two", "1.0"])
def test_environment_must_hold_integers(environment: Any, name: str, text: str) -> None:
    environment(**{"RANK": 0, "WORLD_SIZE": 1, name: text})
    with pytest.raises(ValueError, match=f"^{name} must be an integer, got '{text}'"):
        resolve_topology()


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_environment_must_be_a_rank(environment: Any, rank: int, size: int) -> None:
    environment(RANK=rank, WORLD_SIZE=size)
    with pytest.raises(ValueError, match=rf"RANK and WORLD_SIZE \(rank {rank} of {size}\)"):
        resolve_topology()


def test_group_must_include_this_process(rank_5_of_8: Any) -> None:
    group = dist.new_group([0, 1])
    assert group == dist.GroupMember.NON_GROUP_MEMBER
    with pytest.raises(ValueError, match="the group of ranks= must include this process"):
        resolve_topology(ranks=group)


def test_mesh_must_include_this_process(rank_5_of_8: Any) -> None:
    mesh = dist.DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="the mesh of ranks= must include this process"):
        resolve_topology(ranks=mesh)


@pytest.mark.parametrize("names", [None, ("replicas", "tp")])
def test_mesh_must_say_which_dimension_is_data_parallel(rank_5_of_8: Any, names: Any) -> None:
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=names)
    with pytest.raises(ValueError, match='must have a dimension "dp" or one dimension only'):
        resolve_topology(ranks=mesh)


def test_wrong_types(gloo: Any) -> None:
    with pytest.raises(TypeError, match="ranks must be a DeviceMesh, a ProcessGroup or a Ranks"):
        resolve_topology(ranks="dp")
    with pytest.raises(TypeError, match="the mesh of Ranks must be a DeviceMesh, got 'dp'"):
        resolve_topology(ranks=Ranks(mesh="dp"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="check must be a bool"):
        Ranks(check=1)  # type: ignore[arg-type]


# Workers


class WhoAmI(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield resolve_topology(rank=1, world_size=3)


def test_workers() -> None:
    topologies = list(DataLoader(WhoAmI(), batch_size=None, num_workers=2))
    assert topologies == [Topology(1, 3, 0, 2), Topology(1, 3, 1, 2)]
    assert list(DataLoader(WhoAmI(), batch_size=None)) == [Topology(1, 3, 0, 1)]


def test_share_index() -> None:
    assert [Topology(2, 8, worker, 4).share_index for worker in range(4)] == [2, 10, 18, 26]
    assert Topology(2, 8, 1, 4).num_shares == 32
    indices = {Topology(r, 3, w, 5).share_index for r in range(3) for w in range(5)}
    assert indices == set(range(15))


def test_topology_checks_the_worker() -> None:
    with pytest.raises(ValueError, match="worker_id must be < 2, got 2"):
        Topology(0, 1, 2, 2)
    with pytest.raises(ValueError, match="num_workers must be >= 1"):
        Topology(0, 1, 0, 0)
