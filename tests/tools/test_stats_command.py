"""`torchparquet stats`: its table, its JSON and the file that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset
from torchparquet.cli import main
from torchparquet.statistics import Statistics

SPLIT = ["train", {"train": 0.5, "val": 0.5}, 1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for file in range(2):
        table = pa.table(
            {
                "price": pa.array(rng.normal(size=500), mask=rng.random(500) < 0.1),
                "shop": rng.integers(0, 5, 500),
                "city": rng.choice(["Rome", "Bonn", "Oslo [x]"], 500),
                "tags": [["a"] * (row % 3) for row in range(500)],
                "void": pa.nulls(500, pa.int32()),
                "big": pa.array(range(500), pa.decimal256(50, 2)),
            }
        )
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=200)
    return folder


def test_the_report_and_the_file_are_those_of_the_data_set(
    report_of: Any, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "stats.json"
    arguments = ["--words", "shop", "--max-words", 2, "--sample", 300, "-o", out]
    report = report_of("stats", data, *arguments)
    names = ["price", "shop", "city", "tags", "void"]
    dataset = ParquetDataset(data, batch_size=10, columns=names, nulls={"void": 0})
    expected = Statistics.of(dataset, words=["shop"], max_words=2, sample=300)
    assert dict(Statistics.load(out)) == dict(expected)
    assert report["rows"] == 1000
    assert report["output"] == str(out)
    (left,) = report["left_out"]
    assert left["name"] == "big"
    assert "cannot be read as tensors" in left["reason"]
    assert [column["name"] for column in report["columns"]] == names
    for column in report["columns"]:
        of = expected[column["name"]]
        assert (column["count"], column["nulls"]) == (of.count, of.nulls)
        assert (column["mean"], column["std"], column["max"]) == (of.mean, of.std, of.max)
        assert column["words"] == [list(pair) for pair in of.words]
        assert column["distinct"] == of.distinct
        assert column["max_length"] == of.max_length
        if of.quantiles:
            percentiles = column["percentiles"]
            assert {"0.1", "1", "5", "10", "25", "50", "75", "90", "95", "99", "99.9"} <= {
                *percentiles
            }
            for percent, value in percentiles.items():
                assert value == of.quantiles[round(float(percent) * 10)]


def test_options_choose_columns_and_rows(report_of: Any, data: Path, tmp_path: Path) -> None:
    report = report_of(
        *("stats", data, "--column", "shop", "--column", "city", "--filter", "shop < 2"),
        *("--split", json.dumps(SPLIT), "--num-threads", 1, "--max-memory", "4MiB"),
    )
    dataset = ParquetDataset(
        data,
        batch_size=10,
        columns=["shop", "city"],
        filters="shop < 2",
        split=("train", {"train": 0.5, "val": 0.5}, 1),
    )
    shops = [shop for batch in dataset for shop in batch["shop"].tolist()]
    assert report["rows"] == len(shops) < 600
    assert report["columns"][0]["mean"] == pytest.approx(sum(shops) / len(shops))
    assert report["columns"][0]["max"] == 1
    assert report["left_out"] == []
    assert report["output"] is None


def test_the_table_shows_numbers_words_lengths_and_what_is_missing(
    data: Path, capsys: Any, tmp_path: Path
) -> None:
    out = tmp_path / "stats.json"
    assert main(["stats", str(data), "--words", "shop", "--output", str(out)]) == 0
    text = capsys.readouterr().out
    assert "1,000 rows, 5 columns" in text
    for part in ("Numbers", "Words", "Lengths of lists", "'Oslo [x]'", "50 %"):
        assert part in text
    assert "without a value  void" in text
    assert "left out  big: " in text
    assert out.name in text


def test_wrong_uses_are_refused(error_of: Any, data: Path, tmp_path: Path) -> None:
    assert "'price' is float64" in error_of("stats", data, "--words", "price")
    assert "big" in error_of("stats", data, "--column", "big")
    for split in ("train", '{"a": 1}'):
        assert "--split" in error_of("stats", data, "--split", split, code=2)
    missing = tmp_path / "none" / "stats.json"
    assert "none" in error_of("stats", data, "--output", missing)
