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

import numpy as np

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.remote.urls import split_scheme, without_credentials
from torchparquet.tools.footers import ColumnFacts, PageFacts, read_facts, sampled_row_groups
from torchparquet.tools.rewrite.input_rows import InputRows, RowStream, ShuffledRows
from torchparquet.tools.rewrite.layout import (
    CODECS,
    Layout,
    RewriteOptions,
    begin,
    begun_layout,
    make_layout,
)
from torchparquet.tools.rewrite.output_files import (
    FileWriter,
    OutputFile,
    OutputSchema,
    common_schema,
    planned_files,
)
from torchparquet.tools.rewrite.output_place import output_place

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
        files = self._manifest.files
        with_rows = np.flatnonzero(self._manifest.file_num_rows).tolist()
        self._leaves = self._manifest.schemas[int(self._manifest.file_schema[with_rows[0]])]
        self.schema: OutputSchema = common_schema(
            [files[file] for file in with_rows], self._manifest.listing
        )
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
            self._options.encodings.get(name) or _kept_encoding(columns[name].pages)
            for name in names
        )
        codecs = tuple(self._options.codec or _kept_codec(columns[name]) for name in names)
        bytes_per_row = max(rows.bytes_per_row() for rows in self._parts.values())
        return make_layout(self._options, self.num_rows, bytes_per_row, encodings, codecs)


def _kept_encoding(pages: PageFacts) -> str:
    """Return the present encoding of a column; "plain" for a dictionary that fell back."""
    if pages.keeps_dictionary:
        return "dictionary"
    others = {name for name in pages.encodings if name.startswith(("DELTA_", "BYTE_STREAM"))}
    return others.pop().lower() if len(others) == 1 and others == pages.encodings else "plain"


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
    if manifest.listing.store is None:
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
