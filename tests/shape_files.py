"""Files with columns of every shape that a batch can have, and digests of what is read of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from torchparquet import Column, Jagged

COLUMNS: dict[str, Any] = {
    "id": "id",
    "bits": Column("bits", nulls="mask"),
    "pair": ["x", "y"],
    "triple": Column("triple", length=3),
    "word": Column("word", nulls="mask"),
    "list": Column("list", nulls="mask"),
    "nested": "nested",
}


def shape_files(folder: Path, num_rows: int, num_files: int, num_groups: int) -> str:
    """Write rows to files of so many row groups each, of any length from one row on."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(num_rows)
    cuts = rng.choice(np.arange(1, num_rows), num_files * num_groups - 1, replace=False)
    bounds = list(pairwise([0, *sorted(cuts.tolist()), num_rows]))
    table = shape_table(num_rows, rng)
    for file in range(num_files):
        with pq.ParquetWriter(folder / f"{file:02}.parquet", table.schema) as writer:
            for begin, end in bounds[file * num_groups : (file + 1) * num_groups]:
                writer.write_table(table.slice(begin, end - begin))
    return str(folder)


def shape_table(num_rows: int, rng: np.random.Generator) -> pa.Table:
    """Rows of numbers, NaNs of any bits, strings, lists and lists of strings; "id" counts them."""
    rows = range(num_rows)
    bits = rng.integers(0, 2**32, num_rows, np.uint32).view(np.float32)
    words = [None if row % 11 == 0 else f"row {row} " * (row % 4) for row in rows]
    lists = [None if row % 13 == 0 else list(range(row, row + row % 5)) for row in rows]
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "bits": pa.array(bits, mask=rng.random(num_rows) < 0.2, from_pandas=False),
            "x": rng.random(num_rows, np.float32),
            "y": rng.random(num_rows, np.float32),
            "triple": pa.array(
                rng.integers(0, 99, (num_rows, 3)).tolist(), pa.list_(pa.int32(), 3)
            ),
            "word": pa.array(words),
            "list": pa.array(lists, pa.list_(pa.int16())),
            "nested": pa.array([[[str(i)] * (row % 3) for i in range(row % 4)] for row in rows]),
        }
    )


def digest_of_batch(batch: dict[str, Any]) -> str:
    """Return a digest of the names, dtypes, shapes and bits of all tensors, in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in batch.items():
        for tensor in tensors_of(value):
            array = tensor.contiguous().numpy()
            digest.update(repr((name, str(array.dtype), array.shape)).encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def tensors_of(value: Tensor | Jagged) -> list[Tensor]:
    """Return the tensors that an entry of a batch is made of."""
    return [value.offsets, *tensors_of(value.values)] if isinstance(value, Jagged) else [value]


def digest_of(batches: Iterable[dict[str, Any]]) -> str:
    """Return the number of batches and a digest of all of them in their order."""
    return digest_of_digests(map(digest_of_batch, batches))


def digest_of_digests(digests: Iterable[str]) -> str:
    """Return what `digest_of` does, of batches whose digests are known."""
    known = list(digests)
    return f"{len(known)} {hashlib.blake2b(repr(known).encode(), digest_size=16).hexdigest()}"
