"""Accelerate, on any number of processes.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 2 examples/accelerate_loop.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import torch
from accelerate import Accelerator

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments
from torchparquet.frameworks.accelerate import ParquetLoader


def main() -> None:
    """Be one process of the job."""
    arguments = job_arguments().parse_args()
    with ending_process_group():
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = ClickModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    dataset = open_clicks(arguments.data, batch_size=256)
    model, optimizer, loader = accelerator.prepare(model, optimizer, ParquetLoader(dataset))
    step = 0
    saved = sorted(Path(arguments.checkpoints).glob("step-*"))
    if saved:
        accelerator.load_state(str(saved[-1]))
        step = int(saved[-1].name.removeprefix("step-"))
    record = StepRecord(arguments.record, accelerator.process_index)
    for epoch in range(dataset.epoch, arguments.epochs):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            record.add(epoch, step, batch, loss)
            if step % arguments.save_every == 0:
                accelerator.save_state(f"{arguments.checkpoints}/step-{step:06d}")
            if step == arguments.stop_after:
                return


if __name__ == "__main__":
    main()
