"""Megatron-Core's GPT on packed documents, under torchrun; on CPUs, with attention of torch's own.

    python examples/packed_gpt.py --write documents
    torchrun --standalone --nproc-per-node 2 examples/megatron_gpt.py documents

A run that was stopped goes on if it is told what it has consumed: `--consumed-samples 160`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn import functional

from job import ending_process_group
from packed_gpt import END_OF_TEXT, HEADS, LENGTH, VOCABULARY, WIDTH
from torchparquet.frameworks.megatron import ParquetDataLoader

GLOBAL_BATCH = 16


class Attention(nn.Module):
    """Attention that needs no GPU, in the place of Megatron-Core's."""

    def __init__(self, **_: Any) -> None:
        """Take the arguments of Megatron-Core's, and none of them."""
        super().__init__()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **_: Any
    ) -> Tensor:
        """Return `[s, b, h]` for queries, keys and values `[s, b, heads, width]`."""
        of_heads = (of.permute(1, 2, 0, 3) for of in (query, key, value))
        found = functional.scaled_dot_product_attention(*of_heads, attn_mask=~attention_mask)
        return found.permute(2, 0, 1, 3).flatten(2)


def make_model() -> GPTModel:
    """Return a small GPT."""
    config = TransformerConfig(
        num_layers=2,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
    )
    layer = get_gpt_layer_local_spec()
    layer.submodules.self_attention.submodules.core_attention = Attention  # not with GPUs
    return GPTModel(config, layer, vocab_size=VOCABULARY, max_sequence_length=LENGTH)


def train(arguments: Namespace) -> None:
    """Train some steps."""
    parallel_state.initialize_model_parallel()
    group = parallel_state.get_data_parallel_group()
    micro_batch_size = GLOBAL_BATCH // group.size()
    consumed_samples = arguments.consumed_samples
    loader = ParquetDataLoader(
        arguments.data,
        length=LENGTH,
        micro_batch_size=micro_batch_size,
        separator=END_OF_TEXT,
        shuffle=True,
        consumed_samples=consumed_samples,
    )
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for batch in loader:
        loss_mask = batch["loss_mask"]
        losses = model(
            batch["tokens"],
            batch["position_ids"],
            batch["attention_mask"],
            labels=batch["labels"],
        )
        counted = loss_mask.sum()
        dist.all_reduce(counted, group=group)
        loss = (losses * loss_mask).sum() / counted
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)
        optimizer.step()
        consumed_samples += GLOBAL_BATCH
        total = loss.detach().clone()
        dist.all_reduce(total, group=group)
        if dist.get_rank() == 0:
            told = {"consumed_samples": consumed_samples, "loss": total.item()}
            print(json.dumps(told | {"first": batch["tokens"][0, :8].tolist()}), flush=True)
        if consumed_samples >= arguments.train_samples:
            break
    parallel_state.destroy_model_parallel()


def main() -> None:
    """Be one rank of the job."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--consumed-samples", type=int, default=0)
    parser.add_argument("--train-samples", type=int, default=100 * GLOBAL_BATCH)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(arguments)


if __name__ == "__main__":
    main()
