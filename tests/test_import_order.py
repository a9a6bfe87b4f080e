"""Reading next to each library that loads Arrow or C++ of its own, imported before or after."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.tree import child_environment

LIBRARIES = ["torch", "pandas", "datasets", "ray", "pyarrow.dataset", "polars", "duckdb"]

READ = """
    import sys
    import {first}
    import {second}
    import pyarrow as pa, pyarrow.parquet as pq, pandas
    from torchparquet import ParquetDataset
    from torchparquet._impl.native import load_bridge
    assert pa.__version__.startswith(load_bridge() + "."), (pa.__version__, load_bridge())
    total = sum(int(b["a"].sum()) for b in ParquetDataset(sys.argv[1], batch_size=100))
    assert total == pq.read_table(sys.argv[1])["a"].to_numpy().sum(), total
    assert total == pandas.read_parquet(sys.argv[1])["a"].sum(), total
    try:
        list(ParquetDataset(sys.argv[2], batch_size=100))
    except OSError as error:
        print(type(error).__name__, total)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A file in a codec of Arrow's, and one that Arrow refuses to open."""
    folder: Path = tmp_path_factory.mktemp("order")
    table = pa.table({"a": np.arange(1000), "b": [str(i) for i in range(1000)]})
    pq.write_table(table, folder / "good.parquet", compression="brotli")
    (folder / "bad.parquet").write_bytes(b"PAR1" + b"\x15" * 20 + b"\x08\0\0\0PAR1")
    return [str(folder / name) for name in ("good.parquet", "bad.parquet")]


@pytest.mark.long
@pytest.mark.parametrize("library_first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_reading_next_to(library: str, library_first: bool, files: list[str]) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    first, second = (library, "torchparquet") if library_first else ("torchparquet", library)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(READ.format(first=first, second=second)), *files],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "CorruptFileError 499500\n", done.stderr
