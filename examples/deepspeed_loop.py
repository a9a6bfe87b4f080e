"""DeepSpeed with ZeRO, on any number of processes.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 2 examples/deepspeed_loop.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again.
"""

from __future__ import annotations

from argparse import Namespace

import deepspeed
import torch
import torch.distributed as dist

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments

CONFIGURATION = {
    "train_micro_batch_size_per_gpu": 256,
    # Adam of torch: DeepSpeed's own compiles first.
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def main() -> None:
    """Be one process of the job."""
    arguments = job_arguments().parse_args()
    with ending_process_group():
        deepspeed.init_distributed("gloo")  # "nccl" with GPUs
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=ClickModel(), config=CONFIGURATION)
    dataset = open_clicks(arguments.data, batch_size=256)
    path, saved = engine.load_checkpoint(arguments.checkpoints)
    if path is not None:
        dataset.load_state_dict(saved["data"])
    record = StepRecord(arguments.record, dist.get_rank())
    for epoch in range(dataset.epoch, arguments.epochs):
        for batch in dataset:
            loss = loss_of(engine, batch)
            engine.backward(loss)
            engine.step()
            record.add(epoch, engine.global_steps, batch, loss)
            if engine.global_steps % arguments.save_every == 0:
                state = {"data": dataset.state_dict()}
                engine.save_checkpoint(arguments.checkpoints, client_state=state)
            if engine.global_steps == arguments.stop_after:
                return


if __name__ == "__main__":
    main()
