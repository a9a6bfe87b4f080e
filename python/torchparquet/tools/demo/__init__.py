"""`torchparquet demo`: train on Parquet files under torchrun, and audit every row.

`data` writes or finds the files. `train` is the script of each rank, and `launch` runs it under
torchrun. `report` prints the outcome.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet.tools.demo.data import Task, find_tpchgen, lineitem_task, own_task, write_lineitem
from torchparquet.tools.screen import make_console


def run_demo(
    *,
    num_ranks: int,
    num_epochs: int,
    batch_size: int,
    scale_factor: float,
    data_dir: str | None,
    data: tuple[str, ...],
    storage: StorageArguments = NO_STORAGE,
    debug: bool = False,
    as_json: bool = False,
) -> dict[str, Any]:
    """Write or find the files, train on them, and audit the rows that were delivered."""
    from torchparquet.tools.demo import report
    from torchparquet.tools.demo.launch import Job, run_ranks

    if not data:
        find_tpchgen()
    console = make_console(stderr=as_json)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchparquet-")))
        manifest, task = _open_data(data, storage, data_dir, scale_factor, scratch)
        report.print_data(console, manifest, task)
        report.print_plan(console, manifest, batch_size, num_ranks)
        directory = scratch / "job"
        directory.mkdir()
        job = Job(
            directory,
            data or manifest.files,
            task,
            num_epochs=num_epochs,
            batch_size=batch_size,
            storage_options=storage.options,
            debug=debug,
            is_quiet=as_json,
        )
        epochs = run_ranks(job, num_ranks)
        holds = report.print_audit(console, task, epochs)
    return {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "target": task.target,
        "features": list(task.features),
        "epochs": epochs,
        "holds": holds,
    }


def _open_data(
    data: tuple[str, ...],
    storage: StorageArguments,
    data_dir: str | None,
    scale_factor: float,
    scratch: Path,
) -> tuple[Manifest, Task]:
    if data:
        manifest = read_manifest(data, storage=storage)
        return manifest, own_task(manifest)
    parent = scratch if data_dir is None else Path(data_dir)
    manifest = read_manifest(write_lineitem(parent, scale_factor))
    return manifest, lineitem_task(scale_factor)
