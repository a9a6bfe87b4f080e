"""`torchparquet demo`: two ranks train, and an audit proves that every row was read once."""

from __future__ import annotations

import click

from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.cli.arguments import Session, debug_option, json_option, storage_option
from torchparquet.tools.demo import run_demo
from torchparquet.tools.screen import print_json

_POSITIVE = click.IntRange(min=1)


@click.command()
@click.option("--nproc", type=_POSITIVE, default=2, show_default=True, metavar="N", help="Ranks.")
@click.option("--epochs", type=_POSITIVE, default=2, show_default=True, metavar="N")
@click.option(
    "--batch-size",
    type=_POSITIVE,
    default=1024,
    show_default=True,
    metavar="N",
    help="Rows per rank and step.",
)
@click.option(
    "--scale-factor",
    type=click.FloatRange(0, 1e6, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    metavar="X",
    help="Scale of the TPC-H data; 1 is six million rows.",
)
@click.option(
    "--data-dir", metavar="DIR", help="Keep the TPC-H data here and use it again next time."
)
@click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="Your own file, directory, pattern or URL instead; may be repeated.",
)
@storage_option
@json_option
@debug_option
@click.argument("more_data", nargs=-1, metavar="[PATH...]")
@click.pass_obj
def command(
    session: Session,
    nproc: int,
    epochs: int,
    batch_size: int,
    scale_factor: float,
    data_dir: str | None,
    data: tuple[str, ...],
    storage: StorageArguments,
    as_json: bool,
    more_data: tuple[str, ...],
) -> int:
    """Train under torchrun, and prove that every row was read once.

    The command writes TPC-H's table lineitem, or reads files of your own.
    """
    own = data + more_data
    if more_data and not data:
        raise click.UsageError("paths need --data before them")
    if own and data_dir is not None:
        raise click.UsageError("--data-dir keeps the TPC-H data, which --data replaces")
    report = run_demo(
        num_ranks=nproc,
        num_epochs=epochs,
        batch_size=batch_size,
        scale_factor=scale_factor,
        data_dir=data_dir,
        data=own,
        storage=storage,
        debug=session.debug,
        as_json=as_json,
    )
    if as_json:
        print_json(report)
    return 0 if report["holds"] else 1
