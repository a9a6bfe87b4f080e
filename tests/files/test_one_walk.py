"""Making a data set opens each file once, whatever its options, as the system sees it."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NUM_FILES = 4

# Data sets that are made one after another, each with how often it opens every file, or each.
# Statistics and keys decide about all row groups, so that no values are read.
CASES: dict[str, tuple[str, int | list[int]]] = {
    "plain": ("", 1),
    "columns": ("columns=['x', 'k']", 1),
    "words": ("columns={'s': Column('s', vocab=['a', 'b'])}", 1),
    "shuffled": ("shuffle=True, seed=3, row_ids=True, num_threads=2", 1),
    "dynamic": ("even='dynamic'", 1),
    "balanced by bytes": ("even='none', order=BYTES, columns=['x']", 1),
    "filtered": ("filters=[('x', '>=', 130)]", 1),
    "filtered by keys": ("filters=[('k', '=', 2), ('x', '>', 120)]", 1),
    "filtered and balanced": (
        "filters=[('x', '>=', 30)], even='none', order=BYTES",
        1,
    ),
    "the cache is made": ("manifest_cache=CACHE", 1),
    "cached": ("manifest_cache=CACHE", 0),
    "cached and filtered": ("manifest_cache=CACHE, filters=[('k', '=', 2)]", [1, 0, 0, 0]),
    "both of the cache": ("manifest_cache=CACHE, filters=[('k', '=', 2)]", 0),
    "cached without sizes": ("manifest_cache=CACHE, even='none', order=BYTES", 1),
    "cached with sizes": ("manifest_cache=CACHE, even='none', order=BYTES", 0),
    "sizes that are not needed": ("manifest_cache=CACHE", 0),
    "the cache is made for all": (
        "manifest_cache=CACHE + '2', even='none', order=BYTES, filters=[('x', '>=', 30)]",
        1,
    ),
}


def num_opens(strace: str, data: Path, program: str, log: Path) -> list[list[int]]:
    """Return how often each file below `data` was opened before each call of `mark()`."""
    head = f"""
        import os
        import sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from torchparquet import Column, Order, ParquetDataset
        BYTES = Order('bytes')
        DATA, CACHE = {str(data)!r}, {str(data.parent / "cache")!r}
        def mark():
            try:
                os.open("/no such mark", os.O_RDONLY)
            except FileNotFoundError:
                pass
    """
    tracer = [strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=open,openat,openat2"]
    text = textwrap.dedent(head) + textwrap.dedent(program)
    command = [*tracer, "-o", str(log), sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    parts = log.read_text().split("/no such mark")[:-1]
    files = sorted(map(str, data.rglob("*.parquet")))
    assert len(files) == NUM_FILES
    return [[len(re.findall(f'"{re.escape(file)}"', part)) for file in files] for part in parts]


@pytest.mark.long
def test_each_file_is_opened_once(tmp_path: Path, strace: str) -> None:
    for key in range(NUM_FILES):
        folder = tmp_path / "data" / f"k={key}"
        folder.mkdir(parents=True)
        x = np.arange(100 * key, 100 * (key + 1))
        table = pa.table({"x": x, "s": pa.array(x % 2).cast(pa.string()), "y": x * 0.5})
        pq.write_table(table, folder / "a.parquet", row_group_size=30)
    lines = [
        f"ParquetDataset(DATA, batch_size=8, {options})\nmark()" for options, _ in CASES.values()
    ]
    opens = num_opens(strace, tmp_path / "data", "\n".join(lines), tmp_path / "log")
    expected = [
        [times] * NUM_FILES if isinstance(times, int) else times for _, times in CASES.values()
    ]
    assert dict(zip(CASES, opens, strict=True)) == dict(zip(CASES, expected, strict=True))
