"""Every snippet of the documents runs, in order, in a directory with the data that it names.

A Python block with a title is saved under that name, one without runs in its page's namespace; a
shell block runs in bash. A text block is what the Python block before it prints, with ... for what
is left out. `<!-- skip: next "reason" -->` leaves one out, and
`<!-- invisible-code: python ... -->` runs what readers need not see. Commands that take long are
run by the test that the skip names, and what is quoted from an example stands there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("sybil", reason="the group docs is not installed")
from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

from tests.fixtures.tree import ROOT
from tests.frameworks.jobs.running import JOB_SECONDS

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
# Those about stores run against servers, by another test.
LOCAL_PAGES = [page for page in PAGES if page.parent.name != "stores"]
NUM_FILES, ROWS_PER_FILE = 3, 5_000
INFO = re.compile(r'(?P<language>\w+)(?: title="(?P<title>[^"]+)")?[^\n]*\n')
# The modules that a page needs beyond the data set.
MODULES = {
    "lightning.md": ["lightning"],
    "accelerate.md": ["accelerate", "transformers"],
    "ray.md": ["ray"],
    "dataloader.md": ["torchdata"],
    "trees.md": ["xgboost", "lightgbm"],
    "jax.md": ["jax"],
    "porting.md": ["datasets"],
}


class Block:
    """Parses fenced blocks: titled ones are files, the others run."""

    def __init__(self) -> None:
        self.lexers: list[Any] = [
            RawFencedCodeBlockLexer(INFO),
            DirectiveInHTMLCommentLexer("invisible-code"),
        ]
        self.python = PythonEvaluator()
        self.printed = ""

    def __call__(self, document: Any) -> Iterator[Any]:
        for lexer in self.lexers:
            for region in lexer(document):
                lexemes = region.lexemes
                language = lexemes.get("language") or lexemes.get("arguments")
                runs = {"python": self.run_python, "sh": run_shell, "text": self.compare}
                evaluate = runs.get(language)
                if evaluate is None:
                    continue
                if lexemes.get("title"):
                    evaluate = save
                region.parsed, region.evaluator = lexemes["source"], evaluate
                yield region

    def run_python(self, example: Example) -> None:
        with redirect_stdout(StringIO()) as printed:
            self.python(example)
        self.printed = printed.getvalue()

    def compare(self, example: Example) -> None:
        options = ELLIPSIS | NORMALIZE_WHITESPACE
        if self.printed and not OutputChecker().check_output(example.parsed, self.printed, options):
            pytest.fail(f"{example.parsed}\nis shown, but this is printed:\n{self.printed}")
        self.printed = ""


def save(example: Example) -> None:
    Path(example.region.lexemes["title"]).write_text(example.parsed)


def run_shell(example: Example) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path[1:]))}
    environment["PATH"] = os.pathsep.join(
        ["bin", str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    command = ["bash", "-euo", "pipefail", "-c", example.parsed]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=JOB_SECONDS, check=False
    )
    assert result.returncode == 0, f"{example.parsed}\n{result.stdout}{result.stderr}"


def write_data(directory: Path) -> None:
    """Write what the quick start makes, with more columns, which pages may name."""
    rng = np.random.default_rng(0)
    directory.mkdir(parents=True)
    for number in range(NUM_FILES):
        x = rng.standard_normal((ROWS_PER_FILE, 3), dtype=np.float32)
        columns = {f"x{place}": x[:, place] for place in range(3)}
        columns["country"] = rng.choice(["de", "fr", "us"], ROWS_PER_FILE)
        columns["clicked"] = (x.sum(1) > 0).astype(np.int8)
        path = directory / f"part-{number}.parquet"
        pq.write_table(pa.table(columns), path, row_group_size=1_000)


def write_readme_data(directory: Path) -> None:
    """Write the columns that the README's loop takes."""
    rng, rows = np.random.default_rng(0), 300
    directory.mkdir(parents=True)
    table = pa.table({"features": [[0.0, 1.0]] * rows, "label": rng.standard_normal(rows)})
    pq.write_table(table, directory / "0.parquet", row_group_size=50)


def readme_names() -> dict[str, object]:
    """A model of the README's loop, which is given features and a label."""
    weight = torch.nn.Parameter(torch.zeros(1))
    return {
        "model": lambda features, label: (weight * features.values.mean() - label.mean()) ** 2,
        "optimizer": torch.optim.SGD([weight], lr=0.1),
    }


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: Any) -> Path:
    """A directory to work in, with the command on the path of shells."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "bin" / "torchparquet"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m torchparquet "$@"\n')
    script.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("page", LOCAL_PAGES, ids=lambda page: page.stem)
def test_snippets_run(page: Any, workplace: Path) -> None:
    for module in MODULES.get(page.name, ()):
        pytest.importorskip(module)
    if page.name == "README.md":
        write_readme_data(workplace / "data" / "train")
    elif page.name != "quickstart.md":  # which makes its own
        write_data(workplace / "data" / "train")
        write_data(workplace / "data" / "validation")
    document = Sybil([SkipParser(), Block()], encoding="utf-8").parse(page)
    if page.name == "README.md":
        document.namespace.update(readme_names())
    for example in document.examples():
        # Those of the README make environments and measure; .ci/run sees to them.
        if page.name != "README.md" or example.region.lexemes.get("language") == "python":
            with suppress(SkipTest):  # of this snippet, not of the page
                example.evaluate()


def test_only_what_cannot_run_is_skipped() -> None:
    for page in PAGES:
        for reason in re.findall(r"<!-- skip: next (.*?)-->", page.read_text()):
            assert re.fullmatch(r'"[^"]+" ', reason), f"{page.name}: a skip needs a reason"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_is_quoted_stands_in_an_example(page: Any) -> None:
    """A quote may begin further to the left."""
    text = page.read_text()
    pattern = r'<!-- skip: next "from ([^"]+)" -->\n```python\n(.*?)```'
    quotes = re.findall(pattern, text, re.DOTALL)
    assert len(quotes) == text.count('"from examples/')
    for example, quote in quotes:
        source = (ROOT / example).read_text()
        assert any(indent(quote, " " * width) in source for width in range(0, 20, 4)), quote


def test_commands_that_others_run_are_run_there() -> None:
    for page in PAGES:
        for test in re.findall(r'<!-- skip: next "run by ([^"]+)" -->', page.read_text()):
            assert f'"{page.name}"' in (Path(__file__).parents[1] / test).read_text()
