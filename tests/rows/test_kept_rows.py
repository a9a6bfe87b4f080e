"""Selected rows are kept beside the manifest cache, and one rank finds them for all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows
from torchparquet.rows import evaluation, select_rows


@pytest.fixture
def copied_files(stored: Stored, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored.path, tmp_path / "files"))


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that read columns for a condition."""
    calls: list[Any] = []
    evaluate = evaluation.evaluate

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return evaluate(*arguments)

    monkeypatch.setattr(select_rows, "evaluate", counted)
    return calls


def test_a_condition_is_evaluated_once(
    copied_files: Path, tmp_path: Path, evaluations: list[Any]
) -> None:
    options: dict[str, Any] = {"manifest_cache": tmp_path / "cache", "columns": ["number"]}
    first = ids_of(open_rows(copied_files, where="small = 3", **options))
    again = ids_of(open_rows(copied_files, where="small = 3", **options))
    np.testing.assert_array_equal(first, again)
    assert len(evaluations) == 1
    other = ids_of(open_rows(copied_files, where="small = 4", **options))
    assert not np.isin(other, first).any()
    open_rows(copied_files, split=("train", {"train": 0.9, "val": 0.1}, 0, "text"), **options)
    assert len(evaluations) == 3
    (copied_files / "2.parquet").unlink()
    fewer = ids_of(open_rows(copied_files, where="small = 3", **options))
    np.testing.assert_array_equal(fewer, first[first < 8000])
    assert len(evaluations) == 4


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_of_rows_is_written_anew(
    copied_files: Path, tmp_path: Path, evaluations: list[Any], damage: str
) -> None:
    options: dict[str, Any] = {"manifest_cache": tmp_path / "cache", "columns": ["number"]}
    first = ids_of(open_rows(copied_files, where="small = 3", **options))
    (kept,) = tmp_path.glob("cache.*.rows")
    content = kept.read_bytes()
    kept.write_bytes({"cut": content[:99], "other": b"nothing", "empty": b""}[damage])
    with pytest.warns(UserWarning, match="written anew"):
        again = open_rows(copied_files, where="small = 3", **options)
    np.testing.assert_array_equal(ids_of(again), first)
    assert kept.read_bytes() == content
    assert len(evaluations) == 2
