"""The pages about stores: their snippets run against servers on this machine.

A page's environment is what its reader would have: credentials, and the address of the server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest

pytest.importorskip("sybil", reason="the group docs is not installed")
from sybil import Sybil
from sybil.parsers.markdown import SkipParser

from tests.frameworks.documents.test_snippets import DOCS, Block, workplace, write_data
from tests.servers.fixtures import OpenStore, open_store
from tests.servers.stores import Store

__all__ = ["open_store", "workplace"]

PAGES = sorted((DOCS / "guides" / "stores").glob("*.md"))
WEB = "https://data.example.org"


def of_s3(store: Store) -> dict[str, str]:
    options = store.storage_options
    return {
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_ENDPOINT_URL": options["endpoint_url"],
    }


def of_gcs(store: Store) -> dict[str, str]:
    return {"STORAGE_EMULATOR_HOST": store.storage_options["endpoint_url"]}


def of_azure(store: Store) -> dict[str, str]:
    return {"AZURE_STORAGE_CONNECTION_STRING": store.storage_options["connection_string"]}


SERVERS: dict[str, tuple[str, Callable[[Store], dict[str, str]]]] = {
    "s3": ("moto", of_s3),
    "gcs": ("gcs", of_gcs),
    "azure": ("azurite", of_azure),
    "http": ("http", lambda store: {}),
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_snippets_of_stores_run(
    page: Any, workplace: Path, open_store: OpenStore, monkeypatch: Any
) -> None:
    text = page.read_text()
    if page.stem in SERVERS:
        name, variables = SERVERS[page.stem]
        store = open_store(name)
        write_data(workplace / "data" / "train")
        store.upload(workplace / "data" / "train", "train")
        for variable, value in variables(store).items():
            monkeypatch.setenv(variable, value)
        text = text.replace(WEB, store.prefix)
    copy = workplace / page.name
    copy.write_text(text)
    document = Sybil([SkipParser(), Block()], encoding="utf-8").parse(copy)
    for example in document.examples():
        with suppress(SkipTest):  # of this snippet, not of the page
            example.evaluate()


def test_every_page_has_a_server_or_says_why_not() -> None:
    for page in PAGES:
        if page.stem not in SERVERS:
            blocks = re.findall("^```(python|sh)$", page.read_text(), re.MULTILINE)
            assert page.read_text().count("<!-- skip: next") == len(blocks), page.name
