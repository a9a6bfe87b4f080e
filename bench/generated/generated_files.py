"""The files that rows are measured on, generated once and kept: floats, lists, strings, many files.

The click log has a module of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generated import click_log
from report.verdicts import Setting

NUM_FLOATS = 64
TOKENS = 2048
VECTOR = 768
MOST_WORDS = 5000


def click_logs(setting: Setting, codecs: tuple[str, ...] = ()) -> dict[str, Path]:
    """Returns the click log in each of ``codecs``, or of those that the setting has."""
    options = click_log.ClickLogOptions(*(80_000, 20_000) if setting.quick else ())
    return click_log.ensure_files(_directory(setting), codecs or setting.codecs, options)


def _directory(setting: Setting) -> Path:
    directory = setting.data_dir / "quick" if setting.quick else setting.data_dir
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ".gitignore").write_text("*\n")
    return directory


def _kept(setting: Setting, name: str, write: Callable[[Path], None]) -> Path:
    """Returns the file or directory ``name``, which ``write`` makes where it is missing."""
    path = _directory(setting) / name
    if path.exists():
        return path
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    write(partial)
    partial.replace(path)
    return path


def _write(path: Path, tables: Iterator[pa.Table], **options: Any) -> None:
    first = next(tables)
    with pq.ParquetWriter(path, first.schema, **options) as writer:
        writer.write_table(first, row_group_size=len(first))
        for table in tables:
            writer.write_table(table, row_group_size=len(table))


def floats(setting: Setting, codec: str) -> Path:
    """64 float32 columns, PLAIN, not nullable; half of them counts, half continuous."""
    groups, rows = (4, 8192) if setting.quick else (8, 131_072)
    schema = pa.schema([pa.field(f"x{i:02d}", pa.float32(), False) for i in range(NUM_FLOATS)])

    def tables() -> Iterator[pa.Table]:
        rng = np.random.default_rng(0)
        for _ in range(groups):
            columns = rng.lognormal(1.0, 1.0, (NUM_FLOATS, rows)).astype(np.float32)
            columns[::2] = np.rint(columns[::2])
            yield pa.Table.from_arrays(list(map(pa.array, columns)), schema=schema)

    def write(path: Path) -> None:
        _write(path, tables(), compression=codec, use_dictionary=False)

    return _kept(setting, f"floats_{codec}.parquet", write)


def _one_column(
    setting: Setting, name: str, group: Callable[[np.random.Generator], pa.Array], **options: Any
) -> Path:
    """Returns a file of eight row groups of the column ``x``."""

    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        _write(path, (pa.table({"x": group(rng)}) for _ in range(8)), **options)

    return _kept(setting, f"{name}.parquet", write)


def tokens(setting: Setting, codec: str) -> Path:
    """Lists of 2048 int32 each, as pyarrow writes them by default but for the codec."""
    rows = 64 if setting.quick else 5000

    def group(rng: np.random.Generator) -> pa.Array:
        # Ranks of words, of which the first are the most frequent.
        drawn = np.minimum(rng.zipf(1.2, rows * TOKENS), 50_000).astype(np.int32)
        offsets = np.arange(0, rows * TOKENS + 1, TOKENS, dtype=np.int32)
        return pa.ListArray.from_arrays(offsets, drawn)

    return _one_column(setting, f"tokens_{codec}", group, compression=codec)


def vectors(setting: Setting, codec: str) -> Path:
    """Lists of a fixed size of 768 float32 each, PLAIN."""
    rows = 128 if setting.quick else 12_500

    def group(rng: np.random.Generator) -> pa.Array:
        drawn = pa.array(rng.standard_normal(rows * VECTOR, np.float32))
        return pa.FixedSizeListArray.from_arrays(drawn, VECTOR)

    return _one_column(setting, f"vectors_{codec}", group, compression=codec, use_dictionary=False)


def strings(setting: Any, codec: str, encoding: str) -> Path:
    """Strings of 8 to 24 bytes, 16 on average: all different, or 5000 words.

    Args:
        setting: Says how many.
        codec: Of the file.
        encoding: "plain" or "dictionary".
    """
    rows = 16_384 if setting.quick else 1 << 20

    def group(rng: np.random.Generator) -> pa.Array:
        count = rows if encoding == "plain" else MOST_WORDS
        lengths = rng.integers(8, 25, count)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        letters = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
        texts = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
        return texts if count == rows else texts.take(pa.array(rng.integers(0, count, rows)))

    return _one_column(
        setting,
        f"strings_{encoding}_{codec}",
        group,
        compression=codec,
        use_dictionary=encoding == "dictionary",
    )


def many_files(setting: Setting) -> Path:
    """2,000 files of the click log's columns, 64 rows each (a tenth as many to try)."""
    count = 200 if setting.quick else 2000

    def write(directory: Path) -> None:
        directory.mkdir()
        options = click_log.ClickLogOptions(64 * count, 64)
        for number, table in enumerate(click_log.row_groups(options)):
            pq.write_table(table, directory / f"{number:05d}.parquet")

    return _kept(setting, "many_files", write)
