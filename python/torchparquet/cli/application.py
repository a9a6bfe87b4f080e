"""Runs a command, and turns its error into a line and an exit code."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from torchparquet import __version__
from torchparquet.cli import bench, demo, inspect, plan, rewrite, rows, stats, verify
from torchparquet.cli.arguments import DEBUG
from torchparquet.errors import one_line, printable

_COMMANDS = (inspect, stats, plan, rows, verify, bench, rewrite, demo)
_FAILED, _WRONG_USAGE, _INTERRUPTED, _TERMINATED = 1, 2, 130, 143


class _InterruptedError(Exception):
    """Ctrl-C. It passes click, which would end the process at a KeyboardInterrupt."""


class _Application(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None


@click.group(
    cls=_Application,
    name="torchparquet",
    commands={module.__name__.rpartition(".")[2]: module.command for module in _COMMANDS},
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="torchparquet", message="%(prog)s %(version)s")
@click.pass_context
def application(context: click.Context) -> int:
    """Inspect, count, plan, verify, time and rewrite Parquet files that PyTorch trains on."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
    return _WRONG_USAGE


application.params.append(DEBUG)


def run(arguments: Sequence[str] | None) -> int:
    """Run one command, and return its exit code."""
    flags: set[str] = set()
    try:
        with _termination_unwinds():
            code: int | None = application.main(
                arguments, prog_name="torchparquet", standalone_mode=False, obj=flags
            )
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "torchparquet"
        _say(
            f"error: {' '.join(error.format_message().split()).rstrip('.')} (see {command} --help)"
        )
        return _WRONG_USAGE
    except _InterruptedError:
        _say("interrupted")
        return _INTERRUPTED
    except Exception as error:
        if "debug" in flags:
            raise
        _say(f"error: {one_line(error)}")
        for note in getattr(error, "__notes__", ()):
            print(printable(note, keep="\n"), file=sys.stderr)
        return _FAILED
    return code or 0


def _say(text: str) -> None:
    print(f"torchparquet: {printable(text)}", file=sys.stderr)


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that temporary files and ranks go too."""

    def unwind(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
