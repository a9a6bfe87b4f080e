"""`torchparquet verify`: decode everything, and check that every row is dealt exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
from rich.console import Console

from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import manifest_of
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.files.schemas import Schemas
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import WindowMemory
from torchparquet._impl.rows.exclusions import write_exclusions
from torchparquet.audit import SeenRows, audit_rows, row_ids_of
from torchparquet.cli.arguments import (
    Data,
    dataset_options,
    num_threads_option,
    number_option,
    report_command,
)
from torchparquet.cli.columns import tensor_of
from torchparquet.cli.preparing.cluster import cluster_of, ray_option
from torchparquet.cli.preparing.footer_facts import (
    ColumnFacts,
    null_count,
    page_headers,
    read_footer,
)
from torchparquet.cli.screen import Advance, counted, plain, progress, several
from torchparquet.dataset import ParquetDataset
from torchparquet.errors import (
    CorruptFileError,
    EncryptedFileError,
    SchemaMismatchError,
    UnsupportedColumnError,
    one_line,
)

_BATCH_ROWS = 8192
_BATCHES_IN_MEMORY = 8
_NO_TENSORS = "no column can be read as a tensor, so no rank reads rows"

Failure = dict[str, Any]


def _show(console: Console, report: dict[str, Any]) -> None:
    if report["decoded"]:
        nouns = {"files": "file", "row_groups": "row group", "rows": "row", "columns": "column"}
        counts = ", ".join(counted(report[name], noun) for name, noun in nouns.items())
        console.print(f"{counts} decoded")
        pages = counted(report["pages"], "page")
        console.print(f"{report['pages_with_checksum']:,} of {pages} have a checksum")
        if report["columns_by_pyarrow"]:
            names = ", ".join(report["columns_by_pyarrow"])
            console.print(f"decoded by pyarrow, since no tensor can hold them: {plain(names)}")
    if report["files_without_rows"]:
        console.print(f"{counted(len(report['files_without_rows']), 'file')} without rows")
    for failure in report["failures"]:
        where = [plain(failure["path"])]
        if failure["row_group"] is not None:
            where.append(f"row group {failure['row_group']}")
        if failure["column"] is not None:
            where.append(f"column {plain(failure['column'])}")
        console.print(f"[red]FAIL[/]  {', '.join(where)}: {plain(failure['error'])}")
    if report["audits_left_out"]:
        console.print(report["audits_left_out"])
    for audit in report["audits"]:
        _show_audit(console, audit)
    failed = len(report["failures"]) + sum(len(audit["faults"]) for audit in report["audits"])
    found = ["every value decodes"] if report["decoded"] else []
    found += ["every row is read as planned"] if report["audits"] else []
    console.print(
        f"[bold red]Verification failed: {counted(failed, 'fault')}.[/]"
        if failed
        else f"[bold green]Verified: {' and '.join(found) or 'nothing was checked'}.[/]"
    )


def _show_audit(console: Console, audit: dict[str, Any]) -> None:
    who = counted(audit["world_size"], "rank")
    if audit["num_workers"] > 1:
        who += f" of {audit['num_workers']} workers"
    for fault in audit["faults"]:
        console.print(f"[red]FAIL[/]  {who}, epoch {audit['epoch']}: {fault}")
    if audit["faults"]:
        return
    steps = f"{audit['most_steps']:,}"
    if audit["least_steps"] != audit["most_steps"]:
        steps = f"{audit['least_steps']:,} to {steps}"
    units = several(audit["unit"])
    told = f"{audit['num_distinct']:,} of {audit['num_rows']:,} {units} exactly once"
    if audit["num_tokens"] is not None:
        told += f" ({counted(audit['num_tokens'], 'token')} in all)"
    if audit["planned_repeats"]:
        told += f", {counted(audit['planned_repeats'], 'planned repeat')}"
    if audit["planned_left_out"]:
        told += f", {audit['planned_left_out']:,} left out by plan"
    console.print(f"[green]ok[/]    {who}, epoch {audit['epoch']}: {told}; {steps} steps each")


@report_command(_show)
@number_option(
    *("--world-size", "world_sizes"), default=(1,), multiple=True, help="Ranks; may be repeated."
)
@dataset_options
@num_threads_option
@click.option("--no-decode", is_flag=True, help="Check only which rows each rank reads.")
@click.option("--no-audit", is_flag=True, help="Only decode.")
@click.option(
    "--exclusions",
    metavar="FILE",
    help="Write what cannot be read to a JSON file, for rows=Excluding(FILE).",
)
@ray_option
def command(
    data: Data,
    world_sizes: tuple[int, ...],
    num_workers: int,
    num_threads: int | None,
    no_decode: bool,
    no_audit: bool,
    exclusions: str | None,
    ray: str | None,
    **order: Any,
) -> dict[str, Any]:
    """Decode everything, and audit that rows are read once.

    The command compares page checksums, the rows of every column, and the nulls that footers count.
    It names each failure by file, row group and column, and goes on with the rest. Then the native
    reader deals an epoch among the ranks and workers of each --world-size, and the command counts
    the rows that each gets. Exit code 1 if anything is wrong.
    """
    if exclusions is not None and no_decode:
        raise click.UsageError("--exclusions does not go with --no-decode, which finds nothing")
    if exclusions is not None and not Path(exclusions).absolute().parent.is_dir():
        raise FileNotFoundError(f"no directory for --exclusions: {exclusions!r}")
    cluster = None if no_decode else cluster_of(ray, order["max_memory"], num_threads)
    if cluster is not None:
        num_threads = cluster.task_threads
    options = ReadOptions(num_threads, order["max_memory"], pin_memory=False)
    with progress("footers", None) as advance:
        found = find_files(list(data.paths), data.storage, empty_files=True)
        manifests, without_rows, failures = _open_files(found, advance)
    unreadable = list(failures)
    num_rows = sum(manifest.num_rows for manifest in manifests)
    report: dict[str, Any] = {
        "files": len(manifests) + len(without_rows) + len(failures),
        "files_without_rows": without_rows,
        "row_groups": sum(manifest.num_row_groups for manifest in manifests),
        "rows": 0,
        "columns": 0,
        "columns_by_pyarrow": [],
        "pages": 0,
        "pages_with_checksum": 0,
        "failures": failures,
        "decoded": not no_decode,
        "audits": [],
        "audits_left_out": None,
    }
    # First, so that wrong options fail before everything is decoded.
    if manifests and not no_audit:
        first = manifests[0].files[0]
        try:
            with progress("dealing", num_rows * len(world_sizes)) as advance:
                for world_size in world_sizes:
                    dataset = _same_files(data, manifests).dataset(world_size, **order)
                    plan = dataset.plan(order["epoch"], num_workers)
                    audit = _audit_world(dataset, plan, options, advance)
                    report["audits"].append(audit)
        except SchemaMismatchError as error:
            # Files that disagree are no data set.
            failures.append(_failure(first, error))
        except UnsupportedColumnError as error:
            if data.columns or order["pack"]:
                raise
            leaves = ((leaf, one) for one in manifests for leaf in one.schemas[0])
            if any(tensor_of(leaf.path, one)[1] is not None for leaf, one in leaves):
                text = f"files have no columns in common: {one_line(error)}"
                failures.append(_failure(first, text))
            else:
                report["audits_left_out"] = _NO_TENSORS
    decoded = () if no_decode else manifests
    with progress("decoding", num_rows) as advance:
        results: Iterable[dict[str, Any]]
        if cluster is None:
            results = (_decoded(one, options, advance) for one in decoded)
        else:
            given, sizes = [(one, options) for one in decoded], [one.num_rows for one in decoded]
            results = cluster.each(_decoded, given, sizes, advance)
        for found_in_file in results:
            _add(report, found_in_file)
            unreadable += found_in_file["failures"]
    if exclusions is not None:
        write_exclusions(exclusions, found, _places_of(unreadable))
    report["holds"] = not failures and not any(audit["faults"] for audit in report["audits"])
    return report


def _failure(
    path: str, error: object, row_group: int | None = None, column: str | None = None
) -> Failure:
    """Return a fault of a file as JSON values; the row group is counted within the file."""
    text = one_line(error) if isinstance(error, Exception) else error
    return {"path": path, "row_group": row_group, "column": column, "error": text}


def _places_of(failures: Sequence[Failure]) -> dict[str, set[int] | None]:
    """Return the row groups of each file that failed; None if all of it did."""
    places: dict[str, set[int] | None] = {}
    for failure in failures:
        groups, group = places.setdefault(failure["path"], set()), failure["row_group"]
        if group is None or groups is None:
            places[failure["path"]] = None
        else:
            groups.add(group)
    return places


def _open_files(
    found: Listing, advance: Advance
) -> tuple[list[Manifest], list[str], list[Failure]]:
    """Read the footer of each file by itself."""
    manifests, without_rows, failures = [], [], []
    for number, path in enumerate(found.paths):
        try:
            manifests.append(manifest_of(found.pick([number])))
        except OSError as error:
            failures.append(_failure(path, error))
        except ValueError:
            # The manifest refuses a sound file without rows.
            without_rows.append(path)
        advance(1)
    return manifests, without_rows, failures


def _same_files(data: Data, manifests: Sequence[Manifest]) -> Data:
    """Return the files of manifests as arguments."""
    store = manifests[0].listing.store
    if store is None:
        return Data([manifest.files[0] for manifest in manifests], NO_STORAGE, data.columns)
    names = [manifest.listing.names[0] for manifest in manifests]
    return Data(names, StorageArguments(filesystem=store.filesystem), data.columns)


def _audit_world(
    dataset: ParquetDataset, plan: EpochPlan, options: ReadOptions, advance: Advance
) -> dict[str, Any]:
    """Let the native reader deal rows to every rank and worker, without values, and audit them."""
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
        "num_tokens": int(packed.num_tokens.sum()) if packed and packed.num_places.any() else None,
        "least_steps": min(steps),
        "most_steps": max(steps),
        "faults": faults + audit["faults"],
    }


def _decoded(
    manifest: Manifest, options: ReadOptions, advance: Advance = lambda _: None
) -> dict[str, Any]:
    """Decode a file, and return what is found by the names of the report."""
    try:
        return _FileDecoder(manifest, options).check(advance)
    except (CorruptFileError, EncryptedFileError) as error:
        advance(manifest.num_rows)
        return {"failures": [_failure(manifest.files[0], error)]}


def _add(report: dict[str, Any], found: dict[str, Any]) -> None:
    """Add what was found in a file."""
    for name, value in found.items():
        if name == "columns":
            report[name] = max(report[name], value)
        elif name == "columns_by_pyarrow":
            report[name] = list(dict.fromkeys([*report[name], *value]))
        else:
            report[name] += value


class _FileDecoder:
    """Decodes one file as a whole, or piece by piece if that fails; columns are numbers."""

    def __init__(self, manifest: Manifest, options: ReadOptions) -> None:
        """Read the footer."""
        (self._path,) = manifest.files
        self._manifest, self._options = manifest, options
        metadata = read_footer(self._path, manifest.listing)
        self._groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        self._leaves = manifest.schemas[int(manifest.file_schema[0])]
        # Numbers are names too: a column "a.valid" would collide with the mask of "a".
        schemas = Schemas(manifest)
        made = [tensor_of(leaf.path, schemas)[1] for leaf in self._leaves]
        self._fields = {at: replace(of, name=str(at)) for at, of in enumerate(made) if of}
        self._others = [at for at, of in enumerate(made) if not of]

    def check(self, advance: Advance) -> dict[str, Any]:
        """Decode everything, and return what is found by the names of the report."""
        manifest = self._manifest
        left = manifest.num_rows

        def forward(rows: int) -> None:
            nonlocal left
            left -= rows
            advance(rows)

        failures = self._failures(list(self._fields), range(manifest.num_row_groups), forward)
        advance(left)
        failures += self._failures_by_pyarrow()
        pages = ColumnFacts()
        try:
            with manifest.listing.open(self._path) as file:
                for number, group in enumerate(self._groups):
                    where = f"{self._path!r}, row group {number}"
                    for headers in page_headers(file, where, group, self._leaves):
                        pages.add_pages(headers)
        except OSError as error:
            failures = failures or [_failure(self._path, error)]
        return {
            "failures": failures,
            "rows": manifest.num_rows,
            "columns": len(self._leaves),
            "columns_by_pyarrow": [self._leaves[index].path for index in self._others],
            "pages": pages.num_pages,
            "pages_with_checksum": pages.num_checksums,
        }

    def _failures(
        self, columns: Sequence[int], groups: Sequence[int], advance: Advance = lambda _: None
    ) -> list[Failure]:
        """Decode columns of row groups; what fails is decoded piece by piece, to name its place."""
        try:
            faults = list(self._faults(columns, groups, advance))
        except Exception as error:  # whatever fails, its row group names it
            path = self._leaves[columns[0]].path if len(columns) == 1 else None
            faults = [(path, one_line(error))]
        if not faults:
            return []
        if len(groups) > 1:
            parts = [self._failures(columns, [group]) for group in groups]
        else:
            parts = [self._failures([column], groups) for column in columns if len(columns) > 1]
        at = int(self._manifest.row_group_in_file[groups[0]]) if len(groups) == 1 else None
        # A fault that no part shows alone concerns the whole.
        return [failure for part in parts for failure in part] or [
            _failure(self._path, text, at, column) for column, text in faults
        ]

    def _faults(
        self, columns: Sequence[int], groups: Sequence[int], advance: Advance
    ) -> Iterator[tuple[str | None, str]]:
        """Decode columns of row groups; yield each contradiction to the footer with its column."""
        kept = np.isin(np.arange(self._manifest.num_row_groups), groups)
        manifest = self._manifest.keep(kept)
        if manifest.num_rows == 0 or not columns:
            return
        fields = tuple(self._fields[column] for column in columns)
        memory = self._options.memory_per_worker(1)
        of_row = WindowMemory(fields, _BATCH_ROWS, memory)
        fitting = int(memory / _BATCHES_IN_MEMORY / of_row.bytes_per_row)
        plan_options = PlanOptions(max(1, min(_BATCH_ROWS, fitting)))
        source = StreamOpener(manifest, fields, self._options)
        read = np.zeros((len(columns), 2), np.int64)  # rows and nulls
        for batch in source.read_once(EpochPlan(manifest.row_group_num_rows, plan_options)):
            for at, field in enumerate(fields):
                num_rows = len(batch[field.name])
                read[at] += num_rows, num_rows - int(batch[f"{field.name}.valid"].sum())
            advance(num_rows)
        stored = [self._groups[at] for at in self._manifest.row_group_in_file[kept].tolist()]
        for column, (rows, nulls) in zip(columns, read.tolist(), strict=True):
            leaf = self._leaves[column]
            known = [null_count(group.column(column)) for group in stored]
            claims = [(manifest.num_rows, rows, "rows")]
            # Footers count an empty list as a null too.
            if None not in known and not leaf.num_lists:
                claims.append((sum(count or 0 for count in known), nulls, "nulls"))
            for claimed, own, what in claims:
                if claimed != own:
                    yield leaf.path, f"the footer claims {claimed} {what}, {own} were read"

    def _failures_by_pyarrow(self) -> Iterator[Failure]:
        for index, (number, group) in product(self._others, enumerate(self._groups)):
            source = self._manifest.listing.source(self._path)
            options = {"pre_buffer": False, "page_checksum_verification": True}
            try:
                with pq.ParquetFile(source, **options) as file:
                    stored = [group.column(index).path_in_schema]
                    batches = file.iter_batches(_BATCH_ROWS, [number], stored)
                    rows = sum(batch.num_rows for batch in batches)
                if rows != group.num_rows:
                    raise ValueError(f"the footer claims {group.num_rows} rows, {rows} were read")
            except Exception as error:
                text = f"by pyarrow: {one_line(error)}"
                yield _failure(self._path, text, number, self._leaves[index].path)
