"""`torchparquet demo`: train on Parquet files under torchrun, and audit what was delivered.

`data` writes or finds the files and says what is predicted from them; `train` is the script that
each rank runs, `launch` runs it under torchrun, and `job` is what goes there and back; `totals`
tells what was delivered; `display` shows progress and `report` prints the rest.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchparquet.files.manifest import Manifest, read_manifest
from torchparquet.tools.demo.data import Task, find_tpchgen, lineitem_task, own_task, write_lineitem
from torchparquet.tools.screen import make_console

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class DemoOptions:
    """What the command line says.

    Attributes:
        num_ranks: Processes that train together.
        num_epochs: Epochs to train for.
        batch_size: Rows per rank and step.
        scale_factor: Of the TPC-H data that is written.
        data_dir: Where that is kept; None for a temporary directory.
        data: The user's own paths, which take its place.
        target: The user's own column to predict; None to choose one.
        debug: Show tracebacks and what torchrun writes.
        as_json: Leave standard output alone.
    """

    num_ranks: int
    num_epochs: int
    batch_size: int
    scale_factor: float
    data_dir: str | None
    data: tuple[str, ...] | None
    target: str | None
    debug: bool
    as_json: bool = False

    def __post_init__(self) -> None:
        """Check what excludes one another."""
        if self.target is not None and self.data is None:
            raise ValueError("--target needs --data")
        if self.data_dir is not None and self.data is not None:
            raise ValueError("--data-dir holds the TPC-H data, which --data replaces")


def run_demo(options: DemoOptions) -> dict[str, Any]:
    """Run the demo.

    Returns:
        What was found; under "holds" whether the audit does.

    Raises:
        RuntimeError: The extra `demo` is not installed, or a rank failed.
        OSError: Files cannot be read or written.
        ValueError: The user's files cannot be trained on.
    """
    if options.data is None:
        find_tpchgen()
    console = make_console(stderr=options.as_json)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torchparquet-")))
        # A rank that is ended draws no more, and leaves the cursor as it was: hidden.
        stack.callback(console.show_cursor)
        manifest, task = _open_data(options, console, scratch)
        return _train_and_audit(options, console, scratch, manifest, task)


def _open_data(options: DemoOptions, console: Console, scratch: Path) -> tuple[Manifest, Task]:
    from torchparquet.tools.demo.report import print_data

    if options.data is not None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

        manifest = read_manifest(options.data)
        names = pq.read_schema(manifest.files[0]).names
        task = own_task(manifest, names, options.target)
        origin = options.data[0] + (f" and {len(options.data) - 1} more" * (len(options.data) > 1))
    else:
        parent = scratch if options.data_dir is None else Path(options.data_dir)
        origin = f"TPC-H lineitem at scale factor {options.scale_factor:g}, "
        started = time.perf_counter()
        directory, is_new = write_lineitem(parent, options.scale_factor)
        if is_new:
            origin += f"by tpchgen-cli in {time.perf_counter() - started:.1f} s"
        else:
            origin += f"kept in {directory}"
        manifest = read_manifest(directory)
        task = lineitem_task(manifest)
    print_data(console, manifest, origin)
    return manifest, task


def _train_and_audit(
    options: DemoOptions, console: Console, scratch: Path, manifest: Manifest, task: Task
) -> dict[str, Any]:
    from torchparquet.tools.demo import report
    from torchparquet.tools.demo.job import Job
    from torchparquet.tools.demo.launch import run_ranks
    from torchparquet.tools.demo.totals import read_facts, totals_of_rows

    report.print_plan(console, manifest, task, options.batch_size, options.num_ranks)
    reader, facts = read_facts(manifest.files, task.columns)
    directory = scratch / "job"
    directory.mkdir()
    job = Job(
        directory,
        manifest.files,
        task,
        facts,
        options.num_epochs,
        options.batch_size,
        options.debug,
        options.as_json,
    )
    results = run_ranks(job, options.num_ranks)
    # Rows that evening out delivers once more count once in the sums.
    repeated = [
        totals_of_rows(manifest, result.audit.repeated[: options.num_ranks], task.columns)
        for result in results
    ]
    report.print_ranks(console, results)
    report.print_errors(console, task, results)
    sums_agree = report.print_totals(console, reader, facts, repeated, results)
    holds = report.print_audit(console, results, reader, sums_agree=sums_agree)
    return {
        **report.as_json(manifest, task, results),
        "other_reader": reader,
        "sums_agree": sums_agree,
        "holds": holds,
    }
