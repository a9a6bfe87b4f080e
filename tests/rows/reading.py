"""Reads data sets of selected rows, and compares them with pyarrow's rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from torchparquet import Column, Jagged, ParquetDataset

COLUMNS = {
    "number": "number",
    "small": Column("small", nulls=-1),
    "float": "float",
    "flag": Column("flag", nulls=False),
    "text": Column("text", nulls="empty"),
    "plain": "plain",
    "list": Column("list", nulls=0),
    "fixed": Column("fixed", length=3),
    "cell": "cell",
}
_FILLS: dict[str, Any] = {"small": -1, "flag": False, "text": ""}


def open_rows(path: Any, **options: Any) -> ParquetDataset:
    """Return a data set of all columns, with row ids."""
    given: dict[str, Any] = {"batch_size": 97, "columns": COLUMNS, "row_ids": True} | options
    return ParquetDataset(path, **given)


def ids_of(batches: Iterable[dict[str, Any]]) -> Any:
    """Return the row ids of batches, in order."""
    ids = [batch["row.id"] for batch in batches]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *ids]).numpy()


def rows_where(source: Any, filters: Any, column: str) -> list[int]:
    """Return the rows that fulfil a condition, reading one column of them."""
    dataset = ParquetDataset(source, batch_size=16, filters=filters, columns=[column], row_ids=True)
    return list(ids_of(dataset).tolist())


def check_values(batches: list[dict[str, Any]], table: pa.Table) -> None:
    """Compare every value with that of pyarrow's row of the same number."""
    if not batches:
        return
    rows = table.take(ids_of(batches))
    for name in COLUMNS:
        parts = [batch[name] for batch in batches]
        expected = rows[name].combine_chunks()
        if name in _FILLS:
            expected = expected.fill_null(_FILLS[name])
        if isinstance(parts[0], Jagged):
            lengths = [length for part in parts for length in part.lengths.tolist()]
            values = torch.cat([part.values for part in parts]).numpy()
            if name == "list":
                assert lengths == [len(row or ()) for row in expected.to_pylist()], name
                np.testing.assert_array_equal(values, expected.flatten().to_numpy(), name)
            else:
                texts = [text.encode() for text in expected.to_pylist()]
                assert lengths == [len(text) for text in texts], name
                assert values.tobytes() == b"".join(texts), name
            continue
        found = torch.cat(parts).numpy()
        if name == "fixed":
            np.testing.assert_array_equal(found.ravel(), expected.flatten().to_numpy(), name)
        elif name == "cell":
            assert found.tobytes() == b"".join(expected.to_pylist()), name
        else:
            np.testing.assert_array_equal(found, expected.to_numpy(zero_copy_only=False), name)


def spoil(path: Path, keep: set[int]) -> None:
    """Spoil the pages of all other row groups of a file."""
    metadata, content = pq.read_metadata(path), bytearray(path.read_bytes())
    for number in set(range(metadata.num_row_groups)) - keep:
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            begin = column.data_page_offset
            if column.has_dictionary_page:
                begin = min(begin, column.dictionary_page_offset)
            end = begin + column.total_compressed_size
            content[begin:end] = b"\xff" * (end - begin)
    path.write_bytes(content)
