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


def _groups(
    setting: Setting,
    name: str,
    group: Callable[[np.random.Generator], pa.Table],
    **options: Any,
) -> Path:
    """Returns a file of eight row groups, as pyarrow writes them by default but for ``options``."""

    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        _write(path, (group(rng) for _ in range(8)), **options)

    return _kept(setting, f"{name}.parquet", write)


def _one_column(
    setting: Setting, name: str, group: Callable[[np.random.Generator], pa.Array], **options: Any
) -> Path:
    """Returns such a file of the column ``x``."""
    return _groups(setting, name, lambda rng: pa.table({"x": group(rng)}), **options)


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


def embeddings(setting: Setting, codec: str) -> Path:
    """Two columns of lists of a fixed size, 256 and 512 float32."""
    rows = 2048 if setting.quick else 16_384

    def column(rng: np.random.Generator, length: int) -> pa.Array:
        drawn = pa.array(rng.standard_normal(rows * length, np.float32))
        return pa.FixedSizeListArray.from_arrays(drawn, length)

    return _groups(
        setting,
        f"embeddings_{codec}",
        lambda rng: pa.table({"query": column(rng, 256), "text": column(rng, 512)}),
        compression=codec,
    )


def flags(setting: Setting, codec: str) -> Path:
    """20 columns of bool and 20 of int8 with few distinct values."""
    rows = 20_480 if setting.quick else 1_310_720

    def group(rng: np.random.Generator) -> pa.Table:
        drawn = {f"small{i:02d}": rng.integers(0, 2 + 6 * i, rows, np.int8) for i in range(20)}
        drawn |= {f"flag{i:02d}": rng.random(rows, np.float32) < 0.05 * (i + 1) for i in range(20)}
        return pa.table(drawn)

    return _groups(setting, f"flags_{codec}", group, compression=codec)


def floats_with_nulls(setting: Setting, codec: str) -> Path:
    """10 float32 columns, of which a tenth of the values are null."""
    rows = 20_480 if setting.quick else 1_310_720

    def column(rng: np.random.Generator) -> pa.Array:
        drawn = rng.standard_normal(rows, np.float32)
        return pa.array(drawn, mask=rng.random(rows, np.float32) < 0.1)

    def group(rng: np.random.Generator) -> pa.Table:
        return pa.table({f"x{i}": column(rng) for i in range(10)})

    return _groups(setting, f"floats_with_nulls_{codec}", group, compression=codec)


def token_lists(setting: Setting, codec: str) -> Path:
    """Lists of 1 to 512 int32, 256 on average."""
    rows = 4096 if setting.quick else 49_152

    def group(rng: np.random.Generator) -> pa.Array:
        offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 513, rows))]).astype(np.int32)
        drawn = rng.integers(0, 50_000, offsets[-1], np.int32)
        return pa.ListArray.from_arrays(offsets, drawn)

    return _one_column(setting, f"token_lists_{codec}", group, compression=codec)


def one_integer(setting: Setting, codec: str) -> Path:
    """One int64 column, PLAIN, not nullable."""
    rows = 81_920 if setting.quick else 6_553_600
    schema = pa.schema([pa.field("x", pa.int64(), False)])

    def group(rng: np.random.Generator) -> pa.Table:
        return pa.table([rng.integers(0, 1 << 62, rows)], schema)

    name = f"one_integer_{codec}"
    return _groups(setting, name, group, compression=codec, use_dictionary=False)


def integers(setting: Setting, num_columns: int) -> Path:
    """So many int64 columns, PLAIN, not nullable, uncompressed; 16,000,000 rows of a few."""
    rows = 80_000 if setting.quick else 2_000_000 if num_columns <= 4 else 160_000
    schema = pa.schema([pa.field(f"x{i:02d}", pa.int64(), False) for i in range(num_columns)])

    def group(rng: np.random.Generator) -> pa.Table:
        columns = rng.integers(0, 1 << 62, (num_columns, rows))
        return pa.Table.from_arrays(list(map(pa.array, columns)), schema=schema)

    name = f"integers_{num_columns}"
    return _groups(setting, name, group, compression="none", use_dictionary=False)


def small_files(setting: Setting, codec: str) -> Path:
    """1,500 files of 5,000 rows of 4 int64 and 4 float32 columns (a twentieth to try)."""
    count, rows = 75 if setting.quick else 1500, 5000

    def write(directory: Path) -> None:
        directory.mkdir()
        rng = np.random.default_rng(0)
        for number in range(count):
            columns: dict[str, Any] = {f"id{i}": rng.integers(0, 1 << 40, rows) for i in range(4)}
            columns |= {f"x{i}": rng.standard_normal(rows, np.float32) for i in range(4)}
            pq.write_table(
                pa.table(columns), directory / f"{number:05d}.parquet", compression=codec
            )

    return _kept(setting, f"small_files_{codec}", write)


def many_files(setting: Setting) -> Path:
    """2,000 files of the click log's columns, 64 rows each (a tenth as many to try)."""
    count = 200 if setting.quick else 2000

    def write(directory: Path) -> None:
        directory.mkdir()
        options = click_log.ClickLogOptions(64 * count, 64)
        for number, table in enumerate(click_log.row_groups(options)):
            pq.write_table(table, directory / f"{number:05d}.parquet")

    return _kept(setting, "many_files", write)
