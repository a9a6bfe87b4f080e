"""Run by torchrun: ranks divide what is read before an epoch, and find what one process does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch.distributed as dist

from tests.fixtures.gathering import gathered
from torchparquet import Balanced, ByLength, Column, Pack, ParquetDataset, Weights

PASSES: list[dict[str, Any]] = [
    {"columns": [Column("s", vocab="auto")]},
    {"columns": [Column("s", vocab="auto")], "split": ("a", {"a": 0.5, "b": 0.5})},
    {"filters": "x % 7 = 3 AND s <> 'w3'"},
    {"split": ("a", {"a": 0.5, "b": 0.5}, 0, "s"), "columns": ["x"]},
    {"columns": ["t"], "pack": Pack("t", 8, strategy="best_fit")},
    {"columns": ["t"], "batch_size": ByLength("t", max_tokens=64)},
    {"columns": ["t"], "batch_size": ByLength("t", rows=4, cost="linear"), "shuffle": True},
    {"unique": "x", "batch_size": 7, "filters": "x <> 11"},
    {"sample": Balanced("s", {"w1": 1, "w2": 2})},
    {"sample": Weights("x")},
]

dist.init_process_group("gloo")
rows = range(1, 401)
words = [f"w{x % 23}" for x in rows]
table = pa.table({"x": rows, "s": words, "t": [[x] * (x * 7 % 13) for x in rows]})
(folder,) = {*gathered(tempfile.mkdtemp() if dist.get_rank() == 0 else None)} - {None}
if dist.get_rank() == 0:
    for number in range(5):
        part = table.slice(number * 80, 80)
        pq.write_table(part, Path(folder) / f"{number}.parquet", row_group_size=20)
dist.barrier()
batches: dict[str, Any] = {"batch_size": 10}
for options in PASSES:
    dataset = ParquetDataset(table, **batches | options)
    alone = ParquetDataset(table, **batches | options, rank=0, world_size=1)
    assert dataset.manifest.fingerprint == alone.manifest.fingerprint
    assert [field.words for field in dataset.fields] == [field.words for field in alone.fields]
    dataset.check_ranks_agree()
    cache: dict[str, Any] = {"manifest_cache": Path(folder) / "cache"}
    kept = [ParquetDataset(folder, **batches | options, **cache) for _ in range(2)]
    plain = ParquetDataset(folder, **batches | options, rank=0, world_size=1)
    assert {one.manifest.fingerprint for one in kept} == {plain.manifest.fingerprint}
assert gathered(sorted(path.name for path in Path(folder).glob("cache*")))
dist.barrier()
if dist.get_rank() == 0:
    shutil.rmtree(folder)
dist.destroy_process_group()
