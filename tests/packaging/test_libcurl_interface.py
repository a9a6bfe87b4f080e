"""Our part of libcurl's interface has the numbers and layouts of its header."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT

INTERFACE = ROOT / "cpp/remote/transport/libcurl.h"
LAYOUTS = (
    "offsetof(CURLMsg, easy_handle) == 8 && offsetof(CURLMsg, data) == 16",
    "offsetof(struct curl_sockaddr, addrlen) == 12 && offsetof(struct curl_sockaddr, addr) == 16",
    "offsetof(curl_version_info_data, version_num) == 16",
)


def test_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    text = INTERFACE.read_text()
    named = re.findall(r"\b(CURL\w+) = (\d\w*)[,;} ]", text)
    assert len(named) > 60
    # Headers may be older than this.
    named = [(name, number) for name, number in named if name != "CURLOPT_QUICK_EXIT"]
    functions = re.findall(r"\bF\([^,]+, (\w+),", text)
    assert len(functions) == text.count("  F(")
    lines = ["#include <stddef.h>", "#include <curl/curl.h>"]
    lines += [f'_Static_assert({name} == {number}, "{name}");' for name, number in named]
    lines += [f'_Static_assert({layout}, "{layout}");' for layout in LAYOUTS]
    lines += [f"void* at_{name}(void) {{ return (void*)curl_{name}; }}" for name in functions]
    source = tmp_path / "same.c"
    source.write_text("\n".join(lines) + "\n")
    command = [compiler, "-fsyntax-only", "-w", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "curl/curl.h: No such file" in done.stderr:
        pytest.skip("no headers of libcurl")
    assert done.returncode == 0, done.stderr
