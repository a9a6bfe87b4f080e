"""Kinds of data against the loops that users write with pyarrow, one column after another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import torch

from generated import generated_files
from passes.sides import take_turns
from report.verdicts import OURS, Outcome, Row, Setting, median, ratio, seconds
from routes.contenders import side, torchparquet_route
from routes.pyarrow_routes import OFFSETS, Batch, Route, rebatched

TARGET = 1.0


@dataclass(frozen=True)
class _Kind:
    """One kind of data.

    Attributes:
        name: The start of the names of its cases.
        make: Returns the file of a codec, or a folder of files.
        codecs: Of the files.
    """

    name: str
    make: Callable[[Setting, str], Path]
    codecs: tuple[str, ...] = ("snappy",)


_KINDS = (
    _Kind(
        "embeddings, float32 [256] and [512]",
        generated_files.embeddings,
        ("none", "snappy", "zstd"),
    ),
    _Kind("40 bool and int8 columns", generated_files.flags),
    _Kind("10 float32 columns, a tenth of them nulls", generated_files.floats_with_nulls),
    _Kind("small files, 5,000 rows of 8 columns", generated_files.small_files),
    _Kind("token lists of 1 to 512 int32", generated_files.token_lists),
    _Kind("strings of 16 bytes", functools.partial(generated_files.strings, encoding="plain")),
    _Kind("one int64 column, PLAIN, not nullable", generated_files.one_integer, ("none",)),
)


def _tensors(name: str, array: pa.Array) -> Batch:
    """Returns a column of a batch; nulls of floats become NaN."""
    if pa.types.is_fixed_size_list(array.type):
        return {name: torch.from_numpy(array.flatten().to_numpy()).view(len(array), -1)}
    if not (pa.types.is_list(array.type) or pa.types.is_string(array.type)):
        return {name: torch.from_numpy(array.to_numpy(zero_copy_only=False))}
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]
    if pa.types.is_list(array.type):
        values = array.flatten().to_numpy()
    else:
        values = np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    from_zero = torch.from_numpy(offsets).long() - int(offsets[0])
    return {name: torch.from_numpy(values), name + OFFSETS: from_zero}


def _batch(columns: pa.RecordBatch) -> Batch:
    batch: Batch = {}
    for name, array in zip(columns.schema.names, columns.columns, strict=True):
        batch |= _tensors(name, array)
    return batch


def _iter_batches(path: Path, batch_size: Any) -> Iterator[Batch]:
    with pq.ParquetFile(path) as file:
        yield from map(_batch, file.iter_batches(batch_size=batch_size))


# It keeps the footers that it has read from epoch to epoch, as ours does.
_dataset = functools.cache(functools.partial(pads.dataset, format="parquet"))


def _to_batches(path: Path, batch_size: Any) -> Iterator[Batch]:
    parts = _dataset(path).to_batches(batch_size=batch_size)
    yield from rebatched((_batch(part) for part in parts if part.num_rows), batch_size)


def _row_groups(path: Path, batch_size: Any) -> Iterator[Batch]:
    """Reads whole row groups and cuts them; what is left goes before the next."""
    table = None
    for one in sorted(path.iterdir()) if path.is_dir() else [path]:
        with pq.ParquetFile(one) as file:
            for index in range(file.num_row_groups):
                read = file.read_row_group(index)
                table = pa.concat_tables([table, read]) if table else read
                end = len(table) // batch_size * batch_size
                yield from map(_batch, table[:end].combine_chunks().to_batches(batch_size))
                table = table[end:]
    if table:
        yield from map(_batch, table.combine_chunks().to_batches())


def loops(path: Path) -> list[Route]:
    """Returns the loops over a file, or a folder of files."""
    batches = Route("iter_batches", "exact", _iter_batches)
    if path.is_dir():
        batches = Route("dataset.to_batches", "exact", _to_batches)
    return [batches, Route("row groups, cut", "exact", _row_groups)]


def measure(setting: Setting) -> Outcome:
    """Equal batches of 8192 on all sides; of both loops the faster one counts."""
    outcome = Outcome()
    for kind in _KINDS:
        for codec in kind.codecs:
            path = kind.make(setting, codec)
            routes = [torchparquet_route(setting.num_threads), *loops(path)]
            sides = [side(route, path, setting.batch_size) for route in routes]
            passes = take_turns(sides, setting.repeats)
            ours = passes.pop(OURS)
            loop = min(passes, key=lambda loop: median(passes[loop], seconds))
            case = f"{kind.name}, {codec}"
            outcome.verdicts.append(ratio(case, ours, (loop, passes[loop]), TARGET))
    return outcome


ROWS = (
    Row(
        "by-hand",
        "embeddings, flags, nulls, small files, lists, strings, integers, batches of 8192",
        "loops as users write them: pyarrow's batches or row groups, and each column to a tensor",
        measure,
    ),
)
