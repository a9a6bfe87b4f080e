"""A data set of texts as one of tokens: token files in a folder, or in memory."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.batches.columns import ColumnsArgument, NullsArgument, resolve_columns
from torchparquet._impl.batches.fields import Field, checked_value
from torchparquet._impl.files.cache_file import distrust_of
from torchparquet._impl.files.discovery import SourceArgument
from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest, PackedRows
from torchparquet._impl.files.places import HIDDEN
from torchparquet._impl.files.remote.urls import checked_path, is_remote_url, without_credentials
from torchparquet._impl.plan.claims import MOST_UNITS
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.text.text_reading import TextReader, checked_text
from torchparquet._impl.text.text_streams import TextOpener
from torchparquet._impl.text.token_files import TokenWriter, written
from torchparquet._impl.text.tokenizer import Tokenizer, tokenizer_of
from torchparquet.column import Column
from torchparquet.options import Pack

# The version of token files; those of others are made anew.
_FORMAT = 1
_NAME_BYTES = 100
# A larger file is several token files, so that processes divide it. Some minutes of a node's work.
PART_BYTES = 1 << 30


@dataclass(frozen=True)
class TokenSource:
    """Token files, and what they were made of."""

    files: list[Any]  # paths or buffers
    pack: Pack  # without a tokenizer
    columns: dict[str, Column]  # of the batch
    origin: tuple[str, str]  # see `Manifest.origin`
    row_group_num_rows: list[int]
    on_the_way: TextSource | None = None


@dataclass(frozen=True)
class TextSource:
    """Texts that are tokenised while they are read."""

    rows: StreamOpener
    tokenizer: Tokenizer
    manifest: Manifest  # of sequences that nobody has counted; its rows are texts

    @classmethod
    def of(cls, rows: StreamOpener, tokenizer: Tokenizer, told: str) -> TextSource:
        """Return those of row groups that have texts; `told` is what their tokens depend on."""
        texts = rows.manifest.keep(rows.manifest.row_group_num_rows > 0)
        unknown = np.zeros(0, np.int64)
        packed = PackedRows("sequence", told, unknown, unknown, unknown, unknown)
        manifest = replace(texts, packed=packed)
        manifest = replace(manifest, fingerprint=manifest.digest())
        return cls(replace(rows, manifest=texts), tokenizer, manifest)

    @property
    def planned(self) -> Manifest:
        """The manifest as plans need it: row groups of more sequences than any has."""
        most = np.full(self.manifest.num_row_groups, MOST_UNITS)
        return replace(self.manifest, row_group_num_rows=most)

    def opener(
        self, fields: tuple[Field, ...], plan: PlanOptions, like: StreamOpener
    ) -> TextOpener:
        """Return what opens streams of the packed fields, on the device of other streams."""
        assert plan.batch_size is not None  # noqa: S101
        return TextOpener(
            rows=replace(self.rows, device=like.device),
            manifest=self.manifest,
            pins_for_device=like.options.pin_memory is not False,
            tokenizer=self.tokenizer,
            packed=fields,
            batch_size=plan.batch_size,
            drop_last=plan.drop_last,
        )


def tokenized(
    manifest: Manifest,
    asked: tuple[ColumnsArgument, NullsArgument, Pack],
    reading: ReadOptions,
    keys: FileKeys | None,
    folder: str | os.PathLike[str] | None,
    paths: SourceArgument,
    *,
    needs_counts: bool,
) -> TokenSource:
    """Return token files of the selected rows; make those that are not there yet.

    Without a folder, and where no counts are needed, the only file shows how tokens look.
    """
    columns, nulls, pack = asked
    path = None if folder is None else _checked_folder(folder, manifest, keys, paths)
    fields = resolve_columns(columns, manifest, nulls, pack)
    tokenizer = tokenizer_of(
        pack.tokenizer,
        add_special_tokens=pack.add_special_tokens,
        chat=pack.chat,
        num_threads=reading.threads_per_worker(1),
    )
    packed = _packed_tokens(pack, tokenizer)
    checked = tuple(checked_text(field, pack.chat) for field in fields)
    streams = StreamOpener(manifest, checked, replace(reading, pin_memory=False), keys=keys)
    identities = "".join(replace(field, name="").identity for field in fields)
    told = json.dumps([_FORMAT, tokenizer.key, identities])
    origin = told + manifest.fingerprint, told + manifest.content_fingerprint
    if path is None and not needs_counts:
        # Imported here, where texts are: it takes a while.
        import pyarrow.parquet as pq

        empty = pa.BufferOutputStream()
        one_row = [pa.array([[]], field.type) for field in tokenizer.schema]
        pq.write_table(pa.table(one_row, tokenizer.schema), empty, store_schema=False)
        texts = TextSource.of(streams, tokenizer, told)
        return TokenSource([empty.getvalue()], *packed, origin, [1], texts)
    writer = TokenWriter(TextReader(streams), tokenizer)
    parts = _parts(manifest)
    try:
        if path is None:
            files = _in_memory(parts, writer, reading)
        else:
            # Nobody else reads texts that may be private, unless the user made the folder.
            path.mkdir(0o700, parents=True, exist_ok=True)
            if distrust := distrust_of(path.stat()):
                raise ValueError(
                    f"token_cache names a folder that is not trusted, {distrust}; run 'chmod o-w' "
                    f"on your own, or name another: {str(path)!r}"
                )
            key = _Key(told, [field.sources[0] for field in fields])
            files = _in_folder(manifest, parts, writer, path, key)
    finally:
        writer.close()
        streams.forget()
    num_rows = manifest.row_group_num_rows
    return TokenSource(files, *packed, origin, num_rows[num_rows > 0].tolist())


def _packed_tokens(pack: Pack, tokenizer: Tokenizer) -> tuple[Pack, dict[str, Column]]:
    """Return how the columns of token files are packed, and these columns, before there are any."""
    (name,), dtype = pack.names, "int64"
    tokens, *others = tokenizer.schema.names
    columns = {name: Column(tokens, dtype=dtype)}
    columns |= {f"{name}.{other}": Column(other) for other in others}
    no_values = dict.fromkeys(columns, False)
    separator: Any = pack.separator
    if isinstance(separator, str):
        number = tokenizer.number_of(separator)
        if number is None:
            raise ValueError(
                f"separator must be a token of the tokenizer, or its number; got {separator!r}"
            )
        separator = no_values | {name: number}
    elif separator is not None:
        separator = no_values | dict(separator)
        checked_value(separator[name], "separator", name, dtype)
    checked_value(pack.padding_of(name), "padding", name, dtype)
    made = replace(
        pack,
        columns=list(columns),
        separator=separator,
        padding=no_values | dict(pack.padding),  # type: ignore[arg-type]
        tokenizer=None,
        add_special_tokens=False,
        chat=False,
        token_cache=None,
    )
    return made, columns


def _checked_folder(
    folder: str | os.PathLike[str],
    manifest: Manifest,
    keys: FileKeys | None,
    paths: SourceArgument,
) -> Path:
    """Return the folder of token files."""
    text = checked_path(folder, "token_cache")
    if is_remote_url(text):
        raise ValueError(f"token_cache must be a folder on disk, got {without_credentials(text)!r}")
    if keys is not None:
        raise ValueError(
            "token_cache must not be given with decryption_properties, because it would hold "
            f"encrypted texts as plain tokens; got {text!r}"
        )
    path = Path(text).absolute()
    within = next((file for file in manifest.files if file.startswith(f"{path}{os.sep}")), None)
    for source in paths if isinstance(paths, list | tuple) else [paths]:
        if isinstance(source, str | os.PathLike) and Path(source).is_dir():
            directory = Path(source).absolute()
            below = path.parts[len(directory.parts) :] if path.is_relative_to(directory) else ["."]
            if not any(name.startswith(HIDDEN) for name in below):
                within = str(directory)
    if within is not None:
        raise ValueError(
            "token_cache must not be below a directory that is read, because its files would be "
            "read as texts; name another folder, or one whose name begins with a dot: "
            f"{within!r}"
        )
    return path


def _parts(manifest: Manifest) -> list[slice]:
    """Return the row groups of each file that has rows, or of parts of a large file.

    Processes divide these. They depend on the file alone, as states do.
    """
    has_rows = np.flatnonzero(manifest.row_group_num_rows)
    files, first = np.unique(manifest.row_group_file[has_rows], return_index=True)
    found = []
    # Without rows there are no files, and one empty group.
    for file, of_file in zip(files.tolist(), np.split(has_rows, first[1:]), strict=False):
        num_parts = -(-int(manifest.file_num_bytes[file]) // PART_BYTES)
        for part in np.array_split(of_file, min(max(1, num_parts), len(of_file))):
            found.append(slice(int(part[0]), int(part[-1]) + 1))
    return found


def _in_folder(
    manifest: Manifest, parts: list[slice], writer: TokenWriter, folder: Path, key: _Key
) -> list[Any]:
    part_of: dict[Path, slice] = {}
    seen: Counter[str] = Counter()
    for part in parts:
        file = int(manifest.row_group_file[part.start])
        name = key.of_part(manifest, file, part)
        seen[name] += 1
        number = f".{seen[name]}" if seen[name] > 1 else ""  # of equal files
        stem = PurePath(manifest.names[file]).stem
        stem = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem)
        stem = stem.encode()[:_NAME_BYTES].decode(errors="ignore")
        part_of[folder / f"{stem}.{name}{number}.parquet"] = part

    def num_rows_of(path: Path) -> list[int]:
        num_rows = manifest.row_group_num_rows[part_of[path]]
        found: list[int] = num_rows[num_rows > 0].tolist()
        return found

    def write(path: Path, to: Path) -> None:
        writer.write(part_of[path], to, folder)

    written(list(part_of), num_rows_of, write)
    return [os.fspath(path) for path in part_of]


@dataclass(frozen=True)
class _Key:
    """Names token files by what they were made of."""

    told: str  # of the tokenizer and the column
    sources: list[str]

    def of_part(self, manifest: Manifest, file: int, part: slice) -> str:
        """Return a name that differs for other contents or rows of a part of a file."""
        listing, table = manifest.listing, manifest.table
        schema = int(manifest.file_schema[file])
        is_within = np.zeros(manifest.num_row_groups, bool)
        is_within[part] = True
        selection = manifest.selection
        facts = [
            self.told,
            listing.memory[file].digest if listing.memory else "",
            listing.stamps[file] if listing.store is not None else "",
            *(int(of[file]) for of in (manifest.file_num_bytes, manifest.file_digest)),
            0 if listing.memory else int(manifest.file_mtime_ns[file]),
            [(leaf.path, leaf.kind, leaf.nullable) for leaf in manifest.schemas[schema]],
            "" if table is None else "".join(table.stored_path(schema, s) for s in self.sources),
            manifest.row_group_in_file[part].tolist(),
            manifest.row_group_num_rows[part].tolist(),
            "" if selection is None else selection.keep(is_within).digest().hex(),
        ]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _in_memory(parts: list[slice], writer: TokenWriter, reading: ReadOptions) -> list[Any]:
    found: list[Any] = []
    sink, most = pa.BufferOutputStream(), int(reading.max_memory) // 2

    def check(unfinished_bytes: int) -> None:
        num_bytes = sum(one.size for one in found) + sink.tell() + unfinished_bytes
        if num_bytes > most:
            raise ValueError(
                "the tokens must fit half of max_memory: give more, or a folder by "
                'Pack(token_cache="FOLDER"), which keeps them for later runs too; '
                f"max_memory={reading.max_memory}, {num_bytes} bytes of tokens so far"
            )

    for part in parts:
        sink = pa.BufferOutputStream()
        writer.write(part, sink, None, check)
        found.append(sink.getvalue())
    return found
