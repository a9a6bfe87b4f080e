"""Adds the pages that are next to the code to the site, under the paths they have."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
BESIDE_CODE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "bench/**/*.md",
    "bench/results/*.svg",
    "cpp/**/README.md",
    "python/torchparquet/**/README.md",
)
FOR_USERS = ("index", "start/", "guides/", "reference/", "reliability", "CHANGELOG", "SECURITY")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them."""
    for pattern in BESIDE_CODE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take the folder docs/ out of links, for in the site it is the root.

    The search finds pages for users alone: those about the code share many of their words.
    """
    source = page.file.src_uri
    if not source.startswith(FOR_USERS):
        page.meta["search"] = {"exclude": True}
    if (ROOT / "docs" / source).exists():
        up = "../" * source.count("/")
        return markdown.replace(f"]({up}../", f"]({up}")
    return re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Take private paths out of the tips over types."""
    return re.sub(r' title="torchparquet\._impl\.[^"]*"', "", output)
