"""Counts what rows become, such as packed sequences: by footers, or by one pass over lengths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.batches.fields import Field, lengths_of
from torchparquet._impl.files.cache_file import Codec, Pass, found_by_pass, row_values_by_pass
from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest, PackedRows, Unit
from torchparquet._impl.files.manifest_reading import footers_of
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.reader_arguments import pack_request
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.errors import ListLengthError

# The counts of a row group, in the order of `_COUNTS`; see `PackedRows`.
Counted: TypeAlias = tuple[int, int, int, int]
_COUNTS = ("num_units", "num_tokens", "num_places", "num_documents")


class RowGroupLengths(NamedTuple):
    """The lengths of the lists of a row group."""

    manifest: Manifest
    row_group: int
    lengths: NDArray[np.int64]

    def place_of(self, row: int) -> str:
        """Return in words where a row is stored."""
        return self.manifest.place_of(self.row_group, row)


@dataclass(frozen=True)
class LengthPass:
    """Reads the lengths of lists."""

    manifest: Manifest
    options: ReadOptions
    keys: FileKeys | None
    storage: StorageArguments
    known: NDArray[Any] | None = None  # the length of each row, of all row groups

    def count(
        self,
        fields: Sequence[Field],
        unit: Unit,
        rules: Sequence[Any],
        count: Callable[[RowGroupLengths], Counted],
        count_totals: Callable[[int, int], Counted] | None = None,
    ) -> PackedRows:
        """Return what the rows of each row group become, by `count_totals` if footers suffice."""
        told = json.dumps([unit, *rules, [field.sources for field in fields]])

        def counts(row_groups: slice) -> PackedRows:
            part = self._between(row_groups)
            manifest = part.manifest
            has_own_names = manifest.table is not None and bool(manifest.table.stored)
            found = np.zeros((len(_COUNTS), manifest.num_row_groups), np.int64)
            totals = np.full((manifest.num_row_groups, 2), -1)
            is_told = manifest.selection is None and self.keys is None and not has_own_names
            # Lists of several columns may differ in length and be as many in all.
            if count_totals is not None and is_told and len(fields) == len(fields[0].sources) == 1:
                threads = self.options.num_threads
                totals = _counted_lists(manifest, fields[0].sources[0], threads)
                for row_group in np.flatnonzero(totals[:, 0] >= 0).tolist():
                    found[:, row_group] = count_totals(*totals[row_group].tolist())
            for lengths in part._lengths(fields, totals[:, 0] < 0):
                found[:, lengths.row_group] = count(lengths)
            return PackedRows(unit, told, *found)

        def codec(row_groups: slice) -> Codec[PackedRows]:
            def made(parts: dict[str, Any]) -> PackedRows:
                rows = PackedRows(**parts)
                if len(rows.num_units) != row_groups.stop - row_groups.start:
                    raise ValueError("its parts do not belong together")
                return rows

            return Codec(vars, made)

        rows = found_by_pass(
            Pass([told], codec, counts, PackedRows.joined),
            "lengths",
            manifest=self.manifest,
            storage=self.storage,
            keys=self.keys,
        )
        if not rows.num_units.any():
            raise ValueError(
                f"all lists of {fields[0].name!r} are empty: {self.manifest.num_rows} rows"
            )
        return rows

    def lengths(self, field: Field) -> Iterator[RowGroupLengths]:
        """Read the lengths of a column's lists, row group after row group."""
        return self._lengths([field], self.manifest.row_group_num_rows > 0)

    def of_rows(self, field: Field) -> NDArray[Any]:
        """Return the length of each row's list, in unsigned integers of few bytes, `[N]`."""

        def read(row_groups: slice) -> NDArray[Any]:
            part = self._between(row_groups)
            num_rows = part.manifest.row_group_num_rows
            first = np.cumsum(num_rows) - num_rows
            found = np.zeros(part.manifest.num_rows, np.uint32)
            for row_group in part.lengths(field):
                begin = first[row_group.row_group]
                found[begin : begin + len(row_group.lengths)] = row_group.lengths
            return found.astype(np.min_scalar_type(int(found.max())))

        return row_values_by_pass(
            "lengths",
            [json.dumps(["row", field.sources])],
            read,
            manifest=self.manifest,
            storage=self.storage,
            keys=self.keys,
        )

    def _between(self, row_groups: slice) -> LengthPass:
        """Return the pass over consecutive row groups."""
        begin, end = (
            int(self.manifest.row_group_num_rows[:at].sum())
            for at in (row_groups.start, row_groups.stop)
        )
        known = None if self.known is None else self.known[begin:end]
        return replace(self, manifest=self.manifest.between(row_groups), known=known)

    def _lengths(
        self, fields: Sequence[Field], wanted: NDArray[np.bool_]
    ) -> Iterator[RowGroupLengths]:
        """Read levels, and no values, of the wanted row groups that have rows."""
        manifest = self.manifest
        num_rows = np.where(wanted, manifest.row_group_num_rows, 0)
        if not num_rows.any():
            return
        if self.known is not None:
            ends = np.cumsum(manifest.row_group_num_rows)
            for row_group in np.flatnonzero(num_rows).tolist():
                lengths = self.known[ends[row_group] - num_rows[row_group] : ends[row_group]]
                yield RowGroupLengths(manifest, row_group, lengths.astype(np.int64))
            return
        read = tuple(map(lengths_of, fields))
        streams = StreamOpener(manifest, read, self.options, keys=self.keys)
        first = fields[0].name
        with closing(streams.read_row_groups(num_rows)) as read_row_groups:
            for row_group, batch in read_row_groups:
                found = RowGroupLengths(manifest, row_group, batch[first].numpy())
                for name, lengths in batch.items():
                    differing = np.flatnonzero(found.lengths != lengths.numpy())
                    if len(differing):
                        row = int(differing[0])
                        raise ListLengthError(
                            "columns that are packed in step must have lists of one length in each "
                            f"row: {found.place_of(row)}: {first!r} has {found.lengths[row]}, "
                            f"{name!r} has {lengths[row]}"
                        )
                yield found


def pack_rows(length_pass: LengthPass, fields: Sequence[Field]) -> Manifest:
    """Return the manifest of the sequences that the lists of packed fields become."""
    first = fields[0]
    pack, length, request = first.pack, first.length, pack_request(first)
    assert pack is not None and length is not None and request is not None  # noqa: PT018, S101
    has_separator = pack.separator is not None

    def counted(num_sequences: int, num_items: int, num_documents: int) -> Counted:
        num_tokens = num_items + has_separator * num_documents
        return num_sequences, num_tokens, num_sequences * length, num_documents

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        num_sequences = request.num_sequences(lengths)
        return counted(num_sequences, int(lengths.sum()), int(np.count_nonzero(lengths)))

    def count_totals(num_items: int, num_documents: int) -> Counted:
        num_tokens = num_items + has_separator * num_documents
        return counted(-(-num_tokens // length), num_items, num_documents)

    window = pack.window if pack.strategy == "best_fit" else None
    rules: list[object] = [length, pack.strategy, has_separator, window]
    is_padded = pack.pad_documents_to > 1
    rules += [pack.pad_documents_to] if is_padded else []
    by_footers = count_totals if pack.strategy == "concat" and not is_padded else None
    found = length_pass.count(fields, "sequence", rules, count, by_footers)
    return length_pass.manifest.pack(found)


def _counted_lists(manifest: Manifest, column: str, num_threads: int | None) -> NDArray[np.int64]:
    """Return the items of a column's lists, and the lists that have some, as far as footers say."""
    counts = np.full((manifest.num_row_groups, 2), -1)
    files, listing = np.unique(manifest.row_group_file), manifest.listing
    if len(files) < len(listing.paths) and not listing.footers:
        # Those of other files are of other parts of the pass.
        listing = listing.pick(files.tolist())
    else:
        files = np.arange(len(listing.paths))
    footers = footers_of(listing, num_threads, with_contents=True)
    unchanged = footers.file_digest == manifest.file_digest[files]
    for file in np.flatnonzero(unchanged).tolist():
        paths = [leaf.path for leaf in footers.schemas[footers.file_schema[file]]]
        if column not in paths:
            continue
        of_file = footers.list_counts(file, paths.index(column))
        if len(of_file) == footers.file_num_row_groups[file] > 0:
            row_groups = np.flatnonzero(manifest.row_group_file == files[file])
            counts[row_groups] = of_file[manifest.row_group_in_file[row_groups]]
    # A footer that wrongly says so would lose the row group, as nothing of it is read.
    counts[counts[:, 0] <= 0] = -1
    return counts
