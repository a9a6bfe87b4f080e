"""Selected rows are kept beside the manifest cache, and one rank finds them for all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.rows import evaluation, select_rows
from torchparquet._impl.rows.select_rows import RowArguments


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
    first = ids_of(open_rows(copied_files, filters="small = 3", **options))
    again = ids_of(open_rows(copied_files, filters="small = 3", **options))
    np.testing.assert_array_equal(first, again)
    assert len(evaluations) == 1
    other = ids_of(open_rows(copied_files, filters="small = 4", **options))
    assert not np.isin(other, first).any()
    open_rows(copied_files, split=("train", {"train": 0.9, "val": 0.1}, 0, "text"), **options)
    assert len(evaluations) == 3
    (copied_files / "2.parquet").unlink()
    fewer = ids_of(open_rows(copied_files, filters="small = 3", **options))
    np.testing.assert_array_equal(fewer, first[first < 8000])
    assert len(evaluations) == 4


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_of_rows_is_written_anew(
    copied_files: Path, tmp_path: Path, evaluations: list[Any], damage: str
) -> None:
    options: dict[str, Any] = {"manifest_cache": tmp_path / "cache", "columns": ["number"]}
    first = ids_of(open_rows(copied_files, filters="small = 3", **options))
    (kept,) = tmp_path.glob("cache.*.rows")
    content = kept.read_bytes()
    kept.write_bytes({"cut": content[:99], "other": b"nothing", "empty": b""}[damage])
    with pytest.warns(UserWarning, match="written anew"):
        again = open_rows(copied_files, filters="small = 3", **options)
    np.testing.assert_array_equal(ids_of(again), first)
    assert kept.read_bytes() == content
    assert len(evaluations) == 2


def test_one_rank_finds_rows_for_all(stored: Stored, evaluations: list[Any]) -> None:
    answers: dict[str, bytes] = {}

    def share(what: str, work: Callable[[], bytes]) -> bytes:
        if what not in answers:
            answers[what] = work()
        return answers[what]

    manifest = open_rows(stored.path).manifest
    storage = StorageArguments(share=share)
    found = [
        select_rows.select_rows(manifest, RowArguments(sql), storage=storage)
        for sql in ("small = 3", "small = 3", "small = 4")
    ]
    assert len(evaluations) == len(answers) == 2
    assert found[0].fingerprint == found[1].fingerprint != found[2].fingerprint


def test_rows_of_a_store_are_kept_there(stored: Stored) -> None:
    memory = fsspec.filesystem("memory")
    for path in stored.path.iterdir():
        memory.pipe_file(f"/rows/files/{path.name}", path.read_bytes())
    cache = "memory://rows/cache"
    options: dict[str, Any] = {"filters": "text = 'text 7'", "manifest_cache": cache}
    found = [ids_of(open_rows("memory://rows/files", **options)) for _ in range(2)]
    expected = np.flatnonzero(stored.table["text"].fill_null("").to_numpy() == "text 7")
    np.testing.assert_array_equal(found[0], expected)
    np.testing.assert_array_equal(found[1], expected)
    kept = [name for name in memory.find("/rows") if name.endswith(".rows")]
    assert len(kept) == 1
    memory.rm("/rows", recursive=True)
