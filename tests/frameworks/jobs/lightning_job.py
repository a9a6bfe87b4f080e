"""Two Lightning processes on the CPU that write down each batch; started as users do, plainly.

Lightning starts the second process itself.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

from tests.frameworks.jobs.lightning_modules import recording_module, trainer_of
from tests.frameworks.jobs.recorded import dataset_of, job_arguments, write_line


def main() -> None:
    given = job_arguments(validate=bool, save_at=int, kill=int, resume=str)

    def record(line: dict[str, Any]) -> None:
        write_line(given.out, line["rank"], line)

    stop = None if given.kill is None else ("kill", given.kill)
    module = recording_module(pl, record, stop)
    options = {"max_epochs": 3, "devices": 2, "strategy": "ddp", "save_at": [given.save_at]}
    datasets = [dataset_of(given.data)]
    if given.validate:
        datasets.append(dataset_of(given.data, shuffle=False, shuffle_window=None))
        options["val_check_interval"] = 0.5
    trainer = trainer_of(pl, given.out, **options)
    trainer.fit(module, *datasets, ckpt_path=given.resume)
    torch.save(module.state_dict(), given.out / f"{trainer.global_rank}.pt")
    if given.validate:
        loader = DataLoader(dataset_of(given.data), batch_size=None)
        trainer.test(module, loader, verbose=False)
        trainer.predict(module, loader, return_predictions=False)


if __name__ == "__main__":
    main()
