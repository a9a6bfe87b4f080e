"""`torchparquet demo`: the real thing in a subprocess, and proof that its audit can fail."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.tree import completed
from torchparquet.cli.demo.rank import count_wrong

DEMO = ["-m", "torchparquet", "demo"]
NUM_ROWS = 5_000


def run_demo(*arguments: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the demo with temporary files in `scratch`, where none may be left."""
    scratch.mkdir(exist_ok=True)
    done = completed(*DEMO, *arguments, TMPDIR=str(scratch))
    assert list(scratch.iterdir()) == []
    return done


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
def test_demo_on_own_data_with_nulls(own_files: Path, tmp_path: Path) -> None:
    files = sorted(map(str, own_files.iterdir()))
    done = run_demo(*files, "--nproc=3", "--batch-size=64", scratch=tmp_path / "tmp")
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    assert "predicts y from 6 columns" in output
    exactly = f"every one of {NUM_ROWS:,} rows exactly once (+1 planned)"
    assert len(lines_with(exactly, output)) == 2
    assert len(lines_with("every target equals pyarrow's", output)) == 2


def at_the_start_of_ranks(code: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["import os", "if 'RANK' in os.environ:", *(f"    {one}" for one in code.splitlines())]
    directory.mkdir(exist_ok=True)
    (directory / "sitecustomize.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(directory), prepend=os.pathsep)


@pytest.mark.long
def test_error_in_a_rank_is_one_clear_line(
    own_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 fails as well, later, because it loses its peer."""
    code = (
        "if os.environ['RANK'] == '1':\n"
        "    import pyarrow.parquet as pq\n"
        "    def broken(path, **options): raise OSError(f'it broke: {path}')\n"
        "    pq.read_table = broken\n"
    )
    at_the_start_of_ranks(code, tmp_path / "site", monkeypatch)
    done = run_demo(str(own_files), scratch=tmp_path / "tmp")
    assert done.returncode == 1
    assert re.fullmatch(
        r"torchparquet: error: rank 1 failed: it broke: .*part-0\.parquet\n", done.stderr
    )


def test_wrong_arguments_are_one_line(error_of: Any) -> None:
    assert "/no/such/file.parquet" in error_of("demo", "/no/such/file.parquet")
    assert "--data-dir" in error_of("demo", "x", "--data-dir", "y", code=2)


def test_a_missing_program_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, error_of: Any
) -> None:
    monkeypatch.setattr("torchparquet.cli.demo.shutil.which", lambda *args, **named: None)
    assert "needs tpchgen-cli, which is not installed: pip install tpchgen-cli" in error_of("demo")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks_and_removes_all_files(
    number: signal.Signals, tmp_path: Path
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, *DEMO, "--scale-factor=0.01", "--epochs=1000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("epoch 1/"):
            assert line
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 3  # torchrun, and two ranks
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr is not None
        assert len(process.stderr.read().splitlines()) <= 1
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        # Ranks are told another target for row 7.
        (
            "import pyarrow as pa, pyarrow.parquet as pq\n"
            "read = pq.read_table\n"
            "def other(path, columns, **options):\n"
            "    values = read(path, columns=columns, **options).column(0).to_pylist()\n"
            "    values[7] = 1e9\n"
            "    return pa.table({columns[0]: pa.array(values, pa.float64())})\n"
            "pq.read_table = other\n",
            "epoch 1: 1 targets differ from pyarrow's",
        ),
        # Rank 1 does not see the first row of its batches.
        (
            "import sys\n"
            "if os.environ['RANK'] == '1':\n"
            "    import torchparquet.audit as audit\n"
            "    add = audit.SeenRows.add\n"
            "    audit.SeenRows.add = lambda seen, ids: add(seen, ids[1:])\n",
            "epoch 1: 2 of 128 rows are missing, 0 planned",
        ),
    ],
    ids=["values", "rows"],
)
def test_the_audit_finds_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, fault: str
) -> None:
    pq.write_table(pa.table({"y": np.arange(128.0)}), tmp_path / "a.parquet")
    at_the_start_of_ranks(code, tmp_path / "site", monkeypatch)
    arguments = (str(tmp_path / "a.parquet"), "--batch-size=32", "--epochs=1")
    done = run_demo(*arguments, scratch=tmp_path / "tmp")
    assert done.returncode == 1
    assert "The audit FAILS." in done.stdout
    (found,) = lines_with("FAIL ", done.stdout)
    assert fault in found


def test_only_nan_equals_nan() -> None:
    target = torch.tensor([1.0, math.nan, math.nan, 2.0, 3.0])
    expected = torch.tensor([1.0, math.nan, 5.0, math.nan, 4.0])
    assert count_wrong(target, expected) == 3
