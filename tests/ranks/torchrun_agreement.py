"""Run by torchrun on 3 ranks: what differs between ranks is an error on all of them."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import warnings
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader

from tests.fixtures.datasets import opener
from tests.fixtures.gathering import outcomes
from torchparquet import Column, ParquetDataset, Ranks, mix

DATA, OTHER_DATA = sys.argv[1:]
ODD = 1  # the rank that differs


open_dataset = opener(paths=DATA, batch_size=32, shuffle=True)


def begin(dataset: ParquetDataset) -> None:
    """Ask for two batches: one would be a look."""
    batches = iter(dataset)
    next(batches)
    next(batches)


def check_refused(dataset: ParquetDataset, *words: str) -> None:
    """All ranks say the same, before the second batch, and again when asked again."""
    for call in (dataset.check_ranks_agree, lambda: begin(dataset)):
        found = outcomes(call)
        assert len(set(found)) == 1, found
        assert found[0].startswith("RankMismatchError: "), found
        assert all(word in found[0] for word in words), found


def check_differences(rank: int) -> None:
    columns: Any = [{"id": Column("id", dtype=dtype)} for dtype in ("int64", "float32")]
    names: Any = [{"id": "id", "other": "id"}, {"other": "id", "id": "id"}]
    # The options of ranks 0 and 2, those of rank 1, and the words of the message.
    cases: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
        ({"paths": DATA}, {"paths": OTHER_DATA}, ["files is", "on ranks 0, 2", "rank 1"]),
        ({"seed": 5}, {"seed": 7}, ["seed is 5 on ranks 0, 2, 7 on rank 1"]),
        ({"batch_size": 32}, {"batch_size": 16}, ["batch_size is 32 on ranks 0, 2, 16 on rank 1"]),
        ({}, {"shuffle": False}, ["shuffle is True on ranks 0, 2, False on rank 1"]),
        ({}, {"even": "drop"}, ["even is 'split'", "'drop' on"]),
        ({}, {"drop_last": True}, ["drop_last is False on ranks 0, 2, True on rank 1"]),
        ({}, {"row_ids": True}, ["row_ids is False on ranks 0, 2, True on rank 1"]),
        (
            {"columns": columns[0]},
            {"columns": columns[1]},
            [
                "column 'id' is int64 [B], nulls=error on ranks 0, 2, ",
                "float32 [B], nulls=fill nan on rank 1",
            ],
        ),
        (
            {"columns": {"id": "id"}},
            {"columns": {"key": "id"}},
            ["missing on rank 1", "column 'key' is missing on ranks 0, 2"],
        ),
        ({"columns": names[0]}, {"columns": names[1]}, ["columns is id, other", "other, id"]),
    ]
    for options, of_odd, words in cases:
        check_refused(open_dataset(**(of_odd if rank == ODD else options)), *words)
    ahead = open_dataset()
    ahead.set_epoch(rank)
    check_refused(ahead, "epoch is ", "0 on rank 0, ", "1 on rank 1, ", "2 on rank 2")


def check_agreeing(rank: int) -> None:
    dataset = open_dataset()
    dataset.check_ranks_agree()
    for _ in range(2):
        assert len(list(dataset)) == len(dataset)
    # A rank may well look more often than others.
    if rank == ODD:
        next(iter(dataset))
    assert dataset.epoch == 2
    # These are not compared: nothing says that other ranks read at all.
    if rank == ODD:
        assert len(list(open_dataset(rank=0, world_size=1, even="none"))) > 20
        next(iter(open_dataset(seed=3, ranks=Ranks(check=False))))


def check_looks(rank: int) -> None:
    """One batch on one rank waits for nobody, and takes no epoch: not of data, mix or rows."""
    options: dict[str, Any] = {"row_ids": True, "shuffle": True}
    data = open_dataset(**options)
    loader = DataLoader(data, batch_size=None)
    mixed = mix([open_dataset(seed=seed, **options) for seed in (1, 2)], seed=3)
    rows = mix(mixed.datasets, seed=3, within_batch=True, batch_size=80)
    unbatched = open_dataset(**options).unbatched()
    for dataset in (data, loader, mixed, rows, unbatched):
        if rank == ODD:
            look = next(iter(dataset))["row.id"].tolist()
        dist.barrier()
        read = [batch["row.id"].tolist() for batch in dataset]
        assert rank != ODD or look == read[0]
    for dataset in (data, mixed, rows, unbatched):
        assert dataset.epoch == 1 + (dataset is data)


def check_epochs_apart(rank: int) -> None:
    """A pass of one rank alone takes an epoch there; ranks that differ from the next one say so."""
    dataset = open_dataset()

    def read_in_step() -> None:
        for _ in dataset:
            dist.barrier()

    def read_alone() -> None:
        if rank == ODD:
            list(dataset)
        read_in_step()

    said = {0: "Rank 0 is in epoch 1, rank 1 in epoch 2"}
    said[ODD] = "Rank 1 is in epoch 2, rank 2 in epoch 1"
    for read, wanted in ((read_in_step, {}), (read_alone, said), (read_in_step, {})):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            read()
        texts = [str(one.message) for one in caught if "different epochs" in str(one.message)]
        assert len(texts) == (rank in wanted), texts
        assert all(wanted[rank] in text and "set_epoch" in text for text in texts), texts
        dist.barrier()
    again = open_dataset()
    for epoch in range(2):
        if rank == ODD:
            begin(dataset)
        again.set_epoch(epoch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in again:
                dist.barrier()


def check_failing(rank: int) -> None:
    """A rank that cannot begin has its own error, and the others learn of it."""
    dataset = open_dataset(max_memory=300 if rank == ODD else "1GiB")
    found = outcomes(lambda: begin(dataset))
    assert found[ODD].startswith("ValueError: "), found
    for other in (0, 2):
        assert found[other].startswith("RankMismatchError: a rank could not begin: "), found
        assert "on rank 1" in found[other]
        assert found[ODD] in found[other]


def check_explicit(rank: int) -> None:
    """Explicit ranks are compared where a group says who the others are."""
    check_refused(
        open_dataset(rank=0, world_size=3, ranks=dist.group.WORLD),
        "each data-parallel rank of 3 must be held equally often; it is 0 on ranks 0-2",
    )
    swapped = open_dataset(rank=2 - rank, world_size=3, ranks=dist.group.WORLD)
    assert len(list(swapped)) == len(swapped)


def check_mesh(rank: int) -> None:
    """Model-parallel peers read the same share, so they are compared too."""
    mesh = init_device_mesh("cpu", (1, 3), mesh_dim_names=("dp", "tp"))
    check_refused(open_dataset(ranks=mesh, seed=rank // 2), "seed is 0 on ranks 0-1, 1 on")
    assert len(list(open_dataset(ranks=mesh))) > 20
    # A group of one rank has nobody to compare with.
    alone = [dist.new_group([other]) for other in range(3)][rank]
    assert len(list(open_dataset(ranks=alone, seed=rank))) > 20


def check_workers(rank: int) -> None:
    dataset = open_dataset(seed=int(rank == ODD))
    found = outcomes(lambda: dataset.check_ranks_agree(num_workers=1))
    assert all("seed is 0 on ranks 0, 2, 1 on rank 1" in text for text in found), found
    dataset = open_dataset(transform=unheard)
    found = outcomes(lambda: dataset.check_ranks_agree(num_workers=1 + (rank == ODD)))
    assert all("num_workers is 1 on ranks 0, 2, 2 on rank 1" in text for text in found), found
    dataset.check_ranks_agree(num_workers=1)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=1, timeout=120, worker_init_fn=overhear
    )
    assert len(list(loader)) == dataset.num_steps(1)


_sent: list[socket.socket] = []  # in a worker: where what it sends to the ranks' store arrives


def overhear(worker: int) -> None:
    """Replace the connection to the store that a forked worker inherits from its rank."""
    own, sent = socket.socketpair()
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as opened:
            if str(opened.getpeername()[1:2]) == f"({os.environ['MASTER_PORT']},)":
                os.dup2(own.fileno(), number)
                _sent.append(sent)
    assert _sent


def unheard(batch: Any) -> Any:
    """Return the batch; in a worker, after a look that the store was asked for nothing."""
    assert not _sent or not select.select(_sent, [], [], 0)[0], "a worker asks the store"
    return batch


def check_early_end(rank: int) -> None:
    """Ranks that end before others say so, once for a data set."""
    records: list[logging.LogRecord] = []
    told = logging.Handler()
    told.emit = records.append  # type: ignore[assignment, method-assign]
    logging.getLogger("torchparquet").addHandler(told)
    dataset = open_dataset(even="none", shuffle=False)
    steps = dataset.plan().share_steps.tolist()
    for _ in range(2):
        assert len(list(dataset)) == steps[rank]
    most = max(steps)
    texts = [record.getMessage() for record in records]
    assert len(texts) == (steps[rank] < most), texts
    for text in texts:
        assert f"rank {rank} ends after {steps[rank]} steps" in text
        assert f"rank {steps.index(most)} goes on to {most}" in text
        assert 'even="split"' in text
    assert min(steps) < most
    assert list(open_dataset())
    assert len(records) == len(texts)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    checks = (
        check_differences,
        check_agreeing,
        check_looks,
        check_epochs_apart,
        check_failing,
        check_explicit,
        check_mesh,
        check_workers,
        check_early_end,
    )
    for check in checks:
        check(rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
