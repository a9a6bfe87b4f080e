"""The parquet-testing files, written by many tools and bugs: as pyarrow reads them or an error."""

from __future__ import annotations

import csv
import functools
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracles.arrow_leaves import assert_batches_are, table_leaves
from torchparquet import CorruptFileError, ParquetDataset, UnsupportedColumnError

FOLDER = os.environ.get("PARQUET_TEST_DATA", "")
FILES = sorted(Path(FOLDER).glob("*.parquet")) if FOLDER else []
# The footer claims no row while its row groups hold six, and pyarrow takes either's word.
LYING = ("repeated_no_annotation.parquet",)
# A map without values, which pyarrow takes for a list of its keys, is here named as a map.
RENAMED = {("map_no_value.parquet", "my_map_no_v"): "my_map_no_v.key"}
# Leaves without a value to read: every row is null or an empty list of nulls.
NOT_COVERED = {"null_list.parquet": {"emptylist"}}
# Both pages of each have a checksum that is not theirs.
CORRUPT = ("datapage_v1-corrupt-checksum.parquet", "rle-dict-uncompressed-corrupt-checksum.parquet")
GOLDEN = (
    "delta_binary_packed",
    "delta_byte_array",
    "delta_encoding_optional_column",
    "delta_encoding_required_column",
)

pytestmark = pytest.mark.skipif(
    not FILES, reason="PARQUET_TEST_DATA names no directory of parquet-testing files"
)
each_file = pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])


def pyarrow_file(path: Path) -> Any:
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        return None


def has_rows(path: Path) -> Any:
    reference = pyarrow_file(path)
    return path.name not in LYING and reference is not None and reference.metadata.num_rows > 0


FILES_WITH_ROWS = [path for path in FILES if has_rows(path)]
each_file_with_rows = pytest.mark.parametrize(
    "path", FILES_WITH_ROWS, ids=[path.name for path in FILES_WITH_ROWS]
)


@functools.cache
def arrow_leaves(path: Path) -> Any:
    """The leaves of the file as pyarrow reads them, by our name for them; checksums aside."""
    table = pq.ParquetFile(path).read()
    found = [
        leaf._replace(path=RENAMED.get((path.name, leaf.path), leaf.path))
        for leaf in table_leaves(table)
    ]
    return {leaf.path: leaf for leaf in found}


def covered(path: Path) -> Any:
    return [name for name in arrow_leaves(path) if name not in NOT_COVERED.get(path.name, ())]


def dataset_of(path: Path, columns: Any, **options: Any) -> ParquetDataset:
    return ParquetDataset(str(path), columns=columns, rank=0, world_size=1, **options)


@each_file
def test_opens_where_pyarrow_does(path: Any) -> None:
    reference = pyarrow_file(path)
    if reference is None or path.name in LYING:
        with pytest.raises(CorruptFileError, match=path.name):
            dataset_of(path, None, batch_size=1)
    elif reference.metadata.num_rows == 0:
        with pytest.raises(ValueError, match="at least one row"):
            dataset_of(path, None, batch_size=1)
    elif covered(path):
        manifest = dataset_of(path, covered(path)[:1], batch_size=1).manifest
        assert manifest.num_rows == reference.metadata.num_rows
        assert manifest.num_row_groups == reference.metadata.num_row_groups
    if FILES_WITH_ROWS and path in FILES_WITH_ROWS:
        assert len(arrow_leaves(path)) == reference.metadata.num_columns


@each_file_with_rows
@pytest.mark.parametrize("batch_size", [3, None])
def test_every_leaf_equals_pyarrows(path: Any, batch_size: int | None) -> None:
    """By itself, with masks, batch by batch; a page that does not match its checksum is told."""
    if batch_size is not None and pyarrow_file(path).metadata.num_rows > 100:
        batch_size = 37 if pyarrow_file(path).metadata.num_rows <= 1000 else 700
    for name in covered(path):
        dataset = dataset_of(path, [name], nulls="mask", batch_size=batch_size)
        if path.name in CORRUPT:
            with pytest.raises(CorruptFileError, match="checksum") as caught:
                list(dataset)
            assert path.name in str(caught.value)
            assert repr(name) in str(caught.value)
            continue
        assert_batches_are(dataset, {name: arrow_leaves(path)[name]})


@each_file_with_rows
def test_all_leaves_of_a_file_together(path: Any) -> None:
    """In one batch, by several threads, in memory that is soon full."""
    if path.name in CORRUPT or not covered(path):
        return
    leaves = {name: arrow_leaves(path)[name] for name in covered(path)}
    options = {"nulls": "mask", "num_threads": 3, "batch_size": 99, "max_memory": "1MiB"}
    assert_batches_are(dataset_of(path, list(leaves), **options), leaves)


@each_file_with_rows
def test_what_is_not_covered_is_said_so(path: Any) -> None:
    for column in NOT_COVERED.get(path.name, ()):
        with pytest.raises(UnsupportedColumnError, match=column):
            ParquetDataset(str(path), batch_size=1, columns=[column])
    if not covered(path):
        with pytest.raises(UnsupportedColumnError):
            ParquetDataset(str(path), batch_size=1)


@pytest.mark.parametrize("name", GOLDEN)
def test_values_are_those_that_came_with_the_file(name: str) -> None:
    """An oracle that is no reader of Parquet: the text files beside four of them."""
    path = Path(FOLDER) / f"{name}.parquet"
    with path.with_name(f"{name}_expect.csv").open(newline="") as file:
        _, *lines = csv.reader(file)
    (batch,) = dataset_of(path, None, nulls="mask", batch_size=len(lines))
    columns = [key for key in batch if not key.endswith(".valid")]
    assert len(columns) == len(lines[0])
    for place, column in enumerate(columns):
        values, valid = batch[column], batch[f"{column}.valid"].tolist()
        texts = values.to_str() if hasattr(values, "to_str") else list(map(str, values.tolist()))
        shown = [text if is_valid else "" for text, is_valid in zip(texts, valid, strict=True)]
        assert shown == [line[place] for line in lines], column
