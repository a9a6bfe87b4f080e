"""A failure of the machine is not told as damage of a file."""

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import CorruptFileError, ParquetDataset
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.rows.fragments import Fragments
from torchparquet.cli.preparing.footer_facts import read_footer
from torchparquet.errors import naming, unreadable


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open no further file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(100)}), path)
    return path


def by_commands(path: Path) -> Callable[[], Any]:
    return lambda: read_footer(str(path))


def by_conditions(path: Path) -> Callable[[], Any]:
    fragments = Fragments(read_manifest([str(path)]), None, None)
    return lambda: fragments.footer(0, {})


@pytest.mark.parametrize("reading", [by_commands, by_conditions])
def test_too_many_open_files(path: Path, reading: Callable[[Path], Callable[[], Any]]) -> None:
    read = reading(path)
    with no_more_files(), pytest.raises(OSError, match="Too many open files") as caught:
        read()
    assert caught.value.errno == errno.EMFILE
    assert caught.value.filename == str(path)
    assert not isinstance(caught.value, CorruptFileError)
    read()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1" + bytes(8) + b"PAR1"])
def test_damage_is_still_damage(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        read_footer(str(path))
    with pytest.raises(CorruptFileError):
        ParquetDataset(path, batch_size=1, filters="x > 3")


def test_a_lack_of_memory_stays_one() -> None:
    found = unreadable(pa.ArrowMemoryError("malloc of size 64 failed"), "a.parquet", "cannot read")
    assert isinstance(found, MemoryError)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("error closing file"), "[Errno 5] error closing file: 'a.arrow'"),
        (OSError(errno.ENOSPC, "full"), "[Errno 28] No space left on device: 'a.arrow'"),
        (OSError(errno.ENOSPC, "full", "b"), "[Errno 28] full: 'b'"),
        (CorruptFileError("page is too short: file 'b'"), "page is too short: file 'b'"),
    ],
)
def test_the_innermost_file_is_named_and_once(error: OSError, told: str) -> None:
    with (
        pytest.raises(OSError, match=re.escape(told)) as raised,
        naming("outer"),
        naming("a.arrow"),
    ):
        raise error
    assert str(raised.value) == told
