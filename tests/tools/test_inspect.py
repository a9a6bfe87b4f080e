"""`torchparquet inspect`: what pyarrow says about the same files, and advice that fits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures import thrift_bytes
from torchparquet import ParquetDataset
from torchparquet.cli import main


def table_of(num_rows: int, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(first)
    return pa.table(
        {
            "id": np.arange(first, first + num_rows),
            "x": pa.array(rng.random(num_rows), mask=rng.random(num_rows) < 0.1),
            "k": pa.array(
                rng.integers(0, 9, num_rows), pa.int32(), mask=rng.random(num_rows) < 0.2
            ),
            "color": pa.array(rng.choice(["red", "green", "blue"], num_rows)),
            "text": pa.array([f"word {first + i}" for i in range(num_rows)]),
            "tags": pa.array([[i] * (i % 3) for i in range(num_rows)]),
            "s": pa.array([{"a": i, "b": float(i)} for i in range(num_rows)]),
            "big": pa.array(range(num_rows), pa.decimal256(50, 2)),
        }
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("inspect")
    for file, codec in enumerate(["gzip", "snappy"]):
        pq.write_table(
            table_of(2000 + file, 2000 * file),
            root / f"{file}.parquet",
            row_group_size=700,
            compression=codec,
            dictionary_pagesize_limit=3000,
            write_batch_size=100,
            data_page_size=1000,
            write_page_checksum=codec == "snappy",
        )
    return root


def column_of(report: Any, name: str) -> Any:
    (column,) = (column for column in report["columns"] if column["name"] == name)
    return column


def advice_of(report: Any) -> Any:
    return {advice["rule"]: advice["columns"] for advice in report["advice"]}


def test_a_footer_that_gives_no_decompressed_size(report_of: Any, tmp_path: Path) -> None:
    """As DuckDB's before 0.6: no share of more than 100 % is shown."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.zeros(1000)}), path)
    content = path.read_bytes()
    size = thrift_bytes.column_metadata(content, 0, 0)[thrift_bytes.META_UNCOMPRESSED_BYTES]
    path.write_bytes(thrift_bytes.replaced(content, size, 0))
    column = column_of(report_of("inspect", path), "x")
    assert column["uncompressed_bytes"] == column["compressed_bytes"] > 0


def test_figures_are_those_of_pyarrow(report_of: Any, data: Any) -> None:
    report = report_of("inspect", data)
    metadata = [pq.read_metadata(path) for path in sorted(data.iterdir())]
    assert report["rows"] == 4001
    assert [file["row_groups"] for file in report["files"]] == [3, 3]
    assert report["bytes"] == sum(path.stat().st_size for path in data.iterdir())
    groups = [one.row_group(i) for one in metadata for i in range(one.num_row_groups)]
    assert report["row_groups"]["rows"] == {"min": 600, "median": 700, "max": 700}
    sizes = [group.total_byte_size for group in groups]
    assert report["row_groups"]["uncompressed_bytes"]["max"] == max(sizes)
    for index, column in enumerate(report["columns"]):
        chunks = [group.column(index) for group in groups]
        assert column["values"] == sum(chunk.num_values for chunk in chunks)
        assert column["nulls"] == sum(chunk.statistics.null_count for chunk in chunks)
        assert column["compressed_bytes"] == sum(chunk.total_compressed_size for chunk in chunks)
        assert column["codecs"] == ["GZIP", "SNAPPY"]
        assert column["page_checksums"] is False
    assert column_of(report, "k")["nulls"] == sum(pq.read_table(data)["k"].is_null().to_pylist())


def test_columns_of_one_name_are_counted_together(report_of: Any, tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array(["a", None])], names=["x", "x"])
    pq.write_table(table, tmp_path / "a.parquet")
    column = column_of(report_of("inspect", tmp_path), "x")
    assert (column["values"], column["nulls"], column["kinds"]) == (4, 1, ["int64", "string"])
    assert column["physical_types"] == ["BYTE_ARRAY", "INT64"]


def test_columns_become_what_the_data_set_delivers(report_of: Any, data: Any) -> None:
    report = report_of("inspect", data)
    readable = [column["name"] for column in report["columns"] if column["tensor"]["form"]]
    assert set(readable) == {"id", "x", "k", "color", "text", "tags", "s.a", "s.b"}
    assert "decimal" in column_of(report, "big")["tensor"]["reason"]
    dataset = ParquetDataset(
        data, batch_size=10, columns=readable, nulls="mask", rank=0, world_size=1
    )
    batch = next(iter(dataset))
    dataset.close()
    for name in readable:
        tensor, values = column_of(report, name)["tensor"], batch[name]
        if tensor["form"] == "tensor":
            assert tensor["shape"] == "[B]"
            assert str(values.dtype) == f"torch.{tensor['dtype']}"
        else:
            assert tensor["num_offsets"] == 1
            assert str(values.values.dtype) == f"torch.{tensor['dtype']}"


def test_pages_are_as_another_reader_of_headers_sees_them(report_of: Any, data: Any) -> None:
    report = report_of("inspect", data, "--all-pages")
    path = sorted(data.iterdir())[0]
    for index, column in enumerate(report["columns"]):
        headers = [
            page.header for group in range(3) for page in thrift_bytes.pages(path, group, index)
        ]
        data_pages = [header[5] for header in headers if 5 in header]
        encodings = {header[2].value for header in data_pages}
        falls_back = 0 in encodings and 8 in encodings
        assert column["dictionary_fallback"] == falls_back
        assert ("PLAIN" in column["encodings"]) == (0 in encodings)
    assert column_of(report, "text")["dictionary_fallback"]
    assert not column_of(report, "color")["dictionary_fallback"]
    assert column_of(report, "color")["most_words"] == 3


def test_advice(report_of: Any, data: Any) -> None:
    advice = advice_of(report_of("inspect", data, "--world-size", 4))
    assert advice["column-unreadable"] == ["big"]
    assert advice["nulls"] == ["k"]
    assert advice["row-groups-few"] == []
    assert "id" in advice["codec-slow"]
    assert "text" in advice["dictionary-fallback"]
    assert advice["strings-without-vocab"] == ["color"]
    assert "no-page-checksums" not in advice
    assert "row-groups-small" not in advice
    assert "row-groups-large" not in advice


def test_nothing_to_say_about_files_as_they_should_be(
    report_of: Any, capsys: Any, tmp_path: Path
) -> None:
    table = pa.table({"id": np.arange(4000), "x": np.random.default_rng(0).random(4000)})
    path = tmp_path / "good.parquet"
    options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=200, **options)
    report = report_of("inspect", path)
    assert report["advice"] == []
    assert column_of(report, "id")["page_checksums"] is True
    assert main(["inspect", str(path)]) == 0
    assert "none" in capsys.readouterr().out


def test_row_groups_that_windows_cannot_hold(report_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    table = pa.table({"x": np.arange(200_000), "y": np.arange(200_000)})
    pq.write_table(table, path, row_group_size=20_000)
    assert "row-groups-large" not in advice_of(report_of("inspect", path))
    report = report_of("inspect", path, "--max-memory", "4MiB")
    assert "row-groups-large" in advice_of(report)
    (text,) = (a["text"] for a in report["advice"] if a["rule"] == "row-groups-large")
    # Row groups of the size that it advises then fit.
    rows = int(text.rsplit(" ", 1)[1])
    pq.write_table(table, path, row_group_size=rows)
    assert "row-groups-large" not in advice_of(report_of("inspect", path, "--max-memory", "4MiB"))


def test_many_small_row_groups_and_unknown_null_counts(report_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    pq.write_table(pa.table({"x": range(6400)}), path, row_group_size=100, write_statistics=False)
    report = report_of("inspect", path)
    assert "row-groups-small" in advice_of(report)
    assert column_of(report, "x")["nulls"] is None


def test_a_page_that_is_none_is_named(error_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(1000), "y": np.arange(1000)}), path, row_group_size=500)
    chunk = pq.read_metadata(path).row_group(1).column(1)
    content = bytearray(path.read_bytes())
    begin = chunk.dictionary_page_offset
    content[begin : begin + 12] = b"\xff" * 12
    path.write_bytes(content)
    assert f"{str(path)!r}, row group 1, column 'y'" in error_of("inspect", path)


def test_text_for_people(capsys: Any, tmp_path: Path) -> None:
    """Also names that rich would take for markup, or a terminal for commands."""
    path = tmp_path / "[red]\x1b[31m.parquet"
    pq.write_table(pa.table({"[bold]x\x1b[31m": np.arange(10)}), path, compression="zstd")
    assert main(["inspect", str(path)]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "[bold]x\\x1b[31m" in output
    assert "[red]\\x1b[31m.parquet" in output
