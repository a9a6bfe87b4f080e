"""Run by torchrun: a loop with Accelerate that writes down each batch; killed or resumed."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from tests.frameworks.jobs.recorded import dataset_of, job_arguments, write_line
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.frameworks.accelerate import ParquetLoader


def main() -> None:
    given = job_arguments(kill=int, resume=bool)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=5)
    if not given.kill and not given.resume:
        refuses_what_divides_again(given.data, accelerator)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    dataset = dataset_of(given.data)
    loader = ParquetLoader(dataset)
    assert len(loader) == len(dataset) == 13
    model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
    assert prepared is loader
    if given.resume:
        accelerator.load_state(given.out / "checkpoint")

    steps = 0
    for epoch in range(dataset.epoch, 3):
        updates, first = 0, steps
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch["x"]).square().mean())
                optimizer.step()
                optimizer.zero_grad()
            updates += accelerator.sync_gradients
            line = {"what": "train", "epoch": epoch, "ids": batch["row.id"].tolist()}
            write_line(given.out, accelerator.process_index, line)
            steps += 1
            if given.kill and steps == given.kill - 3:
                accelerator.save_state(given.out / "checkpoint")
            if steps == given.kill:
                os.kill(os.getpid(), signal.SIGKILL)
        if steps - first == 13:
            # Every fifth batch, and the last.
            assert updates == 3, updates
    torch.save(model.state_dict(), given.out / f"{accelerator.process_index}.pt")


def refuses_what_divides_again(data: str, accelerator: Accelerator) -> None:
    """On every rank, before anything is read or hangs."""
    for batch_size, num_workers in ((None, 0), (None, 1), (2, 0)):
        for dispatch, name in ((None, "DataLoaderDispatcher"), (False, "IterableDatasetShard")):
            accelerator.dataloader_config = DataLoaderConfiguration(dispatch_batches=dispatch)
            options: dict[str, Any] = {"batch_size": batch_size, "num_workers": num_workers}
            loader = accelerator.prepare(DataLoader(dataset_of(data), **options))
            with pytest.raises(ValueError, match=rf"{name}.*ParquetLoader"):
                next(iter(loader))
    # Every process reads everything, and Accelerate divides it.
    everything = dataset_of(data, rank=0, world_size=1, shuffle=False, shuffle_window=None)
    loader = accelerator.prepare(DataLoader(everything, batch_size=1, collate_fn=sum_of))
    rank = accelerator.process_index
    assert [batch.item() for batch in loader] == [(2 * step + rank) % 25 for step in range(13)]
    accelerator.free_memory()


def sum_of(batches: Any) -> Any:
    return torch.tensor([batches[0]["row.id"][0].item() // 16])


if __name__ == "__main__":
    main()
    end_rank()
