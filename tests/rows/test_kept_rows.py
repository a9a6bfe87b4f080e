"""Selected rows are kept beside the manifest cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.rows.conftest import Stored
from tests.rows.reading import ids_of, open_rows, spoil
from torchparquet.errors import CorruptFileError


@pytest.fixture
def copied_files(stored: Stored, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored.path, tmp_path / "files"))


def spoil_quietly(folder: Path) -> None:
    """Spoil the values of files that a manifest cache takes for unchanged."""
    for path in folder.iterdir():
        status = path.stat()
        spoil(path, keep=set())
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_condition_is_evaluated_once(copied_files: Path, tmp_path: Path) -> None:
    split = ("train", {"train": 0.9, "val": 0.1}, 0, "text")
    chosen: list[dict[str, Any]] = [{"filters": "small = 3"}, {"split": split}]

    def prints() -> list[str]:
        cache = tmp_path / "cache"
        return [
            open_rows(copied_files, manifest_cache=cache, **options).manifest.fingerprint
            for options in chosen
        ]

    first = prints()
    spoil_quietly(copied_files)
    assert prints() == first
    chosen = [{"filters": "small = 4"}]
    with pytest.raises(CorruptFileError):
        prints()
    chosen = [{"filters": "small = 3"}]
    (copied_files / "2.parquet").unlink()
    with pytest.raises(CorruptFileError):
        prints()


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_of_rows_is_written_anew(
    copied_files: Path, tmp_path: Path, damage: str
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
