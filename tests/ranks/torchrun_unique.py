"""Run by torchrun: no key is twice in the batches that all ranks have in one step."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import torch.distributed as dist

from tests.fixtures.gathering import gathered
from torchparquet import ParquetDataset, Unique, verify_no_shard_overlap

dist.init_process_group("gloo")
keys = [7 * row % 150 for row in range(600)]
dataset = ParquetDataset(
    pa.table({"key": keys}),
    batch_size=16,
    unique=Unique("key", across_ranks=True),
    shuffle=True,
    row_ids=True,
)
dataset.check_ranks_agree()
audit = verify_no_shard_overlap(dataset)
assert audit.rows_delivered == audit.num_rows
steps = [gathered(batch["row.id"].tolist()) for batch in dataset]
for step in steps:
    of_step = [keys[row] for row in chain(*step)]
    assert len(set(of_step)) == len(of_step)
assert sorted(chain(*chain(*steps))) == list(range(600))
dist.destroy_process_group()
