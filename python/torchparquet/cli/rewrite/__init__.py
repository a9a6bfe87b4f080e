"""`torchparquet rewrite`: write the same rows in a layout for training.

`layout` has the user's options and what follows from them. `input_rows` reads and permutes, and
`output_files` writes to an `output_place`.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import click
import numpy as np
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import split_scheme, without_credentials
from torchparquet.cli.arguments import (
    Data,
    number_option,
    parsed_by,
    report_command,
    size_option,
)
from torchparquet.cli.columns import ColumnFacts, read_facts, sampled_row_groups
from torchparquet.cli.rewrite.input_rows import InputRows, RowStream, ShuffledRows
from torchparquet.cli.rewrite.layout import (
    CODECS,
    Layout,
    RewriteOptions,
    begin,
    begun_layout,
    make_layout,
    parse_encodings,
)
from torchparquet.cli.rewrite.output_files import (
    FileWriter,
    OutputFile,
    OutputSchema,
    common_schema,
    planned_files,
)
from torchparquet.cli.rewrite.output_place import output_place
from torchparquet.cli.screen import counted, plain, progress, size

Advance = Callable[[int], None]


class Rewrite:
    """One rewrite, new or resumed."""

    def __init__(
        self,
        paths: Sequence[str],
        output: str | Path,
        options: RewriteOptions,
        storage: StorageArguments = NO_STORAGE,
    ) -> None:
        """Read footers and check the options; writes nothing yet."""
        self._options = options
        self._output = output_place(str(output), storage, paths)
        self._manifest = read_manifest(list(paths), storage=storage)
        _check_apart(paths, self._manifest, self._output.root)
        remote, files = self._manifest.remote, self._manifest.files
        with_rows = np.flatnonzero(self._manifest.file_num_rows).tolist()
        self._leaves = self._manifest.schemas[int(self._manifest.file_schema[with_rows[0]])]
        self.schema: OutputSchema = common_schema([files[file] for file in with_rows], remote)
        # The rows of one directory stay together.
        self._parts: dict[str, InputRows] = {}
        directories = np.array([_keys_of(path, self._output.root) for path in files])
        for name in dict.fromkeys(directories[with_rows].tolist()):
            own = self._manifest.keep((directories == name)[self._manifest.row_group_file])
            self._parts[name] = InputRows(own, self.schema.arrow)
        if options.shuffle and len(self._parts) > 1:
            first = next(iter(self._parts))
            raise ValueError(
                "rows of different key=value directories cannot be shuffled together, since the "
                f"keys are in the paths ({first!r} and {len(self._parts) - 1} more): rewrite each "
                "directory by itself, to an --output of its own"
            )
        unknown = options.encodings.keys() - {leaf.path for leaf in self._leaves}
        if unknown:
            raise ValueError(f"no such column to encode: {sorted(unknown)}")

    @property
    def num_rows(self) -> int:
        """Rows of the input, and of the output."""
        return self._manifest.num_rows

    @property
    def passes(self) -> int:
        """The number of times that each row is written."""
        return 2 if self._options.shuffle else 1

    def run(self, advance: Advance) -> dict[str, Any]:
        """Write the missing files, and return a report as JSON values."""
        with self._output.locked() as buckets:
            request = self._request()
            begun = begun_layout(self._output, request)
            layout = begun or self._make_layout()
            writer = FileWriter(self.schema, layout, self._options, self._output)
            if begun is None:
                begin(self._output, request, layout)
            files: list[OutputFile] = []
            resumed = 0
            for directory, rows in self._parts.items():
                planned = planned_files(directory, rows.num_rows, layout)
                files += planned
                resumed += self._write(rows, planned, writer, buckets, advance)
            written = self._output.manifest([file.name for file in files])
        if written.num_rows != self.num_rows:
            raise RuntimeError(
                f"the input has {self.num_rows} rows, the output {written.num_rows}: "
                f"{self._output.shown!r}"
            )
        names = [leaf.path for leaf in self._leaves]
        return {
            "output": self._output.shown,
            "files": [
                {"path": path, "rows": int(rows), "bytes": int(num_bytes)}
                for path, rows, num_bytes in zip(
                    written.files, written.file_num_rows, written.file_num_bytes, strict=True
                )
            ],
            "files_resumed": resumed,
            "rows": written.num_rows,
            "row_groups": written.num_row_groups,
            "row_group_rows": layout.row_group_rows,
            "encodings": dict(zip(names, layout.encodings, strict=True)),
            "codecs": dict(zip(names, layout.codecs, strict=True)),
            "shuffled": self._options.shuffle,
            "seed": self._options.seed if self._options.shuffle else None,
            "input_files": len(self._manifest.files),
            "input_bytes": int(self._manifest.file_num_bytes.sum()),
            "output_bytes": int(written.file_num_bytes.sum()),
            "schema_changes": list(self.schema.changes),
            "differing_metadata": list(self.schema.differing_keys),
        }

    def _write(
        self,
        rows: InputRows,
        planned: list[OutputFile],
        writer: FileWriter,
        buckets: Path,
        advance: Advance,
    ) -> int:
        """Write the missing files of a directory; return the number of existing ones."""
        layout = writer.layout
        # Files are written in order, so the existing ones come first.
        there = 0
        while there < len(planned) and planned[there].is_there(self._output):
            advance(planned[there].num_rows)
            there += 1
        if there == len(planned):
            advance(rows.num_rows * (self.passes - 1))
            return there
        source: InputRows | ShuffledRows = rows
        if self._options.shuffle:
            source = ShuffledRows(rows, layout, self._options.seed, buckets)
            source.deal(advance)
        tables = source.tables(planned[there].begin, rows.num_rows, layout.piece_rows)
        with closing(RowStream(tables)) as stream:
            for file in planned[there:]:
                writer.write(file, stream, advance)
        return there

    def _request(self) -> dict[str, Any]:
        options = asdict(self._options) | {"encodings": dict(self._options.encodings)}
        if not self._options.shuffle:
            del options["seed"]
        else:
            # NumPy's random numbers may change between its releases.
            options["numpy"] = np.__version__
        return {"fingerprint": self._manifest.fingerprint, **options}

    def _make_layout(self) -> Layout:
        columns = read_facts(self._manifest, sampled_row_groups(self._manifest)).columns
        names = [leaf.path for leaf in self._leaves]
        encodings = tuple(
            self._options.encodings.get(name) or _kept_encoding(columns[name]) for name in names
        )
        codecs = tuple(self._options.codec or _kept_codec(columns[name]) for name in names)
        bytes_per_row = max(rows.bytes_per_row() for rows in self._parts.values())
        return make_layout(self._options, self.num_rows, bytes_per_row, encodings, codecs)


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
    return codec if codec in CODECS else "zstd"


def _check_apart(paths: Sequence[str], manifest: Manifest, output: str) -> None:
    """Raise if input and output lie within one another."""
    for path in paths:
        if _is_directory(path, manifest) and _is_within(output, path):
            raise ValueError(
                "--output must not be in a directory of the input, which would have every row "
                f"twice: {output!r} is in {without_credentials(path)!r}"
            )
    for path in manifest.files:
        if _is_within(path, output):
            raise ValueError(f"--output must not hold the input: {path!r} is in {output!r}")


def _is_directory(path: str, manifest: Manifest) -> bool:
    if manifest.remote is None:
        return Path(path).is_dir()
    return not glob.has_magic(path) and without_credentials(path) not in manifest.files


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
@click.option(
    *("--encoding", "encodings"),
    multiple=True,
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
def command(data: Data, output: str, no_page_checksums: bool, **options: Any) -> dict[str, Any]:
    """Write the same rows in a layout for training.

    Row groups and files change; the rows do not. Their order stays, or becomes a permutation of all
    rows. Schema and key-value metadata are kept. A file gets its final name when it is complete.
    After an interruption, the same command resumes the rewrite. --shuffle temporarily takes as much
    disk space as the rows do.
    """
    wanted = RewriteOptions(page_checksums=not no_page_checksums, **options)
    rewrite = Rewrite(data.paths, output, wanted, data.storage)
    with progress("rewriting", rewrite.num_rows * rewrite.passes) as advance:
        return rewrite.run(advance)
