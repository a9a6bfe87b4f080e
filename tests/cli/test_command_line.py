"""The command line as a whole: exit codes, one-line errors, JSON, progress, signals."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from tests.fixtures.encrypted_files import LAYOUTS, write_encrypted
from tests.fixtures.forked_programs import ran
from tests.fixtures.parquet_files import id_files
from tests.fixtures.tree import completed
from torchparquet import __version__
from torchparquet.cli import main
from torchparquet.cli.application import application

COMMANDS = ("inspect", "plan", "verify", "bench", "rewrite", "demo")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return id_files(tmp_path_factory.mktemp("cli") / "data", [300, 200], [500])


def arguments_of(command: str, data: str, tmp_path: Path) -> list[str]:
    more = {
        "bench": ["--repeats", "1", "--batch-size", "100", "--num-threads", "1"],
        "rewrite": ["--output", str(tmp_path / "output")],
    }
    return [command, data, *more.get(command, [])]


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(application, ["--help"])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command}  +\S", result.output, re.MULTILINE)
        own = CliRunner().invoke(application, [command, "--help"])
        assert own.exit_code == 0
        assert "--json" in own.output
        assert "--debug" in own.output


def test_version_and_module() -> None:
    done = completed("-m", "torchparquet", "--version")
    assert done.stdout == f"torchparquet {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["plan"],
        ["plan", "x", "--world-size", "0"],
        ["plan", "x", "--no-such-option"],
        ["plan", "x", "--max-memory", "much"],
        ["plan", "x", "--plot", "a.pdf"],
        ["rewrite", "x"],
        ["rewrite", "x", "--output", "y", "--encoding", "a"],
        ["rewrite", "x", "--output", "y", "--encoding", "a=zip"],
        ["demo", "--nproc", "two"],
    ],
)
def test_wrong_usage_is_one_line_and_code_2(arguments: list[str], capsys: Any) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("torchparquet: error: ")
    assert captured.err.count("\n") == 1


def test_no_command_shows_the_help(capsys: Any) -> None:
    assert main([]) == 2
    assert "Usage: torchparquet" in capsys.readouterr().err


def test_a_missing_package_is_one_line_of_what_to_install(
    data: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    assert main(["plan", data, "--filter", "x > 1"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("torchparquet: error: filters in SQL need sqlglot: pip install")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_the_command_says_what_to_install(package: str) -> None:
    program = f"""
import runpy, sys
sys.modules[{package!r}] = None
sys.argv = ["torchparquet", "--version"]
runpy.run_module("torchparquet", run_name="__main__")
"""
    done = ran(program)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "torchparquet: error: the command line needs packages that are not installed: "
        f'pip install "torchparquet[cli]" (no {package})\n'
    )


def test_debug_raises_before_and_after_the_command(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.parquet")
    for arguments in (["--debug", "plan", missing], ["plan", missing, "--debug"]):
        with pytest.raises(FileNotFoundError):
            main(arguments)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c != "demo"])
def test_standard_output_has_the_report_alone(
    command: Any, data: Any, tmp_path: Path, capsys: Any
) -> None:
    """JSON, or text without escapes where there is no terminal; an error leaves it empty."""
    arguments = arguments_of(command, data, tmp_path)
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert isinstance(json.loads(captured.out), dict)
    assert captured.err == ""
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "1,000" in captured.out
    assert "\x1b" not in captured.out
    assert captured.err == ""
    missing = str(tmp_path / "missing.parquet")
    assert main([*arguments_of(command, missing, tmp_path), "--json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert missing in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.long
def test_progress_is_on_standard_error_and_only_on_a_terminal(data: Any, tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    command = [sys.executable, "-m", "torchparquet", "rewrite", data, "--output", output, "--json"]
    terminal, end = pty.openpty()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=end, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(end)
        shown = b""
        while part := _read(terminal):
            shown += part
        assert process.stdout is not None
        report = json.loads(process.stdout.read())
    os.close(terminal)
    assert process.returncode == 0
    assert report["rows"] == 1000
    assert b"rewriting" in shown
    assert b"\x1b[" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # what Linux answers when the other end is closed
        return b""


@pytest.mark.long
def test_nobody_reads_the_output(data: Any) -> None:
    """A pipe whose reader has gone ends the command without a traceback."""
    command = f"{sys.executable} -m torchparquet inspect {data} --json | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


# In a process of its own, which pyarrow may end: of each command its code, output and errors.
RUN_EACH = """
import contextlib, io, json, sys
from torchparquet.cli import main
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            code = main(command)
    print(json.dumps([code, out.getvalue(), errors.getvalue()]), flush=True)
"""


@pytest.mark.parametrize("layout", ["encrypted footer", "plaintext footer"])
@pytest.mark.long
def test_encrypted_files_are_refused(layout: str, tmp_path: Path) -> None:
    table = pa.table({"secret": [1], "words": ["a"], "items": [[1]]})
    path = write_encrypted(tmp_path / "a.parquet", table, LAYOUTS[layout])
    names = ["inspect", "bench", "rewrite", "verify"]
    commands = [[*arguments_of(name, path, tmp_path), "--json"] for name in names]
    done = completed("-c", RUN_EACH, json.dumps(commands))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for name, (code, output, told) in zip(names, results, strict=True):
        assert code == 1, name
        if name == "verify":
            (failure,) = json.loads(output)["failures"]
            told = failure["error"] + "\n"
        assert "encrypted" in told, name
        assert path in told, name
        assert told.count("\n") == 1, name


@pytest.mark.long
def test_no_progress_where_colors_are_forced(data: Any, tmp_path: Path) -> None:
    arguments = [*arguments_of("rewrite", data, tmp_path), "--json"]
    done = completed("-m", "torchparquet", *arguments, FORCE_COLOR="1", TERM="xterm")
    assert json.loads(done.stdout)["rows"] == 1000
    assert done.stderr == ""
