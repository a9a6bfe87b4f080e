"""Assembles the parts of a data set from the constructor's options."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from torchparquet._impl.batches.columns import ColumnsArgument, NullsArgument
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.checks import listed, shown
from torchparquet._impl.files.discovery import SourceArgument
from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import open_manifest
from torchparquet._impl.files.remote.storage import StorageArguments, with_more
from torchparquet._impl.files.remote.urls import is_remote_url
from torchparquet._impl.functions.decoders import Decoder
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.native import tensor_bytes
from torchparquet._impl.plan.plan_options import (
    DEFAULT_WINDOW,
    Int64Array,
    PlanOptions,
    check_dynamic,
)
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.ranks.sharding import Membership
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.reader_arguments import field_spec
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import WindowMemory
from torchparquet._impl.reading.word_pass import WordPass
from torchparquet._impl.rows.exclusions import Exclusions
from torchparquet._impl.rows.filters import both
from torchparquet._impl.rows.select_rows import RowArguments, select_rows
from torchparquet._impl.sampling.global_streams import GlobalOpener
from torchparquet._impl.sampling.policies import Policies, Sampling
from torchparquet._impl.sampling.policy import GlobalOrder, Policy, RowOrder
from torchparquet._impl.sampling.row_store import RowStore
from torchparquet._impl.sampling.row_values import RowValues
from torchparquet._impl.sampling.streams import SampledOpener
from torchparquet._impl.sampling.window_streams import WindowOpener, check_windowed
from torchparquet._impl.sampling.windows import Windows
from torchparquet._impl.sequences.by_length import counted_field, group_rows
from torchparquet._impl.sequences.length_pass import LengthPass, pack_rows
from torchparquet._impl.sequences.row_costs import cost_rows
from torchparquet._impl.session.planner import EpochPlanner
from torchparquet._impl.tables.sources import table_source
from torchparquet._impl.text.tokenized import tokenized
from torchparquet.errors import FileChangedError
from torchparquet.options import (
    Ahead,
    Balanced,
    ByLength,
    Order,
    Pack,
    Shuffle,
    Unique,
    Weights,
    Window,
)

_BATCHES_OF_BLOCK = 16
# The plan of blocks, whose policy has shuffled the rows.
_IN_ORDER: dict[str, Any] = {"shuffle": False, "shuffle_window": 0, "window_rows": 0}


def check_together(
    plan: PlanOptions,
    membership: Membership,
    *,
    pack: Pack | Window | None,
    by_length: ByLength | None,
    sample: Balanced | Weights | None,
    unique: str | Unique | None,
    window: tuple[int, int] | None,
    is_global: bool,
) -> None:
    """Check the options that exclude each other."""
    if pack is not None and not isinstance(pack, Pack | Window):
        raise TypeError(f"pack must be a Pack, a Window or None, got {shown(pack)}")
    if sample is not None and not isinstance(sample, Balanced | Weights):
        raise TypeError(f"sample must be a Balanced, a Weights or None, got {shown(sample)}")
    if unique is not None and not isinstance(unique, str | Unique):
        raise TypeError(
            f"unique must be the name of a column, a Unique or None, got {shown(unique)}"
        )
    canonical = plan.order.canonical_world_size
    if plan.even == "dynamic":
        check_dynamic({"canonical_world_size": (canonical, None)})
    elif membership.ranks.store is not None:
        raise ValueError(f'Ranks(store=...) needs even="dynamic", got even={plan.even!r}')
    named = {
        "pack=Window(...)": isinstance(pack, Window),
        f"sample={type(sample).__name__}(...)": sample is not None,
        f"unique={unique!r}": unique is not None,
    }
    if any(named.values()):
        first = next(name for name, is_given in named.items() if is_given)
        is_across = isinstance(unique, Unique) and unique.across_ranks
        possible = Order(canonical_world_size=canonical if is_across else None)
        _refuse_beside(
            first,
            {
                **{name: is_given for name, is_given in named.items() if name != first},
                "batch_size=ByLength(...)": by_length is not None,
                "batch_size=None": plan.batch_size is None,
                "pack=Pack(...)": isinstance(pack, Pack),
                "order": plan.order != possible,
                'even="dynamic"': plan.even == "dynamic",
                "shuffle_window=0": plan.shuffle and window == (0, 0),
            },
        )
    if is_global:
        _refuse_beside(
            'shuffle="global"',
            {
                "shuffle_window": window is not None,
                **named,
                "batch_size=ByLength(...)": by_length is not None,
                "batch_size=None": plan.batch_size is None,
                "pack=Pack(...)": isinstance(pack, Pack),
                "order": plan.order != Order(),
                'even="dynamic"': plan.even == "dynamic",
            },
        )
    if by_length is None:
        return
    excluded = {
        "pack": pack is not None,
        "canonical_world_size": canonical is not None,
        'even="pad"': plan.even == "pad",
        'even="dynamic"': plan.even == "dynamic",
    }
    if by_length.rows is not None:
        del excluded["canonical_world_size"], excluded['even="pad"']
    _refuse_beside("batch_size=ByLength(...)", excluded)
    if by_length.cost is None:
        return
    if not plan.shuffle or window == (0, 0):
        raise ValueError(
            "ByLength(cost=...) needs shuffle=True and a shuffle_window, whose rows it deals into "
            f"steps; got shuffle={plan.shuffle}" + (", shuffle_window=0" if window else "")
        )
    # The costs say which row groups a rank reads together.
    excluded = {
        "Order(within_rank=True)": plan.order.within_rank,
        'Order(balance="bytes")': plan.order.balance == "bytes",
    }
    _refuse_beside("ByLength(cost=...)", excluded)


def permutation_of_all(shuffle: bool | str | Shuffle) -> Shuffle | None:
    """Return how all rows are permuted together, if they are; raises for an unknown word."""
    given = Shuffle(shuffle) if isinstance(shuffle, str) else shuffle  # type: ignore[arg-type]
    return given if isinstance(given, Shuffle) else None


def _refuse_beside(name: str, excluded: Mapping[str, bool]) -> None:
    found = [other for other, is_given in excluded.items() if is_given]
    if found:
        raise ValueError(f"{name} does not go with {', '.join(found)}")


class Asked(NamedTuple):
    """The columns that a user asks for, and what samples they become."""

    columns: ColumnsArgument
    nulls: NullsArgument
    pack: Pack | Window | None


@dataclass(frozen=True)
class Source:
    """Files or data in memory, and which of their rows are read."""

    paths: SourceArgument
    rows: RowArguments
    keys: FileKeys | None
    storage: StorageArguments
    num_threads: int | None  # that read footers; None for the number of processors

    def open(self, *, with_sizes: bool) -> Manifest:
        """Return the manifest of the row groups and rows that are left."""
        storage, paths, rows = self.storage, self.paths, self.rows
        table = table_source(paths)
        if table is not None:
            if storage.filesystem is None and not storage.of_store:
                options = with_more(table.storage_options or {}, storage.named)
                is_remote = is_remote_url(table.paths[0])
                storage = replace(
                    storage, options=options if is_remote else None, filesystem=table.filesystem
                )
            paths = list(table.paths)
            rows = replace(rows, filters=both(rows.filters, table.filters), left=table.deleted)
        exclusions = None if rows.excluding is None else Exclusions(rows.excluding)
        manifest, footers = open_manifest(
            paths,
            self.num_threads,
            self.keys,
            storage=storage,
            with_chunk_sizes=with_sizes,
            with_contents=rows.filters is not None,
            leave_out=None if exclusions is None else exclusions.left,
        )
        if table is not None:
            manifest = table.narrowed(table.applied(manifest))
        if exclusions is not None:
            manifest = exclusions.narrowed(manifest)
        return select_rows(manifest, rows, self.keys, storage, footers)

    def open_whole(self, manifest: Manifest) -> Manifest:
        """Return the manifest of all rows; it is the given one if no option leaves rows out."""
        if self.rows.is_empty:
            return manifest
        whole = RowArguments(excluding=self.rows.excluding)
        return replace(self, rows=whole).open(with_sizes=False)

    def tokenized(
        self, manifest: Manifest, asked: Asked, reading: ReadOptions, *, with_sizes: bool
    ) -> tuple[Source, Manifest, Asked]:
        """Return the token files that texts become, and how these are packed, in place of texts.

        What is not to be tokenised stays as it is.
        """
        columns, nulls, pack = asked
        if not isinstance(pack, Pack) or pack.tokenizer is None:
            return self, manifest, asked
        storage, folder = self.storage, pack.token_cache
        if folder is None and storage.cache_dir is not None:
            folder = f"{os.fspath(storage.cache_dir)}.tokens"
        tokens = tokenized(manifest, columns, nulls, pack, reading, self.keys, folder, self.paths)
        cache = None
        if folder is not None and storage.manifest_cache is not None:
            cache = f"{os.fspath(storage.manifest_cache)}.tokens"
        made = replace(
            self,
            paths=tokens.files,
            rows=RowArguments(),
            keys=None,
            storage=StorageArguments(
                manifest_cache=cache,
                # Nothing of encrypted texts, not even how long they are.
                share=None if self.keys is not None else storage.share,
            ),
        )
        opened = made.open(with_sizes=with_sizes)
        if opened.row_group_num_rows.tolist() != tokens.row_group_num_rows:
            raise FileChangedError(
                "token files do not have the rows of their texts; delete the folder, and they are "
                f"made anew: {opened.root!r}"
            )
        if cache is not None:
            # What is kept of tokens is of these files: a tokenizer may not keep its promise.
            cache = f"{cache}.{opened.content_fingerprint}"
            made = replace(made, storage=replace(made.storage, manifest_cache=cache))
        return made, opened.made_of(tokens.origin), Asked(tokens.columns, None, tokens.pack)

    def word_pass(self, manifest: Manifest, reading: ReadOptions) -> WordPass:
        """Return what finds the words of columns whose vocabulary is not stated."""
        whole = partial(self.open_whole, manifest)
        return WordPass(whole, reading, self.keys, self.storage)

    def samples(
        self,
        manifest: Manifest,
        fields: tuple[Field, ...],
        reading: ReadOptions,
        sample: Pack | Window | ByLength | None,
    ) -> tuple[Manifest, Manifest, RowCosts | None]:
        """Return the manifests of the rows to read and of the samples they become, and costs."""
        if sample is None or isinstance(sample, Window):
            return manifest, manifest, None
        if isinstance(sample, ByLength) and sample.rows is None:
            manifest = manifest.keep(manifest.row_group_num_rows > 0)
        length_pass = LengthPass(manifest, reading, self.keys, self.storage)
        if isinstance(sample, Pack):
            packed = pack_rows(length_pass, fields)
            return packed, packed, None
        field, made = counted_field(sample, fields), manifest
        if sample.cost is not None:
            length_pass = replace(length_pass, known=length_pass.of_rows(field))
        if sample.rows is None:
            made = group_rows(length_pass, sample, field)
        if sample.cost is None:
            return manifest, made, None
        return manifest, made, cost_rows(length_pass, sample, field, made.row_group_num_rows)

    def sampled(
        self,
        rows: StreamOpener,
        plan: PlanOptions,
        window: tuple[int, int] | None,
        given: Sampling | str | Shuffle,
        membership: Membership,
    ) -> tuple[SampledOpener | GlobalOpener, PlanOptions]:
        """Return what opens streams of samples, and how these are planned: blocks in order."""
        if isinstance(given, Shuffle):
            return self._shuffled(rows, plan, given)
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
        values = RowValues(rows.manifest, rows.options, self.keys, self.storage)
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
        self, rows: StreamOpener, plan: PlanOptions, shuffle: Shuffle
    ) -> tuple[GlobalOpener, PlanOptions]:
        """Return what opens streams of rows of a permutation of all, and how these are planned."""
        assert plan.batch_size is not None  # noqa: S101
        cache, window_rows = self.storage.of_client, 0
        folder = cache.get("cache_folder")
        if folder is not None and shuffle.first == "global":
            # What is fetched is read once: after that it is in the store.
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
        values = RowValues(rows.manifest, rows.options, self.keys, self.storage)
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


def transforms_of(
    names: list[str],
    decoders: Mapping[str, Decoder],
    processors: Mapping[str, Processor] | None,
    transform: Transform | None,
) -> Transforms | None:
    """Return the functions, checked against the names of a batch; None if there are none."""
    _refuse_repeated("lengths and masks add", names)
    given: object = transform
    if given is Ahead:
        raise TypeError(
            "Ahead takes the function and how many work: transform=Ahead(function, threads=8), or "
            "processes=8. Got the class Ahead itself"
        )
    if processors is None and transform is None and not decoders:
        return None
    transforms = Transforms(processors, transform, decoders)
    decoded = transforms.names_of(names)
    _refuse_repeated("decode adds", decoded)
    transforms.check_names(decoded)
    return transforms


def _refuse_repeated(adding: str, names: Sequence[str]) -> None:
    repeated = listed([name for name, count in Counter(names).items() if count > 1])
    if repeated:
        raise ValueError(f"{adding} keys that columns have too, rename those: {repeated}")


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
