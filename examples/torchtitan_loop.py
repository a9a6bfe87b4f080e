"""torchtitan's contract for dataloaders, in a loop that runs on any machine, under torchrun.

    python examples/packed_gpt.py --write documents
    torchrun --standalone --nproc-per-node 2 examples/torchtitan_loop.py documents checkpoints

The data are finite: ranks end at the same step. A run that was stopped goes on after its latest
checkpoint, on any number of ranks. In a job of torchtitan, its Trainer has the place of `train`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from checkpoints import TrainState, load_latest, save
from job import ending_process_group
from packed_gpt import LENGTH, Gpt
from torchparquet.frameworks.torchtitan import ParquetDataLoader

GLOBAL_BATCH = 16


class Tokenizer:
    """The part of a tokenizer that the loader asks for."""

    eos_id = 0


def open_loader(folder: str) -> ParquetDataLoader:
    """Return the loader as torchtitan's Trainer makes it."""
    config = ParquetDataLoader.Config(
        dataset_path=folder, strategy="best_fit", add_eos=True, infinite=False
    )
    ranks = dist.get_world_size()
    loader: ParquetDataLoader = config.build(
        dp_world_size=ranks,
        dp_rank=dist.get_rank(),
        tokenizer=Tokenizer(),
        seq_len=LENGTH,
        local_batch_size=GLOBAL_BATCH // ranks,
    )
    return loader


def loss_of(model: torch.nn.Module, inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
    """Return the mean loss over the labels of all ranks."""
    positions = inputs["positions"]
    document = (positions == 0).cumsum(1)
    logits = model(inputs["input"], positions, document)
    counted = (labels != -100).sum()
    dist.all_reduce(counted)
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return losses / counted * dist.get_world_size()


def train(arguments: Namespace) -> None:
    """Train one epoch, or what is left of it."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Gpt())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader, state = open_loader(arguments.data), TrainState(model, optimizer)
    load_latest(arguments.checkpoints, state, loader)
    for inputs, labels in loader:
        loss = loss_of(model, inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            told = {"step": state.step, "loss": mean.item() / dist.get_world_size()}
            print(json.dumps(told), flush=True)
        if state.step == arguments.stop_after:
            save(arguments.checkpoints, state, loader)
            return


def main() -> None:
    """Be one rank of the job."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("checkpoints", nargs="?", default="checkpoints")
    parser.add_argument("--stop-after", type=int)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(arguments)


if __name__ == "__main__":
    main()
