"""Prometheus and OpenTelemetry, by their own libraries: what a scrape and a reader find."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import prometheus_client
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from torch.utils.data import DataLoader

from tests.fixtures.tree import ROOT
from torchparquet import ParquetDataset, mix
from torchparquet.frameworks.metrics import to_opentelemetry, to_prometheus

NUM_ROWS = 2_000
BOARD = ROOT / "docs" / "guides" / "grafana.json"


@pytest.fixture
def dataset(tmp_path: Path) -> ParquetDataset:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(NUM_ROWS)}), path, row_group_size=500)
    return ParquetDataset(path, batch_size=100)


@pytest.fixture
def registry() -> prometheus_client.CollectorRegistry:
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def endpoint(registry: Any) -> Iterator[str]:
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()


def scraped(endpoint: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The samples by name and labels, as Prometheus reads them."""
    with urlopen(endpoint) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}


def test_a_scrape_finds_the_counts(dataset: Any, registry: Any, endpoint: str) -> None:
    validation = mix([dataset, ParquetDataset(dataset.manifest.files, batch_size=100)])
    to_prometheus({"train": DataLoader(dataset, batch_size=None), "val": validation}, registry)
    train, val = ((("dataset", name), ("rank", "0")) for name in ("train", "val"))
    assert scraped(endpoint)["torchparquet_rows_total", train] == 0
    for epoch in (1, 2):
        batches = iter(dataset)
        for _ in range(7):
            next(batches)
        # While it reads, another thread asks.
        assert scraped(endpoint)["torchparquet_rows_total", train] == NUM_ROWS * (epoch - 1) + 700
        for _ in batches:
            pass
    found, metrics = scraped(endpoint), dataset.metrics(all_iterations=True)
    for name, number in metrics.as_dict(columns=False).items():
        counter = ("torchparquet_" + name + "_total", train)
        if counter in found and not name.startswith("elapsed"):
            assert found[counter] == pytest.approx(number), name
    assert found["torchparquet_rows_total", train] == 2 * NUM_ROWS
    assert found["torchparquet_rows_total", val] == 2 * NUM_ROWS  # its first data set's
    assert found["torchparquet_batch_wait_seconds_count", train] == metrics.batches == 40
    of_sum = found["torchparquet_batch_wait_seconds_sum", train]
    assert of_sum == pytest.approx(metrics.wait_seconds)
    buckets = {
        float(dict(labels)["le"]): count
        for (name, labels), count in found.items()
        if name == "torchparquet_batch_wait_seconds_bucket" and ("dataset", "train") in labels
    }
    counts = [buckets[end] for end in sorted(buckets)]
    assert counts == sorted(counts)
    longest = metrics.waits.max_seconds
    assert all((count == 40) == (end >= longest) for end, count in buckets.items())


def test_the_board_asks_for_what_is_exported(dataset: Any, registry: Any, endpoint: str) -> None:
    to_prometheus(dataset, registry)
    exported = {name for name, _ in scraped(endpoint)}
    board = json.loads(BOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["query"] for one in board["templating"]["list"]]
    names = {name for text in asked for name in re.findall(r"torchparquet_\w+", text)}
    assert len(names) > 15
    assert names <= exported
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len(places)


def test_a_registry_lets_go(dataset: Any, registry: Any, endpoint: str) -> None:
    collector = to_prometheus(dataset, registry)
    registry.unregister(collector)
    assert scraped(endpoint) == {}


def test_a_reader_finds_the_counts(dataset: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    to_opentelemetry({"train": dataset}, provider.get_meter("tests"))

    def observed() -> dict[str, Any]:
        data = reader.get_metrics_data()
        assert data is not None
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        points = {one.name: one.data.data_points for one in scope.metrics}
        units = {one.name: one.unit for one in scope.metrics}
        assert units["torchparquet.wait"] == units["torchparquet.wait.p99"] == "s"
        assert (units["torchparquet.bytes_read"], units["torchparquet.rows"]) == ("By", "1")
        (rows,) = points["torchparquet.rows"]
        assert dict(rows.attributes or {}) == {"dataset": "train", "rank": "0"}
        return {name: of[0].value for name, of in points.items()}

    assert observed()["torchparquet.rows"] == 0
    for epoch in (1, 2):
        for _ in dataset:
            pass
        found, metrics = observed(), dataset.metrics()
        assert found["torchparquet.rows"] == epoch * NUM_ROWS
        # The first observation is of the first epoch alone, the second one of the second.
        longest = found["torchparquet.wait.max"]
        assert metrics.waits.max_seconds <= longest <= 1.42 * metrics.waits.max_seconds
        assert found["torchparquet.wait.p50"] <= found["torchparquet.wait.p99"] <= longest
    assert found["torchparquet.wait"] == dataset.metrics(all_iterations=True).wait_seconds
    assert observed()["torchparquet.wait.max"] == 0
    provider.shutdown()


def test_others_are_refused(dataset: Any, registry: Any) -> None:
    with pytest.raises(TypeError, match="ParquetDataset or a mix"):
        to_prometheus([dataset], registry)
    with pytest.raises(ValueError, match="num_workers=0"):
        to_opentelemetry(DataLoader(dataset, batch_size=None, num_workers=1))
