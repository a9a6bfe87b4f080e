"""Metadata of a table lead to no file outside its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset

deltalake = pytest.importorskip("deltalake")


def name_another(table: Path, wanted: str) -> None:
    """Let the log of a table with one file name another in its place."""
    (log,) = (table / "_delta_log").glob("*.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = wanted
    log.write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    deltalake.write_deltalake(str(tmp_path / "table"), pa.table({"x": [1, 2]}))
    return tmp_path / "table"


ELSEWHERE = "https://user:word@localhost:1/a.parquet?token=t0ken"
FORMS = ["../secret.parquet", "%2e%2e/secret.parquet", "uri", "a/../../x", ELSEWHERE]


@pytest.mark.parametrize("form", FORMS)
def test_a_delta_table_reads_its_own_folder_and_tells_no_secret(table: Path, form: str) -> None:
    secret = table.with_name("secret.parquet")
    pq.write_table(pa.table({"x": [7, 8]}), secret)
    name_another(table, secret.as_uri() if form == "uri" else form)
    with pytest.raises(ValueError, match="names a file outside its folder") as caught:
        ParquetDataset(deltalake.DeltaTable(str(table)), batch_size=2)
    assert "word" not in str(caught.value)
    assert "t0ken" not in str(caught.value)


def test_a_file_by_its_whole_uri_within_the_folder(table: Path) -> None:
    (file,) = table.glob("*.parquet")
    name_another(table, file.as_uri())
    (batch,) = ParquetDataset(deltalake.DeltaTable(str(table)), batch_size=2)
    assert batch["x"].tolist() == [1, 2]
