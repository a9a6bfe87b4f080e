"""Run by torchrun on 2 or 3 ranks: row groups go to whoever is ready, each to one rank."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.fixtures.datasets import opener
from tests.fixtures.gathering import gathered
from tests.fixtures.texts import Bytes, rows_of, sequences
from torchparquet import Pack, ParquetDataset, RankMismatchError, Ranks

DATA = sys.argv[1]
BATCH = 32


open_dataset = opener(DATA, batch_size=BATCH, even="dynamic", row_ids=True, seed=2)


def check_once(dataset: ParquetDataset, batches: list[list[int]]) -> list[int]:
    """Each row is on one rank, once; returns the row groups that this rank took, in order."""
    everything = [row for of_rank in gathered(batches) for rows in of_rank for row in rows]
    assert sorted(everything) == list(range(dataset.manifest.num_rows))
    own = [row for rows in batches for row in rows]
    ends = np.cumsum(dataset.manifest.row_group_num_rows)
    taken = list(dict.fromkeys(np.searchsorted(ends, own, side="right").tolist()))
    # Whole row groups, one after another, in full batches but for the last.
    begins = ends - dataset.manifest.row_group_num_rows
    assert own == [row for group in taken for row in range(begins[group], ends[group])]
    assert all(len(rows) == BATCH for rows in batches[:-1])
    return taken


def read(dataset: Any) -> list[list[int]]:
    return [batch["row.id"].tolist() for batch in dataset]


def check_slow_rank(shuffle: bool) -> None:
    """Rank 0 stops after its first batch until all others are through."""
    dataset = open_dataset(shuffle=shuffle)
    store = dist.PrefixStore(f"slow {shuffle}", dist.distributed_c10d._get_default_store())  # type: ignore[attr-defined]
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    batches: list[Any] = []
    for batch in dataset:
        if rank == 0 and not batches:
            store.wait([str(other) for other in others], timedelta(seconds=60))
        batches.append(batch["row.id"].tolist())
    store.set(str(rank), "")
    taken = check_once(dataset, batches)
    by_rank = gathered(taken)
    num_groups = int(np.count_nonzero(dataset.manifest.row_group_num_rows))
    # The first batch, what it has claimed ahead, and what the second batch needs.
    rows = dataset.manifest.row_group_num_rows
    assert sum(rows[group] for group in by_rank[0][:-2]) < 2 * BATCH, by_rank
    assert sum(map(len, by_rank)) == num_groups
    # Ranks claim in the order of the epoch.
    order = ParquetDataset(DATA, batch_size=1, shuffle=shuffle, seed=2, shuffle_window=0)
    places = {group: place for place, group in enumerate(order.plan(0).order.tolist())}
    assert [places[group] for group in taken] == sorted(places[group] for group in taken)


def check_passes() -> None:
    """Epochs, a second pass over the same one, and equal data sets at once, each complete."""
    dataset = open_dataset(shuffle=True)
    for epoch in range(3):
        assert dataset.epoch == epoch
        check_once(dataset, read(dataset))
    dataset.set_epoch(1)
    check_once(dataset, read(dataset))
    # Each rank keeps the row groups that it has looked at, and all make the same passes.
    for epoch in range(2, 4):
        for _ in range(epoch):
            if dist.get_rank() == 0:
                assert next(iter(dataset))["row.id"].numel()
        dist.barrier()  # else the other ranks may have taken all before the look
        check_once(dataset, read(dataset))
        assert dataset.epoch == epoch + 1
    # Two that are equal, begun in the same order on all ranks and read in turns.
    pair = open_dataset(), open_dataset()
    found: Any = [[], []]
    for turn in zip_longest(*pair):
        for batches, batch in zip(found, turn, strict=True):
            if batch is not None:
                batches.append(batch["row.id"].tolist())
    for dataset, batches in zip(pair, found, strict=True):
        check_once(dataset, batches)


def check_passes_out_of_step() -> None:
    """A rank that makes a pass more than others is told, before rows are read twice or never."""
    dataset, rank = open_dataset(seed=77, shuffle=True), dist.get_rank()
    read(dataset)
    if rank == 0:
        read(dataset)
    dist.barrier()
    dataset.set_epoch(2)
    told = False
    try:
        read(dataset)
    except RankMismatchError as error:
        told = "another one reads epoch" in str(error)
    # Who comes first to a pass is right: the second pass of rank 0 is the first of nobody else.
    assert told == (rank != 0)


def check_states() -> None:
    """Ranks that stop anywhere go on from their own states, and each row comes once."""
    rank = dist.get_rank()
    for stop in (1, 2, 5):
        dataset = open_dataset(shuffle=True, seed=20 + stop)
        stream = iter(dataset)
        first = [next(stream)["row.id"].tolist() for _ in range(stop + rank)]
        states = gathered(dataset.state_dict())
        resumed = open_dataset(shuffle=True, seed=20 + stop)
        resumed.load_state_dict(states[rank])
        check_once(resumed, first + read(resumed))
        # What one rank has taken, no other can have.
        if states[0]["taken"]:
            other = open_dataset(shuffle=True, seed=20 + stop)
            other.load_state_dict(states[0] | {"rank": rank})
            try:
                read(other)
            except RankMismatchError as error:
                assert "each rank needs its own" in str(error)  # noqa: PT017
            else:
                raise AssertionError("all ranks went on from one state")
    first_rows = iter(open_dataset().unbatched())
    found = [int(next(first_rows)["row.id"]) for _ in range(BATCH + 1 + rank)]
    rows = open_dataset().unbatched()
    rows.load_state_dict(first_rows.state_dict())
    found += [int(row["row.id"]) for row in rows]
    check_rows = sorted(row for of_rank in gathered(found) for row in of_rank)
    assert check_rows == list(range(rows.dataset.manifest.num_rows))


def check_states_of_rows() -> None:
    """The same for rows one by one, on into the next epoch."""
    found: list[int] = []
    state = None
    for count in (7, 40, None):
        rows = open_dataset(num_epochs=2).unbatched()
        if state is not None:
            rows.load_state_dict(state)
        stream = iter(rows)
        found += [int(row["row.id"]) for row in islice(stream, count)]
        state = stream.state_dict()
        dist.barrier()
    everything = [row for of_rank in gathered(found) for row in of_rank]
    assert sorted(everything) == sorted(2 * list(range(open_dataset().manifest.num_rows)))


def check_texts() -> None:
    """Each text that is tokenised on the way is on one rank, also after states of any moment."""
    texts = [[chr(97 + row % 26) * 90_000 + str(row)] * (row % 3) for row in range(60)]
    schema, file = pa.schema({"text": pa.string()}), pa.BufferOutputStream()
    with pq.ParquetWriter(file, schema) as writer:
        for row_group in texts:
            writer.write_table(pa.table([row_group], schema))
    pack = Pack("text", 8, "split", tokenizer=Bytes(step=9_000))
    tokens = [[list(text.encode()[::9_000]) for text in row_group] for row_group in texts]
    expected = sorted(sequences(tokens, pack, None))
    rank = dist.get_rank()
    for stop in (1, 2, 4):
        datasets = [
            ParquetDataset(
                [file.getvalue()],
                batch_size=3,
                pack=pack,
                even="dynamic",
                num_threads=1,
                shuffle=True,
                seed=stop,
            )
            for _ in range(2)
        ]
        stream = iter(datasets[0])
        found = rows_of(next(stream) for _ in range(stop + rank))
        dist.barrier()
        datasets[1].load_state_dict(json.loads(json.dumps(datasets[0].state_dict())))
        for rest in (rows_of(stream), rows_of(datasets[1])):
            of_all = [row for of_rank in gathered(found + rest) for row in of_rank]
            assert sorted(of_all) == expected, stop


def check_given_store() -> None:
    """Those that are given a store share the rows, whatever their ranks are said to be."""
    store = dist.PrefixStore("given", dist.distributed_c10d._get_default_store())  # type: ignore[attr-defined]
    for _ in range(2):
        dataset = open_dataset(ranks=Ranks(store=store), rank=0, world_size=1)
        check_once(dataset, read(dataset))


def check_groups() -> None:
    world_size = dist.get_world_size()
    if world_size == 2:
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        check_once(open_dataset(), read(open_dataset(ranks=mesh)))
        check_once(open_dataset(), read(open_dataset(ranks=dist.group.WORLD)))
        # Alone in its group, a rank reads everything.
        alone = [dist.new_group([rank]) for rank in range(2)][dist.get_rank()]
        rows = read(open_dataset(ranks=alone))
        assert sum(map(len, rows)) == open_dataset().manifest.num_rows
        tensor = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        try:
            next(iter(open_dataset(ranks=tensor)))
        except ValueError as error:
            assert "model-parallel peers need the same" in str(error)  # noqa: PT017
        else:
            raise AssertionError("model-parallel peers were given different rows")
        try:
            next(iter(open_dataset(seed=dist.get_rank(), shuffle=True)))
        except RankMismatchError as error:
            assert "seed is 0 on rank 0, 1 on rank 1" in str(error)  # noqa: PT017
        else:
            raise AssertionError("ranks with different seeds read on")


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    for shuffle in (False, True):
        check_slow_rank(shuffle)
    check_passes()
    check_passes_out_of_step()
    check_states()
    check_states_of_rows()
    check_texts()
    check_given_store()
    check_groups()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
