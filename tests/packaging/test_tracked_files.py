"""The files of a repository: none is large, and none is one that a .gitignore names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT, completed

LIMIT = 500 * 1024


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Track all files of a folder, and check them as `nox -s lint` does."""
    for command in (["init", "-q"], ["add", "--force", "."]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return completed(ROOT / ".ci/check_files.py", cwd=folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose files may be tracked."""
    (tmp_path / ".gitignore").write_text("/made/\n")
    (tmp_path / "two words.bin").write_bytes(bytes(LIMIT))
    return tmp_path


def test_other_files_pass(folder: Path) -> None:
    done = check(folder)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_large_file_is_refused_by_name(folder: Path) -> None:
    (folder / "large.parquet").write_bytes(bytes(LIMIT + 1))
    done = check(folder)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "larger than 500 KiB; let a program make it, and untrack it by git rm --cached: "
        "large.parquet (501 KiB)"
    ]


def test_a_file_that_is_ignored_is_refused_by_name(folder: Path) -> None:
    (folder / "made").mkdir()
    (folder / "made" / "small.parquet").write_bytes(b"PAR1")
    done = check(folder)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith("git rm --cached, or change that: made/small.parquet")
