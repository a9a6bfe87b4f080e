"""Commands run in this process, for their reports and their errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchparquet.cli import main


@pytest.fixture
def report_of(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command, and return its report."""

    def run(*arguments: object, code: int = 0) -> Any:
        assert main([*map(str, arguments), "--json"]) == code
        captured = capsys.readouterr()
        assert captured.err == ""
        return json.loads(captured.out)

    return run


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that fails, and return its line of error."""

    def run(*arguments: object, code: int = 1) -> str:
        assert main(list(map(str, arguments))) == code
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("torchparquet: error: ")
        assert captured.err.count("\n") == 1
        return captured.err

    return run
