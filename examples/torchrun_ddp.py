"""DistributedDataParallel under torchrun, on one node or several.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 2 examples/torchrun_ddp.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again,
on any number of ranks.
"""

from __future__ import annotations

from argparse import Namespace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from checkpoints import TrainState, load_latest, save
from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments


def main() -> None:
    """Be one rank of the job."""
    arguments = job_arguments().parse_args()
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    dataset = open_clicks(arguments.data, batch_size=256)
    torch.manual_seed(0)
    model = DistributedDataParallel(ClickModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    state = TrainState(model, optimizer)
    load_latest(arguments.checkpoints, state, dataset)
    record = StepRecord(arguments.record, dist.get_rank())
    for epoch in range(dataset.epoch, arguments.epochs):
        for batch in dataset:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            record.add(epoch, state.step, batch, loss)
            if state.step % arguments.save_every == 0:
                save(arguments.checkpoints, state, dataset)
            if state.step == arguments.stop_after:
                return


if __name__ == "__main__":
    main()
