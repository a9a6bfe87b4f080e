"""`torchparquet verify`: sound files hold; every damage is named, and the rest is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures import thrift_bytes
from tests.fixtures.parquet_files import id_files
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet.cli import main


def make_files(root: Path, num_files: int = 3, **options: Any) -> list[Path]:
    root.mkdir(exist_ok=True)
    paths = []
    for file in range(num_files):
        rng = np.random.default_rng(file)
        num_rows = 900 + 10 * file
        table = pa.table(
            {
                "id": np.arange(num_rows),
                "x": pa.array(rng.random(num_rows), mask=rng.random(num_rows) < 0.2),
                "x.valid": pa.array(rng.integers(0, 2**40, num_rows)),
                "text": pa.array([None if i % 7 == 0 else f"word {i}" for i in range(num_rows)]),
                "tags": pa.array([[i, None] * (i % 3) for i in range(num_rows)]),
                "big": pa.array(range(num_rows), pa.decimal256(50, 2)),
            }
        )
        path = root / f"{file}.parquet"
        pq.write_table(
            table, path, **{"row_group_size": 300, "write_page_checksum": True, **options}
        )
        paths.append(path)
    return paths


@pytest.fixture
def verified(capsys: Any) -> Any:
    """Verify, and return a report that agrees with the exit code."""

    def run(*arguments: object) -> Any:
        code = main(["verify", *map(str, arguments), "--json"])
        captured = capsys.readouterr()
        assert captured.err == ""
        report = json.loads(captured.out)
        assert report["holds"] is (code == 0)
        return report

    return run


def places(report: Any) -> Any:
    return {
        (Path(failure["path"]).name, failure["row_group"], failure["column"])
        for failure in report["failures"]
    }


def flip(path: Path, row_group: int, column: str) -> None:
    """Change one byte in the middle of a column chunk's last page."""
    metadata = pq.read_metadata(path)
    group = metadata.row_group(row_group)
    index = next(
        i
        for i in range(metadata.num_columns)
        if group.column(i).path_in_schema.split(".list")[0] == column
    )
    page = thrift_bytes.pages(path, row_group, index)[-1]
    content = bytearray(path.read_bytes())
    content[(page.begin + page.end) // 2] ^= 0x55
    path.write_bytes(content)


def test_sound_files_hold(verified: Any, tmp_path: Path) -> None:
    paths = make_files(tmp_path / "data")
    report = verified(tmp_path / "data")
    assert report["failures"] == []
    assert (report["files"], report["row_groups"], report["rows"]) == (3, 11, 2730)
    assert report["columns"] == 6
    assert report["columns_by_pyarrow"] == ["big"]
    pages = sum(
        len(thrift_bytes.pages(path, group, column))
        for path in paths
        for group in range(pq.read_metadata(path).num_row_groups)
        for column in range(6)
    )
    assert report["pages"] == report["pages_with_checksum"] == pages


def test_every_damaged_column_chunk_is_named_and_no_other(
    verified: Any, capsys: Any, tmp_path: Path
) -> None:
    paths = make_files(tmp_path / "data")
    damaged = [(0, 1, "id"), (0, 1, "text"), (0, 2, "x"), (2, 0, "tags"), (2, 2, "big")]
    for file, row_group, column in damaged:
        flip(paths[file], row_group, column)
    report = verified(tmp_path / "data")
    assert places(report) == {(f"{file}.parquet", group, name) for file, group, name in damaged}
    assert all("checksum" in failure["error"].lower() for failure in report["failures"][:4])
    # Rows are dealt all the same.
    assert report["audits"][0]["faults"] == []
    assert main(["verify", str(tmp_path / "data")]) == 1
    output = capsys.readouterr().out
    assert "Verification failed: 5 faults." in output
    assert "row group 1, column text" in " ".join(output.split())


def test_files_that_cannot_be_opened_do_not_hide_others(verified: Any, tmp_path: Path) -> None:
    paths = make_files(tmp_path / "data", 4)
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    flip(paths[3], 0, "id")
    empty = tmp_path / "data" / "9.parquet"
    pq.write_table(pq.read_table(paths[2]).slice(0, 0), empty)
    report = verified(tmp_path / "data")
    assert places(report) == {
        ("0.parquet", None, None),
        ("1.parquet", None, None),
        ("3.parquet", 0, "id"),
    }
    assert report["files_without_rows"] == [str(empty)]
    assert report["audits"][0]["num_rows"] == 920 + 930


@pytest.mark.parametrize("column", ["x", "text"])
def test_null_counts_of_footers_are_compared(verified: Any, tmp_path: Path, column: str) -> None:
    (path,) = make_files(tmp_path / "data", 1)
    content = path.read_bytes()
    index = {"x": 1, "text": 3}[column]
    statistics = thrift_bytes.column_metadata(content, 1, index)[12]
    count = statistics[3]
    path.write_bytes(thrift_bytes.replaced(content, count, count.value + 1))
    report = verified(path)
    assert places(report) == {("0.parquet", 1, column)}
    assert f"the footer claims {count.value + 1} nulls" in report["failures"][0]["error"]


def test_files_that_are_no_data_set_together(verified: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": ["a"]}), tmp_path / "b.parquet")
    report = verified(tmp_path)
    assert not report["holds"]
    assert report["rows"] == 3
    assert verified(tmp_path, "--no-audit")["holds"]


@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_row_exactly_once_in_any_world(
    verified: Any, tmp_path: Path, even: str, shuffle: bool
) -> None:
    data = id_files(tmp_path / "data", [70, 33, 50], [1, 90], [64])
    worlds = (1, 2, 3, 7)
    arguments = [data, "--no-decode", "--even", even, "--batch-size", 16, "--num-workers", 2]
    arguments += [part for world in worlds for part in ("--world-size", world)]
    report = verified(*arguments, *(["--shuffle"] if shuffle else []))
    assert report["holds"]
    for audit, world in zip(report["audits"], worlds, strict=True):
        assert (audit["world_size"], audit["num_workers"]) == (world, 2)
        assert audit["num_distinct"] == 308 - audit["planned_left_out"]
        assert audit["num_repeats"] == audit["planned_repeats"]
        assert audit["num_distinct"] == 308 or even == "drop"
        assert audit["num_repeats"] == 0 or even != "none"


def test_the_audit_finds_what_is_dealt_twice(
    verified: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    data = id_files(tmp_path / "data", [70, 33], [50])
    whole = EpochPlan.share
    monkeypatch.setattr(EpochPlan, "share", lambda self, index: whole(self, 0))
    report = verified(data, "--world-size", 2, "--even", "none", "--batch-size", 10)
    assert not report["holds"]
    assert any("missing" in fault for fault in report["audits"][0]["faults"])
    assert any("more than once" in fault for fault in report["audits"][0]["faults"])


def test_flipped_bytes_end_in_failures_not_in_tracebacks(verified: Any, tmp_path: Path) -> None:
    """Bytes flipped anywhere in pages without checksums: an answer, whatever it is."""
    (path,) = make_files(tmp_path / "data", 1, write_page_checksum=False, compression="none")
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        changed = bytearray(content)
        for place in rng.integers(4, len(content) - 2000, 5).tolist():
            changed[place] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        report = verified(path, "--no-audit")
        for failure in report["failures"]:
            assert failure["path"] == str(path)
            assert failure["error"]


def test_a_footer_that_denies_its_rows(verified: Any, tmp_path: Path) -> None:
    (path,) = make_files(tmp_path / "data", 1)
    content = path.read_bytes()
    count = thrift_bytes.footer(content)[3]
    path.write_bytes(thrift_bytes.replaced(content, count, 0))
    report = verified(path)
    assert places(report) == {("0.parquet", None, None)}
    assert "not the sum of its row groups" in report["failures"][0]["error"]
    assert report["files_without_rows"] == []


def test_sound_files_without_a_column_that_is_a_tensor_hold(verified: Any, tmp_path: Path) -> None:
    table = pa.table({"big": pa.array([1, 2], pa.decimal256(50, 2))})
    pq.write_table(table, tmp_path / "a.parquet")
    report = verified(tmp_path / "a.parquet")
    assert (report["holds"], report["rows"], report["audits"]) == (True, 2, [])
    assert "no column can be read" in report["audits_left_out"]


@pytest.mark.parametrize("wrong", [["--column", "none"], ["--shuffle-window", "5"]])
def test_wrong_options_are_no_failure_of_files(
    error_of: Any, tmp_path: Path, wrong: list[str]
) -> None:
    (path,) = make_files(tmp_path / "data", 1)
    error_of("verify", path, "--json", *wrong)
