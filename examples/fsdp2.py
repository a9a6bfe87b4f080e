"""FSDP2 under torchrun: parameters sharded over a device mesh, data over its ranks.

    python examples/clicks.py clicks
    torchrun --standalone --nproc-per-node 4 examples/fsdp2.py clicks checkpoints --replicas 2

A run that was stopped goes on after its latest checkpoint when the same command is given again,
on any number of ranks and with any number of replicas.
"""

from __future__ import annotations

from argparse import Namespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from checkpoints import TrainState, load_latest, save
from clicks import ClickModel, loss_of, open_clicks
from job import StepRecord, ending_process_group, job_arguments


def main() -> None:
    """Be one rank of the job."""
    parser = job_arguments()
    parser.add_argument("--replicas", type=int, default=1, help="of the sharded model (HSDP)")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")  # "nccl" with GPUs
    with ending_process_group():
        train(arguments)


def train(arguments: Namespace) -> None:
    """Train the epochs that are left."""
    shape = (arguments.replicas, dist.get_world_size() // arguments.replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    dataset = open_clicks(arguments.data, batch_size=256, ranks=mesh)
    torch.manual_seed(0)
    model = ClickModel()
    for layer in (model.embedding, model.hidden, model):
        fully_shard(layer, mesh=mesh)
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
