"""Prints what an extra of the package requires beside the package itself, a line each."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
for requirement in project["optional-dependencies"][sys.argv[1]]:
    if not requirement.startswith(project["name"]):
        print(requirement)
