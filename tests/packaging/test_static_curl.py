"""The archives of libcurl for wheels: from the sources that are meant, and built once."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT

PROGRAM = ROOT / "packaging" / "static_curl.py"
# Each source, with the name of its licence.
LICENSES = runpy.run_path(str(PROGRAM))["LICENSES"]


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A folder with archives of the right names that hold nothing but licences."""
    folder = tmp_path / "archives"
    folder.mkdir()
    for source, name in LICENSES.items():
        content = tmp_path / source.name
        content.mkdir()
        (content / name).write_text(f"the licence of {source.name}")
        with tarfile.open(folder / source.file, "w:gz") as archive:
            archive.add(content, "packed-anew")
    return folder


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of tools that do nothing but tell of it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("perl", "make", "cmake"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} $1\n")
        (folder / name).chmod(0o755)
    return folder


def ran(tools: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        env=os.environ | {"PATH": f"{tools}:/usr/bin:/bin"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_archive_of_other_bytes_is_refused(tmp_path: Path, archives: Path, tools: Path) -> None:
    failed = ran(tools, tmp_path / "work", "--archives", archives)
    assert failed.returncode != 0
    assert ".tar.gz has SHA-256" in failed.stderr
    assert "perl" not in failed.stderr
    assert failed.stdout == ""


def test_none_is_downloaded_if_a_folder_is_given(
    tmp_path: Path, archives: Path, tools: Path
) -> None:
    for archive in archives.iterdir():
        archive.unlink()
    failed = ran(tools, tmp_path / "work", "--archives", archives)
    assert "FileNotFoundError" in failed.stderr
    assert "downloading" not in failed.stderr


def test_what_is_built_is_kept(tmp_path: Path, archives: Path, tools: Path) -> None:
    given = (tmp_path / "work", "--archives", archives, "--unchecked")
    first = ran(tools, *given)
    prefix = Path(first.stdout.strip())
    assert "perl Configure" in first.stderr
    licence = (prefix / "licenses" / "LICENSE.curl.txt").read_text()
    assert licence == "the licence of curl"
    again = ran(tools, *given)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    assert ran(tools, *given, CC="another").stdout != first.stdout


OLDER_PYTHON = """
import tarfile
extractall = tarfile.TarFile.extractall
tarfile.TarFile.extractall = lambda self, path: extractall(self, path)
del tarfile.data_filter
"""


def test_pythons_without_filters_of_archives_unpack_too(
    tmp_path: Path, archives: Path, tools: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OLDER_PYTHON)
    given = (tmp_path / "work", "--archives", archives, "--unchecked")
    done = ran(tools, *given, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
