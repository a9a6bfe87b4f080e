"""Ctrl-C while a data set is made: it ends the native call that runs."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROGRAM = """
    import os, sys, torch, pyarrow.dataset
    from torchparquet import ParquetDataset
    ParquetDataset(sys.argv[1] + "/f0.parquet", batch_size=8, filters="x >= 0")
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    ParquetDataset(sys.argv[1], batch_size=8, filters=sys.argv[2] or None)
"""
NUM_FILES, NUM_ROW_GROUPS, DELAY_MS = 400, 400, 30


def reads_until_interrupt(
    folder: Path, where: str, strace: str, num_before: int
) -> tuple[int, str]:
    """Interrupt a program after some reads of data files; return all of these and what it says."""
    log = folder.parent / "strace.log"
    paths = [part for path in sorted(folder.iterdir()) for part in ("-P", str(path))]
    delay = f"inject=pread64:delay_enter={DELAY_MS}ms"
    tracer = [strace, "-f", "--seccomp-bpf", "-qq", "-o", str(log), *paths]
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), where]
    with subprocess.Popen(
        [*tracer, "-e", "trace=pread64", "-e", delay, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            pid = int(program.stdout.readline())
            before = len(log.read_text().splitlines())
            program.stdin.write("\n")
            program.stdin.flush()
            while len(log.read_text().splitlines()) < before + num_before:
                os.sched_yield()
            # The kernel would spare a main thread that the tracer holds; a terminal's it takes.
            ctypes.CDLL(None).tgkill(pid, pid, signal.SIGINT)
            _, errors = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == -signal.SIGINT, errors
    return len(log.read_text().splitlines()) - before, errors


@pytest.mark.long
def test_interrupt_while_footers_on_disk_are_read(tmp_path: Path, strace: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"x": np.arange(8)}), folder / "f0.parquet")
    for number in range(1, NUM_FILES):
        shutil.copy(folder / "f0.parquet", folder / f"f{number}.parquet")
    reads, errors = reads_until_interrupt(folder, "", strace, 4)
    assert "\nKeyboardInterrupt\n" in errors
    assert reads < NUM_FILES  # of twice as many


@pytest.mark.long
def test_interrupt_while_rows_are_selected(tmp_path: Path, strace: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"x": np.arange(8)}), folder / "f0.parquet")
    # pyarrow reads 2 million rows ahead; "unread" stands between the reads of "x".
    rows = np.arange(8_000_000)
    table = pa.table({"x": rows % 7, "unread": rows})
    size = len(rows) // NUM_ROW_GROUPS
    pq.write_table(table, folder / "f1.parquet", size, use_dictionary=["x"], compression="none")
    reads, errors = reads_until_interrupt(folder, "x % 2 = 0", strace, 40)
    assert "\nKeyboardInterrupt\n" in errors
    assert reads < NUM_ROW_GROUPS  # of twice as many
