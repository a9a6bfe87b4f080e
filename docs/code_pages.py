"""Adds the pages next to the code to the site, under the paths they have, and an index of all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
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


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Keep the navigation for the index."""
    config.extra["nav"] = nav
    return nav


def on_env(env: Any, config: MkDocsConfig, files: Files) -> Any:
    """Add `llms.txt`, an index of the pages for language models, in the form of llmstxt.org."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    lines += _index_lines(config.extra["nav"].items)
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return env


def _index_lines(items: Iterable[Any], level: int = 2) -> Iterator[str]:
    """Yield a heading for each section, and a link with the first sentence for each page."""
    for item in items:
        if isinstance(item, Section):
            yield from ("", f"{'#' * level} {item.title}", "")
            yield from _index_lines(item.children, level + 1)
        elif isinstance(item, Page):
            # Of the first paragraph of text, without links and marks.
            texts = re.sub(r"^```.*?^```", "", item.markdown or "", flags=re.MULTILINE | re.DOTALL)
            texts = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", texts)
            sentences = re.findall(r"^[A-Za-z][^\n|]*?[.:](?=\s)", texts, re.MULTILINE)
            sentence = f": {sentences[0].rstrip(':')}" if sentences else ""
            yield f"- [{item.title}]({item.url}){sentence}"
