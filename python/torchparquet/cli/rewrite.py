"""`torchparquet rewrite`: write the same rows in a layout for training."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.cli.arguments import (
    number_option,
    options,
    parsed_by,
    paths_argument,
    report_command,
    size_option,
)
from torchparquet.tools.rewrite import Rewrite
from torchparquet.tools.rewrite.layout import CODECS, RewriteOptions, parse_encodings
from torchparquet.tools.screen import counted, plain, progress, size


def _show(console: Console, report: dict[str, Any]) -> None:
    files = counted(len(report["files"]), "file")
    groups = counted(report["row_groups"], "row group")
    console.print(
        f"{counted(report['rows'], 'row')} in {files} of {groups}, at most "
        f"{report['row_group_rows']:,} rows each: {plain(report['output'])}"
    )
    if report["files_resumed"]:
        console.print(f"{counted(report['files_resumed'], 'file')} of them from an earlier run")
    order = f"shuffled by seed {report['seed']}" if report["shuffled"] else "in the same order"
    console.print(
        f"{order}; {size(report['input_bytes'])} before, {size(report['output_bytes'])} now"
    )
    console.print(f"codec: {', '.join(dict.fromkeys(report['codecs'].values()))}")
    for change in report["schema_changes"]:
        console.print(f"[yellow]stored otherwise[/]  {plain(change)}")
    for key in report["differing_metadata"]:
        console.print(
            f"[yellow]metadata[/]  files disagree about {plain(key)}; the first one's is kept"
        )


@report_command(_show)
@paths_argument
@click.option(
    "--output",
    required=True,
    metavar="DIR",
    help="New directory, or URL of a store. Give the same one again to resume a rewrite.",
)
@number_option("--row-group-rows", most=2**31 - 1, help="Rows of each row group.")
@size_option(
    "--row-group-bytes",
    None,
    "In memory, where --row-group-rows does not say. Default: 64MiB, or what gives 64 row groups "
    "if that is less.",
)
@number_option("--row-groups-per-file", most=2**15 - 1, default=16)
@click.option("--codec", type=click.Choice(CODECS), help="Default: as each column has it.")
@click.option("--codec-level", type=int, metavar="N", help="Default: the codec's own.")
@options(
    "--encoding",
    "encodings",
    metavar="NAME=ENCODING",
    callback=parsed_by(parse_encodings),
    help="Of a column: dictionary, plain, delta_binary_packed, delta_length_byte_array, "
    "delta_byte_array or byte_stream_split; may be repeated. Others keep theirs, but for "
    "dictionaries that did not hold, which become plain.",
)
@click.option("--no-page-checksums", is_flag=True, help="Write pages without checksums.")
@click.option("--shuffle", is_flag=True, help="Permute the rows of all files.")
@number_option("--seed", least=0, most=2**64 - 1, default=0, help="Of the permutation.")
@size_option(
    "--max-memory", "1GiB", "Bound of memory; with --shuffle, more of it means fewer reads."
)
def command(
    paths: tuple[str, ...],
    storage: StorageArguments,
    output: str,
    no_page_checksums: bool,
    **options: Any,
) -> dict[str, Any]:
    """Write the same rows in a layout for training.

    Row groups and files change; the rows do not. Their order stays, or becomes a permutation of all
    rows. Schema and key-value metadata are kept. A file gets its final name when it is complete.
    After an interruption, the same command resumes the rewrite. --shuffle temporarily takes as much
    disk space as the rows do.
    """
    wanted = RewriteOptions(page_checksums=not no_page_checksums, **options)
    rewrite = Rewrite(paths, output, wanted, storage)
    with progress("rewriting", rewrite.num_rows * rewrite.passes) as advance:
        return rewrite.run(advance)
