"""A small GPT on packed documents, under torchrun.

    python examples/packed_gpt.py --write documents
    torchrun --standalone --nproc-per-node 2 examples/packed_gpt.py documents checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again.
The number of ranks may be another one that divides 4: batches, and so losses, are the same.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from checkpoints import TrainState, load_latest, save
from job import ending_process_group
from torchparquet import Order, Pack, ParquetDataset

VOCABULARY, END_OF_TEXT, LENGTH, WIDTH, HEADS = 64, 0, 64, 32, 4
MOST_RANKS, GLOBAL_BATCH = 4, 16


class Block(nn.Module):
    """Attention within documents, and a perceptron."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states after the block, `[B, L, WIDTH]`."""
        heads = self.attention(self.norms[0](hidden)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + self.projection(attended.transpose(1, 2).flatten(2))
        return hidden + self.perceptron(self.norms[1](hidden))


class Gpt(nn.Module):
    """Predicts the next token of each document."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor, position: Tensor, document: Tensor) -> Tensor:
        """Return logits, `[B, L, VOCABULARY]`."""
        order = torch.arange(tokens.shape[1])
        is_earlier = order[:, None] >= order
        mask = (is_earlier & (document[:, :, None] == document[:, None]))[:, None]
        hidden = self.tokens(tokens) + self.positions(position)
        for block in self.blocks:
            hidden = block(hidden, mask)
        logits: Tensor = self.head(hidden)
        return logits


def open_documents(folder: str) -> ParquetDataset:
    """Return packed sequences, in the same global batches for every number of ranks."""
    ranks = dist.get_world_size()
    pack = Pack("tokens", LENGTH, "best_fit", separator=END_OF_TEXT)
    return ParquetDataset(
        folder,
        batch_size=GLOBAL_BATCH // ranks,
        pack=pack,
        shuffle=True,
        drop_last=True,
        order=Order(canonical_world_size=MOST_RANKS),
    )


def loss_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss of the batch's tokens that another one of their document follows."""
    tokens, document = batch["tokens"], batch["tokens.document"]
    logits = model(tokens, batch["tokens.position"], document)
    has_next = (document[:, 1:] == document[:, :-1]) & (document[:, 1:] >= 0)
    losses = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten().long(), reduction="none"
    )
    # Ranks have different numbers of tokens: the mean is over those of all ranks.
    counted = has_next.sum()
    dist.all_reduce(counted)
    return (losses * has_next.flatten()).sum() / counted * dist.get_world_size()


def train(dataset: ParquetDataset, arguments: Namespace) -> None:
    """Train one epoch, or what is left of it."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Gpt())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    state = TrainState(model, optimizer)
    load_latest(arguments.checkpoints, state, dataset)
    if dataset.epoch > 0:
        return
    for batch in dataset:
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            told = {"step": state.step, "loss": mean.item() / dist.get_world_size()}
            print(json.dumps(told), flush=True)
        if state.step % arguments.save_every == 0:
            save(arguments.checkpoints, state, dataset)
        if state.step == arguments.stop_after:
            return


def write_documents(folder: str) -> None:
    """Write documents in which a token tells much of the next one."""
    rng = np.random.default_rng(0)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(4):
        documents = []
        for _ in range(600):
            first, step = rng.integers(1, VOCABULARY, 2)
            places = np.arange(min(200, 4 + int(rng.exponential(30))))
            documents.append(1 + (first + step * places) % (VOCABULARY - 1))
        table = pa.table({"tokens": pa.array(documents, pa.list_(pa.int32()))})
        pq.write_table(table, Path(folder) / f"{number}.parquet", row_group_size=200)


def main(write: Callable[[str], None], open_dataset: Callable[[str], ParquetDataset]) -> None:
    """Write the data, or be one rank of the job."""
    parser = ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("checkpoints", nargs="?", default="checkpoints")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--stop-after", type=int)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.data)
        return
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(open_dataset(arguments.data), arguments)


if __name__ == "__main__":
    main(write_documents, open_documents)
