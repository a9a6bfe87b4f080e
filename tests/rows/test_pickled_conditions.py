"""Filters where pyarrow pickles an expression in a form that torchparquet does not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.rows.reading import rows_where

Pairs = list[tuple[str, str]]
NUM_ROWS = 40
X, Y = pc.field("x"), pc.field("y")
# Of `x > 3 and y < 20 and k = 1`, as pyarrow pickles it today.
LOGIC, TERMS = ("call", "and_kleene"), [("greater", "x"), ("less", "y"), ("equal", "k")]
COMPARISONS = [
    [("call", sign), ("field_ref", name), ("literal", str(at)), ("end", sign)]
    for at, (sign, name) in enumerate(TERMS)
]
END = ("end", "and_kleene")
TODAY = [LOGIC, LOGIC, *COMPARISONS[0], *COMPARISONS[1], END, *COMPARISONS[2], END]
CONDITION = (X > 3) & (Y < 20) & (pc.field("k") == 1)


def changed_constants(pairs: Pairs) -> Callable[[Any], Any]:
    def changed(batch: Any) -> Any:
        return batch.replace_schema_metadata(pa.KeyValueMetadata(pairs))

    return changed


def fails(_batch: Any) -> Any:
    raise pa.ArrowInvalid("not an IPC file")


ONE_LESS = [*COMPARISONS[0][:2], ("literal", "9"), *COMPARISONS[0][3:]]
FORMS: dict[str, Callable[[Any], Any]] = {
    "as today": changed_constants(TODAY),
    "no record batch": fails,
    "no metadata": lambda batch: batch.replace_schema_metadata(None),
    "other words": changed_constants([(f"new {key}", value) for key, value in TODAY]),
    "no ends": changed_constants([pair for pair in TODAY if pair[0] != "end"]),
    "a function of three conditions": changed_constants(
        [LOGIC, *COMPARISONS[0], *COMPARISONS[1], *COMPARISONS[2], END]
    ),
    "a function of one condition": changed_constants([LOGIC, *COMPARISONS[0], END]),
    "options of logic": changed_constants([*TODAY[:-1], ("options", "0"), TODAY[-1]]),
    "options of comparisons": changed_constants(
        [LOGIC, *COMPARISONS[0][:3], ("options", "0"), COMPARISONS[0][3], *COMPARISONS[2], END]
    ),
    "more than one condition": changed_constants([*COMPARISONS[0], *COMPARISONS[1]]),
    "a constant that is not there": changed_constants([LOGIC, *ONE_LESS, *COMPARISONS[1], END]),
    "a number that is a word": changed_constants(
        [("nested_field_ref", "x"), *COMPARISONS[0], *COMPARISONS[1]]
    ),
}


def write(folder: Path) -> pa.Table:
    table = pa.table({"x": np.arange(NUM_ROWS), "y": np.arange(NUM_ROWS) % 30})
    for key in (1, 2):
        (folder / f"k={key}").mkdir()
        pq.write_table(table, folder / f"k={key}" / "a.parquet", row_group_size=7)
    return table


def change(monkeypatch: pytest.MonkeyPatch, changed: Callable[[Any], Any]) -> None:
    """Have pyarrow's pickles hold something else."""
    opened = pa.ipc.open_file

    class Changed:
        def __init__(self, content: Any) -> None:
            self._batch = opened(content).get_batch(0)

        def get_batch(self, _number: int) -> Any:
            return changed(self._batch)

    monkeypatch.setattr(pa.ipc, "open_file", Changed)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_right_whatever_a_pickle_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    write(tmp_path)
    change(monkeypatch, FORMS[form])
    expected = [row for row in range(NUM_ROWS) if row > 3 and row % 30 < 20]
    sql = "x > 3 and y < 20 and k = 1"
    for filters in (CONDITION, sql, [("x", ">", 3), ("y", "<", 20), ("k", "=", 1)]):
        assert rows_where(tmp_path, filters, "x") == expected
    with pytest.raises(ValueError, match="no such column: 'z' in filters; there are 'x', 'y'"):
        rows_where(tmp_path, (pc.field("z") > 3) & (Y < 20) & (pc.field("k") == 1), "x")


def test_functions_with_an_option_that_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if `isin` could say which rows it leaves out."""
    write(tmp_path)

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        column = batch.column(0)
        parts = {field.name: column.field(field.name) for field in column.type}
        parts |= {"value_set": pa.array([[100]]), "inverts": pa.array([True])}
        made = pa.record_batch([pa.StructArray.from_arrays([*parts.values()], [*parts])], [""])
        pairs = [("call", "is_in"), ("field_ref", "x"), ("options", "0"), ("end", "is_in")]
        return made.replace_schema_metadata(pa.KeyValueMetadata(pairs))

    change(monkeypatch, changed)
    assert rows_where(tmp_path, X.isin([1, 39]), "x") == [1, 39, 41, 79]


def test_a_table_of_other_names_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    data = pa.table({"x": [1, 2, 3], "y": [4, 5, 6]})
    table = catalog.create_table("n.t", data.schema)
    table.append(data)
    with table.update_schema() as update:
        update.rename_column("y", "z")
    assert rows_where(table, "z > 5", "x") == [2]
    change(monkeypatch, fails)
    assert rows_where(table, "x > 2", "x") == [2]
    with pytest.raises(ValueError, match=r"by other names, .*: install an earlier pyarrow, or"):
        rows_where(table, "z > 5", "x")
