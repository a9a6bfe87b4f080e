"""The samples of a data set: what opens their streams, and plans epochs within the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.native import tensor_bytes
from torchparquet._impl.plan.plan_options import DEFAULT_WINDOW, Int64Array, PlanOptions
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.ranks.sharding import Membership
from torchparquet._impl.reading.reader_arguments import field_spec
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import WindowMemory
from torchparquet._impl.sampling.global_streams import GlobalOpener
from torchparquet._impl.sampling.policies import Policies, Sampling
from torchparquet._impl.sampling.policy import GlobalOrder, Policy, RowOrder
from torchparquet._impl.sampling.row_values import RowValues
from torchparquet._impl.sampling.store.row_store import RowStore
from torchparquet._impl.sampling.streams import SampledOpener
from torchparquet._impl.sampling.window_streams import WindowOpener, check_windowed
from torchparquet._impl.sampling.windows import Windows
from torchparquet._impl.session.assembly import Source
from torchparquet._impl.session.planner import EpochPlanner
from torchparquet.options import Shuffle, Unique, Window

_BATCHES_OF_BLOCK = 16
# The plan of blocks, whose policy has shuffled the rows.
_IN_ORDER: dict[str, Any] = {"shuffle": False, "shuffle_window": 0, "window_rows": 0}


def sampled(
    source: Source,
    rows: StreamOpener,
    plan: PlanOptions,
    window: tuple[int, int] | None,
    given: Sampling | str | Shuffle,
    membership: Membership,
) -> tuple[SampledOpener | GlobalOpener, PlanOptions]:
    """Return what opens streams of samples, and how these are planned: blocks in order."""
    if isinstance(given, Shuffle):
        return _shuffled(source, rows, plan, given)
    of = Unique(given) if isinstance(given, str) else given
    is_batch, parts = isinstance(of, Unique), 1
    if isinstance(of, Unique) and of.across_ranks:
        # Parts of a step are for the ranks there are, or for the canonical ones.
        world = replace(plan, world_size=membership.topology().world_size)
        world.check_world()
        parts = world.num_shares // world.world_size
        plan = replace(plan, ranks_together=world.num_shares, batch_size=world.share_batch_size)
    if isinstance(of, Window):
        check_windowed(of, rows.fields)
        _check_two_batches(rows, plan, of)
    values = RowValues(rows.manifest, rows.options, source.keys, source.storage)
    policies = Policies(values, plan, *_rows_of_block(rows, plan, window, of))
    policy = policies.policy(of)
    opener: SampledOpener
    if isinstance(policy, Windows):
        # Windows are copies of what is read.
        opener = WindowOpener(**_opened(rows, policies, policy))
    else:
        opener = SampledOpener(
            rows=rows,
            manifest=policies.manifest(policy),
            policy=policy,
            pins_for_device=rows.options.pin_memory is not False,
        )
    return opener, replace(
        plan,
        batch_size=parts if is_batch else plan.batch_size,
        drop_last=plan.drop_last and not is_batch,
        **_IN_ORDER,
        rows_together=policy.together,
    )


def _shuffled(
    source: Source,
    rows: StreamOpener,
    plan: PlanOptions,
    shuffle: Shuffle,
) -> tuple[GlobalOpener, PlanOptions]:
    """Return what opens streams of rows of a permutation of all, and how these are planned."""
    assert plan.batch_size is not None  # noqa: S101
    cache, window_rows = source.storage.of_client, 0
    folder = cache.get("cache_folder")
    if folder is not None and shuffle.first == "global":
        # Bytes are fetched and read once: after that the rows are in the store.
        listing = rows.manifest.listing.keeping_no_blocks()
        rows = replace(rows, manifest=replace(rows.manifest, listing=listing))
    store = RowStore(rows, folder, cache.get("cache_limit"))
    if shuffle.first == "windows":
        # A half is for rows where they are in memory, and a quarter for the pass beside.
        options, part = rows.options, 4 if store.folder is None else 2
        most = max(1, options.memory_per_worker(1) // part)
        rows = replace(rows, options=replace(options, max_memory=most))
        window_rows = _rows_of_block(rows, plan, None, None)[0]
    _window_memory(rows, plan.batch_size).check_two_batches(plan.batch_size)
    policy = GlobalOrder(RowOrder(rows.manifest.row_group_num_rows, plan), window_rows)
    values = RowValues(rows.manifest, rows.options, source.keys, source.storage)
    policies = Policies(values, plan, policy.block_rows, policy.block_rows)
    opened = _opened(rows, policies, policy)
    store.check_memory(1)
    return GlobalOpener(store=store, **opened), replace(plan, **_IN_ORDER)


def _opened(rows: StreamOpener, policies: Policies, policy: Policy) -> dict[str, Any]:
    """Return the arguments of what opens streams of samples of a policy."""
    return {
        "rows": replace(rows, options=replace(rows.options, pin_memory=False), row_valid=False),
        "manifest": policies.manifest(policy),
        "policy": policy,
        "pins_for_device": rows.options.pin_memory is not False,
        "row_valid": rows.row_valid,
    }


def _check_two_batches(streams: StreamOpener, plan: PlanOptions, window: Window) -> None:
    """Raise unless two batches of windows fit the memory."""
    offsets_of, num_rows = window.offsets_of, plan.batch_size or 1
    needed = 2 * sum(
        int(tensor_bytes([field_spec(field)], num_rows * len(offsets_of.get(field.name, "1"))))
        for field in streams.tensors
    )
    most = streams.options.memory_per_worker(1)
    if needed > most:
        raise ValueError(
            f"max_memory must hold at least two batches, {needed} bytes for batches of {num_rows} "
            f"windows; got max_memory={most}"
        )


def _window_memory(streams: StreamOpener, rows_of_batch: int) -> WindowMemory:
    return WindowMemory(streams.tensors, rows_of_batch, streams.options.memory_per_worker(1))


def window_of_row_groups(
    streams: StreamOpener,
    plan: PlanOptions,
    window: tuple[int, int] | None,
    num_batches: Int64Array | None,
) -> tuple[int, int] | None:
    """Return the window of batches by length: half the memory is for what is decoded meanwhile.

    With costs a window is of as many batches as `shuffle_window` row groups have, whatever row
    groups these are of: `num_batches` are those of each row group. Two are cut by its ends.
    """
    if not plan.shuffle or window == (0, 0):
        return window
    if window is not None and window[1]:
        raise ValueError("shuffle_window counts row groups where batches are by length")
    num_rows = streams.manifest.row_group_num_rows
    largest_first = np.sort(num_rows)[::-1]
    memory = _window_memory(streams, int(largest_first[0]))
    cut_rows = 0 if num_batches is None else 2 * int(largest_first[0])
    ends = (np.cumsum(largest_first) + cut_rows).tolist()
    fitting = max(1, sum(1 for end in ends if memory.fits(end, 0, 0.5)))
    if window is None:
        window = DEFAULT_WINDOW if fitting == len(ends) else min(DEFAULT_WINDOW, fitting), 0
    if min(window[0], len(ends)) > fitting:
        raise ValueError(
            f"shuffle_window must fit half of max_memory, {memory.max_memory_bytes} bytes, where "
            f"batches are by length: {fitting} row groups do, got {window[0]}"
        )
    if num_batches is None or fitting == len(ends):
        return window
    # At worst a window has the row groups with the most rows for each batch.
    at_worst = np.argsort(-num_rows / num_batches, kind="stable")
    most_rows = int(memory.max_memory_bytes / 2 / max(memory.bytes_per_row, 1.0))
    held = np.cumsum(num_rows[at_worst]) + cut_rows
    num_held = max(1, int(np.searchsorted(held, most_rows, side="right")))
    return window[0], max(1, min(int(num_batches[at_worst[:num_held]].sum()), most_rows))


def _rows_of_block(
    streams: StreamOpener, plan: PlanOptions, window: tuple[int, int] | None, of: Sampling | None
) -> tuple[int, int]:
    """Return how many samples are chosen and permuted together: those of a window, if they fit.

    Second is how many rows fit.
    """
    rows = streams.manifest.row_group_num_rows
    num_chunks, wanted = (DEFAULT_WINDOW, 0) if window is None else window
    if not plan.shuffle or window == (0, 0):
        num_chunks, wanted = 1, 0
    if not wanted:
        wanted = num_chunks * -(-int(rows.sum()) // int(np.count_nonzero(rows)))
    batch_rows = plan.batch_size or 1
    if isinstance(of, Unique):
        # With more batches, fewer keys are in a block more often than batches.
        wanted = max(wanted, _BATCHES_OF_BLOCK * batch_rows)
    # Rows are held as one batch.
    memory = replace(_window_memory(streams, max(int(rows.max()), batch_rows)), has_orders=True)
    # A block is held while the next one is decoded, also by each of a few workers.
    fitting = int(memory.max_memory_bytes / 8 / max(memory.bytes_per_row, 1.0))
    return max(1, min(wanted, fitting)), fitting


def make_planner(
    samples: Manifest,
    streams: StreamOpener,
    plan: PlanOptions,
    window: tuple[int, int] | None,
    limit_steps: int | None,
    row_group_bytes: Int64Array | None,
    row_costs: RowCosts | None,
) -> EpochPlanner:
    """Return what plans epochs of samples; raises if the window does not fit the memory."""
    rows_of_batch = plan.batch_size or int(samples.row_group_num_rows.max())
    planner = EpochPlanner(
        samples.row_group_num_rows,
        plan,
        requested_window=(0, 0) if plan.even == "dynamic" else window,
        window_memory=_window_memory(streams, rows_of_batch),
        limit_steps=limit_steps,
        row_group_bytes=row_group_bytes,
        row_costs=row_costs,
    )
    planner.window()
    return planner
