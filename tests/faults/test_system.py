"""Faults of the system, each a few times."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT, completed

SYSTEM = ROOT / "bench" / "faults" / "system.py"
# The share of cases that takes some seconds.
SHARES = {
    "calls": 0.004,
    "disks": 0.01,
    "memory": 0.004,
    "stuck": 0.02,
    "changes": 0.04,
    "machine": 0.1,
    "groups": 1.0,
}

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler for the shim"),
]


@pytest.mark.parametrize("fault", SHARES)
def test_a_fault_gives_right_rows_or_a_clear_error(fault: str) -> None:
    done = completed(SYSTEM, "--only", fault, "--share", SHARES[fault])
    assert done.returncode == 0, done.stdout + done.stderr


# Each program writes to the folder of its arguments, where no file may have more than 1,000 bytes.
WRITERS = {
    "cache": """
        torchparquet.ParquetDataset(data, batch_size=10, manifest_cache=out / "manifest")
    """,
    "tokens": """
        tokenizer = lambda texts: [list(text.encode()) for text in texts]
        tokenizer.fingerprint = "bytes"
        pack = torchparquet.Pack("text", 8, tokenizer=tokenizer, token_cache=out / "tokens")
        torchparquet.ParquetDataset(data, batch_size=10, pack=pack)
    """,
    "rewrite": """
        from torchparquet.cli.rewrite import Data, RewriteOptions, rewrite
        rewrite(Data([str(data)]), str(out), RewriteOptions())
    """,
    "shuffled rewrite": """
        from torchparquet.cli.rewrite import Data, RewriteOptions, rewrite
        rewrite(Data([str(data)]), str(out), RewriteOptions(shuffle=True))
    """,
}
LIMITED = """
import pathlib, resource, sys
import pyarrow as pa, pyarrow.parquet as pq, torchparquet
data, out = pathlib.Path(sys.argv[1]) / "a.parquet", pathlib.Path(sys.argv[1]) / "out"
pq.write_table(pa.table({"a": range(5000), "text": [str(a) for a in range(5000)]}), data)
out.mkdir()
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
try:
"""


@pytest.mark.parametrize("name", WRITERS)
def test_a_write_that_fails_names_the_file(tmp_path: Path, name: str) -> None:
    caught = "\nexcept OSError as error:\n    print(type(error).__name__, error)\n"
    writer = WRITERS[name].replace("\n        ", "\n    ")
    done = completed("-c", LIMITED + writer + caught, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OSError [Errno 27] File too large: "), done.stdout
    assert str(tmp_path / "out") in done.stdout


NO_SHARED_MEMORY = """
import resource, sys
import pyarrow as pa, pyarrow.parquet as pq, torchparquet
path = sys.argv[1] + "/a.parquet"
pq.write_table(pa.table({"a": list(range(50))}), path)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
try:
    torchparquet.ParquetDataset(path, batch_size=10)
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
print(len(list(torchparquet.ParquetDataset(path, batch_size=10))))
"""


def test_shared_memory_that_is_refused_is_told(tmp_path: Path) -> None:
    done = completed("-c", NO_SHARED_MEMORY, tmp_path)
    assert done.returncode == 0, done.stderr
    told, num_batches = done.stdout.splitlines()
    assert "the system gives no shared memory for the numbers of epochs" in told
    assert told.endswith("File too large")
    assert num_batches == "5"
