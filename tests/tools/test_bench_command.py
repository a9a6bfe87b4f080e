"""`torchparquet bench`: every byte is read, every setting is timed, and the choice follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.parquet_files import id_files
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet.cli.bench import OURS, ROUTES, choose, consumed, make_sample

QUICK = ("--repeats", "2", "--batch-size", "64", "--batch-size", "100", "--num-threads", "1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    return id_files(tmp_path_factory.mktemp("bench") / "data", [300, 200], [500])


def test_all_settings_are_timed(report_of: Any, data: Any) -> None:
    report = report_of("bench", data, *QUICK, "--num-threads", "2")
    keys = {(t["route"], t["num_threads"], t["batch_size"]) for t in report["timings"]}
    assert keys == {(n, threads, size) for n in ROUTES for threads in (1, 2) for size in (64, 100)}
    for timing in report["timings"]:
        assert len(timing["seconds"]) == 2
        assert timing["rows_per_second"] == pytest.approx(
            1000 / np.median(timing["seconds"]), rel=1e-3
        )
    ours = next(t for t in report["timings"] if t["route"] == OURS and t["batch_size"] == 64)
    assert ours["batches"] == 16
    chosen = report["choice"]
    assert (OURS, chosen["num_threads"], chosen["batch_size"]) in keys


def test_every_byte_is_read(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("x", pa.float64(), False)])
    ids = np.random.default_rng(0).integers(0, 2**62, 1000)
    table = pa.table([ids, ids.astype(float)], schema=schema)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    manifest = read_manifest(tmp_path / "a.parquet")
    words = np.concatenate([column.to_numpy().view(np.uint64) for column in table.columns])
    expected = int(words.sum())
    for shuffle in (False, True):
        data = make_sample(
            manifest, ["id", "x"], sample=1 << 30, shuffle=shuffle, max_memory=1 << 28
        )
        for route in ROUTES.values():
            rows, num_bytes, _, checksum = consumed(route(data, 64, 2)())
            assert (rows, num_bytes, checksum) == (1000, 16_000, expected)


def test_a_sample_is_whole_row_groups_from_the_start(report_of: Any, data: Any) -> None:
    report = report_of("bench", data, *QUICK, "--sample", "1")
    assert (report["rows"], report["row_groups"], report["rows_of_all"]) == (300, 1, 1000)


def test_nulls_strings_and_lists(report_of: Any, tmp_path: Path) -> None:
    table = pa.table(
        {
            "k": [1, None, 3] * 50,
            "x": [1.0, None, 3.0] * 50,
            "text": ["a", None, "ccc"] * 50,
            "tags": [[1], [], None] * 50,
            "s": [{"a": 1}, {"a": 2}, None] * 50,
            "big": pa.array([1, 2, 3] * 50, pa.decimal256(50, 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=40)
    report = report_of("bench", tmp_path, *QUICK, "--shuffle")
    assert report["columns"] == 5
    assert {timing["batches"] for timing in report["timings"]} >= {2, 3}
    # Both read about the same: offsets and masks have other widths.
    speeds = [timing["bytes_per_second"] * timing["median_seconds"] for timing in report["timings"]]
    assert max(speeds) < 2 * min(speeds)


def test_the_fewest_threads_that_are_about_as_good() -> None:
    timings = [
        {"route": route, "num_threads": threads, "batch_size": size, "rows_per_second": 1000 / each}
        for route, threads, size, each in [
            (OURS, 1, 64, 1.0),
            (OURS, 1, 512, 0.5),
            (OURS, 2, 512, 0.26),
            (OURS, 4, 512, 0.25),
            ("pyarrow iter_batches", 4, 512, 0.13 * 4),
            ("pyarrow row groups, prefetched", 4, 64, 0.6),
        ]
    ]
    choice = choose(timings)
    assert (choice["num_threads"], choice["batch_size"]) == (2, 512)
    assert choice["times_pyarrow"] == pytest.approx(2.0)
    assert choose(timings[:2])["times_pyarrow"] is None


@pytest.mark.long
def test_plot(report_of: Any, data: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "bench.svg"
    report_of("bench", data, *QUICK, "--plot", path)
    assert b"<svg" in path.read_bytes()
