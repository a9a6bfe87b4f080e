"""Keys of paths and defaults, as columns: values that no file stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torchparquet import Column, ParquetDataset, SchemaMismatchError, UnsupportedColumnError


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two files below year=/region= directories; `x` ascends over both."""
    root = tmp_path_factory.mktemp("partitioned")
    for year in (2023, 2024):
        folder = root / f"year={year}" / "region=de"
        folder.mkdir(parents=True)
        x = range(190 * (year - 2023), 190 * (year - 2022))
        pq.write_table(pa.table({"x": x, "y": x}), folder / "part.parquet", row_group_size=10)
    return root


def test_partition_keys_are_columns_by_name(partitioned: Any) -> None:
    columns = {"x": "x", "when": "year", "both": Column(["x", "year"], dtype="float32")}
    for options in ({}, {"shuffle": True}, {"max_memory": "2KiB"}):
        dataset = ParquetDataset(partitioned, batch_size=7, columns=columns, **options)  # type: ignore[arg-type]
        for batch in dataset:
            year = 2023 + batch["x"] // 190
            assert batch["when"].dtype == torch.int64
            assert (batch["when"] == year).all()
            assert (batch["both"] == torch.stack([batch["x"], year], dim=1)).all()
    alone = ParquetDataset(partitioned / "year=2024", batch_size=50, columns=["year"])
    assert torch.cat([b["year"].clone() for b in alone]).tolist() == [2024] * 190
    assert "year" not in next(iter(ParquetDataset(partitioned, batch_size=1, columns=["x", "y"])))


@pytest.mark.parametrize(
    ("columns", "error", "named"),
    [
        (["region"], UnsupportedColumnError, "partition key 'de'"),
        ({"y": Column("year", dtype="int8")}, ValueError, "int8, the value 202[34]"),
        ({"y": Column("year", dtype="bool")}, UnsupportedColumnError, "cannot be read as bool"),
        (["month"], ValueError, "no such column: 'month'"),
    ],
    ids=str,
)
def test_partition_keys_that_cannot_be_read(
    partitioned: Any, columns: dict[str, Any] | list[str], error: Any, named: str
) -> None:
    with pytest.raises(error, match=named):
        ParquetDataset(partitioned, batch_size=1, columns=columns)


def test_a_stored_column_goes_before_a_partition_key(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    pq.write_table(pa.table({"k": [5, 6]}), tmp_path / "k=1" / "a.parquet")
    (batch,) = ParquetDataset(tmp_path, batch_size=2)
    assert batch["k"].tolist() == [5, 6]


def test_a_missing_column_reads_its_default(tmp_path: Path) -> None:
    first = pa.table({"x": pa.array([1, None, 3], pa.int32()), "y": [1.0, 2.0, 3.0]})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([4, 5], pa.int64())}), tmp_path / "b.parquet")
    columns = {
        "x": Column("x", dtype="int64", nulls=0),
        "y": Column("y", default=-1, nulls="mask"),
        "z": Column("y", default=7, dtype=torch.bfloat16),
    }
    (batch,) = ParquetDataset(tmp_path, batch_size=5, columns=columns)
    assert batch["x"].tolist() == [1, 0, 3, 4, 5]
    assert batch["y"].tolist() == [1, 2, 3, -1, -1]
    assert batch["y.valid"].tolist() == [True] * 5
    assert batch["z"].dtype == torch.bfloat16
    assert batch["z"].tolist() == [1, 2, 3, 7, 7]
    with pytest.raises(SchemaMismatchError, match=r"'y': present in .*a.parquet.*b.parquet"):
        ParquetDataset(tmp_path, batch_size=5, columns=["y"])
    with pytest.raises(ValueError, match=r"default must be representable.*300"):
        ParquetDataset(
            tmp_path, batch_size=5, columns={"x": Column("x", dtype="int8", default=300)}
        )
    with pytest.raises(TypeError, match="default must be a number"):
        Column("x", default=["a"])  # type: ignore[list-item]
