"""Files that are missing, cut, changed, damaged or lying: an error naming them or right data."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.datasets import open_alone
from tests.fixtures.parquet_files import (
    id_files,
    id_table,
    same_bits,
    stored_values,
    validity,
    write,
)
from tests.fixtures.thrift_bytes import (
    FILE_NUM_ROWS,
    FILE_ROW_GROUPS,
    GROUP_COLUMNS,
    GROUP_NUM_ROWS,
    META_COMPRESSED_BYTES,
    META_DATA_OFFSET,
    META_NUM_VALUES,
    PAGE_BYTES,
    PAGE_COMPRESSED_BYTES,
    all_replaced,
    column_metadata,
    footer,
    footer_begin,
    pages,
    replaced,
    resized,
    varint,
)
from torchparquet import CorruptFileError

NUM_ROWS = 2000
GROUP_ROWS = 1000
COLUMNS = ("a", "b", "c", "d")
# Errors for damage while the schema itself may be damaged.
REPORTS = (CorruptFileError, ValueError, TypeError)


def mixed_table() -> pa.Table:
    """Dictionary, PLAIN, nullable and boolean columns: a, b, c, d."""
    ids = np.arange(NUM_ROWS)
    return pa.table(
        {
            "a": pa.array(ids % 50, pa.int64()),
            "b": pa.array(np.random.default_rng(0).random(NUM_ROWS)),
            "c": pa.array(ids.astype(np.int32), mask=ids % 3 == 0),
            "d": pa.array(ids % 7 == 0, mask=ids % 5 == 0),
        }
    )


def write_mixed(path: Path, version: str = "1.0", codec: str = "snappy", **options: Any) -> Path:
    layout: dict[str, Any] = {
        "row_group_size": GROUP_ROWS,
        "data_page_size": 2000,
        "write_batch_size": 250,
    }
    layout |= {"compression": codec, "use_dictionary": ["a"], "data_page_version": version}
    return Path(write(path, mixed_table(), **layout, **options))


def error_of_reading(batches: Any, take: Any) -> Any:
    """Hand each batch to `take`; return the error that ends them, if any."""
    try:
        for batch in batches:
            take(batch)
    except CorruptFileError as error:
        return error
    return None


def rows_until_error(paths: Any, **options: Any) -> Any:
    """Read the mixed table; its first rows must be right. Return their number and the error."""
    batches, error = [], None  # type: ignore[var-annotated]
    try:
        error = error_of_reading(open_alone(paths, nulls="mask", **options), batches.append)
    except CorruptFileError as caught:  # at construction
        error = caught
    table = mixed_table()
    rows = 0
    for batch in batches:
        for name in batch.keys() & set(COLUMNS):
            part = table[name].slice(rows, len(batch[name]))
            assert same_bits(batch[name].numpy(), stored_values(part)), (name, rows)
            assert same_bits(batch[f"{name}.valid"].numpy(), validity(part)), (name, rows)
        rows += len(next(iter(batch.values())))
    return rows, error


def assert_reported(path: Path, **options: Any) -> str:
    """No wrong or missing row: all is right up to an error that names the file."""
    rows, error = rows_until_error(str(path), **options)
    assert error is not None, f"{rows} rows were read without an error"
    assert str(path) in str(error)
    return str(error)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"P",
        b"PAR1",
        b"PAR1PAR1",
        b"PAR1\0\0\0\0PAR1",
        b"PAR1\xff\xff\xff\x7fPAR1",
        b"PAR1" + bytes(8) + b"\x08\0\0\0PAR1",
        b"PAR1" + b"\xff" * 100 + b"\x60\0\0\0PAR1",
        b"a,b\n1,2\n" * 100,
        bytes(10_000),
    ],
    ids=repr,
)
def test_not_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    good = id_files(tmp_path / "good", [10])
    for paths in (str(path), [good, str(path)]):
        with pytest.raises(CorruptFileError) as caught:
            open_alone(paths)
        assert str(path) in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("num_threads", [1, 3])
def test_cut_or_written_to_while_reading(tmp_path: Path, num_threads: int) -> None:
    """The file is open, some of it is read: no crash, and no wrong row before the error."""
    (path,) = Path(id_files(tmp_path / "data", [3000] * 10)).iterdir()
    content = path.read_bytes()
    # Little memory, so that little is read ahead.
    options = {"num_threads": num_threads, "max_memory": 20_000, "batch_size": 500}
    for cut in (*range(0, len(content), len(content) // 15), None):
        path.write_bytes(content)
        iterator = iter(open_alone(str(path), columns=["id"], **options))
        batches = [next(iterator)]
        if cut is None:  # the rows that follow are of another file, which only its time tells
            os.utime(path, ns=(1, 1))
        else:
            os.truncate(path, cut)
        error = error_of_reading(iterator, batches.append)
        ids = [row for batch in batches for row in batch["id"].tolist()]
        assert ids == list(range(len(ids)))
        assert str(path) in str(error) if error is not None else len(ids) == 30_000
        assert cut is not None or "changed" in str(error)


@pytest.mark.parametrize("keep_time", [False, True])
@pytest.mark.parametrize("num_epochs", [0, 1])
def test_replaced_after_planning(tmp_path: Path, num_epochs: int, keep_time: bool) -> None:
    """Another file of the same size; after a new plan it is read."""
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for file, first in ((path, 0), (other, 1000)):
        table = id_table(first, 100).select(["id"])
        pq.write_table(table, file, write_statistics=False, compression="none")
    planned = open_alone(str(path), columns=["id"])
    for _ in range(num_epochs):
        assert len(list(planned)) == len(planned)
    status = path.stat()
    assert other.stat().st_size == status.st_size
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns) if keep_time else (1, 1))
    other.replace(path)
    with pytest.raises(
        CorruptFileError, match=r"changed.*another file" if keep_time else "changed"
    ):
        list(planned)
    (batch,) = open_alone(str(path), columns=["id"])
    assert batch["id"].tolist() == list(range(1000, 1100))


@pytest.mark.parametrize("num_epochs", [0, 1])
@pytest.mark.parametrize("by", ["zeros", "a file"])
def test_written_over_with_its_time_set_back(tmp_path: Path, by: str, num_epochs: int) -> None:
    """Nothing betrays the change but the content itself."""
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for file, name in ((path, "id"), (other, "no")):
        table = pa.table({name: np.arange(1000)})
        pq.write_table(table, file, write_statistics=False, compression="none")
    planned = open_alone(str(path), columns=["id"])
    for _ in range(num_epochs):
        assert len(list(planned)) == len(planned)
    status = path.stat()
    content = other.read_bytes() if by == "a file" else bytes(status.st_size)
    assert len(content) == status.st_size
    with path.open("r+b") as file:  # type: ignore[assignment]
        file.write(content)  # type: ignore[attr-defined]
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    message = "column 'id'" if by == "a file" else None
    with pytest.raises(CorruptFileError, match=message) as caught:
        list(planned)
    assert str(path) in str(caught.value)


def test_removed_after_planning(tmp_path: Path) -> None:
    folder = Path(id_files(tmp_path / "data", [50], [50]))
    planned = open_alone(str(folder), columns=["id"], batch_size=50)
    (folder / "001.parquet").unlink()
    iterator = iter(planned)
    assert next(iterator)["id"].tolist() == list(range(50))
    with pytest.raises(FileNotFoundError, match=r"001\.parquet"):
        next(iterator)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_checksums_find_every_flipped_byte_of_a_page(
    tmp_path: Path, codec: str, version: str
) -> None:
    path = write_mixed(tmp_path / "a.parquet", version, codec, write_page_checksum=True)
    content = path.read_bytes()
    assert rows_until_error(str(path)) == (NUM_ROWS, None)
    rng = np.random.default_rng(0)
    for row_group in range(2):
        for column, name in enumerate(COLUMNS):
            for page in pages(path, row_group, column):
                at = int(rng.integers(page.begin, page.end))
                damaged = bytearray(content)
                damaged[at] ^= 1 << int(rng.integers(8))
                bad = tmp_path / "bad.parquet"
                bad.write_bytes(damaged)
                message = assert_reported(bad)
                assert f"row group {row_group}" in message
                assert f"'{name}'" in message
            # Other columns are none the worse.
            others = [other for other in COLUMNS if other != name]
            assert rows_until_error(str(bad), columns=others) == (NUM_ROWS, None)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_flipped_bytes_without_checksums_never_crash(
    tmp_path: Path, codec: str, version: str
) -> None:
    """Values may be wrong, which nothing can tell; the number of rows may not."""
    content = write_mixed(tmp_path / "a.parquet", version, codec).read_bytes()
    path = tmp_path / "bad.parquet"
    rng = np.random.default_rng(1)
    headers = [
        page.begin - 1 - int(rng.integers(12))
        for column in range(4)
        for page in pages(tmp_path / "a.parquet", 0, column)
    ]
    for at in [*headers, *rng.integers(4, footer_begin(content), 60).tolist()]:
        damaged = bytearray(content)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        batches: list[Any] = []
        error = error_of_reading(open_alone(str(path), nulls="mask"), batches.append)
        if error is None:
            assert [{len(t) for t in batch.values()} for batch in batches] == [{100}] * 20, at
        else:
            assert str(path) in str(error)
            assert str(error).isprintable()


def test_flipped_bytes_of_the_footer_never_crash(tmp_path: Path) -> None:
    content = write_mixed(tmp_path / "a.parquet", write_statistics=False).read_bytes()
    path = tmp_path / "bad.parquet"
    rng = np.random.default_rng(2)
    for at in rng.integers(footer_begin(content), len(content), 200).tolist():
        damaged = bytearray(content)
        damaged[at] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        error = None
        try:
            list(open_alone(str(path), nulls="mask", max_memory="64MiB"))
        except REPORTS as caught:
            error = caught
        assert error is None or str(error).isprintable()


def lie(content: Any, delta: Any, levels: Any, row_group: int = 1, column: Any = None) -> Any:
    """Add `delta` to the row counts of the footer at the given levels, from the back on."""
    wanted = []
    groups = footer(content)[FILE_ROW_GROUPS]
    for at, _ in enumerate(groups[row_group][GROUP_COLUMNS]):
        if "values" in levels and column in (None, at):
            wanted.append(column_metadata(content, row_group, at)[META_NUM_VALUES])
    if "group" in levels:
        wanted.append(groups[row_group][GROUP_NUM_ROWS])
    if "file" in levels:
        wanted.append(footer(content)[FILE_NUM_ROWS])
    return all_replaced(content, {number: number.value + delta for number in wanted})


@pytest.mark.parametrize("delta", [-1000, -1, 1, 1000, 2**40, 2**61, -(2**40)])
@pytest.mark.parametrize(
    "levels", ["file", "group", "values", "file group", "file group values", "group values"]
)
@pytest.mark.parametrize("batch_size", [100, None])
def test_row_counts_that_lie(
    tmp_path: Path, levels: str, delta: int, batch_size: int | None
) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(lie(content, delta, levels.split()))
    if set(levels.split()) >= {"file", "group"} and delta > 2**30 and batch_size is None:
        # So large a batch is beyond max_memory.
        with pytest.raises((CorruptFileError, ValueError)):
            list(open_alone(str(path), batch_size=None))
        return
    if levels == "file group values" and delta == -GROUP_ROWS:
        # A row group that says throughout that it holds no row is not looked into.
        assert rows_until_error(str(path), batch_size=batch_size) == (GROUP_ROWS, None)
        return
    assert_reported(path, batch_size=batch_size)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_error_after_the_last_row_is_raised_every_time(tmp_path: Path, num_threads: int) -> None:
    """The last page holds a row too many: known only when the last batch is already full."""
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(lie(content, -1, ["file", "group", "values"]))
    options = {"batch_size": NUM_ROWS - 1, "num_threads": num_threads}
    silent = [rows_until_error(str(path), **options)[1] is None for _ in range(30)]
    assert silent.count(True) == 0


@pytest.mark.parametrize("delta", [-500, -1, 1, 10**6])
@pytest.mark.parametrize("column", range(4))
def test_one_column_that_lies_about_its_values(tmp_path: Path, column: int, delta: int) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(lie(content, delta, ["values"], 1, column))
    message = assert_reported(path)
    assert "row group 1" in message
    assert f"'{COLUMNS[column]}'" in message


@pytest.mark.parametrize("value", [-1, 0, 3, 10**5, 2**40, 2**62, -(2**62)])
@pytest.mark.parametrize("field", [META_COMPRESSED_BYTES, META_DATA_OFFSET])
@pytest.mark.parametrize("column", [1, 3])
def test_column_chunks_that_lie_about_their_place(
    tmp_path: Path, column: int, field: Any, value: int
) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(replaced(content, column_metadata(content, 1, column)[field], value))
    rows, error = rows_until_error(str(path))
    # Too many bytes within the file do no harm: the pages say where they end.
    assert error is not None or (field == META_COMPRESSED_BYTES and rows == NUM_ROWS)
    assert error is None or str(path) in str(error)


def with_page_number(content: Any, number: Any, value: Any, column: Any) -> Any:
    """Another number in a page header of the last row group, the column chunk's size set right."""
    changed = replaced(content, number, value)
    grown = len(changed) - len(content)
    size = column_metadata(changed, 1, column)[META_COMPRESSED_BYTES]
    return replaced(changed, size, size.value + grown)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("value", [-1, 0, 1, 249, 251, 10**6, 2**31 - 1])
@pytest.mark.parametrize("what", ["values", PAGE_BYTES, PAGE_COMPRESSED_BYTES])
def test_page_headers_that_lie(tmp_path: Path, what: Any, value: int, version: str) -> None:
    """In the last page of the last column chunk, so that no offset changes."""
    path = write_mixed(tmp_path / "a.parquet", version, codec="none")
    content = path.read_bytes()
    page = pages(path, 1, 3)[-1]
    number = page.details[1] if what == "values" else page.header[what]
    assert number.value != value
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(with_page_number(content, number, value, 3))
    rows, error = rows_until_error(str(bad))
    # The uncompressed size of a page that is not compressed says nothing that is needed.
    assert error is not None or (what == PAGE_BYTES and rows == NUM_ROWS)
    if error is not None:
        assert str(bad) in str(error)
        assert "'d'" in str(error)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip", "lz4", "brotli"])
@pytest.mark.parametrize("value", [-1, 0, 1, 7, 10**6, 2**31 - 1])
def test_uncompressed_sizes_that_lie(tmp_path: Path, codec: str, value: int) -> None:
    path = write_mixed(tmp_path / "a.parquet", codec=codec)
    content = path.read_bytes()
    page = pages(path, 1, 3)[-1]
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(with_page_number(content, page.header[PAGE_BYTES], value, 3))
    if codec == "brotli" and value > 2**30:  # its compressed bytes set no bound
        with pytest.raises(MemoryError, match=r"max_memory.*column 'd'"):
            list(open_alone(str(bad), nulls="mask"))
        return
    rows, error = rows_until_error(str(bad))
    # Room to spare does no harm where the codec tells how much it has filled.
    assert error is not None or rows == NUM_ROWS
    if error is not None:
        assert str(bad) in str(error)


def peak_growth(call: Any) -> Any:
    """Bytes by which the resident memory's peak exceeds what was resident before."""
    Path("/proc/self/clear_refs").write_text("5")

    def peak() -> int:
        (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        return int(kilobytes) * 1024

    before = peak()
    call()
    return peak() - before


@pytest.mark.parametrize("size", [10**5, 10**6 - 1, 2**31 - 1])
@pytest.mark.parametrize("which", ["row groups", "columns"])
def test_lists_longer_than_the_footer_take_no_memory(tmp_path: Path, which: str, size: int) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    groups = footer(content)[FILE_ROW_GROUPS]
    items = groups if which == "row groups" else groups[1][GROUP_COLUMNS]
    path = tmp_path / "bad.parquet"
    path.write_bytes(resized(content, items, size))

    def read() -> None:
        with pytest.raises(CorruptFileError, match=r"bad\.parquet"):
            open_alone(str(path))

    assert peak_growth(read) < 16 << 20


@pytest.mark.parametrize("size", [-1, -(2**62), 2**62])
def test_impossible_sums_of_sizes(tmp_path: Path, size: int) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    sizes = [column_metadata(content, 0, column)[META_COMPRESSED_BYTES] for column in range(4)]
    path = tmp_path / "bad.parquet"
    path.write_bytes(all_replaced(content, dict.fromkeys(sizes, size)))
    with pytest.raises(CorruptFileError, match="impossible size") as caught:
        open_alone(str(path))
    assert str(path) in str(caught.value)


def write_fixed_bytes(path: Path) -> Path:
    """One required column of binary of a fixed size, in one page."""
    field = pa.field("x", pa.binary(12), nullable=False)
    cells = [b"same" + bytes([row % 256]) * 8 for row in range(200)]
    table = pa.table({"x": pa.array(cells, pa.binary(12))}, pa.schema([field]))
    encoding = {"x": "DELTA_BYTE_ARRAY"}
    return Path(
        write(path, table, use_dictionary=False, compression="none", column_encoding=encoding)
    )


def delta_lengths(count: Any, length: Any, block_values: Any) -> bytes:
    """DELTA_BINARY_PACKED: `count` times the same length, all in one block of one miniblock."""
    return b"".join(map(varint, (block_values, 1, count, 2 * length))) + b"\0\0"


@pytest.mark.parametrize("count", [10**8, 2**31 - 128, 200, 199])
def test_delta_lengths_that_lie_take_no_memory(tmp_path: Path, count: int) -> None:
    path = write_fixed_bytes(tmp_path / "a.parquet")
    content = path.read_bytes()
    (page,) = pages(path)
    lengths = delta_lengths(count, 0, (count + 127) // 128 * 128)
    body = (2 * lengths).ljust(page.end - page.begin, b"\0")
    path.write_bytes(content[: page.begin] + body + content[page.end :])
    message = "more prefixes than values" if count > 200 else "12 bytes: 0"

    def read() -> None:
        with pytest.raises(CorruptFileError, match=message) as caught:
            list(open_alone(str(path)))
        assert str(path) in str(caught.value)

    assert peak_growth(read) < 16 << 20


@pytest.mark.parametrize("count", [49, 51, 63])
def test_a_dictionary_that_claims_another_number_of_values(tmp_path: Path, count: int) -> None:
    """Of 50: one index in fifty leads out of it, or it is too short for them."""
    path = write_mixed(tmp_path / "a.parquet", codec="none")
    content = path.read_bytes()
    dictionary = pages(path, 1, 0)[0]
    assert not dictionary.is_data
    path.write_bytes(replaced(content, dictionary.details[1], count))
    assert "row group 1" in assert_reported(path, columns=["a"])


def test_pages_that_end_early(tmp_path: Path) -> None:
    """Bytes of the last value are cut off a PLAIN page, whose header and chunk agree about it."""
    field = pa.field("x", pa.float64(), nullable=False)
    table = pa.table([pa.array(np.arange(1000.0))], pa.schema([field]))
    path = tmp_path / "a.parquet"
    write(path, table, use_dictionary=False, compression="none")
    content = path.read_bytes()
    (page,) = pages(path)
    assert page.end - page.begin == 8000
    content = content[: page.end - 3] + content[page.end :]
    sizes = [page.header[key] for key in (PAGE_BYTES, PAGE_COMPRESSED_BYTES)]
    metadata = column_metadata(content, 0, 0)
    header_bytes = page.begin - metadata[META_DATA_OFFSET].value
    changed = dict.fromkeys(sizes, 7997) | {metadata[META_COMPRESSED_BYTES]: 7997 + header_bytes}
    path.write_bytes(all_replaced(content, changed))
    assert pq.read_metadata(path).num_rows == 1000
    with pytest.raises(CorruptFileError, match="fewer values") as caught:
        list(open_alone(str(path)))
    assert str(path) in str(caught.value)


def test_names_in_messages_are_printable(tmp_path: Path) -> None:
    path = tmp_path / "line\nbreak \x1b[31m.parquet"
    path.write_bytes(b"PAR1PAR1")
    with pytest.raises(CorruptFileError) as caught:
        open_alone(str(path))
    assert str(caught.value).isprintable()
    table = pa.table({"evil\n\x1b[2J\x9b2J\u2028\u202e\ufeff": [1, None]})
    write(tmp_path / "b.parquet", table)
    with pytest.raises(ValueError, match="null") as caught:  # type: ignore[assignment]
        list(open_alone(str(tmp_path / "b.parquet")))
    assert str(caught.value).isprintable()


MUCH_FOR_NOTHING = """
    import resource, sys
    from pathlib import Path
    from torchparquet import CorruptFileError, ParquetDataset
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
    try:
        ParquetDataset(sys.argv[1], batch_size=10, num_threads=1)
    except CorruptFileError as error:
        print(error)
"""


@pytest.mark.mostly_long(every=2)
@pytest.mark.parametrize("tail", [b"\xff\xff\xff\x7fWORD", b"\xff\xff\xff\xffPAR1"])
def test_what_is_no_parquet_file_is_not_read_as_far_as_it_says(tmp_path: Path, tail: bytes) -> None:
    """A file of 3 GiB, most of them a hole, in 1 GiB of memory."""
    path = tmp_path / "large.parquet"
    with path.open("wb") as file:
        file.truncate(3 << 30)
        file.seek(-len(tail), os.SEEK_END)
        file.write(tail)
    program = textwrap.dedent(MUCH_FOR_NOTHING)
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert str(path) in done.stdout, done.stderr
