"""Ray Train: as many workers as one number says, on one machine or a cluster.

    python examples/clicks.py clicks
    python examples/ray_train.py clicks checkpoints --workers 2

A run that was stopped goes on after its latest checkpoint when the same command is given again,
with any number of workers. Workers that fail are begun anew, once, by Ray.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, job_arguments
from torchparquet import ParquetDataset


def train(config: dict[str, Any]) -> None:
    """Be one worker: train the epochs that are left."""
    # Each worker reads the share of its rank, which the data set finds out by itself.
    dataset = open_clicks(config["data"], batch_size=256)
    torch.manual_seed(0)
    model = ClickModel()
    parallel = prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = load_latest(model, optimizer, dataset)
    rank = ray.train.get_context().get_world_rank()
    record = StepRecord(config["record"], rank)
    for epoch in range(dataset.epoch, config["epochs"]):
        for batch in dataset:
            loss = loss_of(parallel, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            record.add(epoch, step, batch, loss)
            if step % config["save_every"] == 0:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "data": dataset.state_dict(),
                    "step": step,
                }
                report(state, {"loss": loss.item(), "epoch": epoch, "step": step}, rank)
            if step == config["stop_after"]:
                return


def load_latest(
    model: ClickModel, optimizer: torch.optim.Optimizer, dataset: ParquetDataset
) -> int:
    """Go on from the latest checkpoint, if there is one, and return the steps that are done."""
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        state = torch.load(Path(directory) / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    dataset.load_state_dict(state["data"])
    return state["step"]


def report(state: dict[str, Any], metrics: dict[str, Any], rank: int) -> None:
    """Report a step; every worker calls it, and the first one hands over the checkpoint."""
    if rank != 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        torch.save(state, Path(directory) / "state.pt")
        ray.train.report(metrics, checkpoint=Checkpoint.from_directory(directory))


def main() -> None:
    """Run the job on a cluster that was started before, or on this machine."""
    parser = job_arguments()
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    config = vars(arguments) | {"data": str(Path(arguments.data).resolve())}
    config["record"] = arguments.record and str(Path(arguments.record).resolve())
    trainer = TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=arguments.workers),
        run_config=RunConfig(
            name="clicks",
            storage_path=str(Path(arguments.checkpoints).resolve()),
            failure_config=FailureConfig(max_failures=1),
        ),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
