"""torchdata's StatefulDataLoader: worker processes that know how far they are.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 2 examples/stateful_dataloader.py clicks checkpoints

A run that was stopped goes on after its latest checkpoint when the same command is given again,
with the same numbers of ranks and workers.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments

NUM_WORKERS = 2


def main() -> None:
    """Be one rank of the job."""
    arguments = job_arguments().parse_args()
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    dataset = open_clicks(arguments.data, batch_size=256)
    # Workers cannot talk to other ranks, so that their processes do it for them.
    dataset.check_ranks_agree(NUM_WORKERS)
    loader = StatefulDataLoader(
        dataset,
        batch_size=None,  # the data set makes the batches
        num_workers=NUM_WORKERS,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    torch.manual_seed(0)
    model = DistributedDataParallel(ClickModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first_epoch = step = 0
    saved = latest(arguments.checkpoints)
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first_epoch, step = saved["epoch"], saved["step"]
    record = StepRecord(arguments.record, dist.get_rank())
    for epoch in range(first_epoch, arguments.epochs):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            record.add(epoch, step, batch, loss)
            if step % arguments.save_every == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "epoch": epoch,
                    "step": step,
                }
                save(arguments.checkpoints, state)
            if step == arguments.stop_after:
                return


def save(directory: str, state: dict[str, Any]) -> None:
    """Save what belongs to this step; each rank its own workers' state."""
    path = Path(directory) / f"step-{state['step']:06d}"
    path.mkdir(parents=True, exist_ok=True)
    torch.save(state, path / f"rank{dist.get_rank()}.pt")


def latest(directory: str) -> dict[str, Any] | None:
    """Return this rank's part of the latest checkpoint that all ranks have saved."""
    steps = sorted(Path(directory).glob("step-*"))
    whole = [path for path in steps if len(list(path.iterdir())) == dist.get_world_size()]
    if not whole:
        return None
    return torch.load(whole[-1] / f"rank{dist.get_rank()}.pt", weights_only=True)


if __name__ == "__main__":
    main()
