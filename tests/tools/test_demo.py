"""`torchparquet demo`: the real thing in a subprocess, and proof that its audit can fail."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from torchparquet.cli import main
from torchparquet.files.manifest import read_manifest
from torchparquet.tools.demo import report
from torchparquet.tools.demo.data import own_task, write_lineitem
from torchparquet.tools.demo.job import EpochResult, Job, RankEpoch
from torchparquet.tools.demo.launch import _failure, run_ranks, save_failure
from torchparquet.tools.demo.totals import (
    ColumnFacts,
    Totals,
    _facts_of_duckdb,
    _facts_of_pyarrow,
    read_facts,
    totals_of,
    totals_of_rows,
)
from torchparquet.tools.verify.row_audit import RowAudit, SeenRows, audit_rows, joined

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


def test_demo_holds(tmp_path: Path) -> None:
    done = run_demo("--scale-factor=0.01", "--nproc=2", scratch=tmp_path / "tmp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for epoch in (1, 2):
        (line,) = lines_with(f"epoch {epoch}: ", done.stdout)
        assert line.startswith("ok")
        assert " rows exactly once" in line
    assert len(lines_with("both ranks took", done.stdout)) == 1
    assert len(lines_with("ok    column sums equal those by DuckDB", done.stdout)) == 1
    assert lines_with("The audit holds.", done.stdout)
    assert "FAIL" not in done.stdout
    (errors,) = lines_with("at first,", done.stdout)
    first, last = (float(part.split()[0].replace(",", "")) for part in errors.split(", "))
    assert last < first / 5


def test_lineitem_is_kept_and_used_again(tmp_path: Path) -> None:
    directory, is_new = write_lineitem(tmp_path / "kept", 0.001)
    assert is_new
    files = sorted(directory.iterdir())
    assert len(files) == 4
    assert len(set(read_manifest(directory).row_group_num_rows.tolist())) > 4
    times = [file.stat().st_mtime_ns for file in files]
    assert write_lineitem(tmp_path / "kept", 0.001) == (directory, False)
    assert [file.stat().st_mtime_ns for file in files] == times
    assert list((tmp_path / "kept").iterdir()) == [directory]


def test_demo_on_own_data_with_nulls(
    own_files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = sorted(map(str, own_files.iterdir()))
    arguments = ["--data", *files, "--nproc=3", "--batch-size=64"]
    output = run_here(capsys, monkeypatch, tmp_path / "tmp", *arguments)
    assert "predicts y from 7 columns" in output
    exactly = f"every one of {NUM_ROWS:,} rows exactly once (+1 planned repeat)"
    assert len(lines_with(exactly, output)) == 2
    assert lines_with("column sums equal those", output)


def test_json_is_all_there_is_on_standard_output(own_files: Path, tmp_path: Path) -> None:
    done = run_demo("--data", str(own_files), "--epochs=1", "--json", scratch=tmp_path / "tmp")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["holds"]
    assert report["sums_agree"]
    (epoch,) = report["epochs"]
    assert epoch["audit"]["faults"] == []
    assert epoch["audit"]["num_distinct"] == report["rows"] == NUM_ROWS
    steps = [rank["steps"] for rank in epoch["ranks"]]
    assert steps == [epoch["planned_steps"]] * 2


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
    manifest = read_manifest(files)
    task = own_task(manifest, ["huge", "y"], None)
    _, facts = read_facts(manifest.files, task.columns)
    return Job(directory, manifest.files, task, facts, num_epochs=1, batch_size=64, debug=False)


def test_error_in_a_rank_is_one_clear_message(own_files: Path, tmp_path: Path) -> None:
    damaged = read_manifest(damaged_copy(own_files, tmp_path / "damaged")).files
    (tmp_path / "job").mkdir()
    job = replace(small_job(own_files, tmp_path / "job"), files=damaged)
    with pytest.raises(RuntimeError, match=r"^rank [01] failed: .*part-\d\.parquet"):
        run_ranks(job, 2)


def at_the_start_of_processes(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (directory / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)


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


def test_threads_cannot_abort_a_rank_that_is_done(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch ends a process whose thread asks for an interpreter that is being taken down."""
    code = "import atexit, os\nif 'RANK' in os.environ: atexit.register(os.abort)\n"
    at_the_start_of_processes(code, tmp_path, monkeypatch)
    (epoch,) = run_ranks(small_job(own_files, tmp_path), 2)
    assert epoch.audit.holds


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
    job = Job(tmp_path, (), None, {}, 1, 1, debug=False)  # type: ignore[arg-type]
    log = tmp_path / "log"
    other = "[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 7)\n"
    root = f"[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : {exit_code} (pid: 8)\n"
    log.write_text(f"Failures:\n{other}Root Cause (first observed failure):\n{root}")
    if has_word:
        save_failure(job, 0, ValueError("it\nbroke"))
        save_failure(job, 1, RuntimeError("connection closed by peer"))
    error = _failure(job, 1, log)
    assert str(error).startswith(message)
    # What may have come of it, or be its cause, is not lost.
    assert has_word == ("it broke" in "\n".join([str(error), *getattr(error, "__notes__", ())]))


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
        (["--target", "x"], "--target needs --data", 2),
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


def test_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchparquet.tools.demo.data.shutil.which", lambda *args, **named: None)
    assert main(["demo"]) == 1
    error = capsys.readouterr().err
    assert "tpchgen-cli" in error
    assert 'pip install "torchparquet[demo]"' in error


def test_own_data_without_readable_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    assert main(["demo", "--data", str(tmp_path)]) == 1
    assert "string" in capsys.readouterr().err


def test_import_of_the_package_leaves_the_demo_alone() -> None:
    code = "import sys, torchparquet; print([m for m in sys.modules if 'torchparquet.tools' in m])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
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
        assert len(children) >= 3
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr is not None
        assert len(process.stderr.read().splitlines()) <= 1
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


def audit_of(*ids_of_ranks: list[int], num_rows: int, planned_repeats: int = 0) -> RowAudit:
    runs = []
    for ids in ids_of_ranks:
        seen = SeenRows()
        for part in np.array_split(np.array(ids, np.int64), 3):
            seen.add(part)
        runs.append(seen.runs())
    return audit_rows(0, runs, num_rows, planned_repeats)


def test_audit_of_rows() -> None:
    good = audit_of([5, 0, 1, 2], [3, 4, 6], num_rows=7)
    assert good.holds
    assert (good.num_distinct, good.num_repeats, good.first_missing) == (7, 0, None)
    planned = audit_of([0, 1, 2, 3], [4, 5, 6, 6], num_rows=7, planned_repeats=1)
    assert planned.holds
    assert planned.repeated == (6,)


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ([0, 1, 2, 3, 4, 5, 5], "rows missing, the first is row 6"),
        ([0, 1, 2, 3, 4, 6, 6], "rows missing, the first is row 5"),
        ([0, 1, 2, 3, 4, 5, 6, 3], "1 rows repeated, 0 planned, the first is row 3"),
        ([0, 1, 2, 3, 4, 5], "1 of 7 rows missing, the first is row 6"),
        ([0, 1, 2, 3, 4, 5, 7], "1 row ids that no file has"),
        ([-1, 0, 1, 2, 3, 4, 5, 6], "1 row ids that no file has"),
        ([], "7 of 7 rows missing"),
    ],
)
def test_audit_finds_what_is_wrong(ids: list[int], fault: str) -> None:
    audit = audit_of(ids[:2], ids[2:], num_rows=7)
    assert not audit.holds
    assert any(fault in found for found in audit.faults())


def test_audit_wants_the_planned_repeats() -> None:
    assert not audit_of([0, 1], [2, 3], num_rows=4, planned_repeats=1).holds
    assert not audit_of([0, 1, 1], [2, 2, 3], num_rows=4, planned_repeats=1).holds


def test_audit_counts_as_a_plain_count_does() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        num_rows = int(generator.integers(1, 12))
        ranks = [generator.integers(-1, num_rows + 1, generator.integers(0, 9)) for _ in range(3)]
        audit = audit_of(*(list(map(int, ids)) for ids in ranks), num_rows=num_rows)
        ids = np.concatenate(ranks)
        known = ids[(ids >= 0) & (ids < num_rows)]
        counts = np.bincount(known, minlength=num_rows)
        assert audit.num_unknown == len(ids) - len(known)
        assert audit.num_distinct == np.count_nonzero(counts)
        assert audit.num_repeats == len(known) - audit.num_distinct
        again = np.repeat(np.arange(num_rows), np.maximum(counts - 1, 0))
        assert sorted(audit.repeated) == again.tolist()


def test_runs_keep_every_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchparquet.tools.verify.row_audit._MAX_PENDING_ROWS", 10)
    generator = np.random.default_rng(2)
    ids = np.concatenate([generator.permutation(100), generator.integers(0, 100, 37)])
    seen = SeenRows()
    for start in range(0, len(ids), 7):
        seen.add(ids[start : start + 7])
    kept = np.concatenate([np.arange(begin, end) for begin, end in seen.runs()])
    assert sorted(kept.tolist()) == sorted(ids.tolist())
    assert joined([seen.runs()[:0]]).shape == (0, 2)


def result_of(total: int, num_steps: int = 2, missing: int | None = None) -> EpochResult:
    audit = RowAudit(0, 3, 3 if missing is None else 2, 0, 0, 0, (), missing)
    one = RankEpoch(
        num_rows=3,
        num_steps=num_steps,
        num_row_groups=1,
        seconds=1.0,
        wait_seconds=0.1,
        runs=np.array([[0, 3]]),
        totals={"x": Totals(3, 0, total)},
        squared_errors=np.ones(2),
        num_targets=np.ones(2, np.int64),
    )
    return EpochResult(audit, 2, (one,))


@pytest.mark.parametrize(
    ("result", "holds"),
    [
        (result_of(6), True),
        (result_of(7), False),
        (result_of(6, num_steps=3), False),
        (result_of(6, missing=1), False),
    ],
)
def test_report_says_whether_all_holds(result: EpochResult, holds: bool) -> None:
    console = Console(file=io.StringIO(), width=100)
    facts = {"x": ColumnFacts(Totals(3, 0, 6), 6.0, 2.0, 1.0)}
    sums = report.print_totals(console, "DuckDB", facts, [{"x": Totals()}], [result])
    assert report.print_audit(console, [result], "DuckDB", sums_agree=sums) is holds
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("The audit holds." if holds else "The audit FAILS.") in output


def test_sums_are_exact_where_int64_would_overflow() -> None:
    values = np.full(5, np.iinfo(np.int64).max)
    assert totals_of(values).total == 5 * (2**63 - 1)
    assert totals_of(-values - 1).total == -5 * 2**63
    assert totals_of(np.full(3, 2**64 - 1, np.uint64)).total == 3 * (2**64 - 1)
    floats = np.array([1.5, np.nan, np.inf, 0.0])
    assert totals_of(floats, num_nulls=1) == Totals(3, 2, 1.5)


def test_duckdb_and_pyarrow_say_the_same(own_files: Path) -> None:
    manifest = read_manifest(own_files)
    columns = own_task(manifest, [leaf.path for leaf in manifest.schemas[0]], None).columns
    # DuckDB takes the directory's brackets for a pattern, so that it is not asked.
    reader, facts = read_facts(manifest.files, columns)
    assert reader.startswith("pyarrow")
    quoted = [file.replace("[", "[[]") for file in manifest.files]
    others = _facts_of_duckdb(quoted, columns)
    assert facts == _facts_of_pyarrow(manifest.files, columns)
    for leaf in columns:
        one, other = facts[leaf.path], others[leaf.path]
        assert one.totals.agrees(other.totals, one.sum_of_absolutes), leaf
        assert one.mean == pytest.approx(other.mean, rel=1e-6)
        assert one.std == pytest.approx(other.std, rel=1e-6)


def test_totals_of_single_rows(own_files: Path) -> None:
    manifest = read_manifest(own_files)
    (huge,) = [leaf for leaf in manifest.schemas[0] if leaf.path == "huge"]
    table = pa.concat_tables(pq.read_table(file) for file in manifest.files)
    rows = [0, 699, 700, 3_700, NUM_ROWS - 1, NUM_ROWS - 1]
    expected = sum(table["huge"][row].as_py() for row in rows)
    assert totals_of_rows(manifest, rows, [huge])["huge"] == Totals(6, 0, expected)
