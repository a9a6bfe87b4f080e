"""`torchparquet rows`: the files, row groups and rows of a step, such as one of a loss spike."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore]
import torch
from numpy.typing import NDArray
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.claims import Claims
from torchparquet._impl.plan.elastic import Leg, plan_leg, steps_of_shares
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.plan.share import Share
from torchparquet._impl.rows.select_rows import RowArguments
from torchparquet._impl.sequences.delivered_rows import first_rows
from torchparquet._impl.session.assembly import Source
from torchparquet._impl.session.state import FORMAT, State, identity_of, other_data, stated
from torchparquet.cli.arguments import Data, number_option, report_command
from torchparquet.cli.screen import counted, show_table
from torchparquet.errors import one_line
from torchparquet.options import Order

_OF_ORDER = ("balance", "within_rank", "canonical_world_size")
_NONE = np.zeros(0, np.int64)
_SHOWN_ROWS = 20


def _show(console: Console, report: dict[str, Any]) -> None:
    ranks = counted(report["world_size"], "rank")
    console.print(f"epoch {report['epoch']}, step {report['step']}, {ranks}")
    for rank in report["ranks"]:
        who = f"rank {rank['rank']}"
        if report["num_workers"] > 1 and rank["worker"] is not None:
            who += f", worker {rank['worker']}"
        if not rank["rows"]:
            console.print(f"\n{who} has no such step")
            continue
        cells: list[list[object]] = []
        for part in rank["files"]:
            for group in part["row_groups"]:
                rows = group["rows"]
                shown = _ranges(rows)
                cells.append([part["path"], shown, group["row_group"], len(rows)])
        headings = ("file", "rows in the row group", "row group", "rows")
        show_table(console, f"\n{who}: {counted(rank['rows'], 'row')}", headings, cells, left=2)
        if "values" in rank:
            names = list(rank["values"])
            values = zip(rank["row_ids"], *rank["values"].values(), strict=True)
            listed = [[id_, *map(str, row)] for id_, *row in values]
            show_table(console, "", ("row.id", *names), listed[:_SHOWN_ROWS], left=0)
            if len(listed) > _SHOWN_ROWS:
                console.print(f"and {counted(len(listed) - _SHOWN_ROWS, 'more row')}, by --json")


def _ranges(rows: Sequence[int]) -> str:
    """Return row numbers as text, runs of them as their ends; some of them if they are many."""
    ordered = np.unique(np.array(rows, np.int64))
    runs = np.split(ordered, np.flatnonzero(np.diff(ordered) > 1) + 1)
    texts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    more = f" and {len(texts) - _SHOWN_ROWS:,} more runs" if len(texts) > _SHOWN_ROWS else ""
    return ", ".join(texts[:_SHOWN_ROWS]) + more


@report_command(_show)
@click.option(
    "--state",
    required=True,
    metavar="FILE",
    help="JSON of state_dict(), or a checkpoint of torch.save that has it, of this epoch.",
)
@number_option(
    "--step", least=0, required=True, help="Batch of each rank in the epoch, counted from 0."
)
@number_option(
    "--rank", "ranks", least=0, multiple=True, help="Rank; may be repeated. Default: all."
)
@click.option(
    *("--columns", "columns"),
    multiple=True,
    metavar="NAME",
    help="Print the values of this column too; may be repeated, and * stands for all.",
)
@click.option("--filter", "filters", metavar="SQL", help="The filters= of the data set.")
@click.option("--excluding", metavar="FILE", help="The rows=Excluding(FILE) of the data set.")
def command(
    data: Data,
    state: str,
    step: int,
    ranks: tuple[int, ...],
    filters: str | None,
    excluding: str | None,
) -> dict[str, Any]:
    """Show the rows of a step of any rank, by the plan of the epoch of a state.

    The state names the order and the ranks, so the state of one rank tells the rows of all. The
    command reads footers only, and with --columns the row groups of the step.
    """
    value = _read_state(state)
    there = stated(value)
    legs, before = _legs_at(there.legs, step)
    options = _options_of(there, value["order"])
    manifest = _manifest(data, value, filters, excluding)
    plan = plan_leg(
        manifest.row_group_num_rows,
        options,
        legs,
        row_group_bytes=_bytes_of_columns(manifest, value),
    )
    world_size, num_workers = legs[-1].world_size, legs[-1].num_workers
    is_dynamic = there.taken is not None
    for rank in ranks:
        if rank >= world_size:
            raise click.UsageError(f"--rank must be below {world_size}, the ranks of the state")
        if is_dynamic and rank != there.rank:
            raise click.UsageError(
                f'the state has even="dynamic", and so tells of rank {there.rank} alone'
            )
    # A world that changed within a batch has delivered only its first rows.
    cut = (
        legs[-1].num_rows
        if len(legs) < len(there.legs) and step - before == legs[-1].num_steps
        else 0
    )
    reports = []
    for rank in ranks or ((there.rank,) if is_dynamic else range(world_size)):
        worker, shares = _shares_at(plan, there, rank, step - before)
        parts = [first_rows(share, share.rows_of_first(1)) for share in shares]
        groups, rows = (np.concatenate([_NONE, *of])[: cut or None] for of in _transposed(parts))
        report = {"rank": rank, "worker": worker, "rows": len(rows)}
        reports.append(report | _located(manifest, groups, rows, data.columns))
    if not any(report["rows"] for report in reports):
        raise ValueError(f"epoch {there.epoch} of the state has no step {step} on these ranks")
    return {
        "epoch": there.epoch,
        "step": step,
        "world_size": world_size,
        "num_workers": num_workers,
        "batch_size": legs[-1].batch_size,
        "ranks": reports,
    }


def _read_state(path: str) -> dict[str, Any]:
    """Return the one state in a file, at whatever depth."""
    content = Path(path).read_bytes()
    if content.lstrip()[:1] in (b"{", b"["):
        try:
            loaded = json.loads(content)
        except ValueError as error:
            raise ValueError(f"the file is damaged JSON ({one_line(error)}): {path!r}") from None
    else:
        # Classes that a checkpoint has would run code as they are loaded.
        try:
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        except (EOFError, RuntimeError, pickle.UnpicklingError):
            raise ValueError(
                "the file is neither JSON nor a checkpoint that torch.load reads with "
                f"weights_only=True: write the state to a file of its own, by json.dump: {path!r}"
            ) from None
    found = list(_states_in(loaded))
    if len({json.dumps(_without_progress(state), sort_keys=True) for state in found}) == 1:
        return found[0]
    if found:
        raise ValueError(
            f"the file must hold one state, and holds {len(found)}: write the one that is meant to "
            "a file of its own, by json.dump. A mix has one for each of its data sets, whose "
            f"steps are counted by themselves: {path!r}"
        )
    raise ValueError(f"the file holds no state of a ParquetDataset: {path!r}")


def _without_progress(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the states of the workers of one loader have in common."""
    legs = state.get("legs")
    if state.get("worker") is None or not isinstance(legs, list) or not legs:
        return dict(state)
    return {**state, "worker": 0, "legs": [*legs[:-1], legs[-1][:3]]}


def _states_in(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, Mapping):
        if value.get("format") == FORMAT:
            yield dict(value)
            return
        for inner in value.values():
            yield from _states_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _states_in(inner)


def _options_of(state: State, order: Mapping[str, Any]) -> PlanOptions:
    """Return the options by which a state's epoch was planned; legs have those of the worlds."""
    if "cost" in order:
        raise ValueError(
            "the state is of ByLength(cost=...), whose order also follows from lengths"
        )
    try:
        return PlanOptions(
            batch_size=None,
            epoch=state.epoch,
            shuffle_window=state.window[0],
            window_rows=state.window[1],
            order=Order(**{name: order[name] for name in _OF_ORDER}),
            **{name: order[name] for name in ("shuffle", "seed", "even", "drop_last")},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the state is damaged, give an earlier one ({one_line(error)})") from None


def _manifest(
    data: Data, value: Mapping[str, Any], filters: str | None, excluding: str | None
) -> Manifest:
    """Return the manifest of the data, which must be that of the state."""
    rows = RowArguments(filters=filters, excluding=excluding)
    source = Source(list(data.paths), rows, None, data.storage, None)
    manifest = source.open(with_sizes=value["order"]["balance"] == "bytes")
    differences = other_data(value, identity_of(manifest, (), PlanOptions(1), None))
    if differences:
        raise ValueError(
            f"the state is not of this data: {differences[0]}; give its rows too, by --filter or "
            "--excluding. The command does not take states of rows=, split=, sample=, unique=, "
            'shuffle="global", pack= and ByLength'
        )
    return manifest


def _bytes_of_columns(manifest: Manifest, value: Mapping[str, Any]) -> NDArray[np.int64] | None:
    """Return what balance="bytes" counts, which is of the columns that are read."""
    if value["order"]["balance"] != "bytes":
        return None
    names = value["columns"]["names"].split(", ")
    known = {leaf.path for leaf in manifest.schemas[0]}
    if not known.issuperset(names):
        raise ValueError(
            'balance="bytes" depends on the columns that are read, and the state names tensors of '
            f"others: {', '.join(sorted(set(names) - known))!r}"
        )
    return manifest.bytes_of_columns(names)


def _legs_at(legs: Sequence[Leg], step: int) -> tuple[tuple[Leg, ...], int]:
    """Return the worlds up to the one that has a step, and the batches before that one."""
    before = 0
    for number, leg in enumerate(legs[:-1]):
        if step < before + leg.begun_steps:
            return tuple(legs[: number + 1]), before
        before += leg.begun_steps
    return tuple(legs), before


def _shares_at(
    plan: EpochPlan | None, state: State, rank: int, step: int
) -> tuple[int | None, list[Share]]:
    """Return the worker of a rank that delivers a step, and what the batch is made of."""
    if plan is None:
        return None, []
    options = plan.options
    if state.taken is not None:
        share = plan.claimed(Claims(lambda: ((), iter(())), state.taken))
        begin, end = share.rows_of_first(step), share.rows_of_first(step + 1)
        part = share.chunks.rows(begin, end)
        of_step = replace(share, claims=None, order=part, dealt_rows=end - begin, batch_size=None)
        sizes = np.array([end - begin] if end > begin else [], np.int64)
        return None, [replace(of_step, batch_sizes=sizes)]
    begun, after = (steps_of_shares(plan, count) for count in (step, step + 1))
    for worker in range(options.num_workers):
        of_worker = [i for i in options.shares_of(rank, worker) if after[i] > begun[i]]
        if of_worker:
            parts = [plan.share(i).steps(int(begun[i]), int(after[i])) for i in of_worker]
            return worker, parts
    return None, []


def _transposed(parts: Sequence[tuple[Any, Any]]) -> list[list[Any]]:
    return [[part[side] for part in parts] for side in (0, 1)]


def _located(
    manifest: Manifest, groups: NDArray[np.int64], rows: NDArray[np.int64], columns: Sequence[str]
) -> dict[str, Any]:
    """Return where rows are stored, and their ids and values in the order of the batch."""
    stored = np.zeros(len(rows), np.int64)
    files: dict[int, list[dict[str, Any]]] = {}
    values: dict[str, list[Any]] = {}
    for group in np.unique(groups).tolist():
        at = np.flatnonzero(groups == group)
        stored[at] = manifest.stored_rows(group, rows[at])
        number = int(manifest.row_group_in_file[group])
        part = {"row_group": number, "rows": sorted(stored[at].tolist())}
        file = int(manifest.row_group_file[group])
        files.setdefault(file, []).append(part)
        if columns:
            for name, found in _values(manifest, file, number, stored[at], columns).items():
                column = values.setdefault(name, [None] * len(rows))
                for place, one in zip(at.tolist(), found, strict=True):
                    column[place] = one
    made: dict[str, Any] = {
        "row_ids": (manifest.row_group_first_row[groups] + stored).tolist(),
        "files": [{"path": manifest.files[file], "row_groups": files[file]} for file in files],
    }
    return made | ({"values": values} if columns else {})


def _values(
    manifest: Manifest, file: int, row_group: int, rows: NDArray[np.int64], columns: Sequence[str]
) -> dict[str, list[Any]]:
    """Return values of rows of a row group, by column, as JSON has them."""
    source = manifest.listing.source(manifest.files[file])
    with pq.ParquetFile(source) as opened:
        names = opened.schema_arrow.names if "*" in columns else list(columns)
        missing = [name for name in names if name not in opened.schema_arrow.names]
        if missing:
            raise ValueError(f"{manifest.files[file]!r} has no column {missing[0]!r}")
        table = opened.read_row_group(row_group, names).take(rows)
    return {name: [_plain(value) for value in table[name].to_pylist()] for name in names}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: what it has not becomes text."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
