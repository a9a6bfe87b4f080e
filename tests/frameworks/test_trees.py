"""Boosted trees: those of batches are those of the whole table in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ByLength, Column, ParquetDataset, mix

NUM_ROWS = 5_003
FEATURES = ["x0", "x1", "x2"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: Any) -> Any:
    """A file with missing values, and the same as arrays."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((NUM_ROWS, 3), dtype=np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    label = (np.nansum(x, 1) > rng.standard_normal(NUM_ROWS)).astype(np.float32)
    weight = rng.random(NUM_ROWS, dtype=np.float32)
    columns = {name: x[:, place] for place, name in enumerate(FEATURES)}
    lists = [[0.5] * (1 + row % 3) for row in range(NUM_ROWS)]
    path = tmp_path_factory.mktemp("trees") / "a.parquet"
    made = pa.table(columns | {"label": label, "weight": weight, "items": lists})
    pq.write_table(made, path, row_group_size=700)
    return path, x, label, weight


def dataset_of(path: Path, **options: Any) -> ParquetDataset:
    columns = {"x": FEATURES, "label": "label", "weight": "weight", "items": "items"}
    defaults: dict[str, Any] = {"batch_size": 512, "columns": columns}
    return ParquetDataset(path, **(defaults | options))


@pytest.fixture
def data_iter() -> Any:
    pytest.importorskip("xgboost")
    from torchparquet.frameworks.xgboost import ParquetDataIter

    return ParquetDataIter


@pytest.fixture
def sequence() -> Any:
    pytest.importorskip("lightgbm")
    from torchparquet.frameworks.lightgbm import ParquetSequence

    return ParquetSequence


BOOSTING = {"objective": "binary:logistic", "max_bin": 64, "nthread": 1}


def trees_of(matrix: Any) -> Any:
    import xgboost

    return xgboost.train(BOOSTING, matrix, 10).get_dump(with_stats=True)


@pytest.mark.parametrize("matrix", ["QuantileDMatrix", "ExtMemQuantileDMatrix"])
def test_xgboost_builds_the_trees_of_the_whole_table(
    tmp_path: Path, table: Any, data_iter: Any, matrix: str
) -> None:
    import xgboost

    path, x, label, weight = table
    options = {"cache_prefix": str(tmp_path / "cache")} if matrix[0] == "E" else {}
    batches = data_iter(dataset_of(path), "x", "label", weight="weight", **options)
    made = getattr(xgboost, matrix)(batches, max_bin=64)
    assert made.num_row() == NUM_ROWS
    assert made.num_nonmissing() == np.isfinite(x).sum()
    assert (made.get_label() == label).all()
    whole = xgboost.QuantileDMatrix(x, label, weight=weight, feature_names=FEATURES, max_bin=64)
    assert trees_of(made) == trees_of(whole)


def test_shuffled_passes_of_xgboost_are_alike(tmp_path: Path, table: Any, data_iter: Any) -> None:
    """It reads sparse pages of external memory in one pass, and bins in another."""
    import xgboost

    path, x, label, _ = table
    dataset = dataset_of(path, shuffle=True, row_ids=True)
    rows = np.concatenate([batch["row.id"].numpy() for batch in dataset])
    dataset.set_epoch(0)
    made = xgboost.QuantileDMatrix(data_iter(dataset, "x", "label"), max_bin=64)
    assert (made.get_label() == label[rows]).all()
    whole = xgboost.QuantileDMatrix(x[rows], label[rows], feature_names=FEATURES, max_bin=64)
    assert trees_of(made) == trees_of(whole)


def test_lightgbm_builds_the_trees_of_the_whole_table(table: Any, sequence: Any) -> None:
    """From a sample of the rows, which are those that it takes of an array."""
    import lightgbm

    path, x, label, _ = table
    options = {"objective": "binary", "verbose": -1, "num_threads": 1, "deterministic": True}
    options |= {"bin_construct_sample_cnt": 2_000}
    features = sequence(dataset_of(path), "x")
    of_rows = lightgbm.Dataset(features, label=label, params=options)
    made = lightgbm.train(options, of_rows, 10)
    assert of_rows.num_data() == NUM_ROWS
    whole = lightgbm.train(options, lightgbm.Dataset(x, label=label, params=options), 10)
    assert made.model_to_string() == whole.model_to_string()
    assert (made.predict(features[:100]) == whole.predict(x[:100])).all()


def test_rows_of_a_sequence_are_those_of_an_array(table: Any, sequence: Any) -> None:
    path, x, _, _ = table
    rows = sequence(dataset_of(path), "x")
    assert len(rows) == NUM_ROWS
    for chosen in (5, -1, slice(700, 1700), slice(512, 1024), slice(4999, 9999), slice(9, 0, -4)):
        np.testing.assert_array_equal(rows[chosen], x[chosen])
    for numbers in ([5, 4000, 3], [NUM_ROWS - 1], []):
        np.testing.assert_array_equal(rows[numbers], x[np.array(numbers, int)])
    assert rows[7:7].shape == (0, 3)
    for row in (NUM_ROWS, -NUM_ROWS - 1):
        with pytest.raises(IndexError, match=f"got {row}"):
            rows[row]


def test_batches_between_chosen_rows_are_not_read(table: Any, sequence: Any) -> None:
    read: list[int] = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        read.append(int(batch["row.id"][0]))
        return batch

    rows = sequence(dataset_of(table[0], row_ids=True, transform=note), "x")
    for row in (3, 4, 513, 4999):
        rows[row]
    assert read == [0, 512, 4608]


@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_share_the_rows(table: Any, sequence: Any, data_iter: Any, world_size: int) -> None:
    import xgboost

    path, x, _, _ = table
    parts, counts = [], []
    for rank in range(world_size):
        dataset = dataset_of(path, even="none", rank=rank, world_size=world_size)
        parts.append(sequence(dataset, "x")[:])
        counts.append(xgboost.QuantileDMatrix(data_iter(dataset, "x")).num_row())
    assert counts == [len(part) for part in parts]
    found = np.concatenate(parts)
    assert (np.sort(found, 0) == np.sort(x, 0))[np.isfinite(np.sort(x, 0))].all()
    assert len(found) == NUM_ROWS


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rank": 0, "world_size": 3}, "even='split' repeats"),
    ({"even": "pad", "rank": 0, "world_size": 3}, 'give the data set even="none"'),
    ({"even": "dynamic"}, "dynamic"),
    ({"num_epochs": None}, "num_epochs=1, got None"),
    ({"device": "cpu", "columns": {"x": "items"}}, "rows of any length"),
    ({"columns": {"x": "x0"}}, re.escape('such as columns={"x": ["x0", "x1"]}')),
    ({"columns": ["x0"]}, "a batch has no 'x': it has 'x0'"),
    ({"columns": {"x": Column(FEATURES, dtype="bfloat16")}}, "read it as float32"),
    ({"transform": lambda batch: {"x": batch["x"].to("meta")}}, "one on meta: leave out device="),
]
REFUSED_BY_LIGHTGBM: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": None}, "batch_size=N rows, got None"),
    ({"shuffle": True}, "shuffle=False"),
    ({"batch_size": ByLength("items", max_tokens=64)}, "batch 0 must have the"),
    ({"transform": lambda batch: {"x": batch["x"][:-1]}}, "got 511"),
    ({"columns": {"x": ["label", "weight"]}, "transform": lambda b: {"x": b["x"].int()}}, "int32"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_xgboost_is_told_what_to_change(
    table: Any, data_iter: Any, options: dict[str, Any], message: str
) -> None:
    import xgboost

    with pytest.raises((KeyError, TypeError, ValueError), match=message):
        xgboost.QuantileDMatrix(data_iter(dataset_of(table[0], **options), "x"))


@pytest.mark.parametrize(("options", "message"), REFUSED + REFUSED_BY_LIGHTGBM)
def test_lightgbm_is_told_what_to_change(
    table: Any, sequence: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((KeyError, TypeError, ValueError), match=message):
        sequence(dataset_of(table[0], **options), "x")[0]


def test_other_data_sets_are_refused(table: Any, sequence: Any, data_iter: Any) -> None:
    for take in (data_iter, sequence):
        with pytest.raises(TypeError, match="takes a ParquetDataset"):
            take(mix([dataset_of(table[0])]), "x")
