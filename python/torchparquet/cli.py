"""The command line: `torchparquet demo` and `torchparquet plan`.

Every command is a function that adds its parser; what it sets as `run` is called with the parsed
arguments and returns the exit code. Imports of a command happen in `run`, so that none pays for
another. Exit codes: 0 well, 1 failed, 2 wrong arguments, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from torchparquet import __version__

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_FAILED, _INTERRUPTED, _TERMINATED = 1, 130, 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Of the command line; None for those of this process.

    Returns:
        The exit code.

    Raises:
        SystemExit: The arguments are wrong (code 2), or help was asked for (code 0).
    """
    options = _parser().parse_args(arguments)
    try:
        with _termination_unwinds():
            code: int = options.run(options)
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except Exception as error:
        if options.debug:
            raise
        _say(f"error: {one_line(error)}")
        return _FAILED
    return code


def one_line(error: BaseException) -> str:
    """Return what the error says, on one line; its class where it says nothing."""
    text = " ".join(str(error).split())
    if not text:
        return type(error).__name__
    # A KeyError's or an assertion's text means nothing without its class.
    plain = isinstance(error, OSError | RuntimeError | TypeError | ValueError)
    return text if plain else f"{type(error).__name__}: {text}"


def _say(text: str) -> None:
    print(f"torchparquet: {text}", file=sys.stderr)


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Let SIGTERM unwind as Ctrl-C does, so that temporary files and subprocesses go too."""

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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchparquet", description="Parquet files as PyTorch batches: see it work."
    )
    parser.add_argument("--version", action="version", version=f"torchparquet {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_demo, _add_plan):
        add(commands)
    return parser


def _add_command(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    """Add a command that takes `--debug` behind its name too."""
    parser = commands.add_parser(name, help=summary, description=summary)
    # Without the suppressed default this one would undo a `--debug` before the command.
    parser.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks"
    )
    parser.set_defaults(run=run)
    return parser


def _add_demo(commands: Commands) -> None:
    summary = "Train on Parquet files under torchrun, then prove that every row was read once."
    parser = _add_command(commands, "demo", summary, _run_demo)
    parser.add_argument("--nproc", type=_positive, default=2, metavar="N", help="ranks (default 2)")
    parser.add_argument("--epochs", type=_positive, default=2, metavar="N", help="(default 2)")
    parser.add_argument(
        "--batch-size",
        type=_positive,
        default=1024,
        metavar="N",
        help="rows per rank and step (default 1024)",
    )
    parser.add_argument(
        "--scale-factor",
        type=_positive_float,
        default=0.1,
        metavar="X",
        help="of the TPC-H data that is written; 1 is six million rows (default 0.1)",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="keep the TPC-H data here and use it again next time"
    )
    parser.add_argument(
        "--data", nargs="+", metavar="PATH", help="your own files, directories or patterns instead"
    )
    parser.add_argument("--target", metavar="COLUMN", help="what to predict, with --data")


def _run_demo(options: argparse.Namespace) -> int:
    from torchparquet.demo import DemoOptions, run_demo

    return run_demo(
        DemoOptions(
            num_ranks=options.nproc,
            num_epochs=options.epochs,
            batch_size=options.batch_size,
            scale_factor=options.scale_factor,
            data_dir=options.data_dir,
            data=None if options.data is None else tuple(options.data),
            target=options.target,
            debug=options.debug,
        )
    )


def _add_plan(commands: Commands) -> None:
    summary = "Show what each rank reads of an epoch, and how well its rows are mixed."
    parser = _add_command(commands, "plan", summary, _run_plan)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files, directories or patterns")
    parser.add_argument("--batch-size", type=_positive, default=1024, metavar="N", help="(1024)")
    parser.add_argument("--world-size", type=_positive, default=1, metavar="N", help="ranks (1)")
    parser.add_argument("--num-workers", type=int, default=0, metavar="N", help="per rank (0)")
    parser.add_argument("--epoch", type=int, default=0, metavar="N", help="(0)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="(0)")
    parser.add_argument("--no-shuffle", action="store_true", help="in the order of files")
    parser.add_argument(
        "--shuffle-window", type=int, metavar="K", help="row groups (8, or what memory holds)"
    )
    parser.add_argument("--max-memory", default="1GiB", metavar="SIZE", help="(1GiB)")
    parser.add_argument(
        "--even", choices=["split", "drop", "pad", "none"], default="split", help="(split)"
    )
    parser.add_argument("--drop-last", action="store_true", help="leave out short batches")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run_plan(options: argparse.Namespace) -> int:
    import json

    from torchparquet.dataset import ParquetDataset
    from torchparquet.plan_report import as_text, plan_report

    dataset = ParquetDataset(
        options.paths,
        batch_size=options.batch_size,
        shuffle=not options.no_shuffle,
        shuffle_window=options.shuffle_window,
        seed=options.seed,
        even=options.even,
        drop_last=options.drop_last,
        max_memory=options.max_memory,
        rank=0,
        world_size=options.world_size,
    )
    report = plan_report(dataset, dataset.plan(options.epoch, options.num_workers))
    print(json.dumps(report, indent=2) if options.json else as_text(report))
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
