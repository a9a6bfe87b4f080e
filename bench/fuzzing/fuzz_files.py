"""The files that the fuzzer mutates: a directory of given ones, and some of every shape we read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.fixtures.parquet_files import CODECS, KINDS, kinds_table, write

NUM_ROWS = 240
# So large a file is mostly pages of one kind, and slow to read thousands of times.
MAX_FILE_BYTES = 100_000
_PAGES = {"row_group_size": 120, "data_page_size": 150, "write_batch_size": 40}
_FEW = ("bool", "int16", "int64", "float64", "timestamp[us]", "decimal(38, 10)")
_INTEGERS = ("int8", "int32", "int64", "uint16", "uint64", "timestamp[ns]")
_FLOATS = ("float32", "float64", "int32", "decimal(18, 0)")


def write_files(folder: Path) -> None:
    """Write the files of our own into an empty folder.

    In a process of its own, so that this one stays without the threads that writing may start.
    """
    child = os.fork()
    if child == 0:
        try:
            for name, table, options in _recipes():
                write(folder / f"{name}.parquet", table, **(_PAGES | options))
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status != 0:
        raise RuntimeError(f"writing the files to mutate failed with status {status}")


def given_files(folder: Path) -> list[Path]:
    """The Parquet files of a directory that are small enough to mutate."""
    return [p for p in sorted(folder.glob("*.parquet")) if p.stat().st_size <= MAX_FILE_BYTES]


def _recipes() -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    """Name, content and writer's options of each file."""
    plain: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    yield "flat", kinds_table(NUM_ROWS, KINDS, ["required"]), plain
    some = ["required", "some null"]
    yield "nullable", kinds_table(NUM_ROWS, _FEW, [*some, "all null", "long runs"]), plain
    for version in ("1.0", "2.0"):
        distinct = kinds_table(NUM_ROWS, _FEW, some, distinct=30)
        named = {"data_page_version": version, "compression": "none"}
        yield f"dictionary-v{version[0]}", distinct, named
        for codec in ("none", "zstd"):
            checked = {**named, "compression": codec, "write_page_checksum": True}
            yield f"checksummed-v{version[0]}-{codec}", distinct, checked
        for codec in CODECS:
            packed = {**plain, "compression": codec, "data_page_version": version}
            table = kinds_table(NUM_ROWS, _FEW[:4], some, distinct=50)
            yield f"{codec}-v{version[0]}", table, packed
    yield from _encoded(plain)
    yield "strings", _strings(), {"compression": "none"}
    yield "lists", _nested(), {"compression": "none"}
    yield "lists-v2", _nested(), {"compression": "snappy", "data_page_version": "2.0"}


def _encoded(plain: dict[str, Any]) -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    """Files of the encodings that writers do not choose by themselves."""
    some = ["required", "some null"]
    tables = {
        "DELTA_BINARY_PACKED": kinds_table(NUM_ROWS, _INTEGERS, some),
        "BYTE_STREAM_SPLIT": kinds_table(NUM_ROWS, _FLOATS, some),
        "RLE": kinds_table(NUM_ROWS, ["bool"], some),
        "DELTA_BYTE_ARRAY": _strings().append_column("fixed", _fixed_bytes()),
        "DELTA_LENGTH_BYTE_ARRAY": _strings(),
    }
    for encoding, table in tables.items():
        options = {**plain, "column_encoding": dict.fromkeys(table.column_names, encoding)}
        yield encoding.lower(), table, options
        yield f"{encoding.lower()}-v2", table, {**options, "data_page_version": "2.0"}


def _fixed_bytes() -> pa.Array:
    rng = np.random.default_rng(3)
    cells = [b"same" + rng.bytes(8) if row % 5 else None for row in range(NUM_ROWS)]
    return pa.array(cells, pa.binary(12))


def _strings() -> pa.Table:
    rows = range(NUM_ROWS)
    return pa.table(
        {
            "text": [f"https://example.org/{row % 17}/{row}" for row in rows],
            "few": [None if row % 4 == 0 else "ab" * (row % 6) for row in rows],
            "bytes": pa.array([bytes([row % 256]) * (row % 40) for row in rows], pa.binary()),
        }
    )


def _nested() -> pa.Table:
    rows = range(NUM_ROWS)
    lists = [None if row % 7 == 0 else list(range(row % 5)) for row in rows]
    struct = [None if row % 3 == 0 else {"x": row, "y": [row, None][row % 2]} for row in rows]
    return pa.table(
        {
            "numbers": lists,
            "deep": [None if cell is None else [cell, None, []] for cell in lists],
            "texts": [None if cell is None else [str(item) for item in cell] for cell in lists],
            "struct": struct,
            "fixed": pa.array([[row, row + 1.5] for row in rows], pa.list_(pa.float32(), 2)),
            "fixed_bytes": _fixed_bytes(),
        }
    )
