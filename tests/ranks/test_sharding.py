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
from torchparquet._impl.plan.plan_options import Topology

TABLE = pa.table({"x": [0]})
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


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


# Sources, and their order


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, {}, (0, 1)),
        ({}, {"rank": 2, "world_size": 3}, (2, 3)),
        ({}, {"rank": np.int64(2), "world_size": np.int32(3)}, (2, 3)),
        ({"RANK": 3, "WORLD_SIZE": 4}, {}, (3, 4)),
        ({"LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}, {}, (1, 2)),
        ({"LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 2}, {}, (1, 2)),
        ({"RANK": 5, "WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}, {}, (5, 8)),
    ],
)
def test_without_a_process_group(
    environment: Any, variables: Any, arguments: Any, expected: Any
) -> None:
    dataset = ParquetDataset(TABLE, batch_size=1, **arguments)
    environment(**variables)  # read at every call
    topology = dataset.topology()
    assert (topology.rank, topology.world_size) == expected
    assert (type(topology.rank), type(topology.world_size)) == (int, int)


def test_groups_and_meshes_of_one_process(gloo: Any, environment: Any) -> None:
    ParquetDataset(TABLE, batch_size=1).check_ranks_agree()  # with nobody
    mesh = init_device_mesh("cpu", (1,))
    assert resolved() == resolved(ranks=gloo) == resolved(ranks=mesh) == (0, 1)
    environment(RANK="many", WORLD_SIZE=4, LOCAL_RANK=9)
    for ranks in (gloo, mesh):
        assert resolved(rank=2, world_size=3, ranks=ranks) == (2, 3)


def test_groups_and_meshes_are_parts_of_the_world(rank_5_of_8: Any, environment: Any) -> None:
    for variables in ({}, {"LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}, {"WORLD_SIZE": 8}, {"RANK": 5}):
        environment(**variables)
        assert resolved() == (5, 8)
    assert resolved(ranks=dist.new_group([4, 5, 6])) == (1, 3)
    assert resolved(ranks=dist.new_group([5])) == (0, 1)
    assert resolved(ranks=init_device_mesh("cpu", (8,))) == (5, 8)
    # Rank 5 of a 2 x 4 mesh stands in row 1, column 1; of a 4 x 2 mesh at 2, 1.
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    assert resolved(ranks=mesh) == resolved(ranks=mesh["dp"]) == (1, 2)
    assert resolved(ranks=Ranks(group=mesh.get_group("dp"))) == (1, 2)
    with pytest.raises(ValueError, match="a mesh or a group, not both"):
        Ranks(mesh, group=mesh.get_group("dp"))
    assert resolved(ranks=init_device_mesh("cpu", (2, 4), mesh_dim_names=("pp", "dp"))) == (1, 4)
    mesh = init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    assert resolved(ranks=mesh) == (2 * 2 + 1, 8)
    assert resolved(ranks=mesh["dp_replicate"]) == (2, 4)
    assert resolved(ranks=Ranks(mesh, dims=["dp_shard", "dp_replicate"])) == (1 * 4 + 2, 8)


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


# Disagreement


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


@pytest.mark.parametrize(
    ("rank", "world_size", "error", "message"),
    [
        (1, None, ValueError, "rank and world_size go together"),
        (None, 2, ValueError, "rank and world_size go together"),
        (2, 2, ValueError, "rank must be < 2, got 2"),
        (-1, 2, ValueError, "rank must be >= 0, got -1"),
        (0, 0, ValueError, "world_size must be >= 1, got 0"),
        ("0", 2, TypeError, "rank must be an int, got '0'"),
        (True, 2, TypeError, "rank must be an int, got True"),
        (0, True, TypeError, "world_size must be an int, got True"),
        (np.False_, 2, TypeError, "rank must be an int"),
    ],
)
def test_explicit_must_be_a_rank(rank: Any, world_size: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ParquetDataset(TABLE, batch_size=1, rank=rank, world_size=world_size)


TOGETHER = "RANK and WORLD_SIZE must be set together"
SEVERAL = r"several nodes, got WORLD_SIZE=8, .*LOCAL_WORLD_SIZE=4"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": 1}, TOGETHER),
        ({"RANK": 0, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 2}, TOGETHER),
        ({"WORLD_SIZE": 2}, TOGETHER),
        ({"LOCAL_RANK": 0}, TOGETHER),
        ({"WORLD_SIZE": 2, "LOCAL_RANK": 0}, TOGETHER),
        ({"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}, TOGETHER),
        ({"WORLD_SIZE": 8, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 4}, SEVERAL),
        *(
            ({"RANK": 0, "WORLD_SIZE": 1, name: text}, f"^{name} must be an integer, got '{text}'")
            for name in VARIABLES
            for text in ("", "two", "1.0")
        ),
        *(
            ({"RANK": rank, "WORLD_SIZE": size}, rf"WORLD_SIZE \(rank {rank} of {size}\)")
            for rank, size in ((2, 2), (-1, 2), (0, 0))
        ),
    ],
)
def test_a_wrong_environment(environment: Any, variables: dict[str, Any], message: str) -> None:
    environment(**variables)
    with pytest.raises(ValueError, match=message) as caught:
        resolve_topology()
    assert message != TOGETHER or all(f"{n}={v}" in str(caught.value) for n, v in variables.items())


def test_wrong_groups_and_meshes(rank_5_of_8: Any) -> None:
    outside: Any = dist.DeviceMesh("cpu", [0, 1], mesh_dim_names=("dp",))  # type: ignore[attr-defined]
    nameless = init_device_mesh("cpu", (2, 4))
    others = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicas", "tp"))
    cases: list[tuple[Any, Any, str]] = [
        (nameless, ValueError, 'must have a dimension "dp" or one dimension only'),
        (others, ValueError, 'must have a dimension "dp" or one dimension only'),
        ("dp", TypeError, "ranks must be a DeviceMesh, a ProcessGroup or a Ranks"),
        (Ranks(mesh="dp"), TypeError, "the mesh of Ranks must be a DeviceMesh, got 'dp'"),  # type: ignore[arg-type]
    ]
    explicit: Any
    for ranks, error, message in cases:
        # When the data set is made, also beside a rank, which wins over groups.
        for explicit in ({}, {"rank": 0, "world_size": 2}):
            with pytest.raises(error, match=message):
                ParquetDataset(TABLE, batch_size=1, ranks=ranks, **explicit)
    for kind, ranks in (("group", dist.new_group([0, 1])), ("mesh", outside)):
        with pytest.raises(ValueError, match=f"the {kind} of ranks= must include this process"):
            resolve_topology(ranks=ranks)
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
