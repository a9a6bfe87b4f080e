"""The parquet-testing files, written by many tools and bugs: as pyarrow reads them or an error."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_files import (
    column_at,
    first_difference,
    read_all,
    same_bits,
    stored_values,
    validity,
)
from torchparquet import CorruptFileError, ParquetDataset, UnsupportedColumnError
from torchparquet.manifest import read_manifest

FOLDER = os.environ.get("PARQUET_TEST_DATA", "")
FILES = sorted(Path(FOLDER).glob("*.parquet")) if FOLDER else []
# The footer claims no row while its row groups hold six, and pyarrow takes either's word.
LYING = ("repeated_no_annotation.parquet",)

pytestmark = pytest.mark.skipif(
    not FILES, reason="PARQUET_TEST_DATA names no directory of parquet-testing files"
)
each_file = pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])


def pyarrow_file(path):
    try:
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        return None


def has_rows(path):
    reference = pyarrow_file(path)
    return path.name not in LYING and reference is not None and reference.metadata.num_rows > 0


FILES_WITH_ROWS = [path for path in FILES if has_rows(path)]
each_file_with_rows = pytest.mark.parametrize(
    "path", FILES_WITH_ROWS, ids=[path.name for path in FILES_WITH_ROWS]
)


def pyarrow_table(path, column):
    """One leaf; None where pyarrow cannot read it."""
    try:
        return pyarrow_file(path).read(columns=[column])
    except (OSError, pa.ArrowException):
        return None


def leaves(path):
    (schema,) = read_manifest(str(path)).schemas
    return schema


def covered(path):
    return [leaf.path for leaf in leaves(path) if leaf.dtype]


@each_file
def test_opens_where_pyarrow_does(path):
    reference = pyarrow_file(path)
    if reference is None or path.name in LYING:
        with pytest.raises(CorruptFileError, match=path.name):
            read_manifest(str(path))
    elif reference.metadata.num_rows == 0:
        with pytest.raises(ValueError, match="at least one row"):
            read_manifest(str(path))
    else:
        manifest = read_manifest(str(path))
        metadata = reference.metadata
        assert manifest.num_rows == metadata.num_rows
        assert manifest.num_row_groups == metadata.num_row_groups
        schema = metadata.schema
        names = [schema.column(i).path for i in range(len(schema))]
        assert [leaf.path for leaf in manifest.schemas[0]] == names


@each_file_with_rows
@pytest.mark.parametrize("batch_size", [3, None])
def test_every_covered_column_equals_pyarrows(path, batch_size):
    if batch_size is not None and pyarrow_file(path).metadata.num_rows > 1000:
        batch_size = 700
    wrong = []
    for column in covered(path):
        table = pyarrow_table(path, column)
        try:
            read = read_all(str(path), columns=[column], nulls="mask", batch_size=batch_size)
        except CorruptFileError as error:
            if table is not None or path.name not in str(error):
                wrong.append(f"{column}: {error}")
            continue
        if table is None:
            wrong.append(f"{column}: read, although pyarrow cannot")
            continue
        array = column_at(table, column)
        pairs = [(read[column], stored_values(array)), (read[f"{column}.valid"], validity(array))]
        wrong += [f"{column}: {first_difference(*pair)}" for pair in pairs if not same_bits(*pair)]
    assert not wrong


@each_file_with_rows
def test_what_is_not_covered_is_said_so(path):
    uncovered = [leaf.path for leaf in leaves(path) if not leaf.dtype]
    for column in uncovered:
        with pytest.raises(UnsupportedColumnError):
            ParquetDataset(str(path), batch_size=1, columns=[column])
    if not covered(path):
        with pytest.raises(UnsupportedColumnError):
            ParquetDataset(str(path), batch_size=1)


def test_all_covered_columns_of_a_file_together():
    """In one batch, by several threads, without those that pyarrow cannot read either."""
    num_files = 0
    for path in FILES_WITH_ROWS:
        tables = {name: pyarrow_table(path, name) for name in covered(path)}
        names = [name for name in tables if tables[name] is not None]
        if not names:
            continue
        num_files += 1
        read = read_all(str(path), columns=names, nulls="mask", num_threads=3, batch_size=999)
        assert list(read) == [part for name in names for part in (name, f"{name}.valid")]
        for name in names:
            expected = stored_values(column_at(tables[name], name))
            assert same_bits(read[name], expected), (path.name, name)
    assert num_files > 0
