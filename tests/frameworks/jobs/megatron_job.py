"""Four ranks of Megatron-Core: model-parallel peers read the same, data-parallel ranks do not."""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

import pytest
import torch.distributed as dist
from megatron.core import parallel_state

from torchparquet.frameworks.megatron import ParquetDataLoader

DATA = sys.argv[1]


def gathered(value: object) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def check(**sizes: int) -> None:
    parallel_state.initialize_model_parallel(**sizes)
    loader = ParquetDataLoader(DATA, length=16, micro_batch_size=2, packed=True)
    batches = list(islice(loader, len(loader.dataset)))
    tokens = [batch["tokens"].tolist() for batch in batches]
    by_share: dict[int, list[Any]] = {}
    for share, own in gathered((parallel_state.get_data_parallel_rank(), tokens)):
        by_share.setdefault(share, []).append(own)
    assert sorted(by_share) == [0, 1]
    assert all(len(found) == 2 and found[0] == found[1] for found in by_share.values())
    assert by_share[0] != by_share[1]
    if "context_parallel_size" in sizes:
        places = batches[0]["packed_seq_params"].cu_seqlens_q_padded
        assert not (places % 4).any()
        both = parallel_state.get_data_parallel_group(with_context_parallel=True)
        with pytest.raises(ValueError, match="context-parallel ranks read the same sequences"):
            ParquetDataLoader(DATA, length=16, micro_batch_size=2, group=both)
    parallel_state.destroy_model_parallel()


dist.init_process_group("gloo")
check(context_parallel_size=2)
check(tensor_model_parallel_size=2)
dist.destroy_process_group()
