"""Counts what rows become, such as packed sequences: by footers, or by one pass over lengths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchparquet._impl.batches.fields import Field, lengths_of
from torchparquet._impl.files.cache_file import Codec, found_by_pass
from torchparquet._impl.files.manifest import PackedRows, Unit
from torchparquet._impl.files.manifest_reading import footers_of
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.reader_arguments import pack_request
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.errors import ListLengthError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.remote.storage import StorageArguments
    from torchparquet._impl.native import Footers
    from torchparquet._impl.reading.read_options import ReadOptions

_COUNTS = ("num_units", "num_tokens", "num_places", "num_documents")


class Counted(NamedTuple):
    """The units that the rows of a row group become; see `PackedRows`."""

    num_units: int
    num_tokens: int
    num_places: int
    num_documents: int


@dataclass(frozen=True)
class LengthPass:
    """Reads the lengths of lists."""

    manifest: Manifest
    options: ReadOptions
    keys: FileKeys | None
    storage: StorageArguments

    def count(
        self,
        fields: Sequence[Field],
        unit: Unit,
        rules: Sequence[Any],
        count: Callable[[RowGroupLengths], Counted],
        count_totals: Callable[[int, int], Counted] | None = None,
    ) -> PackedRows:
        """Return what the rows of each row group become, by `count_totals` if footers suffice."""
        manifest = self.manifest
        told = json.dumps([unit, *rules, [field.sources for field in fields]])

        def counts() -> PackedRows:
            found = np.zeros((len(_COUNTS), manifest.num_row_groups), np.int64)
            totals = np.full((manifest.num_row_groups, 2), -1)
            if count_totals is not None and self._is_told_by_footers(fields):
                threads = self.options.num_threads
                totals = _counted_lists(manifest, fields[0].sources[0], threads)
                for row_group in np.flatnonzero(totals[:, 0] >= 0).tolist():
                    found[:, row_group] = count_totals(*totals[row_group].tolist())
            for lengths in self._lengths(fields, totals[:, 0] < 0):
                found[:, lengths.row_group] = count(lengths)
            return PackedRows(unit, told, *found)

        def made(parts: dict[str, Any]) -> PackedRows:
            rows = PackedRows(**parts)
            if len(rows.num_units) != manifest.num_row_groups:
                raise ValueError("its parts do not belong together")
            return rows

        rows: PackedRows = found_by_pass(
            Codec("lengths", vars, made),
            [told],
            counts,
            manifest=manifest,
            storage=self.storage,
            keys=self.keys,
        )
        if not rows.num_units.any():
            raise ValueError(f"all lists of {fields[0].name!r} are empty: {manifest.num_rows} rows")
        return rows

    def _is_told_by_footers(self, fields: Sequence[Field]) -> bool:
        """Return True if footers may count the lists that are read."""
        # Lists of several columns may differ in length and be as many in all.
        is_simple = len(fields) == 1 and len(fields[0].sources) == 1
        table = self.manifest.table
        has_own_names = table is None or not table.stored
        return is_simple and has_own_names and self.manifest.selection is None and self.keys is None

    def _lengths(
        self, fields: Sequence[Field], wanted: NDArray[np.bool_]
    ) -> Iterator[RowGroupLengths]:
        """Read levels, and no values, of the wanted row groups that have rows."""
        manifest = self.manifest
        num_rows = np.where(wanted, manifest.row_group_num_rows, 0)
        if not num_rows.any():
            return
        opener = StreamOpener(
            manifest,
            tuple(lengths_of(field) for field in fields),
            self.options,
            row_ids=False,
            row_valid=False,
            keys=self.keys,
        )
        plan = EpochPlan(num_rows, PlanOptions(batch_size=None))
        row_groups = np.flatnonzero(num_rows).tolist()
        with closing(opener.read_once(plan)) as batches:
            for row_group, lengths in zip(row_groups, batches, strict=True):
                batch = {name: of_lists.numpy() for name, of_lists in lengths.items()}
                _check_in_step(manifest, row_group, batch)
                yield RowGroupLengths(manifest, row_group, batch[fields[0].name])


class RowGroupLengths(NamedTuple):
    """The lengths of the lists of a row group."""

    manifest: Manifest
    row_group: int
    lengths: NDArray[np.int64]

    def place_of(self, row: int) -> str:
        """Return in words where a row is stored."""
        return _place(self.manifest, self.row_group, row)


def pack_rows(length_pass: LengthPass, fields: Sequence[Field]) -> Manifest:
    """Return the manifest of the sequences that the lists of packed fields become."""
    first = fields[0]
    pack, length, request = first.pack, first.length, pack_request(first)
    assert pack is not None and length is not None and request is not None  # noqa: PT018, S101
    has_separator = pack.separator is not None

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        num_documents = int(np.count_nonzero(lengths))
        num_sequences = request.num_sequences(lengths)
        num_tokens = int(lengths.sum()) + has_separator * num_documents
        return Counted(num_sequences, num_tokens, num_sequences * length, num_documents)

    def count_totals(num_items: int, num_documents: int) -> Counted:
        num_tokens = num_items + has_separator * num_documents
        num_sequences = -(-num_tokens // length)
        return Counted(num_sequences, num_tokens, num_sequences * length, num_documents)

    is_concat = pack.strategy == "concat"
    window = pack.window if pack.strategy == "best_fit" else None
    rules = [length, pack.strategy, has_separator, window]
    packed = length_pass.count(
        fields, "sequence", rules, count, count_totals if is_concat else None
    )
    return length_pass.manifest.pack(packed)


def _place(manifest: Manifest, row_group: int, row: int) -> str:
    stored = manifest.stored_rows(row_group, np.array([row]))[0]
    return (
        f"{manifest.files[manifest.row_group_file[row_group]]!r}, row group "
        f"{manifest.row_group_in_file[row_group]}, row {stored}"
    )


def _check_in_step(
    manifest: Manifest, row_group: int, lengths: dict[str, NDArray[np.int64]]
) -> None:
    """Raise if a row's lists differ in length."""
    first, *others = lengths
    for other in others:
        differing = np.flatnonzero(lengths[first] != lengths[other])
        if len(differing):
            row = int(differing[0])
            raise ListLengthError(
                "columns that are packed in step must have lists of one length in each row: "
                f"{_place(manifest, row_group, row)}: {first!r} has {lengths[first][row]}, "
                f"{other!r} has {lengths[other][row]}"
            )


def _counted_lists(manifest: Manifest, column: str, num_threads: int | None) -> NDArray[np.int64]:
    """Return the items of a column's lists, and the lists that have some."""
    footers = footers_of(manifest.listing, num_threads, with_contents=True)
    counts = np.full((manifest.num_row_groups, 2), -1)
    unchanged = footers.file_digest == manifest.file_digest
    for file in np.flatnonzero(unchanged).tolist():
        of_file = _counts_of_file(footers, file, column)
        row_groups = np.flatnonzero(manifest.row_group_file == file)
        if len(of_file):
            counts[row_groups] = of_file[manifest.row_group_in_file[row_groups]]
    # A footer that wrongly says so would lose the row group, as nothing of it is read.
    counts[counts[:, 0] <= 0] = -1
    return counts


def _counts_of_file(footers: Footers, file: int, column: str) -> NDArray[np.int64]:
    """Return the counts of all row groups of a file, or of none."""
    paths = [leaf.path for leaf in footers.schemas[footers.file_schema[file]]]
    none = np.zeros((0, 2), np.int64)
    if column not in paths:
        return none
    counts = footers.list_counts(file, paths.index(column))
    return counts if len(counts) == footers.file_num_row_groups[file] else none
