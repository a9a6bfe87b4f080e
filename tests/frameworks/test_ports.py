"""The examples of other loaders, sparse and tabular features: they run and read every row."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import keyed_features
import port_row_stream
import port_sparse_features
import tabular_features
from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.running import python, run, torchrun
from torchparquet.statistics import Statistics

LINE = re.compile(r"epoch (\d+), rank (\d+): (\d+) rows(?:, (\d+) active)?, loss ([\d.]+)")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: Any) -> Any:
    directory = tmp_path_factory.mktemp("ports") / "reviews"
    port_row_stream.write_reviews(directory)
    return directory


@pytest.fixture(scope="module")
def games(tmp_path_factory: Any) -> Any:
    directory = tmp_path_factory.mktemp("ports") / "games"
    port_sparse_features.write_games(directory)
    return directory


def losses(program: str, ranks: int, *arguments: object) -> list[tuple[int, int, int, int, float]]:
    """The lines of a job: epoch, rank, rows, active features, loss."""
    launch = torchrun(2, program, *arguments) if ranks == 2 else python(program, *arguments)
    lines = LINE.findall(run(launch, ROOT))
    return sorted((int(e), int(r), int(n), int(a or 0), float(x)) for e, r, n, a, x in lines)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("options", [[], ["--batches"]], ids=["rows", "batches"])
def test_the_row_stream_trains_on_every_row(reviews: Path, ranks: int, options: list[Any]) -> None:
    found = losses("examples/port_row_stream.py", ranks, reviews, *options)
    # One rank repeats a row of 3,001, so that both have as many.
    rows = 3001 if ranks == 1 else 1501
    assert [line[:3] for line in found] == [(e, r, rows) for e in range(2) for r in range(ranks)]
    assert found[-1][4] < found[0][4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_sparse_loader_trains_on_every_feature(games: Path, ranks: int) -> None:
    found = losses("examples/port_sparse_features.py", ranks, games, "--epochs", 2)
    assert len(found) == 2 * ranks
    table = pq.read_table(games)
    num_active = sum(len(side) for name in ("ours", "theirs") for side in table[name].to_pylist())
    for epoch in range(2):
        of_epoch = [line for line in found if line[0] == epoch]
        assert [line[2] for line in of_epoch] == [20_000 // ranks] * ranks
        assert sum(line[3] for line in of_epoch) == num_active
    assert found[-1][4] < found[0][4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_keyed_features_train_on_every_value(tmp_path: Path, ranks: int) -> None:
    visits = tmp_path / "visits"
    keyed_features.write_visits(visits)
    found = losses("examples/keyed_features.py", ranks, visits, "--epochs", 4)
    assert [line[2] for line in found] == [20_000 // ranks] * 4 * ranks
    table = pq.read_table(visits)
    lists = [table[name].to_pylist() for name in ("shops", "brands", "items")]
    num_values = sum(len(row or ()) for rows in lists for row in rows)
    num_values += len(table) - table["country"].null_count
    assert sum(line[3] for line in found) == 4 * num_values
    assert found[-1][4] < 0.5 * found[0][4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_tabular_features_are_served_as_they_are_trained_with(tmp_path: Path, ranks: int) -> None:
    sales = tmp_path / "sales"
    tabular_features.write_sales(sales)
    split = json.dumps(["train", tabular_features.PARTS])
    statistics = tmp_path / "statistics.json"
    command = [sys.executable, "-m", "torchparquet", "stats", str(sales), "--split", split]
    run([*command, "-o", str(statistics)], ROOT)
    found = losses("examples/tabular_features.py", ranks, sales, statistics)
    rows = Statistics.load(statistics).num_rows
    assert [line[2] for line in found] == [-(-rows // ranks)] * 4 * ranks
    assert found[-1][4] < 0.75 * found[0][4]
