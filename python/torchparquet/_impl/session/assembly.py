"""Assembles the parts of a data set from its arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchparquet._impl.batches.columns import ColumnsArgument, NullsArgument, resolve_columns
from torchparquet._impl.batches.device_transfer import parsed_device
from torchparquet._impl.batches.pack import Pack
from torchparquet._impl.checks import checked_bool, checked_int
from torchparquet._impl.files.cache_file import CacheArgument
from torchparquet._impl.files.footers.decryption import DecryptionArgument, FileKeys, file_keys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_cache import shared_manifest
from torchparquet._impl.files.manifest_reading import SourceArgument
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.files.remote.urls import is_remote_url
from torchparquet._impl.files.schemas import listed
from torchparquet._impl.functions.decoders import Decoder, decoders_of
from torchparquet._impl.functions.function_pools import NO_POOL, PoolOptions
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions, check_dynamic
from torchparquet._impl.ranks.shared_work import done_once
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import DEFAULT_WINDOW, window_memory
from torchparquet._impl.reading.word_pass import WordPass
from torchparquet._impl.rows.filters import both
from torchparquet._impl.rows.select_rows import RowArguments, select_rows
from torchparquet._impl.sequences.by_length import ByLength, group_rows
from torchparquet._impl.sequences.grouped_streams import GroupedOpener
from torchparquet._impl.sequences.length_pass import LengthPass
from torchparquet._impl.sequences.packing import pack_rows
from torchparquet._impl.session.feed import Feed
from torchparquet._impl.session.planner import EpochPlanner
from torchparquet._impl.session.rank_check import Compared, RankCheck
from torchparquet._impl.tables.sources import table_source

if TYPE_CHECKING:
    import torch

    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.ranks.membership import Membership


class ColumnArguments(NamedTuple):
    """The arguments of `ParquetDataset` for columns.

    Attributes:
        pack: How lists are packed into sequences; None if a row is a row.
    """

    columns: ColumnsArgument
    nulls: NullsArgument = None
    pack: Pack | None = None
    batch_size: int | ByLength | None = None

    @property
    def by_length(self) -> ByLength | None:
        """How rows are batched by length; None if they are not."""
        return self.batch_size if isinstance(self.batch_size, ByLength) else None

    def check_options(
        self, plan: PlanOptions, iteration: IterationOptions, delivery: DeliveryArguments
    ) -> None:
        """Check that batches by length go with the other options."""
        if self.pack is not None and not isinstance(self.pack, Pack):
            raise TypeError(f"pack must be a Pack or None, got {self.pack!r}")
        if self.by_length is None:
            return
        excluded = {
            "pack": self.pack is not None,
            "canonical_world_size": iteration.canonical_world_size is not None,
            "device": delivery.device is not None,
            'even="pad"': plan.even == "pad",
            'even="dynamic"': plan.even == "dynamic",
        }
        found = [name for name, is_given in excluded.items() if is_given]
        if found:
            raise ValueError(f"batch_size=ByLength(...) does not go with {', '.join(found)}")


@dataclass(frozen=True)
class DataArguments:
    """The arguments of `ParquetDataset` that select the values to read."""

    paths: SourceArgument
    columns: ColumnArguments
    rows: RowArguments
    decryption_properties: DecryptionArgument
    manifest_cache: CacheArgument
    storage: StorageArguments

    def open(
        self,
        membership: Membership,
        num_threads: int | None,
        keys: FileKeys | None,
        *,
        with_sizes: bool,
    ) -> Manifest:
        """Return the manifest of the row groups and rows that are left."""
        storage = self.shared_storage(membership)
        paths, rows = self.paths, self.rows
        table = table_source(paths)
        if table is not None:
            if storage.filesystem is None and not storage.options:
                is_remote = is_remote_url(table.paths[0])
                storage = replace(
                    storage,
                    options=table.storage_options if is_remote else None,
                    filesystem=table.filesystem,
                )
            paths = list(table.paths)
            rows = replace(rows, filters=both(rows.filters, table.filters), left=table.deleted)
        manifest, footers = shared_manifest(
            paths,
            num_threads,
            keys,
            self.manifest_cache,
            storage=storage,
            with_chunk_sizes=with_sizes,
            with_contents=rows.filters is not None,
        )
        if table is not None:
            manifest = table.narrowed(table.applied(manifest))
        return select_rows(manifest, rows, keys, self.manifest_cache, storage, footers)

    def open_whole(
        self,
        manifest: Manifest,
        membership: Membership,
        num_threads: int | None,
        keys: FileKeys | None,
    ) -> Manifest:
        """Return the manifest of all rows of the files or of the table."""
        if self.rows.is_empty:
            return manifest
        whole = replace(self, rows=RowArguments())
        return whole.open(membership, num_threads, keys, with_sizes=False)

    def shared_storage(self, membership: Membership) -> StorageArguments:
        """Return the store's arguments, by which one of the ranks asks it for all."""
        share = None if membership.is_alone else partial(_shared, membership)
        return replace(self.storage, share=share)


def _shared(membership: Membership, what: str, work: Callable[[], bytes]) -> bytes:
    return done_once(membership.peers(), what, work)


@dataclass(frozen=True)
class IterationOptions:
    """The options of `ParquetDataset` about iterations that no plan has.

    Attributes:
        limit_steps: The most batches that a rank delivers of an epoch; None for all.
        window: The user's `shuffle_window`, as `requested_window` returns it.
    """

    num_epochs: int | None
    limit_steps: int | None
    window: tuple[int, int] | None
    canonical_world_size: int | None
    row_ids: bool
    check_ranks: bool

    def __post_init__(self) -> None:
        """Check every field; integers of numpy become plain ones."""
        least = {"num_epochs": 1, "limit_steps": 1, "canonical_world_size": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, checked_int(name, value, low, 2**31))
        for name in ("row_ids", "check_ranks"):
            checked_bool(name, getattr(self, name))

    def check_even(self, even: str, membership: Membership) -> None:
        """Check the options that depend on `even=`."""
        if even == "dynamic":
            check_dynamic(
                {
                    "canonical_world_size": (self.canonical_world_size, None),
                    "num_epochs": (self.num_epochs, 1),
                    "limit_steps": (self.limit_steps, None),
                }
            )
        elif membership.store is not None:
            raise ValueError(f'store needs even="dynamic", got even={even!r}')


@dataclass(frozen=True)
class DeliveryArguments:
    """The arguments of `ParquetDataset` for a batch after decoding.

    Attributes:
        transform_threads: Threads that apply the functions ahead of the loop; None for none.
    """

    device: torch.device | str | None
    processors: Mapping[str, Processor] | None
    transform: Transform | None
    transform_threads: int | None = None
    transform_processes: int | None = None

    def pool_options(self, even: str, *, decodes: bool) -> PoolOptions:
        """Return what applies the functions."""
        given = {
            name: checked_int(name, value, 1, 1025)
            for name, value in (
                ("transform_threads", self.transform_threads),
                ("transform_processes", self.transform_processes),
            )
            if value is not None
        }
        if not given:
            return NO_POOL
        if len(given) > 1:
            raise ValueError("transform_threads and transform_processes do not go together")
        (name,) = given
        if self.processors is None and self.transform is None and not decodes:
            raise ValueError(f"{name} needs functions: processors, transform, or Column(decode=)")
        if self.device is not None:
            raise ValueError(
                f"{name} does not go with device={str(self.device)!r}: the loop's stream would not "
                "wait for the functions; move the batch in the loop"
            )
        if even == "dynamic":
            raise ValueError(f'{name} does not go with even="dynamic"')
        return PoolOptions(given.get("transform_threads", 0), given.get("transform_processes", 0))

    def transforms(self, names: list[str], decoders: Mapping[str, Decoder]) -> Transforms | None:
        """Return the functions, checked against the names of a batch; None if there are none."""
        repeated = listed([name for name, count in Counter(names).items() if count > 1])
        if repeated:
            raise ValueError(f"ByLength adds keys that columns have too, rename those: {repeated}")
        if self.processors is None and self.transform is None and not decoders:
            return None
        if decoders and self.device is not None:
            raise ValueError(
                f"Column(decode=) does not go with device={str(self.device)!r}: bytes are decoded "
                "on the host; move the batch in the loop"
            )
        transforms = Transforms(self.processors, self.transform, decoders)
        decoded = transforms.names_of(names)
        repeated = listed([name for name, count in Counter(decoded).items() if count > 1])
        if repeated:
            raise ValueError(f"decode adds keys that columns have too, rename those: {repeated}")
        transforms.check_names(decoded)
        return transforms


def assemble(
    membership: Membership,
    data: DataArguments,
    plan: PlanOptions,
    iteration: IterationOptions,
    reading: ReadOptions,
    delivery: DeliveryArguments,
) -> Feed:
    """Open the files and put together what reads them."""
    iteration.check_even(plan.even, membership)
    data.columns.check_options(plan, iteration, delivery)
    decoders = decoders_of(data.columns.columns)
    pool_options = delivery.pool_options(plan.even, decodes=bool(decoders))
    keys = file_keys(data.decryption_properties)
    by_bytes = plan.balance == "bytes"
    manifest = data.open(membership, reading.num_threads, keys, with_sizes=by_bytes)
    columns = data.columns
    word_pass = WordPass(
        partial(data.open_whole, manifest, membership, reading.num_threads, keys),
        reading,
        keys,
        data.manifest_cache,
        data.shared_storage(membership),
    )
    fields = resolve_columns(columns.columns, manifest, columns.nulls, columns.pack, word_pass.find)
    rows = manifest
    if columns.pack or columns.by_length:
        storage = data.shared_storage(membership)
        length_pass = LengthPass(manifest, reading, keys, data.manifest_cache, storage)
        if columns.pack is not None:
            rows = manifest = pack_rows(length_pass, fields)
        elif columns.by_length is not None:
            rows = manifest.keep(manifest.row_group_num_rows > 0)
            length_pass = replace(length_pass, manifest=rows)
            manifest = group_rows(length_pass, columns.by_length, fields)
    row_group_bytes = None
    if by_bytes:
        sources = {source for field in fields for source in field.sources}
        row_group_bytes = manifest.bytes_of_columns(sources)
        manifest = replace(manifest, chunk_num_bytes=None)
    if columns.by_length is not None:
        iteration = _in_row_groups(iteration, rows, fields, plan, reading)
        reading = replace(reading, pin_memory=False)  # Batches are copies of what is read.
    planner = _planner(manifest, fields, plan, iteration, reading, row_group_bytes)
    row_streams = StreamOpener(
        rows,
        fields,
        reading,
        iteration.row_ids,
        plan.even == "pad",
        keys,
        parsed_device(delivery.device),
    )
    streams: StreamOpener | GroupedOpener = row_streams
    if columns.by_length is not None:
        is_single = iteration.window in (None, (0, 0), (1, 0))
        streams = GroupedOpener(row_streams, manifest, columns.by_length, is_single)
    options: dict[str, Any] = {"num_epochs": iteration.num_epochs, "row_ids": iteration.row_ids}
    compared = Compared(manifest, fields, options)
    return Feed(
        membership,
        planner,
        RankCheck(membership, compared, enabled=iteration.check_ranks),
        streams,
        num_epochs=iteration.num_epochs,
        transforms=delivery.transforms(streams.names, decoders),
        is_dynamic=plan.even == "dynamic",
        pool_options=pool_options,
    )


def _in_row_groups(
    iteration: IterationOptions,
    rows: Manifest,
    fields: tuple[Field, ...],
    plan: PlanOptions,
    reading: ReadOptions,
) -> IterationOptions:
    """Return the options with the window of batches by length, whose row groups are read whole.

    Raises:
        ValueError: The window asked for is a number of rows, or its row groups do not fit half of
            the memory. The other half is for those that are decoded meanwhile.
    """
    if not plan.shuffle or iteration.window == (0, 0):
        return iteration
    if iteration.window is not None and iteration.window[1]:
        raise ValueError("shuffle_window counts row groups where batches are by length")
    largest_first = np.sort(rows.row_group_num_rows)[::-1]
    memory = window_memory(
        fields,
        int(largest_first[0]),
        reading.memory_per_worker(1),
        row_ids=iteration.row_ids,
        row_valid=False,
    )
    ends = np.cumsum(largest_first).tolist()
    fitting = max(1, sum(1 for end in ends if memory.fits(end, 0, 0.5)))
    if iteration.window is None:
        window = DEFAULT_WINDOW if fitting == len(ends) else min(DEFAULT_WINDOW, fitting)
        return replace(iteration, window=(window, 0))
    num_chunks = min(iteration.window[0], len(ends))
    if num_chunks > fitting:
        raise ValueError(
            f"shuffle_window must fit half of max_memory, {memory.max_memory_bytes} bytes, where "
            f"batches are by length: {fitting} row groups do, got {iteration.window[0]}"
        )
    return iteration


def _planner(
    manifest: Manifest,
    fields: tuple[Field, ...],
    plan: PlanOptions,
    iteration: IterationOptions,
    reading: ReadOptions,
    row_group_bytes: Int64Array | None,
) -> EpochPlanner:
    planner = EpochPlanner(
        manifest.row_group_num_rows,
        plan,
        canonical_world_size=iteration.canonical_world_size,
        requested_window=(0, 0) if plan.even == "dynamic" else iteration.window,
        window_memory=window_memory(
            fields,
            plan.batch_size or int(manifest.row_group_num_rows.max()),
            reading.memory_per_worker(1),
            row_ids=iteration.row_ids,
            row_valid=plan.even == "pad",
        ),
        limit_steps=iteration.limit_steps,
        row_group_bytes=row_group_bytes,
    )
    planner.window()  # Raises if the window does not fit.
    return planner
