"""Run by torchrun: ranks that look for the words of a column find the same."""

from __future__ import annotations

import pyarrow as pa
import torch.distributed as dist

from tests.fixtures.gathering import gathered
from torchparquet import Column, ParquetDataset

dist.init_process_group("gloo")
table = pa.table({"s": [f"w{i % 23}" for i in range(400)]})
for split in (None, ("a", {"a": 0.5, "b": 0.5})):
    dataset = ParquetDataset(
        table, columns=[Column("s", vocab="auto")], batch_size=10, row_ids=True, split=split
    )
    words = dataset.fields[0].words
    assert words == tuple(sorted({f"w{i}".encode() for i in range(23)}))
    assert gathered(words) == [words] * dist.get_world_size()
    dataset.check_ranks_agree()
    for batch in dataset:
        for code, row in zip(batch["s"].tolist(), batch["row.id"].tolist(), strict=True):
            assert words[code] == f"w{row % 23}".encode()
dist.destroy_process_group()
