"""What old writers and those of other languages store otherwise than pyarrow, read all the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.generated_pages import varint
from tests.fixtures.parquet_files import read_all, write
from tests.fixtures.thrift_bytes import (
    footer_begin,
)
from torchparquet import ParquetDataset


def with_footer(content: bytes, old: bytes, new: bytes) -> bytes:
    """`content` with other bytes in its footer, and the footer's length set right."""
    begin = footer_begin(content)
    assert content[begin:].count(old) == 1
    changed = content[begin:-8].replace(old, new)
    return content[:begin] + changed + len(changed).to_bytes(4, "little") + b"PAR1"


# Sizes


def created_by(path: Path, name: bytes) -> None:
    """Put another writer's name into a file."""
    own = pq.read_metadata(path).created_by.encode()
    old, new = (varint(len(text)) + text for text in (own, name))
    path.write_bytes(with_footer(path.read_bytes(), old, new))


# Summaries


def test_a_summary_says_what_it_is(tmp_path: Path) -> None:
    parts: list[pq.FileMetaData] = []
    table = pa.table({"x": list(range(100))})
    pq.write_to_dataset(table, tmp_path / "data", metadata_collector=parts)
    summary = tmp_path / "data" / "_metadata"
    pq.write_metadata(table.schema, summary, metadata_collector=parts)
    with pytest.raises(ValueError, match=r"stored in another file.*directory.*_metadata"):
        ParquetDataset(summary, batch_size=10)
    assert sorted(read_all(tmp_path / "data")["x"].tolist()) == list(range(100))


@pytest.mark.parametrize("named", ["../elsewhere.parquet", "a.parquet/b", "b.parquet", "é"])
def test_pages_in_another_file_are_not_read_from_this_one(tmp_path: Path, named: str) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": list(range(100)), "y": list(range(100))})
    for name in (named, "a.parquet"):
        collected: list[pq.FileMetaData] = []
        write(path, table, metadata_collector=collected)
        collected[0].set_file_path(name)
        pq.write_metadata(table.schema, tmp_path / "footer", metadata_collector=collected)
        content = path.read_bytes()
        foot = (tmp_path / "footer").read_bytes()[4:]
        path.write_bytes(content[: footer_begin(content)] + foot)
        if name == named:
            with pytest.raises(ValueError, match="stored in another file") as caught:
                ParquetDataset(path, batch_size=10)
            assert str(path) in str(caught.value)
        else:  # a file may name itself
            assert read_all(path)["x"].tolist() == list(range(100))
