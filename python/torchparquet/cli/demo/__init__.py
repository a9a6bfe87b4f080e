"""`torchparquet demo`: two ranks train, and an audit proves that every row was read once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.processors import num_processors
from torchparquet.cli import arguments
from torchparquet.cli.arguments import Data
from torchparquet.cli.screen import counted, make_console, plain, show_table

_MAX_FEATURES = 16
_MAX_LAST_LINES = 40
_BYTES_PER_SCALE_FACTOR = 6_000_000 * 66
_MAX_ROW_GROUP_BYTES = 64_000_000
# Codec, encodings and number of row groups of each file, chosen so that whole row groups cannot
# be dealt evenly.
_PARTS = (
    ("SNAPPY", "", 3),
    ("ZSTD(1)", "l_orderkey=DELTA_BINARY_PACKED,l_shipdate=DELTA_BINARY_PACKED", 17),
    ("LZ4_RAW", "l_partkey=BYTE_STREAM_SPLIT", 6),
    ("UNCOMPRESSED", "l_suppkey=PLAIN,l_commitdate=PLAIN", 9),
)


def write_lineitem(directory: Path, scale_factor: float) -> Path:
    """Write TPC-H's `lineitem` with tpchgen-cli, unless the directory has it already."""
    final = directory / f"lineitem-sf{scale_factor:g}"
    if final.is_dir():
        return final
    scripts = sysconfig.get_path("scripts")
    program = shutil.which("tpchgen-cli", path=scripts) or shutil.which("tpchgen-cli")
    if program is None:
        raise RuntimeError(
            "the demo needs tpchgen-cli, which is not installed: pip install tpchgen-cli; "
            "or give paths of your own files"
        )
    directory.mkdir(parents=True, exist_ok=True)
    part_bytes = scale_factor * _BYTES_PER_SCALE_FACTOR / len(_PARTS)
    # Renamed when complete, so that no run takes the files of an interrupted one for data.
    with tempfile.TemporaryDirectory(prefix=".lineitem-", dir=directory) as unfinished:
        for number, (codec, encodings, num_row_groups) in enumerate(_PARTS, 1):
            group_bytes = min(_MAX_ROW_GROUP_BYTES, max(1000, int(part_bytes / num_row_groups)))
            command = [
                *(program, "parquet", "--quiet", "--tables=lineitem", f"--compression={codec}"),
                *(f"--scale-factor={scale_factor:g}", f"--output-dir={unfinished}"),
                *(f"--parts={len(_PARTS)}", f"--part={number}", f"--row-group-bytes={group_bytes}"),
                *([f"--column-encoding={encodings}"] if encodings else []),
            ]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")  # noqa: S603
            if done.returncode != 0:
                last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
                raise RuntimeError(f"tpchgen-cli failed (exit code {done.returncode}): {last}")
        os.replace(Path(unfinished) / "lineitem", final)  # noqa: PTH105
    return final


def _columns_of(manifest: Manifest) -> tuple[list[str], str]:
    """Return features, and as the target the last column of floats, or else of numbers."""
    known = [{leaf.path: leaf.kind for leaf in schema} for schema in manifest.schemas]
    # Columns at the top that pyarrow reads exactly too.
    numbers = {
        leaf.path: leaf.dtype
        for leaf in manifest.schemas[0]
        if not (leaf.items is not None or leaf.num_offsets or "." in leaf.path)
        and not leaf.kind.startswith(("decimal", "time["))
        and all(kinds.get(leaf.path) == leaf.kind for kinds in known)
        and leaf.dtype
    }
    if not numbers:
        kinds = sorted({leaf.kind for leaf in manifest.schemas[0]})
        raise ValueError(f"the demo needs a column of numbers; the files have {', '.join(kinds)}")
    floats = [name for name in numbers if numbers[name].startswith("float")]
    target = (floats or list(numbers))[-1]
    return [name for name in numbers if name != target][:_MAX_FEATURES] or [target], target


def _run_ranks(directory: Path, num_ranks: int, is_quiet: bool, **job: Any) -> Any:
    """Run the job under torchrun on this machine, and return the report of each epoch."""
    (directory / "job").write_text(json.dumps(job))
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={num_ranks}", f"--log-dir={directory}", "--redirects=2"),
        *("-m", "torchparquet.cli.demo.rank", str(directory)),
    ]
    # torch leaves caches in TMPDIR, which go with the job.
    defaults = {"GLOO_SOCKET_IFNAME": "lo"}
    defaults["OMP_NUM_THREADS"] = str(max(1, num_processors() // num_ranks))
    environment = {**defaults, **os.environ, "TMPDIR": str(directory)}
    output = subprocess.DEVNULL if is_quiet else None
    with (directory / "launcher.log").open("wb") as log:
        launcher = subprocess.Popen(command, stdout=output, stderr=log, env=environment)  # noqa: S603
        try:
            code = launcher.wait()
        finally:
            launcher.terminate()  # ends the ranks too
            launcher.wait()
    if code == 0:
        return json.loads((directory / "results").read_text())
    # Other ranks fail after the first one because they lose a peer.
    told = sorted(directory.glob("*.error"), key=lambda path: path.stat().st_mtime_ns)
    error = RuntimeError(told[0].read_text() if told else "the ranks failed without a message")
    for path in [] if told else [*directory.rglob("stderr.log"), directory / "launcher.log"]:
        lines = path.read_text(errors="replace").strip().splitlines()[-_MAX_LAST_LINES:]
        error.add_note("\n".join(lines))
    raise error


def _findings(report: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield what was found about an epoch: whether it is well, and a sentence."""
    epoch, audit, planned = f"epoch {report['epoch'] + 1}", report["audit"], report["planned_steps"]
    repeats = f" (+{audit['planned_repeats']:,} planned)" if audit["planned_repeats"] else ""
    text = f"the ranks read every one of {audit['num_rows']:,} rows exactly once{repeats}"
    for fault in audit["faults"] or [text]:
        yield fault is text, f"{epoch}: {fault}"
    steps = [rank["steps"] for rank in report["ranks"]]
    agree = set(steps) == {planned}
    taken = f"{planned:,} steps" if agree else f"{steps} steps, {planned:,} planned"
    yield agree, f"{epoch}: each of {counted(len(steps), 'rank')} took {taken}"
    wrong = sum(rank["wrong_targets"] for rank in report["ranks"])
    values = f"{wrong:,} targets differ from" if wrong else "every target equals"
    yield not wrong, f"{epoch}: {values} pyarrow's"


def _show(console: Console, report: dict[str, Any]) -> None:
    rows = [
        [
            str(epoch["epoch"] + 1),
            *(rank[name] for name in ("rank", "rows", "row_groups", "steps")),
            f"{rank['rows'] / rank['seconds']:,.0f}",
            f"{rank['wait_seconds']:.2f} s",
        ]
        for epoch in report["epochs"]
        for rank in epoch["ranks"]
    ]
    headings = ("epoch", "rank", "rows", "row groups", "steps", "rows/s", "waited for data")
    show_table(console, "\nWhat each rank did", headings, rows, left=0)
    first, last = (report["epochs"][at]["ranks"][0] for at in (0, -1))
    console.print(
        f"\nError of {plain(report['target'])}: {first['first_error']:,.4g} at first, "
        f"{last['last_error']:,.4g} at last\n\n[bold]Audit[/]"
    )
    for epoch in report["epochs"]:
        for is_well, finding in _findings(epoch):
            console.print(f"{'[green]ok[/]   ' if is_well else '[red]FAIL[/] '} {plain(finding)}")
    console.print(f"[bold]The audit {'holds' if report['holds'] else '[red]FAILS[/]'}.[/]")


@arguments.report_command(_show, needs_paths=False)
@arguments.number_option("--nproc", default=2, help="Ranks.")
@arguments.number_option("--epochs", default=2, help="Epochs to train.")
@arguments.batch_size_option
@arguments.option(
    "--scale-factor",
    type=click.FloatRange(0, 1e6, min_open=True, max_open=True),
    default=0.1,
    metavar="X",
    help="Scale of the TPC-H data; 1 is six million rows.",
)
@click.option("--data-dir", metavar="DIR", help="Keep the TPC-H data here for the next time.")
def command(
    data: Data, nproc: int, epochs: int, batch_size: int, scale_factor: float, data_dir: str | None
) -> dict[str, Any]:
    """Train under torchrun, and prove that every row was read once.

    The command reads your files, or else writes TPC-H's table lineitem and reads that.
    """
    if data.paths and data_dir is not None:
        raise click.UsageError("--data-dir keeps the TPC-H data, which PATH replaces")
    with tempfile.TemporaryDirectory(prefix="torchparquet-") as scratch:
        if not data.paths:
            written = write_lineitem(Path(data_dir or scratch), scale_factor)
            data = Data([str(written)], data.storage)
        manifest = data.manifest()
        features, target = _columns_of(manifest)
        directory = Path(scratch) / "job"
        directory.mkdir()
        is_quiet = click.get_current_context().params["as_json"]
        make_console(stderr=is_quiet).print(
            f"[bold]Data[/]   {manifest.num_rows:,} rows in {counted(len(manifest.files), 'file')}"
            f" of {counted(manifest.num_row_groups, 'row group')}: {plain(manifest.files[0])}\n"
            f"[bold]Model[/]  predicts {plain(target)} from {counted(len(features), 'column')}\n"
        )
        reports = _run_ranks(
            directory,
            nproc,
            is_quiet,
            paths=data.paths,
            features=features,
            target=target,
            num_epochs=epochs,
            batch_size=batch_size,
            storage_options=data.storage.named,
        )
    return {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "target": target,
        "features": features,
        "epochs": reports,
        "holds": all(is_well for report in reports for is_well, _ in _findings(report)),
    }
