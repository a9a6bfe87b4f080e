"""The page of licences: all that is needed or contained, as it is."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib import metadata

import pytest

from tests.fixtures.tree import ROOT

PAGE = (ROOT / "docs/inside/licences.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EVERY = "every installation"
# By licence, what packages that have no expression of it say instead.
SAID = {
    "Apache-2.0": r"Apache",
    "BSD-2-Clause": r"BSD",
    "BSD-3-Clause": r"BSD",
    "MIT": r"\bMIT\b",
    "MPL-2.0": r"Mozilla Public License 2",
    "PSF-2.0": r"Python Software Foundation",
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


PACKAGES = rows("What an installation needs") + rows("What only tests, examples and servers need")


def required() -> set[tuple[str, str]]:
    """Each package that is asked for, and by what."""
    project = PROJECT["project"]
    asked = {EVERY: project["dependencies"], **project["optional-dependencies"]}
    group = PROJECT["dependency-groups"]["frameworks"]
    asked["frameworks"] = [one for one in group if isinstance(one, str)]
    found = set()
    for extra, requirements in asked.items():
        for requirement in requirements:
            name = re.match(r"[\w.-]+", requirement)
            assert name is not None
            found.add((re.sub(r"[-_.]+", "-", name[0]).lower(), extra))
    return {(name, extra) for name, extra in found if name != "torchparquet"}


def test_every_package_that_is_asked_for_has_a_row() -> None:
    """And every row is of one. `test` adds parts of packages that other extras ask for."""
    listed = {(name, by) for name, by, _ in PACKAGES}
    others = {name for name, by in listed if by != "test"}
    asked = {(name, by) for name, by in required() if by != "test" or name not in others}
    assert listed == asked


@pytest.mark.parametrize(("name", "licence"), [(name, licence) for name, _, licence in PACKAGES])
def test_a_licence_is_what_the_package_says(name: str, licence: str) -> None:
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    if "License-Expression" in said:
        assert re.search(rf"\b{re.escape(licence)}\b", said["License-Expression"])
        return
    texts = [*(said.get_all("License") or []), *(said.get_all("Classifier") or [])]
    assert re.search(SAID[licence], "\n".join(texts))


def test_what_wheels_contain_has_rows() -> None:
    sources = runpy.run_path(str(ROOT / "packaging/static_curl.py"))["LICENSES"]
    built = {re.match(r"[\w-]+", one)[0] for one in PROJECT["build-system"]["requires"]}  # type: ignore[index]
    listed = rows("What a wheel contains")
    assert {name for name, how, _ in listed if how == "linked"} == {one.name for one in sources}
    assert {name for name, how, _ in listed if how == "headers"} == built - {"scikit-build-core"}
