"""`torchparquet plan`: the part of an epoch that each rank reads, and how well rows are mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import ANY_CHUNKS, Int64Array
from torchparquet._impl.plan.share import Share
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.ranks.distribution import per_rank, prorated
from torchparquet._impl.sampling.global_streams import GlobalOpener
from torchparquet._impl.sequences.delivered_rows import first_windows
from torchparquet._impl.sequences.row_costs import costs_of_steps
from torchparquet.cli import arguments
from torchparquet.cli.arguments import Data
from torchparquet.cli.screen import Panel, counted, draw, several, show_table, size

_MAX_TABLE_RANKS = 32
_MAX_SAMPLED_ROWS = 4_000_000


def _show(console: Console, report: dict[str, Any]) -> None:
    packed, unit = report.get("packed"), _unit_of(report)
    console.print(
        f"{counted(report['files'], 'file')}, {counted(report['row_groups'], 'row group')}, "
        f"{counted(report['rows'], unit)}"
    )
    if packed is not None and packed["places"]:
        padding = 1 - packed["tokens"] / packed["places"]
        what, of = ("packed", "document") if unit == "sequence" else ("by length", "row")
        console.print(
            f"{what}: {counted(packed['documents'], of)}, "
            f"{counted(packed['tokens'], 'token')}, {padding:.2%} padding"
        )
    num_workers, all_ranks = report["num_workers"], report["ranks"]
    readers = f"{num_workers} workers each" if num_workers > 1 else "one reader each"
    ranks = counted(report["world_size"], "rank")
    window, window_rows = report["shuffle_window"], report["window_rows"]
    bound = [] if window == ANY_CHUNKS else [counted(window, "row group")]
    bound += [f"at most {window_rows:,} rows"] if window_rows else []
    windows = f"windows of {', '.join(bound)}" if window else "no shuffle windows"
    console.print(f"epoch {report['epoch']}, {ranks}, {readers}, {windows}\n")
    has_tokens = packed is not None and packed["places"]
    units, tokens = several(unit), ("tokens",) if has_tokens else ()
    rows: list[list[object]] = []
    for rank in all_ranks[:_MAX_TABLE_RANKS]:
        for worker in [None, *(rank["workers"] if num_workers > 1 else [])]:
            of = rank if worker is None else worker
            name = f"{rank['rank']}" + ("" if worker is None else f", worker {of['worker']}")
            counts = [of["row_groups"], of["rows"], size(of["bytes"]), of["steps"]]
            rows.append([name, *counts, *(of[count] for count in tokens)])
    headings = ("rank", "row groups", units, "size", "steps", *tokens)
    show_table(console, "What each rank reads", headings, rows)
    if len(all_ranks) > _MAX_TABLE_RANKS:
        more = len(all_ranks) - _MAX_TABLE_RANKS
        console.print(f"and {counted(more, 'more rank')}, which --json lists")
    if "decoded_bytes" in report:
        is_beside = report["first"] == "windows"
        when = "beside epoch 0, which is by windows" if is_beside else "before the first batch"
        console.print(
            "\nall rows are permuted together; decoded rows, kept by one pass "
            f"{when}: {size(report['decoded_bytes'])}"
        )
    mixing = report["mixing"]
    if mixing is None:
        return
    noun = "rows" if unit == "batch" else units
    console.print(
        f"\nmixing: a batch has {noun} of {mixing['row_groups_per_batch']:.1f} row groups; half "
        f"of the {units} move {mixing['rows_travelled']:,} places or more from the order of files; "
        f"the mean place of a batch strays {mixing['batch_drift']:.1f} times as far as that of "
        f"random {units} (first {mixing['rows_looked_at']:,} {units} of rank 0)"
    )
    if "costs" in report:
        costs = report["costs"]
        console.print(
            f"cost: the costliest of {counted(costs['shares'], 'share')} costs "
            f"{costs['median']:.3f} of the mean in the median step, and at most "
            f"{costs['p99']:.3f} in 99% of {counted(costs['steps'], 'step')}"
        )


def _unit_of(report: dict[str, Any]) -> str:
    """Return what a report counts as rows: "row", "sequence" or "batch"."""
    unit: str = report["packed"]["unit"] if "packed" in report else "row"
    return unit


@arguments.report_command(_show)
@arguments.world_size_option
@arguments.dataset_options
@arguments.plot_option
def command(
    data: Data, world_size: int, num_workers: int, plot: str | None, **order: Any
) -> dict[str, Any]:
    """Show the part of an epoch that each rank reads.

    The command also shows how well rows are mixed. It reads footers, and the columns that
    filters, samples, windows and lengths depend on. With --tokenizer it tokenises all texts.
    """
    first = order["global_first"]
    dataset = data.dataset(world_size, **order)
    manifest, plan = dataset.manifest, dataset.plan(order["epoch"], num_workers)
    options, packed = plan.options, manifest.packed
    chosen = ("epoch", "seed", "even", "batch_size", "world_size", "num_workers")
    report = {
        "files": len(manifest.files),
        "row_groups": manifest.num_row_groups,
        "rows": manifest.num_rows,
        "bytes": int(manifest.row_group_num_bytes.sum()),
        **{name: getattr(options, name) for name in (*chosen, "shuffle_window", "window_rows")},
        "ranks": _ranks(manifest, plan),
        "mixing": _mixing(plan.share(0), dataset._session.streams, manifest.row_group_num_rows),
    }
    if dataset.decoded_bytes is not None:
        report |= {"decoded_bytes": dataset.decoded_bytes, "first": first}
    if packed is not None:
        if packed.unit == "batch":
            report["batch_size"] = order["batch_size"] if order["unique"] else None
        if not packed.num_places.any() and dataset.decoded_bytes is None:
            report["mixing"] = None  # blocks are in their order, and mix rows by themselves
        report["packed"] = {
            "documents": int(packed.num_documents.sum()),
            "tokens": int(packed.num_tokens.sum()),
            "unit": packed.unit,
            "places": int(packed.num_places.sum()),
        }
    if plan.row_costs is not None:
        report["costs"] = _evenness(plan, plan.row_costs)
    if plot is not None:
        ranks, units = report["ranks"], several(_unit_of(report))
        panels = [
            Panel(units.capitalize(), "rank", [rank["rows"] for rank in ranks]),
            Panel("MiB", "rank", [rank["bytes"] / 2**20 for rank in ranks]),
            Panel("Steps", "rank", [rank["steps"] for rank in ranks]),
        ]
        draw(plot, f"Epoch {report['epoch']}: {report['rows']:,} {units}", panels)
    return report


def _mixing(share: Share, streams: object, row_group_rows: Int64Array) -> dict[str, Any]:
    """Measure the mixing of a share, on whole windows of a few million rows from its start."""
    if isinstance(streams, GlobalOpener):
        row_group_rows = streams.rows.manifest.row_group_num_rows
        first = share.steps(0, -(-_MAX_SAMPLED_ROWS // (share.batch_size or 1)))
        numbers = np.concatenate([np.zeros(0, np.int64), *(n for _, n in streams.blocks([first]))])
        row_group = np.searchsorted(np.cumsum(row_group_rows), numbers, side="right")
        row_in_share = numbers * share.total_rows // max(1, int(row_group_rows.sum()))
    else:
        rows = first_windows(share, _MAX_SAMPLED_ROWS)
        row_group, row_in_share = rows.row_group, rows.row_in_share
        numbers = (np.cumsum(row_group_rows) - row_group_rows)[row_group] + rows.row
    looked_at = len(numbers)
    if share.batch_size is None:
        bounds = np.cumsum(share.batch_sizes)
        bounds = bounds[bounds <= looked_at]
    else:
        bounds = np.append(np.arange(share.batch_size, looked_at, share.batch_size), looked_at)
    batches = np.split(row_group, bounds)[: len(bounds)]
    met = [len(np.unique(batch)) for batch in batches if len(batch)]
    means = [of.mean() for of in np.split(numbers, bounds)[: len(bounds)] if len(of)]
    # Numbers below N have the standard deviation N / √12; of a batch's mean it is √B less.
    random = float(row_group_rows.sum()) / np.sqrt(12 * looked_at / max(1, len(means)))
    travelled = np.abs(row_in_share - np.arange(looked_at))
    return {
        "row_groups_per_batch": float(np.mean(met)) if met else 0.0,
        "rows_travelled": int(np.median(travelled)) if looked_at else 0,
        "batch_drift": float(np.std(means) / random) if means else 0.0,
        "rows_looked_at": looked_at,
    }


def _evenness(plan: EpochPlan, of_rows: RowCosts) -> dict[str, Any]:
    """Compare the costs of steps among shares, on the first window of as many as take seconds."""
    windows = plan.share(0).windows
    num_rows = 0 if windows is None else int(windows.num_rows[0])
    shares = range(min(plan.num_shares, max(2, _MAX_SAMPLED_ROWS // max(num_rows, 1))))
    costs = costs_of_steps(plan, of_rows, shares, num_rows // (plan.options.share_batch_size or 1))
    excess = costs.max(axis=0) / np.maximum(costs.mean(axis=0), 1)
    median, most = np.quantile(excess, (0.5, 0.99)).tolist() if costs.size else (1.0, 1.0)
    return {"shares": len(shares), "steps": costs.shape[1], "median": median, "p99": most}


def _ranks(manifest: Manifest, plan: EpochPlan) -> list[dict[str, Any]]:
    """Return the amounts of each rank and of its workers."""
    counts = plan.row_counts()
    world_size, num_workers = plan.options.world_size, plan.options.num_workers
    of_shares = {
        "rows": plan.share_rows,
        "bytes": prorated(manifest.row_group_num_bytes, manifest, plan, counts),
    }
    if manifest.packed is not None:
        of_shares["tokens"] = prorated(manifest.packed.num_tokens, manifest, plan, counts)

    def amounts(readers: int, steps: Any) -> list[dict[str, int]]:
        # With canonical_world_size a rank has several shares, and one worker.
        reader = np.arange(plan.num_shares) % readers
        by_name = {
            "row_groups": counts.row_groups_by(reader, readers).tolist(),
            **{name: per_rank(of, readers) for name, of in of_shares.items()},
            "steps": steps.tolist(),
        }
        return [{name: of[at] for name, of in by_name.items()} for at in range(readers)]

    num_readers = world_size * num_workers
    steps_of_workers = plan.share_steps.reshape(-1, num_readers).max(axis=0)
    workers = amounts(num_readers, steps_of_workers)
    return [
        {
            "rank": rank,
            **of_rank,
            "workers": [
                {"worker": number, **of} for number, of in enumerate(workers[rank::world_size])
            ],
        }
        for rank, of_rank in enumerate(amounts(world_size, plan.steps_per_rank()))
    ]
