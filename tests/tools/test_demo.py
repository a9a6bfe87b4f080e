"""`torchparquet demo`: the real thing in a subprocess, and proof that its audit can fail."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet.cli import main
from torchparquet.errors import one_line
from torchparquet.tools.demo.data import Task, write_lineitem
from torchparquet.tools.demo.launch import Job, _failure, run_ranks
from torchparquet.tools.demo.report import print_audit
from torchparquet.tools.demo.train import count_wrong

DEMO = [sys.executable, "-m", "torchparquet", "demo"]
NUM_ROWS = 5_000


def run_demo(*arguments: str, scratch: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with temporary files in `scratch`, where none may be left."""
    scratch.mkdir(exist_ok=True)
    done = subprocess.run(
        [*DEMO, *arguments],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "TMPDIR": str(scratch), **variables},
        check=False,
    )
    assert list(scratch.iterdir()) == []
    return done


def run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scratch: Path, *data: str
) -> str:
    """Run the demo's first process in this one; returns what it prints."""
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    code = main(["demo", *data])
    output, errors = capsys.readouterr()
    assert code == 0, output + errors
    assert list(scratch.iterdir()) == []
    return output


def lines_with(text: str, output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if text in line]


@pytest.fixture(scope="module")
def own_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files with nulls, NaN, dates, large timestamps, and kinds that are no numbers."""
    directory = tmp_path_factory.mktemp("own [1]")
    generator = np.random.default_rng(0)
    for number, num_rows in enumerate((NUM_ROWS - 1_300, 1_300)):
        x = generator.normal(size=num_rows)
        some = generator.random(num_rows) < 0.2
        nan = np.where(generator.random(num_rows) < 0.01, np.nan, x)
        table = pa.table(
            {
                "name": pa.array([f"row {i}" for i in range(num_rows)]),
                "list": pa.array([[i] for i in range(num_rows)]),
                "code": pa.array([b"abc"] * num_rows, pa.binary(3)),
                "flag": pa.array(x > 0),
                "small": pa.array(generator.integers(-9, 9, num_rows), pa.int8(), mask=some),
                "huge": pa.array(generator.integers(2**62, 2**63, num_rows), pa.int64()),
                "day": pa.array((x * 100).astype("int32"), pa.int32()).cast(pa.date32()),
                "moment": pa.array(
                    generator.integers(0, 2**60, num_rows), pa.timestamp("us", "UTC"), mask=some
                ),
                "with.dot": pa.array(nan, mask=some),
                "y": pa.array(2 * x + 1 + generator.normal(size=num_rows) / 10, mask=some),
                "nothing": pa.nulls(num_rows, pa.int32()),
            }
        )
        path = directory / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=700 + 301 * number)
    return directory


@pytest.mark.long
def test_demo_holds(tmp_path: Path) -> None:
    done = run_demo("--scale-factor=0.01", "--nproc=2", scratch=tmp_path / "tmp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "60,210 rows in 4 files" in done.stdout
    for epoch in (1, 2):
        assert lines_with(f"epoch {epoch}: ", done.stdout) == [
            f"ok    epoch {epoch}: the ranks read every one of 60,210 rows exactly once",
            f"ok    epoch {epoch}: each of 2 ranks took 30 steps",
            f"ok    epoch {epoch}: every target equals pyarrow's",
        ]
    assert lines_with("The audit holds.", done.stdout)
    (errors,) = lines_with("at first,", done.stdout)
    first, last = map(float, re.findall(r"([\d.]+) at", errors))
    assert last < first / 5


@pytest.mark.long
def test_lineitem_is_kept_and_used_again(tmp_path: Path) -> None:
    directory = write_lineitem(tmp_path / "kept", 0.001)
    files = sorted(directory.iterdir())
    assert len(files) == 4
    assert len(set(read_manifest(directory).row_group_num_rows.tolist())) > 4
    times = [file.stat().st_mtime_ns for file in files]
    assert write_lineitem(tmp_path / "kept", 0.001) == directory
    assert [file.stat().st_mtime_ns for file in files] == times
    assert list((tmp_path / "kept").iterdir()) == [directory]


@pytest.mark.long
def test_demo_on_own_data_with_nulls(
    own_files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = sorted(map(str, own_files.iterdir()))
    arguments = ["--data", *files, "--nproc=3", "--batch-size=64"]
    output = run_here(capsys, monkeypatch, tmp_path / "tmp", *arguments)
    assert "predicts y from 6 columns" in output
    exactly = f"every one of {NUM_ROWS:,} rows exactly once (+1 planned repeat)"
    assert len(lines_with(exactly, output)) == 2
    assert len(lines_with("every target equals pyarrow's", output)) == 2


@pytest.mark.long
def test_json_is_all_there_is_on_standard_output(own_files: Path, tmp_path: Path) -> None:
    done = run_demo("--data", str(own_files), "--epochs=1", "--json", scratch=tmp_path / "tmp")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["holds"]
    (epoch,) = report["epochs"]
    assert epoch["audit"]["faults"] == []
    assert epoch["audit"]["num_distinct"] == report["rows"] == NUM_ROWS
    steps = [rank["steps"] for rank in epoch["ranks"]]
    assert steps == [epoch["planned_steps"]] * 2


@pytest.mark.long
def test_demo_on_one_column_and_fewer_rows_than_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"only": pa.array([3, None], pa.int16())}), path)
    output = run_here(capsys, monkeypatch, tmp_path / "tmp", "--data", str(path), "--nproc=3")
    assert len(lines_with("every one of 2 rows exactly once (+1 planned", output)) == 2


def damaged_copy(files: Path, directory: Path) -> Path:
    """Copy files with zeros for the first half, where pages are."""
    directory.mkdir()
    for path in files.iterdir():
        content = bytearray(path.read_bytes())
        content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
        (directory / path.name).write_bytes(content)
    return directory


def small_job(files: Path, directory: Path) -> Job:
    task = Task("here", ("huge",), "y")
    return Job(directory, read_manifest(files).files, task, num_epochs=1, batch_size=64)


@pytest.mark.long
def test_error_in_a_rank_is_one_clear_message(own_files: Path, tmp_path: Path) -> None:
    damaged = read_manifest(damaged_copy(own_files, tmp_path / "damaged")).files
    (tmp_path / "job").mkdir()
    job = replace(small_job(own_files, tmp_path / "job"), paths=damaged)
    with pytest.raises(RuntimeError, match=r"^rank [01] failed: .*part-\d\.parquet"):
        run_ranks(job, 2)


def at_the_start_of_processes(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)


@pytest.mark.long
def test_crash_of_a_rank_shows_what_it_wrote(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, torch\n"
        "if os.environ.get('RANK') == '1':\n"
        "    torch.manual_seed = lambda seed: os.abort()\n"
    )
    at_the_start_of_processes(code, tmp_path, monkeypatch)
    with pytest.raises(RuntimeError, match="rank 1 was ended by SIGABRT") as caught:
        run_ranks(small_job(own_files, tmp_path), 2)
    notes = "\n".join(caught.value.__notes__)
    assert "Fatal Python error: Aborted" in notes
    assert "in train" in notes
    assert "Root Cause" not in notes


@pytest.mark.long
def test_threads_cannot_abort_a_rank_that_is_done(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch ends a process whose thread asks for an interpreter that is being taken down."""
    code = "import atexit, os\nif 'RANK' in os.environ: atexit.register(os.abort)\n"
    at_the_start_of_processes(code, tmp_path, monkeypatch)
    (epoch,) = run_ranks(small_job(own_files, tmp_path), 2)
    assert epoch["audit"]["faults"] == []


@pytest.mark.parametrize(
    ("exit_code", "has_word", "message"),
    [
        (-11, True, "rank 1 was ended by SIGSEGV"),
        (-15, True, "rank 0 failed: it broke"),
        (1, True, "rank 0 failed: it broke"),
        (1, False, "rank 1 ended with exit code 1"),
    ],
)
def test_message_is_of_the_first_failure(
    exit_code: int, has_word: bool, message: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, (), Task("", (), ""), 1, 1)
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    if has_word:
        # The first failure, by a moment too short for the time in the file.
        for file, text in zip(files, ("it\nbroke", "connection closed by peer"), strict=True):
            word = {"message": text, "extraInfo": {"timestamp": "7"}}
            file.write_text(json.dumps({"message": word}))
        os.utime(files[1], ns=(0, files[0].stat().st_mtime_ns + 1_000_000))
    exit_codes = (-signal.SIGTERM, exit_code)
    failures = {
        rank: ProcessFailure(rank, 7 + rank, exit_codes[rank], str(files[rank])) for rank in (1, 0)
    }
    error = _failure(job, ChildFailedError("env", failures))
    assert one_line(error).startswith(message)
    # Words that may have come of it, or be its cause, are not lost.
    assert has_word == (
        "it broke"
        in " ".join([one_line(error), *getattr(error, "__notes__", ())]).replace("\n", " ")
    )


@pytest.mark.long
def test_unreadable_data_is_one_line(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = damaged_copy(own_files, tmp_path / "damaged")
    assert main(["demo", "--data", str(damaged)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("torchparquet: error: ")
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["--data", "/no/such/file.parquet"], "/no/such/file.parquet", 1),
        (["--data", "x", "--data-dir", "y"], "--data-dir", 2),
        (["x"], "--data", 2),
        (["--nproc=0"], "--nproc", 2),
        (["--epochs=x"], "--epochs", 2),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], message: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(FileNotFoundError):
        main(["demo", "--debug", "--data", "/no/such/file.parquet"])
    with pytest.raises(FileNotFoundError):
        main(["--debug", "demo", "--data", "/no/such/file.parquet"])


def test_a_missing_program_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchparquet.tools.demo.data.shutil.which", lambda *args, **named: None)
    assert main(["demo"]) == 1
    error = capsys.readouterr().err
    assert "needs tpchgen-cli" in error
    assert "pip install tpchgen-cli; or give your own files with --data" in error


def test_own_data_without_readable_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    assert main(["demo", "--data", str(tmp_path)]) == 1
    assert "string" in capsys.readouterr().err


@pytest.mark.long
def test_import_of_the_package_leaves_the_demo_alone() -> None:
    code = "import sys, torchparquet; print([m for m in sys.modules if 'torchparquet.tools' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_and_removes_all_files(
    number: signal.Signals, tmp_path: Path
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [*DEMO, "--scale-factor=0.01", "--epochs=1000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("epoch 1/"):
            assert line
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 2
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr is not None
        assert len(process.stderr.read().splitlines()) <= 1
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def report_of(**changes: Any) -> dict[str, Any]:
    rank = {"rank": 0, "rows": 3, "row_groups": 1, "steps": 2, "seconds": 1.0, "wait_seconds": 0.1}
    rank |= {"wrong_targets": 0, "first_error": 2.0, "last_error": 1.0}
    audit = {"num_rows": 3, "planned_repeats": 0, "faults": changes.pop("faults", [])}
    return {"epoch": 0, "planned_steps": 2, "audit": audit, "ranks": [rank | changes]}


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"wrong_targets": 1}, False),
        ({"steps": 3}, False),
        ({"faults": ["1 of 3 rows missing, the first is row 1"]}, False),
    ],
)
def test_report_says_whether_all_holds(changes: dict[str, Any], holds: bool) -> None:
    console = Console(file=io.StringIO(), width=100)
    task = Task("here", ("x",), "y")
    assert print_audit(console, task, [report_of(), report_of(**changes)]) is holds
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("The audit holds." if holds else "The audit FAILS.") in output


@pytest.mark.long
def test_a_wrong_target_is_counted(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that are told another target for row 7 find one difference in the epoch."""
    code = (
        "import os, sys\n"
        "if 'RANK' in os.environ:\n"
        "    import pyarrow as pa\n"
        "    import pyarrow.parquet as pq\n"
        "    read = pq.read_table\n"
        "    def other(path, columns, **options):\n"
        "        values = read(path, columns=columns, **options).column(0).to_pylist()\n"
        "        values[7] = 1e9\n"
        "        return pa.table({columns[0]: pa.array(values, pa.float64())})\n"
        "    pq.read_table = other\n"
    )
    at_the_start_of_processes(code, tmp_path, monkeypatch)
    files = (str(min(own_files.iterdir())),)
    job = replace(small_job(own_files, tmp_path), paths=files)
    (epoch,) = run_ranks(job, 2)
    assert sum(rank["wrong_targets"] for rank in epoch["ranks"]) == 1


def test_only_nan_equals_nan() -> None:
    target = torch.tensor([1.0, math.nan, math.nan, 2.0, 3.0])
    expected = torch.tensor([1.0, math.nan, 5.0, math.nan, 4.0])
    assert count_wrong(target, expected) == 3
