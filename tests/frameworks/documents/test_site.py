"""The site: it builds without a warning, and its drawing is that of the plan."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import torchparquet
from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.running import run

DOCS = ROOT / "docs"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the group docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    run(command, ROOT)
    api = (tmp_path / "site" / "reference" / "api.html").read_text()
    for name in torchparquet.__all__:
        assert re.search(rf'id="torchparquet\.(\w+\.)*{name}"', api), name
    # Only what users call, and signatures that fit the page.
    assert "one_line" not in api
    code = html.unescape(re.sub("<[^>]*>", "", api))
    assert max(map(len, code.split("ParquetDataset(")[1].split("Args")[0].splitlines())) < 100
    # Users find these words on pages for users: pages about the code do not hide them.
    found = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text())["docs"]
    assert not any(page["location"].startswith(("cpp/", "python/", "bench/")) for page in found)
    titles = " ".join(page["title"].casefold() for page in found)
    for words in (
        "filtering",
        "imbalanced labels",
        "oversampling",
        "contrastive batches",
        "cuda out of memory",
        "tokens from text",
    ):
        assert words in titles, words
    # Language models find each page of the navigation in one list.
    site = tmp_path / "site"
    links = re.findall(r"^- \[[^]]+\]\(([^)]+)\)", (site / "llms.txt").read_text(), re.MULTILINE)
    named = re.findall(r": ([\w./]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert links == [f"{re.sub('README$', 'index', name)}.html" for name in named]
    assert all((site / link).exists() for link in links)


def test_the_drawing_is_that_of_the_plan(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    from draw_order import order_drawing

    assert (DOCS / "images" / "order.svg").read_text() == order_drawing()
