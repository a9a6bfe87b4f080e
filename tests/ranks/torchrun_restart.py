"""Run by torchrun on 2 ranks, the last of which crashes in the first start of the job."""

from __future__ import annotations

import json
import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path

import fsspec
import torch.distributed as dist

from torchparquet import ParquetDataset

CRASHES_AFTER = 900


class Quiet(dist.ProcessGroup):
    """Ranks that share a store and send nothing: gloo would meet addresses of processes gone."""

    def getBackendName(self) -> str:
        return "quiet"


def main() -> None:
    data, growing, record = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    dist.Backend.register_backend(
        "quiet",
        lambda _, rank, size, timeout: Quiet(rank, size),  # type: ignore[call-arg]
        devices=["cpu"],
    )
    dist.init_process_group("quiet", timeout=timedelta(seconds=60))
    rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dataset = ParquetDataset(data, batch_size=1, shuffle=True, row_ids=True, seed=5)
    checkpoint = record / "checkpoint.json"
    if start:
        dataset.load_state_dict(json.loads(checkpoint.read_text()))
    # As a store is listed: by one rank for all.
    store = fsspec.filesystem("dir", path=str(growing.parent), fs=fsspec.filesystem("file"))
    listed = ParquetDataset(growing.name, batch_size=1, filesystem=store)
    claimed = ParquetDataset(data, batch_size=8, even="dynamic", row_ids=True)
    found = {
        "files": len(listed.manifest.files),
        "claimed": [row for batch in claimed for row in batch["row.id"].tolist()],
        "read": [],
    }
    for step, batch in enumerate(dataset, start=1):
        found["read"] += batch["row.id"].tolist()
        if start == 0 and rank == 1 and step == CRASHES_AFTER:
            checkpoint.write_text(json.dumps(dataset.state_dict()))
            shutil.copy(Path(data) / "part-0.parquet", growing / "added.parquet")
            os._exit(1)
    (record / f"{start}-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
