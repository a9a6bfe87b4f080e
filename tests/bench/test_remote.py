"""`bench/remote.py`: readers deliver the same from the store, and what is missing is said."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT, completed

MODULE = Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")
pytestmark = pytest.mark.timeout(600)


def remote(folder: Path, *arguments: str) -> str:
    options = ("--quick", "--repeats", 1, "--data-dir", folder)
    done = completed("bench/remote.py", *options, *arguments, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.skipif(not MODULE.exists(), reason="nginx's module for Lua is not installed")
def test_pyarrow_reads_from_the_store(tmp_path: Path) -> None:
    name = "iter_batches, pre_buffer, S3FileSystem"
    printed = remote(tmp_path, "--parts", "reading", "first", "--only", name)
    assert len(re.findall(rf"\| {name} +\| +[\d.]+ \| +[\d.]+-[\d.]+ \| +[\d.]+ \|", printed)) == 3
    trips = re.search(rf"\| {name} +\| +\d+ \| +\d+ \| +(-?[\d.]+) \|", printed)
    assert trips is not None
    if shutil.which("curl"):
        assert printed.count("curl, its bytes alone") == 3


@pytest.mark.skipif(MODULE.exists(), reason="nginx's module for Lua is installed")
def test_what_is_missing_is_said(tmp_path: Path) -> None:
    printed = remote(tmp_path, "--parts", "reading")
    assert "Skipped: reading: needs nginx, libnginx-mod-http-lua" in printed
