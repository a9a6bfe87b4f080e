"""`torchparquet verify`: decode everything, and check that every row is dealt exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import walk_footers
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.schemas import Schemas
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import window_memory
from torchparquet.audit import SeenRows, audit_rows, row_ids_of
from torchparquet.dataset import ParquetDataset
from torchparquet.errors import CorruptFileError, EncryptedFileError, one_line
from torchparquet.tools.footers import PageFacts, chunk_places, null_count, read_footer
from torchparquet.tools.tensors import tensor_of

_BATCH_ROWS = 8192
_BATCHES_IN_MEMORY = 8

Advance = Callable[[int], None]


Failure = dict[str, Any]


def failure_of(
    path: str, error: object, row_group: int | None = None, column: str | None = None
) -> Failure:
    """Return one fault of a file as JSON values; the row group is counted within the file."""
    return {
        "path": path,
        "row_group": row_group,
        "column": column,
        "error": one_line(error) if isinstance(error, Exception) else error,
    }


@dataclass
class Findings:
    """What was found in all files."""

    rows: int = 0
    columns: int = 0
    columns_by_pyarrow: list[str] = field(default_factory=list)
    pages: int = 0
    pages_with_checksum: int = 0
    failures: list[Failure] = field(default_factory=list)


def open_files(
    paths: Sequence[str], advance: Advance, storage: StorageArguments
) -> tuple[list[Manifest], list[str], list[Failure]]:
    """Read the footer of each file by itself."""
    manifests, without_rows, failures = [], [], []
    found = find_files(list(paths), storage, empty_files=True)
    for number, path in enumerate(found.paths):
        try:
            manifests.append(walk_footers(found.only(number))[0])
        except OSError as error:
            failures.append(failure_of(path, error))
        except ValueError:
            # The manifest refuses a sound file without rows.
            without_rows.append(path)
        advance(1)
    return manifests, without_rows, failures


def paths_of(manifests: Sequence[Manifest]) -> tuple[list[str], StorageArguments]:
    """Return the paths that lead to the files of manifests again, and how to reach their store."""
    store = manifests[0].listing.store
    if store is None:
        return [manifest.files[0] for manifest in manifests], NO_STORAGE
    names = [manifest.listing.names[0] for manifest in manifests]
    return names, StorageArguments(filesystem=store.filesystem)


def verify_file(
    manifest: Manifest, options: ReadOptions, found: Findings, advance: Advance
) -> None:
    """Decode everything in one file, and add what is found."""
    try:
        _FileDecoder(manifest, options).check(found, advance)
    except (CorruptFileError, EncryptedFileError) as error:
        advance(manifest.num_rows)
        found.failures.append(failure_of(manifest.files[0], error))


@dataclass(frozen=True)
class _Column:
    """A column as the stream delivers it; `nulls` is what the footer says of each row group."""

    path: str
    field: Field
    nulls: tuple[int | None, ...]


class _FileDecoder:
    """Decodes one file as a whole, or piece by piece if that fails."""

    def __init__(self, manifest: Manifest, options: ReadOptions) -> None:
        """Read the footer."""
        (self._path,) = manifest.files
        self._manifest = manifest
        self._options = options
        self._metadata = read_footer(self._path, manifest.listing)
        self._leaves = manifest.schemas[int(manifest.file_schema[0])]
        self._columns: list[_Column] = []
        self._others: list[int] = []
        schemas = Schemas(manifest)
        for index, leaf in enumerate(self._leaves):
            _, made = tensor_of(leaf.path, schemas)
            if made is None:
                self._others.append(index)
                continue
            # Numbers stand for names: a column "a.valid" would collide with the mask of "a".
            made = replace(made, name=str(index))
            # Footers count an empty list as a null too.
            nulls = tuple(
                None if leaf.num_lists else null_count(self._metadata.row_group(at).column(index))
                for at in range(self._metadata.num_row_groups)
            )
            self._columns.append(_Column(leaf.path, made, nulls))

    def check(self, found: Findings, advance: Advance) -> None:
        """Decode everything, and add what is found."""
        left = self._manifest.num_rows

        def forward(rows: int) -> None:
            nonlocal left
            left -= rows
            advance(rows)

        failures = self._failures(self._columns, range(self._manifest.num_row_groups), forward)
        advance(left)
        for index in self._others:
            failures += self._check_by_pyarrow(index)
        pages = PageFacts()
        try:
            with self._manifest.listing.open(self._path) as file:
                for group in range(self._metadata.num_row_groups):
                    for place in chunk_places(self._path, self._metadata, group, self._leaves):
                        pages.add(place, file)
        except OSError as error:
            failures = failures or [failure_of(self._path, error)]
        found.failures += failures
        found.rows += self._manifest.num_rows
        found.columns = max(found.columns, len(self._leaves))
        others = [self._leaves[index].path for index in self._others]
        found.columns_by_pyarrow = list(dict.fromkeys([*found.columns_by_pyarrow, *others]))
        found.pages += pages.num_pages
        found.pages_with_checksum += pages.num_checksums

    def _failures(
        self, columns: Sequence[_Column], groups: Sequence[int], advance: Advance = lambda _: None
    ) -> list[Failure]:
        """Decode columns of row groups; what fails is decoded piece by piece, to name its place."""
        try:
            faults = self._faults(columns, groups, advance)
        except Exception as error:  # whatever fails, its row group names it
            faults = [(columns[0].path if len(columns) == 1 else None, one_line(error))]
        if not faults:
            return []
        if len(groups) > 1:
            parts = [self._failures(columns, [group]) for group in groups]
        else:
            parts = [self._failures([column], groups) for column in columns if len(columns) > 1]
        at = int(self._manifest.row_group_in_file[groups[0]]) if len(groups) == 1 else None
        # A fault that no part shows alone concerns the whole.
        return [failure for part in parts for failure in part] or [
            failure_of(self._path, text, at, column) for column, text in faults
        ]

    def _faults(
        self, columns: Sequence[_Column], groups: Sequence[int], advance: Advance = lambda _: None
    ) -> list[tuple[str | None, str]]:
        """Decode columns of row groups; return each contradiction to the footer with its column."""
        kept = np.zeros(self._manifest.num_row_groups, bool)
        kept[list(groups)] = True
        manifest = self._manifest.keep(kept)
        if manifest.num_rows == 0 or not columns:
            return []
        rows = {column.field.name: 0 for column in columns}
        nulls = dict(rows)
        for batch in self._batches(manifest, columns):
            for name in rows:
                num_rows = len(batch[name])
                rows[name] += num_rows
                nulls[name] += num_rows - int(batch[f"{name}.valid"].sum())
            advance(num_rows)
        faults: list[tuple[str | None, str]] = []
        for column in columns:
            known = [column.nulls[int(self._manifest.row_group_in_file[group])] for group in groups]
            claims = [(manifest.num_rows, rows[column.field.name], "rows")]
            if None not in known:
                expected = sum(count for count in known if count is not None)
                claims.append((expected, nulls[column.field.name], "nulls"))
            faults += [
                (column.path, f"the footer claims {claimed} {what}, {read} were read")
                for claimed, read, what in claims
                if claimed != read
            ]
        return faults

    def _batches(self, manifest: Manifest, columns: Sequence[_Column]) -> Iterator[dict[str, Any]]:
        fields = tuple(column.field for column in columns)
        memory = self._options.memory_per_worker(1)
        of_row = window_memory(fields, _BATCH_ROWS, memory, row_ids=False, row_valid=False)
        fitting = int(memory / _BATCHES_IN_MEMORY / of_row.bytes_per_row)
        options = PlanOptions(max(1, min(_BATCH_ROWS, fitting)))
        source = StreamOpener(manifest, fields, self._options, False, False)
        yield from source.read_once(EpochPlan(manifest.row_group_num_rows, options))

    def _check_by_pyarrow(self, index: int) -> Iterator[Failure]:
        for group in range(self._metadata.num_row_groups):
            claimed = self._metadata.row_group(group)
            stored = claimed.column(index).path_in_schema
            source = self._manifest.listing.source(self._path)
            options = {"pre_buffer": False, "page_checksum_verification": True}
            try:
                with pq.ParquetFile(source, **options) as file:
                    batches = file.iter_batches(_BATCH_ROWS, [group], [stored])
                    rows = sum(batch.num_rows for batch in batches)
                if rows != claimed.num_rows:
                    raise ValueError(f"the footer claims {claimed.num_rows} rows, {rows} were read")
            except Exception as error:
                column = self._leaves[index].path
                yield failure_of(self._path, f"by pyarrow: {one_line(error)}", group, column)


def audit_world(
    dataset: ParquetDataset, plan: EpochPlan, options: ReadOptions, advance: Advance
) -> dict[str, Any]:
    """Read the row ids of every rank and worker, one after another, and audit them.

    The native reader deals and permutes rows as in training, but decodes no values.
    """
    of, packed = plan.options, dataset.manifest.packed
    source = StreamOpener(dataset.manifest, (), options, True, of.even == "pad")
    faults, runs, steps = [], [], []
    for rank in range(of.world_size):
        seen, batches = SeenRows(), 0
        for worker in range(of.num_workers):
            shares = [plan.share(index) for index in of.shares_of(rank, worker)]
            planned, own = max(share.num_steps for share in shares), 0
            with closing(source.open(shares, 1)) if planned else nullcontext(()) as stream:
                for batch in stream:
                    seen.add_batch(batch)
                    own += 1
                    advance(len(batch["row.id"]))
            if own != planned:
                reader = f"rank {rank}, worker {worker}"
                faults.append(f"{reader}: {own:,} batches were delivered, {planned:,} planned")
            batches += own
        steps.append(batches)
        runs.append(seen.runs())
    if not of.steps_may_differ and of.num_workers == 1 and len(set(steps)) > 1:
        faults.append(f"ranks take {min(steps):,} to {max(steps):,} steps")
    audit = audit_rows(plan, row_ids_of(dataset.manifest), runs)
    return {
        "world_size": of.world_size,
        "num_workers": of.num_workers,
        "even": of.even,
        "seed": of.seed,
        **audit,
        "unit": "row" if packed is None else packed.unit,
        "num_tokens": None if packed is None else int(packed.num_tokens.sum()),
        "least_steps": min(steps),
        "most_steps": max(steps),
        "faults": faults + audit["faults"],
    }
