"""Files that are missing, cut, changed, damaged or lying: an error naming them or right data."""

from __future__ import annotations

import itertools
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.datasets import batch_of, open_alone
from tests.fixtures.forked_programs import ran
from tests.fixtures.parquet_files import (
    id_files,
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


def id_file(path: Path, first: int = 0, name: str = "id") -> Path:
    """A file whose size does not depend on its numbers or the name of its column."""
    table = pa.table({name: np.arange(first, first + 1000)})
    return Path(write(path, table, write_statistics=False, compression="none"))


@pytest.mark.parametrize("num_epochs", [0, 1])
@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("another file", "changed"),
        ("another file of its time", "changed.*another file"),
        ("zeros in place", "parquet"),
        ("another file in place", "column 'id'"),
    ],
)
def test_other_content_after_planning(
    tmp_path: Path, by: str, message: str, num_epochs: int
) -> None:
    """Of the same size. In place, at its time, nothing betrays the change but the content."""
    path = id_file(tmp_path / "a.parquet")
    planned = open_alone(str(path), columns=["id"])
    for _ in range(num_epochs):
        assert len(list(planned)) == len(planned)
    status = path.stat()
    other = id_file(tmp_path / "b.parquet", 1000, "no" if "in place" in by else "id")
    content = bytes(status.st_size) if by.startswith("zeros") else other.read_bytes()
    assert len(content) == status.st_size
    if "in place" in by:
        with path.open("r+b") as file:
            file.write(content)
    else:
        other.replace(path)
    times = (1, 1) if by == "another file" else (status.st_atime_ns, status.st_mtime_ns)
    os.utime(path, ns=times)
    with pytest.raises(CorruptFileError, match=message) as caught:
        list(planned)
    assert str(path) in str(caught.value)
    if "in place" not in by:
        batch = batch_of(str(path), ["id"])
        assert batch["id"].tolist() == list(range(1000, 2000))


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


def lie(content: bytes, _: Any, delta: int, levels: str, column: Any = None) -> bytes:
    """Add `delta` to the row counts of the second row group and the file at the given levels."""
    group = footer(content)[FILE_ROW_GROUPS][1]
    columns = range(len(group[GROUP_COLUMNS])) if column is None else [column]
    wanted = [column_metadata(content, 1, at)[META_NUM_VALUES] for at in columns]
    wanted = wanted if "values" in levels else []
    if "group" in levels:
        wanted.append(group[GROUP_NUM_ROWS])
    if "file" in levels:
        wanted.append(footer(content)[FILE_NUM_ROWS])
    return all_replaced(content, {number: number.value + delta for number in wanted})


@pytest.mark.parametrize("delta", [-1000, -1, 1, 1000, 2**40, 2**61, -(2**40)])
@pytest.mark.parametrize(
    "levels", ["file", "group", "values", "file group", "file group values", "group values"]
)
def test_row_counts_that_lie(tmp_path: Path, levels: str, delta: int) -> None:
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(lie(content, None, delta, levels))
    if levels == "file group values" and delta == -GROUP_ROWS:
        # A row group that says throughout that it holds no row is not looked into.
        assert rows_until_error(str(path)) == (GROUP_ROWS, None)
        return
    assert_reported(path)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_error_after_the_last_row_is_raised_every_time(tmp_path: Path, num_threads: int) -> None:
    """The last page holds a row too many: known only when the last batch is already full."""
    content = write_mixed(tmp_path / "a.parquet").read_bytes()
    path = tmp_path / "bad.parquet"
    path.write_bytes(lie(content, None, -1, "file group values"))
    options = {"batch_size": NUM_ROWS - 1, "num_threads": num_threads}
    silent = [rows_until_error(str(path), **options)[1] is None for _ in range(30)]
    assert silent.count(True) == 0


def with_page_number(content: bytes, number: Any, value: int, column: int) -> bytes:
    """Another number in a page header of the last row group, the column chunk's size set right."""
    changed = replaced(content, number, value)
    grown = len(changed) - len(content)
    size = column_metadata(changed, 1, column)[META_COMPRESSED_BYTES]
    return replaced(changed, size, size.value + grown)


def with_number(content: bytes, page: Any, what: Any, value: int) -> bytes:
    """Another number in the header of the last page of all, so that no offset changes."""
    number = page.details[1] if what == "values" else page.header[what]
    assert number.value != value
    return with_page_number(content, number, value, 3)


def with_place(content: bytes, _: Any, column: int, field: Any, value: int) -> bytes:
    return replaced(content, column_metadata(content, 1, column)[field], value)


def with_sizes(content: bytes, _: Any, value: int) -> bytes:
    sizes = [column_metadata(content, 0, column)[META_COMPRESSED_BYTES] for column in range(4)]
    return all_replaced(content, dict.fromkeys(sizes, value))


PAGE_NUMBERS = ("values", PAGE_BYTES, PAGE_COMPRESSED_BYTES)
# How a file is written and changed, what an error names, and if the lie may do no harm.
LIES: list[tuple[dict[str, Any], Any, tuple[str, ...], bool]] = [
    *(
        (
            {},
            partial(lie, delta=n, levels="values", column=c),
            ("group 1", f"'{COLUMNS[c]}'"),
            False,
        )
        for c, n in itertools.product(range(4), (-500, -1, 1, 10**6))
    ),
    *(
        ({}, partial(with_sizes, value=n), ("impossible size",), False)
        for n in (-1, -(2**62), 2**62)
    ),
    # Too many bytes within the file do no harm: the pages say where they end.
    *(
        ({}, partial(with_place, column=c, field=f, value=n), (), f == META_COMPRESSED_BYTES)
        for c, f in itertools.product((1, 3), (META_COMPRESSED_BYTES, META_DATA_OFFSET))
        for n in (-1, 0, 3, 10**5, 2**40, 2**62, -(2**62))
    ),
    # The uncompressed size of a page that is not compressed says nothing that is needed.
    *(
        (written, partial(with_number, what=what, value=n), ("'d'",), what == PAGE_BYTES)
        for written in ({"codec": "none"}, {"codec": "none", "version": "2.0"})
        for what, n in itertools.product(PAGE_NUMBERS, (-1, 0, 1, 249, 251, 10**6, 2**31 - 1))
    ),
]


@pytest.mark.parametrize(("written", "change", "named", "is_harmless"), LIES)
def test_numbers_that_lie(
    tmp_path: Path, written: dict[str, Any], change: Any, named: tuple[str, ...], is_harmless: bool
) -> None:
    path = write_mixed(tmp_path / "a.parquet", **written)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(change(path.read_bytes(), pages(path, 1, 3)[-1]))
    rows, error = rows_until_error(str(bad))
    assert error is not None or (is_harmless and rows == NUM_ROWS)
    for part in (str(bad), *named) if error is not None else ():
        assert part in str(error)


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
    done = ran(MUCH_FOR_NOTHING, path)
    assert str(path) in done.stdout, done.stderr
