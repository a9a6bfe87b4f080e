"""`torchparquet rewrite`: exactly the same rows, whatever happens on the way."""

from __future__ import annotations

import datetime
import decimal
import os
import signal
import sys
import uuid
from contextlib import nullcontext
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures import thrift_bytes
from tests.fixtures.tree import completed
from torchparquet import FileChangedError
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet.cli import main
from torchparquet.cli.preparing import writing
from torchparquet.cli.preparing.input_rows import InputRows, in_buckets
from torchparquet.cli.preparing.places import LocalOutput
from torchparquet.cli.preparing.writing import JOURNAL, Layout


def table_of(num_rows: int, first: int = 0) -> pa.Table:
    """Rows of many types, with nulls."""
    rng = np.random.default_rng(first)
    missing = rng.random(num_rows) < 0.2
    ids = np.arange(first, first + num_rows)
    day = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array(rng.integers(0, 99, num_rows), pa.uint16(), mask=missing),
            "x": pa.array(rng.random(num_rows), mask=missing),
            "text": pa.array([None if i % 7 == 0 else f"word {i % 500}" for i in ids.tolist()]),
            "color": pa.array(rng.choice(["red", "green"], num_rows)).dictionary_encode(),
            "tags": pa.array([None if i % 5 == 0 else [i, None] * (i % 3) for i in ids.tolist()]),
            "s": pa.array([{"a": i, "b": [str(i)]} if i % 3 else None for i in ids.tolist()]),
            "m": pa.array(
                [[(str(i), i)] * (i % 2) for i in ids.tolist()], pa.map_(pa.string(), pa.int64())
            ),
            "at": pa.array([day + datetime.timedelta(seconds=i) for i in ids.tolist()]),
            "cents": pa.array(
                [decimal.Decimal(i) / 100 for i in ids.tolist()], pa.decimal128(9, 2)
            ),
            "code": pa.array([i.to_bytes(4, "big") for i in ids.tolist()], pa.binary(4)),
            "uuid": pa.array([uuid.UUID(int=i).bytes for i in ids.tolist()], pa.uuid()),
            "flag": pa.array(ids % 2 == 0),
        },
        metadata={"owner": "somebody", "version": "3"},
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("rewrite") / "input"
    root.mkdir()
    first = 0
    for file, num_rows in enumerate((1700, 0, 2300, 41)):
        table = table_of(num_rows or 9, first)[:num_rows]  # some rows tell the types
        pq.write_table(table, root / f"{file}.parquet", row_group_size=400, compression="gzip")
        first += num_rows
    return root


@pytest.fixture
def rewritten(report_of: Any) -> Any:
    """Rewrite files to a directory, and return the report."""
    return lambda source, output, *options: report_of(
        "rewrite", source, "--output", output, *options
    )


@pytest.fixture
def refused(error_of: Any) -> Any:
    """Fail to rewrite files to a directory, and return the error."""
    return lambda source, output, *options, code=1: error_of(
        "rewrite", source, "--output", output, *options, code=code
    )


def files_of(directory: Path) -> list[Path]:
    return sorted(Path(directory).rglob("*.parquet"))


SMALL = ("--row-group-rows", 300, "--row-groups-per-file", 4)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def read(directory: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(path) for path in files_of(directory))


def same(table: pa.Table, other: pa.Table) -> Any:
    """True if types, metadata and values are; pyarrow tells numbers of dictionaries apart too."""
    types = table.schema.equals(other.schema, check_metadata=True)
    return types and table.to_pylist() == other.to_pylist()


def test_the_same_rows_in_the_same_order(rewritten: Any, data: Any, tmp_path: Path) -> None:
    output = tmp_path / "output"
    report = rewritten(data, output, *SMALL)
    assert same(read(output), read(data))
    metadata = [pq.read_metadata(path) for path in files_of(output)]
    assert [one.num_rows for one in metadata] == [1200, 1200, 1200, 441]
    assert [metadata[3].row_group(i).num_rows for i in range(2)] == [300, 141]
    assert {
        one.row_group(i).column(j).compression
        for one in metadata
        for i in range(one.num_row_groups)
        for j in range(one.num_columns)
    } == {"GZIP"}  # as before
    for path in files_of(output):
        assert pq.read_schema(path).equals(pq.read_schema(files_of(data)[0]), check_metadata=True)
        kept = pq.read_metadata(path).metadata
        assert (kept[b"owner"], kept[b"version"]) == (b"somebody", b"3")
        for column in range(pq.read_metadata(path).num_columns):
            for page in thrift_bytes.pages(path, 0, column):
                assert thrift_bytes.PAGE_CRC in page.header
    assert report["rows"] == 4041
    assert [file["rows"] for file in report["files"]] == [1200, 1200, 1200, 441]
    assert report["schema_changes"] == []
    assert names_in(output) == [JOURNAL, *(p.name for p in files_of(output))]


def test_a_permutation_of_the_same_rows(rewritten: Any, data: Any, tmp_path: Path) -> None:
    outputs = {}
    for name, seed in (("a", 1), ("again", 1), ("b", 2)):
        outputs[name] = tmp_path / name
        options = ("--shuffle", "--seed", seed, "--max-memory", "2MiB")
        rewritten(data, outputs[name], *SMALL, *options)
    before, after = read(data), read(outputs["a"])
    assert after.schema.equals(before.schema, check_metadata=True)
    order = after["id"].to_numpy()
    assert np.array_equal(np.sort(order), np.arange(4041))
    assert same(before.take(pa.array(order)), after)
    assert read(outputs["again"]).equals(after)
    assert not np.array_equal(read(outputs["b"])["id"].to_numpy(), order)
    # Each quarter of the output has rows of all quarters of the input: 1010 / 4 of each, where
    # 60 more or less are 4.4 standard deviations.
    counts = np.histogram2d(np.arange(4041), order, bins=4)[0]
    assert np.abs(counts - 4041 / 16).max() < 60
    assert abs(np.corrcoef(np.arange(4041), order)[0, 1]) < 0.06


# Layout


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize(
    ("encoding", "name", "number"),
    [
        ("plain", "id", 0),
        ("dictionary", "id", 8),
        ("delta_binary_packed", "id", 5),
        ("byte_stream_split", "x", 9),
        ("delta_byte_array", "text", 7),
        ("delta_length_byte_array", "s.b", 6),
    ],
)
def test_encodings(
    rewritten: Any, data: Any, tmp_path: Path, encoding: str, name: str, number: int
) -> None:
    report = rewritten(data, tmp_path / "o", "--encoding", f"{name}={encoding}")
    assert report["encodings"][name] == encoding
    path = files_of(tmp_path / "o")[0]
    column = list(report["encodings"]).index(name)
    encodings = {page.encoding for page in thrift_bytes.pages(path, 0, column) if page.is_data}
    assert encodings == {number}
    assert same(read(tmp_path / "o"), read(data))


def test_columns_keep_their_encoding_but_for_dictionaries_that_did_not_hold(
    rewritten: Any, tmp_path: Path
) -> None:
    columns = {name: np.arange(5000) for name in ("held", "fell", "delta", "plain")}
    pq.write_table(
        pa.table(columns | {"held": np.arange(5000) % 9}),
        tmp_path / "a.parquet",
        use_dictionary=["held", "fell"],
        column_encoding={"delta": "DELTA_BINARY_PACKED"},
        dictionary_pagesize_limit=20_000,
        write_batch_size=100,
        data_page_size=1000,
    )
    report = rewritten(tmp_path / "a.parquet", tmp_path / "o")
    assert report["encodings"] == {
        "held": "dictionary",
        "fell": "plain",
        "delta": "delta_binary_packed",
        "plain": "plain",
    }


def test_codec_level_checksums_and_bytes_of_row_groups(
    rewritten: Any, data: Any, tmp_path: Path
) -> None:
    more = ("--codec", "snappy", "--no-page-checksums", "--row-group-bytes", "256KiB")
    rewritten(data, tmp_path / "o", *more)
    path = files_of(tmp_path / "o")[0]
    group = pq.read_metadata(path).row_group(0)
    assert group.column(0).compression == "SNAPPY"
    assert all(thrift_bytes.PAGE_CRC not in page.header for page in thrift_bytes.pages(path))
    table = pq.ParquetFile(path).read_row_group(0)
    assert 100 * 1024 < table.nbytes < 400 * 1024


@pytest.mark.parametrize("num_rows", [10, 5_000, 65_000, 400_000])
@pytest.mark.parametrize("group_rows", [500, 200_000])
def test_nothing_is_to_be_advised_afterwards(
    rewritten: Any, report_of: Any, tmp_path: Path, num_rows: int, group_rows: int
) -> None:
    source, output = tmp_path / "a.parquet", tmp_path / "o"
    table = pa.table({"x": np.random.default_rng(0).random(num_rows)})
    pq.write_table(table, source, row_group_size=group_rows)
    rewritten(source, output)
    advice = report_of("inspect", output)["advice"]
    assert [one for one in advice if "rewrite" in one["text"]] == []


def test_decimals_and_moments_are_stored_as_they_were(rewritten: Any, tmp_path: Path) -> None:
    source = tmp_path / "a.parquet"
    moments = pa.array([0, 1_500_000_000_123_456_789, None], pa.timestamp("ns"))
    decimals = pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-3.00")])
    table = pa.table({"d": decimals.cast(pa.decimal128(9, 2)), "t": moments})
    pq.write_table(
        table, source, store_decimal_as_integer=True, use_deprecated_int96_timestamps=True
    )
    report = rewritten(source, tmp_path / "o")
    assert read(tmp_path / "o").equals(table)
    kinds = [pq.read_metadata(files_of(tmp_path / "o")[0]).row_group(0).column(i) for i in (0, 1)]
    assert [kind.physical_type for kind in kinds] == ["INT32", "INT64"]
    assert any("INT96 becomes INT64" in change for change in report["schema_changes"])


MOMENT = pa.timestamp("us")


@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [
        (MOMENT, lambda far: far),
        (pa.struct({"n": pa.int64(), "at": MOMENT}), lambda far: {"n": 1, "at": far}),
        (pa.map_(pa.string(), pa.list_(MOMENT)), lambda far: [("a", [None, far])]),
    ],
)
def test_a_moment_that_does_not_fit_is_an_error_and_not_another_moment(
    refused: Any, tmp_path: Path, kind: pa.DataType, wrapped: Any
) -> None:
    source = tmp_path / "a.parquet"
    far = pa.array([wrapped(datetime.datetime(2500, 1, 1))], kind)
    pq.write_table(pa.table({"t": far}), source, use_deprecated_int96_timestamps=True)
    error = refused(source, tmp_path / "o")
    assert "does not fit int64 nanoseconds" in error
    assert "column 't'" in error
    assert files_of(tmp_path / "o") == []


@pytest.mark.parametrize("sign", [-1, 1])
def test_no_moment_wraps_around_where_nanoseconds_end(
    refused: Any, rewritten: Any, tmp_path: Path, sign: int
) -> None:
    source, end = tmp_path / "a.parquet", 2**63 // 10**3
    for moment in (end + 1, end + 2, end + 10**6):  # in microseconds
        far = pa.table({"t": pa.array([sign * moment], MOMENT)})
        pq.write_table(far, source, use_deprecated_int96_timestamps=True)
        assert "does not fit int64 nanoseconds" in refused(source, tmp_path / "o")
    fits = pa.table({"t": pa.array([sign * (end - 2000)], MOMENT)})
    pq.write_table(fits, source, use_deprecated_int96_timestamps=True)
    rewritten(source, tmp_path / "o")
    assert read(tmp_path / "o")["t"].cast(MOMENT).equals(fits["t"])


def test_files_that_differ_in_metadata_and_nulls(rewritten: Any, tmp_path: Path) -> None:
    required = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    for name, values in (("a", [1, 2]), ("b", [3])):
        table = pa.table({"x": values}, required.with_metadata({"owner": "me", "part": name}))
        pq.write_table(table, tmp_path / f"{name}.parquet")
    more = pa.table({"x": pa.array([None, 4])}, metadata={"extra": "yes"})
    pq.write_table(more, tmp_path / "c.parquet")
    report = rewritten(tmp_path / "*.parquet", tmp_path / "out" / "o")
    assert report["differing_metadata"] == ["part"]
    found = read(tmp_path / "out")
    assert found.schema.metadata == {b"owner": b"me", b"part": b"a", b"extra": b"yes"}
    assert found["x"].to_pylist() == [1, 2, 3, None, 4]


def test_keys_of_directories_stay(rewritten: Any, refused: Any, tmp_path: Path) -> None:
    for year in (2023, 2024):
        folder = tmp_path / "in" / f"year={year}"
        folder.mkdir(parents=True)
        for part in range(2):
            table = pa.table({"x": np.arange(100) + 1000 * part + year})
            pq.write_table(table, folder / f"{part}.parquet")
    more = ("--row-group-rows", 50, "--row-groups-per-file", 3)
    rewritten(tmp_path / "in", tmp_path / "o", *more)
    for year in (2023, 2024):
        assert read(tmp_path / "o" / f"year={year}").equals(read(tmp_path / "in" / f"year={year}"))
    assert len(files_of(tmp_path / "o")) == 4
    assert "key=value directories" in refused(tmp_path / "in", tmp_path / "p", "--shuffle")


@pytest.mark.parametrize(
    ("source", "output", "options"),
    [("in", "o", ()), ("in/year=2023", "o/year=2023", ["--shuffle"])],
)
def test_the_key_of_a_single_directory_stays_too(
    rewritten: Any, tmp_path: Path, source: str, output: str, options: Any
) -> None:
    (tmp_path / "in" / "year=2023").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in" / "year=2023" / "a.parquet")
    rewritten(tmp_path / source, tmp_path / output, *options)
    (written,) = files_of(tmp_path / "o")
    assert written.parent == tmp_path / "o" / "year=2023"


def test_metadata_and_lists_of_files_that_pyarrow_did_not_write(
    rewritten: Any, tmp_path: Path
) -> None:
    """Of files without its own schema; lists whose items have another name than its own."""
    kind = pa.list_(pa.field("array", pa.int64()))
    table = pa.table({"x": pa.array([[1], [2, 3]], kind)})
    source = tmp_path / "a.parquet"
    with pq.ParquetWriter(
        source, table.schema, store_schema=False, use_compliant_nested_type=False
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"org.apache.spark.version": "3.5.5"})
    report = rewritten(source, tmp_path / "o")
    assert same(read(tmp_path / "o"), pq.read_table(source))
    metadata = pq.read_metadata(files_of(tmp_path / "o")[0])
    assert metadata.metadata == {b"org.apache.spark.version": b"3.5.5"}
    assert metadata.schema.column(0).path == "x.list.array"
    assert report["schema_changes"] == []


# Going on


KILLED = """
import os, signal, sys
import pyarrow.parquet as pq
left, number = int(sys.argv[1]), int(sys.argv[2])
def counted(function):
    def call(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
        return function(*arguments, **named)
    return call
os.replace = counted(os.replace)
pq.ParquetWriter.write_table = counted(pq.ParquetWriter.write_table)
from torchparquet.cli import main
sys.exit(main(sys.argv[3:]))
"""


def run_until(number: signal.Signals, step: int, *arguments: Any) -> CompletedProcess[str]:
    """Run a rewrite that gets a signal at a step: a row group written, or a file named.

    The first step finds out the schema.
    """
    return completed("-c", KILLED, step, int(number), "rewrite", *arguments)


@pytest.mark.parametrize(
    ("shuffle", "steps"),
    # With --shuffle: at a slice, at a row group of the first file, when the second is named.
    [(False, (6, 7)), (True, (4, 6, 10))],
)
@pytest.mark.long
def test_killed_and_gone_on_with(
    rewritten: Any, data: Any, tmp_path: Path, shuffle: bool, steps: Any
) -> None:
    more = (*SMALL, "--max-memory", "2MiB", *(("--shuffle", "--seed", 5) if shuffle else ()))
    rewritten(data, tmp_path / "whole", *more)
    output = tmp_path / "killed"
    seen: dict[str, tuple[int, int]] = {}
    for step in steps:
        done = run_until(signal.SIGKILL, step, data, "--output", output, *more)
        assert done.returncode == -signal.SIGKILL, done.stderr
        for path in files_of(output):
            # Whatever has a name is complete, and is not written again.
            assert pq.read_table(path).equals(pq.read_table(tmp_path / "whole" / path.name))
            status = path.stat()
            assert seen.setdefault(path.name, (status.st_ino, status.st_mtime_ns)) == (
                status.st_ino,
                status.st_mtime_ns,
            )
    assert len(seen) >= 1
    assert len(seen) < 4
    report = rewritten(data, output, *more)
    assert report["files_resumed"] == len(seen)
    assert read(output).equals(read(tmp_path / "whole"))
    assert names_in(output) == names_in(tmp_path / "whole")
    again = rewritten(data, output, *more)
    assert again["files_resumed"] == 4


@pytest.mark.long
def test_ctrl_c_ends_cleanly(data: Any, tmp_path: Path) -> None:
    done = run_until(signal.SIGINT, 8, data, "--output", tmp_path / "o", *SMALL)
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr == "torchparquet: interrupted\n"
    assert names_in(tmp_path / "o") == [JOURNAL, "part-00000.parquet"]


def test_another_rewrite_is_not_gone_on_with(
    rewritten: Any, refused: Any, data: Any, tmp_path: Path
) -> None:
    output = tmp_path / "o"
    level = ("--codec", "snappy", "--codec-level", 3)
    assert "--codec-level 3 does not go with --codec snappy" in refused(data, output, *level)
    assert "--seed needs --shuffle" in refused(data, output, "--seed", 3, code=2)
    rewritten(data, output)  # what is refused begins none
    before = {path: path.read_bytes() for path in files_of(output)}
    assert "with codec=None, not 'lz4'" in refused(data, output, "--codec", "lz4")
    assert "other input files" in refused(files_of(data)[0], output)
    assert {path: path.read_bytes() for path in files_of(output)} == before


def test_directories_of_others_are_left_alone(refused: Any, data: Any, tmp_path: Path) -> None:
    """A data set with its output within would have every row twice."""
    (tmp_path / "kept.txt").write_text("mine")
    assert "holds 'kept.txt'" in refused(data, tmp_path)
    assert names_in(tmp_path) == ["kept.txt"]
    assert "must not hold the input" in refused(data, data)
    assert "must not be in a directory of the input" in refused(data, data / "new" / "o")
    assert not (data / "new").exists()


def test_two_at_once(refused: Any, data: Any, tmp_path: Path) -> None:
    with LocalOutput(tmp_path / "o").locked():
        assert "another rewrite" in refused(data, tmp_path / "o")


def test_a_file_that_changes_while_a_part_of_it_is_read(tmp_path: Path) -> None:
    for path in (tmp_path / "a.parquet", tmp_path / "b.parquet"):
        pq.write_table(pa.table({"x": range(100)}), path)
    os.utime(tmp_path / "b.parquet", ns=(1, 1))
    rows = InputRows(read_manifest(str(tmp_path / "a.parquet")), pa.schema({"x": pa.int64()}))
    for is_changed in (False, True):
        tables = rows.tables(10, 20)
        assert next(tables)["x"].to_pylist() == list(range(10, 20))
        if is_changed:
            (tmp_path / "b.parquet").rename(tmp_path / "a.parquet")
        refusal = pytest.raises(FileChangedError, match=r"^the file has changed since")
        with refusal if is_changed else nullcontext():
            tables.close()


def test_two_machines_that_write_one_file_do_not_meet(tmp_path: Path) -> None:
    """As a machine that Ray has given up may go on."""
    first, second = LocalOutput(tmp_path / "o"), LocalOutput(tmp_path / "o")
    with pytest.raises(ValueError, match="must share the directory of --output"), first.elsewhere():
        pass
    with first.locked() as _, first.elsewhere(), second.elsewhere():
        with first.new_file("part-0") as slow:
            slow.write_text("half of")
            with second.new_file("part-0") as path:
                path.write_text("the content")
            assert (tmp_path / "o/part-0").read_text() == "the content"
            slow.write_text("the content")
        (tmp_path / "o/.part-1.0123abcd.tmp").touch()  # of one that was killed
    assert names_in(tmp_path / "o") == ["part-0"]
    assert (tmp_path / "o/part-0").read_text() == "the content"


def test_a_column_of_a_slice_must_fit_one_array() -> None:
    class InTwoPieces:
        """A table as pyarrow makes it of strings beyond 2 GiB."""

        schema = pa.schema({"x": pa.int64()})

        def unify_dictionaries(self) -> InTwoPieces:
            return self

        def take(self, _: Any) -> InTwoPieces:
            return self

        def combine_chunks(self) -> InTwoPieces:
            return self

        def slice(self, at: int, count: int) -> pa.Table:
            pieces = pa.chunked_array([[1, 2], [3, 4]])
            return pa.Table.from_arrays([pieces], schema=self.schema).slice(at, count)

    layout = Layout(4, 4, [], [], 4, 4, 2)
    with pytest.raises(ValueError, match="less --max-memory: 4 rows do not fit"):
        list(in_buckets(InTwoPieces(), np.array([0, 0, 0, 1]), layout))


# Failures


def test_files_with_different_columns(refused: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "a.parquet")
    for other in ({"x": [1]}, {"y": [1], "x": [1]}, {"x": [1], "y": ["a"]}):
        pq.write_table(pa.table(other), tmp_path / "b.parquet")
        error = refused(tmp_path / "*.parquet", tmp_path / "o")
        assert "a.parquet" in error
        assert "b.parquet" in error


@pytest.mark.parametrize("shuffle", [[], ["--shuffle"]])
def test_damage_is_named_and_nothing_of_it_gets_a_name(
    refused: Any, tmp_path: Path, shuffle: list[Any]
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.random.default_rng(0).random(3000)})
    pq.write_table(table, path, row_group_size=1000, use_dictionary=False, write_page_checksum=True)
    (page,) = thrift_bytes.pages(path, 1)
    content = bytearray(path.read_bytes())
    content[page.end - 9] ^= 1
    path.write_bytes(content)
    output = tmp_path / "o"
    error = refused(path, output, "--row-group-rows", 500, "--row-groups-per-file", 1, *shuffle)
    assert f"{str(path)!r}, row group 1" in error
    assert "checksum" in error.lower()
    for written in files_of(output):
        assert pq.read_table(written)["x"].to_pylist() == (
            table["x"].to_pylist()[: pq.read_metadata(written).num_rows]
            if written.name == "part-00000.parquet"
            else table["x"].to_pylist()[500:1000]
        )


def test_an_encoding_that_a_column_cannot_have(
    rewritten: Any, refused: Any, data: Any, tmp_path: Path
) -> None:
    output = tmp_path / "o"
    error = refused(data, output, "--encoding", "nothing=plain")
    assert "no such column to encode: ['nothing']" in error
    error = refused(data, output, "--encoding", "text=delta_binary_packed")
    assert "column 'text' cannot be encoded as delta_binary_packed" in error
    assert names_in(output) == []
    # So that the directory serves the next try.
    rewritten(data, output, "--encoding", "text=delta_byte_array")


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_journal_is_named(
    rewritten: Any, refused: Any, data: Any, tmp_path: Path, text: str
) -> None:
    rewritten(data, tmp_path / "o")
    (tmp_path / "o" / JOURNAL).write_text(text)
    assert f"{JOURNAL}', the note of a rewrite, is damaged" in refused(data, tmp_path / "o")


def test_a_row_group_that_does_not_fit_max_memory(refused: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.random.default_rng(0).random(200_000)}), path)
    options = ("--row-group-rows", 100_000_000, "--max-memory", "1MiB")
    assert "a row group must fit half" in refused(path, tmp_path / "o", *options)


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("shuffle", [[], ["--shuffle"]])
def test_memory_is_bounded(rewritten: Any, tmp_path: Path, shuffle: list[Any]) -> None:
    """A row group of 64 MB in memory, and 16 MiB to take."""
    path = tmp_path / "a.parquet"
    num_rows = 1_000_000
    ids = np.arange(num_rows)
    table = pa.table({f"x{i}": ids * (i + 1) for i in range(8)})
    pq.write_table(table, path, row_group_size=num_rows, use_dictionary=False, compression="lz4")
    del table
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        more = ("--max-memory", "16MiB", "--row-group-bytes", "4MiB", *shuffle)
        rewritten(path, tmp_path / "o", *more)
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 24 << 20
    written = np.sort(pq.read_table(tmp_path / "o", columns=["x1"])["x1"].to_numpy())
    assert np.array_equal(written, 2 * ids)


@pytest.mark.parametrize("source", ["{}/source.parquet", "memory://source.parquet"])
def test_a_file_that_changes_meanwhile_is_named(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One of a store that has grown no longer ends where it did."""
    source = source.format(tmp_path)

    def write(num_rows: int) -> None:
        with fsspec.open(source, "wb") as file:
            pq.write_table(pa.table({"x": range(num_rows)}), file)

    write(1000)
    begin = writing.begin

    def begin_and_write_again(*arguments: Any) -> None:
        begin(*arguments)
        write(2000)

    monkeypatch.setattr(writing, "begin", begin_and_write_again)
    assert main(["rewrite", source, "--output", str(tmp_path / "output")]) != 0
    said = capsys.readouterr().err
    assert "the file has changed since the rewrite began" in said
    assert source in said


def test_ray_that_is_not_there_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pq.write_table(pa.table({"x": range(10)}), tmp_path / "source.parquet")
    monkeypatch.setitem(sys.modules, "ray", None)
    arguments = [str(tmp_path / "source.parquet"), "--output", str(tmp_path / "output"), "--ray"]
    assert main(["rewrite", *arguments]) != 0
    assert "pip install torchparquet[ray]" in capsys.readouterr().err
