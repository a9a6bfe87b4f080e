"""`torchparquet rewrite`: write the same rows in a layout for training."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import click
import numpy as np
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.remote.urls import split_scheme, without_credentials
from torchparquet._impl.text.tokenizer import tokenizer_of
from torchparquet.cli import arguments
from torchparquet.cli.arguments import Data
from torchparquet.cli.preparing import on_ray, writing
from torchparquet.cli.preparing.cluster import Cluster, cluster_of, ray_option
from torchparquet.cli.preparing.footer_facts import ColumnFacts, read_facts, sampled_row_groups
from torchparquet.cli.preparing.input_rows import InputRows, deal, grouped, prefetched, shuffled
from torchparquet.cli.preparing.places import LocalOutput, output_place
from torchparquet.cli.preparing.text_column import TextColumn
from torchparquet.cli.preparing.writing import (
    Layout,
    PlannedFile,
    RewriteOptions,
    write_file,
)
from torchparquet.cli.screen import Advance, counted, plain, progress, size


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
    if report["tokenized"] is not None:
        console.print(f"tokens in place of texts: {plain(report['tokenized'])}")
    for change in report["schema_changes"]:
        console.print(f"[yellow]stored otherwise[/]  {plain(change)}")
    for key in report["differing_metadata"]:
        console.print(
            f"[yellow]metadata[/]  files disagree about {plain(key)}; the first one's is kept"
        )


@arguments.report_command(_show)
@click.option(
    "--output",
    required=True,
    metavar="DIR",
    help="New directory, or URL of a store. Give the same one again to resume a rewrite.",
)
@arguments.number_option("--row-group-rows", most=2**31 - 1, help="Rows of each row group.")
@arguments.size_option(
    "--row-group-bytes",
    None,
    "In memory, where --row-group-rows does not say. Default: 64MiB, or what gives 64 row groups "
    "if that is less.",
)
@arguments.number_option(
    "--row-groups-per-file", most=2**15 - 1, default=16, help="Row groups of each file."
)
@click.option("--codec", type=click.Choice(writing.CODECS), help="Default: as each column has it.")
@click.option("--codec-level", type=int, metavar="N", help="Default: the codec's own.")
@arguments.parsed_option(
    "--encoding encodings",
    "NAME=ENCODING",
    "Of a column: dictionary, plain, delta_binary_packed, delta_length_byte_array, "
    "delta_byte_array or byte_stream_split; may be repeated. Others keep theirs, but for "
    "dictionaries that did not hold, which become plain.",
    writing.parse_encodings,
    multiple=True,
)
@click.option("--no-page-checksums", is_flag=True, help="Write pages without checksums.")
@click.option("--shuffle", is_flag=True, help="Permute the rows of all files.")
@arguments.number_option("--seed", least=0, most=2**64 - 1, default=0, help="Of the permutation.")
@click.option(
    "--pack", metavar="NAME", help="Write tokens in place of this column of texts, for Pack(NAME)."
)
@arguments.tokenizer_option
@arguments.size_option(
    "--max-memory", "1GiB", "Bound of memory; with --shuffle, more of it means fewer reads."
)
@ray_option
def command(
    data: Data, output: str, no_page_checksums: bool, ray: str | None, **options: Any
) -> dict[str, Any]:
    """Write the same rows in a layout for training.

    Row groups and files change; the rows do not. Their order stays, or becomes a permutation of all
    rows. Schema and key-value metadata are kept. A file gets its final name when it is complete.
    After an interruption, the same command resumes the rewrite. --shuffle temporarily takes as much
    disk space as the rows do.
    """
    if options["codec"] is None and options["codec_level"] is not None:
        raise ValueError(
            "codec_level needs a codec (--codec), since columns keep theirs without one; got "
            f"level {options['codec_level']}"
        )
    for needing, needed in (("pack", "tokenizer"), ("tokenizer", "pack")):
        if options[needing] is not None and options[needed] is None:
            raise click.UsageError(f"--{needing} needs --{needed} NAME")
    if options["seed"] and not options["shuffle"]:
        raise click.UsageError("--seed needs --shuffle, whose permutation it chooses")
    wanted = RewriteOptions(page_checksums=not no_page_checksums, **options)
    return rewrite(data, output, wanted, cluster_of(ray, wanted.max_memory))


def rewrite(
    data: Data, output: str, options: RewriteOptions, cluster: Cluster | None = None
) -> dict[str, Any]:
    """Write the files that the output lacks, and return a report as JSON values."""
    place, manifest = output_place(output, data), data.manifest()
    _check_apart(data.paths, manifest, place.root)
    with_rows = np.flatnonzero(manifest.file_num_rows).tolist()
    names = [leaf.path for leaf in manifest.schemas[int(manifest.file_schema[with_rows[0]])]]
    schema = writing.common_schema([manifest.files[file] for file in with_rows], manifest.listing)
    texts = None
    if options.pack is not None:
        tokenizer = tokenizer_of(
            options.tokenizer, add_special_tokens=False, chat=False, num_threads=1
        )
        texts = TextColumn(options.pack, tokenizer)
        schema = schema.with_tokens(texts)
    # The rows of one directory stay together.
    parts: dict[str, InputRows] = {}
    directories = np.array([_keys_of(path, place.root) for path in manifest.files])
    for directory in dict.fromkeys(directories[with_rows].tolist()):
        own = manifest.keep((directories == directory)[manifest.row_group_file])
        parts[directory] = InputRows(own, schema.arrow, texts)
    if options.shuffle and len(parts) > 1:
        raise ValueError(
            "rows of different key=value directories cannot be shuffled together, since the "
            f"keys are in the paths ({next(iter(parts))!r} and {len(parts) - 1} more): rewrite "
            "each directory by itself, to an --output of its own"
        )
    if unknown := options.encodings.keys() - set(names):
        raise ValueError(f"no such column to encode: {sorted(unknown)}")
    passes = 2 if options.shuffle else 1
    resumed, outputs = 0, list[str]()
    with (
        place.locked() as buckets,
        progress("rewriting", manifest.num_rows * passes) as advance,
    ):
        request = writing.make_request(manifest.fingerprint, options, texts)
        begun = writing.begun_layout(place, request)
        layout = begun or _make_layout(manifest, names, parts, options)
        how = writing.writer_options(schema, layout, options)
        if begun is None:
            writing.begin(place, request, layout)
        for directory, rows in parts.items():
            files = writing.planned_files(directory, rows.num_rows, layout)
            outputs += [file.name for file in files]
            missing = [file for file in files if not _is_there(place, file)]
            if cluster is None and missing:
                # One process writes them in order, and reads all rows from the first one's on.
                missing = files[files.index(missing[0]) :]
            resumed += len(files) - len(missing)
            advance(rows.num_rows - sum(file.num_rows for file in missing))
            seed = options.seed if options.shuffle else None
            write = partial(on_ray.write, cluster) if cluster else partial(_write_here, buckets)
            write(place, rows, layout, missing, (schema.arrow, how), seed, advance)
        written = place.manifest(outputs)
    num_rows = 0 if written is None else written.num_rows
    if written is None or num_rows != manifest.num_rows:
        raise RuntimeError(
            f"the input has {manifest.num_rows} rows, the output {num_rows}: {place.shown!r}"
        )
    sizes_of_files = written.file_num_bytes.tolist()
    of_files = zip(written.files, written.file_num_rows.tolist(), sizes_of_files, strict=True)
    return {
        "output": place.shown,
        "files": [dict(zip(("path", "rows", "bytes"), of, strict=True)) for of in of_files],
        "files_resumed": resumed,
        "rows": num_rows,
        "row_groups": written.num_row_groups,
        "row_group_rows": layout.row_group_rows,
        "encodings": dict(zip(names, layout.encodings, strict=True)),
        "codecs": dict(zip(names, layout.codecs, strict=True)),
        "tokenized": options.pack,
        "shuffled": options.shuffle,
        "seed": options.seed if options.shuffle else None,
        "input_files": len(manifest.files),
        "input_bytes": int(manifest.file_num_bytes.sum()),
        "output_bytes": sum(sizes_of_files),
        "schema_changes": schema.changes,
        "differing_metadata": schema.differing_keys,
    }


def _write_here(
    buckets: Path,
    place: LocalOutput,
    rows: InputRows,
    layout: Layout,
    files: Sequence[PlannedFile],
    how: tuple[Any, dict[str, Any]],
    seed: int | None,
    advance: Advance,
) -> None:
    """Write the last files of some rows; of permuted rows, if there is a seed."""
    sizes = [size for file in files for size in file.row_groups]
    first = rows.num_rows - sum(sizes)
    if seed is not None and files:
        tables = shuffled(*deal(rows, layout, seed, buckets, advance), layout, seed, first)
    else:
        tables = rows.tables(first, layout.piece_rows)
    with closing(prefetched(tables)) as stream:
        groups = grouped(stream, sizes, advance)
        for file in files:
            write_file(place, file.name, *how, groups=islice(groups, len(file.row_groups)))


def _is_there(place: LocalOutput, file: PlannedFile) -> bool:
    """Return True if the file exists with all its rows."""
    found = place.manifest([file.name])
    return found is not None and found.num_rows == file.num_rows


def _make_layout(
    manifest: Manifest, names: list[str], parts: Mapping[str, InputRows], options: RewriteOptions
) -> Layout:
    facts = read_facts(manifest, sampled_row_groups(manifest)).columns
    return writing.make_layout(
        options,
        manifest.num_rows,
        max(rows.bytes_per_row() for rows in parts.values()),
        [
            options.encodings.get(name)
            or ("byte_stream_split" if name == options.pack else _kept_encoding(facts[name]))
            for name in names
        ],
        [options.codec or _kept_codec(facts[name]) for name in names],
    )


def _kept_encoding(facts: ColumnFacts) -> str:
    """Return the present encoding of a column; "plain" for a dictionary that fell back."""
    if facts.keeps_dictionary:
        return "dictionary"
    others = {name for name in facts.page_encodings if name.startswith(("DELTA_", "BYTE_STREAM"))}
    return others.pop().lower() if len(others) == 1 and others == facts.page_encodings else "plain"


def _kept_codec(facts: ColumnFacts) -> str:
    """Return the codec of most column chunks of a column; zstd for one that cannot be written."""
    codec = facts.codecs.most_common(1)[0][0].lower()
    codec = "none" if codec == "uncompressed" else codec
    return codec if codec in writing.CODECS else "zstd"


def _check_apart(paths: Sequence[str], manifest: Manifest, output: str) -> None:
    """Raise if input and output lie within one another."""
    for path in paths:
        is_directory = (
            Path(path).is_dir()
            if manifest.listing.store is None
            else not glob.has_magic(path) and without_credentials(path) not in manifest.files
        )
        if is_directory and _is_within(output, path):
            raise ValueError(
                "--output must not be in a directory of the input, which would have every row "
                f"twice: {output!r} is in {without_credentials(path)!r}"
            )
    for path in manifest.files:
        if _is_within(path, output):
            raise ValueError(f"--output must not hold the input: {path!r} is in {output!r}")


def _is_within(path: str, directory: str) -> bool:
    scheme, inner = split_scheme(without_credentials(path))
    other, outer = split_scheme(without_credentials(directory))
    if scheme or other:
        return scheme == other and PurePosixPath(outer) in PurePosixPath(inner).parents
    return Path(directory).resolve() in Path(path).resolve().parents


def _keys_of(path: str, output: str) -> str:
    """Return the `key=value` directories on a path, except those of `output`."""
    own = PurePosixPath(output).parts
    return "/".join(
        name for name in PurePosixPath(path).parent.parts if "=" in name and name not in own
    )
