"""`torchparquet plan`: what ranks get, and how well rows are mixed."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset
from torchparquet.cli import main
from torchparquet.plan_report import mixing_of
from torchparquet.reader import window_order
from window_oracle import permuted


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    for file in range(3):
        table = pa.table({"x": np.arange(1000 * file, 1000 * file + 1000)})
        pq.write_table(table, root / f"{file}.parquet", row_group_size=250)
    return root


def report_of(capsys, *arguments):
    assert main(["plan", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_permutation_is_that_of_the_reader():
    for key, n in ((0, 1), (1, 2), (12345, 1000), (2**64 - 1, 4097)):
        assert np.array_equal(window_order(key, n)[permuted(key, n)], np.arange(n))


def test_ranks_are_those_of_the_data_set(capsys, data):
    arguments = ("--world-size", 5, "--batch-size", 64, "--num-workers", 2, "--epoch", 3)
    report = report_of(capsys, data, *arguments)
    assert report["rows"] == 3000
    for rank in range(5):
        dataset = ParquetDataset(data, batch_size=64, shuffle=True, rank=rank, world_size=5)
        dataset.set_epoch(3)
        assert report["ranks"][rank]["steps"] == dataset.num_steps(2)
        assert report["ranks"][rank]["rows"] == 600


def test_mixing_is_what_batches_show(capsys, data):
    dataset = ParquetDataset(
        data, batch_size=50, shuffle=True, shuffle_window=4, rank=0, world_size=1
    )
    rows = np.concatenate([batch["x"].numpy() for batch in dataset])
    met = [len(np.unique(batch // 250)) for batch in np.split(rows, 60)]
    report = report_of(capsys, data, "--batch-size", 50, "--shuffle-window", 4)
    assert report["mixing"]["row_groups_per_batch"] == pytest.approx(np.mean(met))
    assert report["mixing"]["rows_looked_at"] == 3000
    unshuffled = report_of(capsys, data, "--batch-size", 50, "--no-shuffle")
    assert unshuffled["mixing"]["row_groups_per_batch"] == 1
    assert unshuffled["mixing"]["rows_travelled"] == 0
    assert report["mixing"]["rows_travelled"] > 100


def test_a_share_without_rows_mixes_nothing(data):
    plan = ParquetDataset(
        data, batch_size=50, shuffle=True, even="none", rank=0, world_size=20
    ).plan()
    assert mixing_of(plan.share(19)).rows_looked_at == 0


def test_text_for_people(capsys, data):
    assert main(["plan", str(data), "--world-size", "2"]) == 0
    text = capsys.readouterr().out
    assert "3,000 rows" in text
    assert "mixing: a batch has rows of" in text
