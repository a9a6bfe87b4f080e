"""ParquetDataset: Parquet files as an iterable data set of batches."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from torchparquet._impl.batches.columns import ColumnsArgument, NullsArgument, resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.checks import checked_bool, checked_int, explaining_arguments, optional_int
from torchparquet._impl.files.discovery import SourceArgument
from torchparquet._impl.files.footers.decryption import DecryptionArgument, FileKeys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.remote.storage import CacheArgument, StorageArguments, StorageOptions
from torchparquet._impl.functions.decoders import decoders_of
from torchparquet._impl.functions.transforms import Processor, Transform
from torchparquet._impl.mixing.session_dataset import SessionDataset
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Even, PlanOptions, Topology, requested_window
from torchparquet._impl.ranks.distribution import ShardDistribution, shard_distribution
from torchparquet._impl.ranks.loaders import (
    end_orphaned_worker,
    num_dropped_by_accelerate,
    num_workers_of_caller,
    refuse_second_batching,
)
from torchparquet._impl.ranks.sharding import Membership, in_worker
from torchparquet._impl.reading.device_stage import parsed_device
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.rows.filters import FiltersArgument
from torchparquet._impl.rows.row_numbers import RowsArgument
from torchparquet._impl.rows.select_rows import RowArguments
from torchparquet._impl.rows.splits import SplitArgument
from torchparquet._impl.sampling.global_streams import GlobalOpener
from torchparquet._impl.sampling.streams import SampledOpener
from torchparquet._impl.sequences.by_length import GroupedOpener
from torchparquet._impl.sequences.dealt_rows import DealtOpener
from torchparquet._impl.session.assembly import (
    Asked,
    Source,
    check_together,
    permutation_of_all,
    transforms_of,
)
from torchparquet._impl.session.dataset_session import DatasetSession
from torchparquet._impl.session.iteration import Iteration, SkippingIteration
from torchparquet._impl.session.rank_check import RankCheck
from torchparquet._impl.session.samples import make_planner, sampled, window_of_row_groups
from torchparquet._impl.session.state import OtherData
from torchparquet._impl.text.text_streams import TextOpener
from torchparquet.options import (
    Ahead,
    Balanced,
    ByLength,
    Excluding,
    Order,
    Pack,
    Ranks,
    Shuffle,
    Unique,
    Weights,
    Window,
)
from torchparquet.unbatched import UnbatchedDataset

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh


_FIELDS_SHOWN = 15  # by repr, on one screen


class ParquetDataset(SessionDataset[Batch]):
    """An iterable data set that gives each rank and worker its exact share of Parquet files.

    Iterate it directly (`for batch in dataset`) or as `DataLoader(dataset, batch_size=None)`, with
    any number of workers. No worker is usually fastest, because native threads decode either way.
    A batch is a `dict[str, Tensor | Jagged]`: `[B]` per column, `[B, F]` per group of columns,
    `[B, L]` for lists of a stated length, a `Jagged` for strings and other lists, a `KeyedJagged`
    for groups with lists.

    Every iteration reads the next epoch, unless `set_epoch` names another. A look at one batch
    takes no epoch. The order of rows depends only on the files, the seed, the epoch, the options of
    the plan, and the number of ranks and workers.
    """

    _session: DatasetSession

    @explaining_arguments(
        {"order": Order, "ranks": Ranks, "transform": Ahead},
        batch_size="batch_size=N for N rows, None for a batch of each row group, or ByLength(...)",
    )
    def __init__(
        self,
        paths: SourceArgument,
        *,
        batch_size: int | ByLength | None,
        columns: ColumnsArgument = None,
        nulls: NullsArgument = None,
        row_ids: bool = False,
        filters: FiltersArgument = None,
        rows: RowsArgument | Excluding = None,
        split: SplitArgument = None,
        pack: Pack | Window | None = None,
        sample: Balanced | Weights | None = None,
        unique: str | Unique | None = None,
        shuffle: bool | Literal["global"] | Shuffle = False,
        seed: int = 0,
        shuffle_window: int | str | None = None,
        drop_last: bool = False,
        even: Even = "split",
        order: Order | None = None,
        num_epochs: int | None = 1,
        limit_steps: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        ranks: DeviceMesh | dist.ProcessGroup | Ranks | None = None,
        processors: Mapping[str, Processor] | None = None,
        transform: Transform | Ahead | None = None,
        num_threads: int | None = None,
        max_memory: int | str = "1GiB",
        pin_memory: bool | None = None,
        device: torch.device | str | None = None,
        storage_options: StorageOptions | None = None,
        filesystem: Any = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_limit: int | None = None,
        manifest_cache: CacheArgument = None,
        decryption_properties: DecryptionArgument = None,
    ) -> None:
        """Find the files, read their footers and check the options; no thread outlives the call.

        Args:
            paths: A file, directory, glob pattern or URL (`s3://`, `gs://`, `az://`, `hf://`,
                `https://` and others that fsspec knows), or a sequence of these. A directory
                stands for all files below it that end in `.parquet`, `.parq` or `.pq`, or for all
                files if none does. Or data in memory: a Parquet file in a buffer (`bytes`,
                `bytearray`, `memoryview`, `pyarrow.Buffer`, `io.BytesIO`), a `pyarrow.Table` or
                `RecordBatch`, a pandas or Polars DataFrame, or a sequence of these. Or a table: a
                `deltalake.DeltaTable`, a table or scan of pyiceberg, a `pyarrow.dataset.Dataset`,
                a streaming data set of Hugging Face. Tables in memory are encoded once, as 64 row
                groups; writable buffers are copied. Data in memory is pickled with the data set.
            batch_size: Rows per batch and rank; None for one batch per row group, which
                `even="split"` may cut. Or a `ByLength`: for batches of rows of similar length,
                which count as rows for all other arguments; or for steps of equal cost.
            columns: Names to read; or a mapping from output name to a source name, a list of
                them (one `[B, F]` tensor) or a `Column`, whose source is by default its key. `"*"`
                stands for all columns that are not named: `["*", Column("age", nulls=0)]`. None
                for all columns.
            nulls: The value of a null in columns whose `Column` has no policy: "error", "nan",
                "mask", "empty" or a fill value; or a dict of these by column, in which "*" stands
                for all others. None for "nan" in float columns and "error" elsewhere.
            row_ids: Add `batch["row.id"]`, int64 `[B]`: global row number, in file order.
            filters: Read the rows for which this is true, as in pandas and pyarrow: tuples such as
                `[("x", ">", 3), ("lang", "in", ["de", "fr"])]`, all of which must hold; a list of
                such lists, one of which must hold; a pyarrow `Expression`; or SQL such as
                "label is not null and lang = 'de'". Partition keys of paths count as columns.
                Statistics, page indexes and Bloom filters rule out row groups; of the others the
                columns that the filters name are read once, here. Lengths, even shares, shuffle
                windows and states count only these rows. With `manifest_cache` the result is saved
                in a file next to it.
            rows: Read these rows: global row numbers, as `row.id` has them; a bool for each row
                of all files; a dict from file to numbers or bools; or a .npy, .arrow or .parquet
                file, or a table, with the column "row" and perhaps "file". Or `Excluding(FILE)`:
                all that `torchparquet verify --exclusions FILE` could read.
            split: Read one part of a split: a `Split`, or its name, fractions, seed and column,
                such as `("train", {"train": 0.9, "val": 0.1}, 0, "user_id")`. Rows must satisfy
                all of `filters`, `rows` and `split`.
            pack: The samples that rows become: a `Pack` makes sequences of one length of lists,
                such as the tokens of documents; a `Window` is a window of consecutive rows. They
                count as rows for all other arguments.
            sample: The rows of an epoch, and how often it has each: a `Balanced`, for classes in
                proportion, or a `Weights`. The samples count as rows for all other arguments.
            unique: A column of keys, such as "user_id", none of which is in a batch twice; or a
                `Unique`, for keys that no two ranks have in one step. Whole batches are dealt to
                ranks; `even` and states count these instead of rows.
            shuffle: Permute row groups, and rows within windows of them, differently in each
                epoch. Or "global": each epoch is a permutation of all rows, read from a store of
                decoded rows, which takes one pass before the first batch: in files of `cache_dir`,
                or in memory without one, where the rows fit half of `max_memory`. With
                `Shuffle("global", first="windows")` the pass is beside the first epoch instead.
            seed: The key of the permutation; the same on all ranks.
            shuffle_window: The number of consecutive row groups of a share whose rows are permuted
                together; 0 for none. Or a number of rows, such as "1_000_000 rows": longer row
                groups are cut, and their parts permuted like row groups. None for 8 row groups, or
                as many as fit in half of `max_memory`.
            drop_last: Drop a last batch that is not full.
            even: How all ranks get the same number of steps: "split" balances rows to within
                one, "drop" stops at the shortest share, "pad" repeats rows and marks them in
                `batch["row.valid"]`, "none" lets step counts differ. With "dynamic" each rank
                takes the next row group when it is ready for one, for work without collectives;
                all processes must make the same passes in the same order.
            order: How row groups are divided among ranks, where it matters: an `Order`.
            num_epochs: How many epochs one iteration reads; None for epochs without end. An
                iteration ends after an epoch whose number, counted from 1, is a multiple of it.
            limit_steps: The most batches of an epoch that this rank delivers; None for all.
            rank: This process among the data-parallel ranks. None to find out from
                torch.distributed or else the launcher's variables (`RANK`, `WORLD_SIZE`), again at
                each iteration and each `len`, so these may be set up later.
            world_size: Number of data-parallel ranks; give it with `rank`.
            ranks: Which processes the data-parallel ranks are: a DeviceMesh, a ProcessGroup, or a
                `Ranks`. None for the world of torch.distributed.
            processors: A dict of callables by column. Each gets its column's tensor or `Jagged`
                of every batch and returns the value that replaces it.
            transform: A callable that gets each batch, after the processors, and returns the dict
                to deliver. Both run on the thread that iterates; or ahead of it, on threads or
                processes: `Ahead(function, threads=8)`. Workers that are not forked need them
                picklable.
            num_threads: Decode threads; None for this process's share of the processors.
            max_memory: Bound of the memory of batches in flight: bytes, or a size such as "512MiB"
                or "1G" (10^9 bytes).
            pin_memory: Deliver batches in page-locked memory; None to do so if CUDA is available.
                With `device`, batches are copied from page-locked memory unless this is False.
            device: Deliver batches on this device, such as "cuda" for the iterating thread's
                current one; None for the CPU. The next batch is copied while the loop works on
                this one; the loop's stream waits for the copy, the loop itself does not. Not with
                DataLoader workers.
            storage_options: Options of the store in the URLs, such as credentials, by the names of
                pandas (fsspec) or Polars; or a function that returns such options and when they
                expire, in seconds since 1970 or None, which is called again before they do and when
                the store refuses them. Spawned workers need one that they can import. Also
                `max_retries` of a range (9), `retry_timeout_ms` from its first failure to its last
                try (180,000), `max_connections` of the process (its share of 64 of this machine, or
                four for each of its processors if these are more; the first data set decides for
                all), and `hedges`, False to send no second request for a slow first byte.
            filesystem: A file system of fsspec or `pyarrow.fs` for the paths, in place of URLs
                and `storage_options`.
            cache_dir: A folder on local disk that caches what is read of a store, and the decoded
                rows of `shuffle="global"`, for later epochs and runs. Processes may share it; it
                must be empty or such a folder.
            cache_limit: The most bytes of the cache, for blocks of a store and for decoded rows
                each; None for 64 GiB. The least recently used blocks, or rows of other data, are
                removed. Each process may exceed the limit for blocks by a tenth until then.
            manifest_cache: A file, or its URL, that keeps the content of the footers, for data
                sets of thousands of files. No footer is read while all files have the sizes, times
                of change and inodes (in a store: ETags) that it lists; otherwise all are, and it
                is written again, also for `Order(balance="bytes")` if it was made without. Ranks
                may share the file.
            decryption_properties: Keys of encrypted files: pyarrow's `FileDecryptionProperties`
                for all of them, or a function that takes a path and returns the properties of the
                file, or None. The key service is called only while footers are read. Spawned
                workers need a function that they can import.

        Raises:
            FileNotFoundError: A path does not exist, or has nothing to read.
            ImportError: A store's package is missing; the message names it.
            CorruptFileError: A file is not Parquet, or is damaged.
            EncryptedFileError: A file is encrypted, and no key decrypts it.
            SchemaMismatchError: Files disagree about a selected column.
            UnsupportedColumnError: A selected column has a kind that cannot be read yet.
            TypeError: An argument has a wrong type.
            ValueError: An argument is out of its range, or the files hold no row.
        """
        super().__init__()
        by_length = batch_size if isinstance(batch_size, ByLength) else None
        window = requested_window(shuffle_window)
        window_chunks, window_rows = window or (0, 0)
        of_all_rows = permutation_of_all(shuffle)
        plan = PlanOptions(
            batch_size=(batch_size.rows or 1) if isinstance(batch_size, ByLength) else batch_size,
            shuffle=of_all_rows is not None or shuffle,  # type: ignore[arg-type]
            seed=seed,
            even=even,
            drop_last=drop_last,
            shuffle_window=window_chunks,
            window_rows=window_rows,
            order=Order() if order is None else order,
        )
        reading = ReadOptions(num_threads=num_threads, max_memory=max_memory, pin_memory=pin_memory)
        membership = Membership(rank=rank, world_size=world_size, ranks=ranks)
        num_epochs = optional_int("num_epochs", num_epochs, 1, 2**31)
        limit_steps = optional_int("limit_steps", limit_steps, 1, 2**31)
        checked_bool("row_ids", row_ids)
        check_together(
            plan,
            membership,
            pack=pack,
            by_length=by_length,
            sample=sample,
            unique=unique,
            window=window,
            is_global=of_all_rows is not None,
        )
        ahead = transform if isinstance(transform, Ahead) else None
        function = transform.function if isinstance(transform, Ahead) else transform
        source = Source(
            paths=paths,
            rows=RowArguments(
                filters=filters,
                rows=None if isinstance(rows, Excluding) else rows,
                split=split,
                excluding=rows.path if isinstance(rows, Excluding) else None,
            ),
            keys=None if decryption_properties is None else FileKeys(decryption_properties),
            storage=StorageArguments(
                storage_options,
                filesystem,
                cache_dir,
                cache_limit,
                manifest_cache,
                None if membership.is_alone else membership.divided,
            ),
            num_threads=reading.num_threads,
        )
        by_bytes = plan.order.balance == "bytes"
        manifest = source.open(with_sizes=by_bytes)
        source, manifest, (read_columns, read_nulls, pack), texts = source.tokenized(
            manifest,
            Asked(columns, nulls, pack),
            reading,
            with_sizes=by_bytes,
            needs_counts=even != "dynamic" or row_ids or plan.batch_size is None,
        )
        find_words = source.word_pass(manifest, reading).find
        fields = resolve_columns(
            read_columns,
            manifest,
            read_nulls,
            pack if isinstance(pack, Pack) else None,
            find_words,
        )
        read, samples, costs = source.samples(manifest, fields, reading, texts or by_length or pack)
        row_group_bytes = None
        if by_bytes:
            names = {name for field in fields for name in field.sources}
            row_group_bytes = samples.bytes_of_columns(names)
            read, samples = (replace(of, chunk_num_bytes=None) for of in (read, samples))
        row_streams = StreamOpener(
            manifest=read,
            fields=fields,
            # Batches by length are copies of what is read.
            options=reading if by_length is None else replace(reading, pin_memory=False),
            row_ids=row_ids,
            row_valid=even == "pad",
            keys=source.keys,
            device=parsed_device(device),
        )
        streams: StreamOpener | GroupedOpener | DealtOpener | SampledOpener | TextOpener = (
            row_streams if texts is None else texts.opener(fields, plan, row_streams)
        )
        sampling = pack if isinstance(pack, Window) else sample or unique or of_all_rows
        if sampling is not None:
            streams, plan = sampled(source, row_streams, plan, window, sampling, membership)
            samples, window = streams.manifest, None
        pins_for_device = pin_memory is not False
        if by_length is not None and by_length.cost is not None:
            # A function is not needed any more, and need not be picklable.
            by_length = replace(by_length, cost="linear")
        if by_length is not None and by_length.rows is not None:
            streams = DealtOpener(
                rows=replace(row_streams, row_valid=False),
                manifest=samples,
                by_length=by_length,
                pins_for_device=pins_for_device,
                row_valid=row_streams.row_valid,
            )
        elif by_length is not None:
            num_batches = None if costs is None else samples.row_group_num_rows
            window = window_of_row_groups(row_streams, plan, window, num_batches)
            streams = GroupedOpener(
                rows=row_streams,
                manifest=samples,
                by_length=by_length,
                has_single_windows=costs is None and window in (None, (0, 0), (1, 0)),
                pins_for_device=pins_for_device,
            )
        planner = make_planner(
            samples, row_streams, plan, window, limit_steps, row_group_bytes, costs
        )
        decoders = decoders_of(columns)
        transforms = transforms_of(streams.names, decoders, processors, function)
        if ahead is not None and transforms is None:
            raise ValueError("Ahead needs functions: its own, processors, or Column(decode=)")
        of_costs = {} if costs is None else {"cost": costs.digest}
        compared: dict[str, Any] = {"num_epochs": num_epochs, "row_ids": row_ids, **of_costs}
        self._session = DatasetSession(
            membership=membership,
            planner=planner,
            rank_check=RankCheck(membership, streams.manifest, fields, compared),
            streams=streams,
            num_epochs=num_epochs,
            transforms=transforms,
            ahead=ahead,
        )

    @property
    def manifest(self) -> Manifest:
        """The facts from footers: files, row groups, rows, bytes, schema and fingerprint."""
        return self._session.streams.manifest

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch, `row.id` and `row.valid` aside, in order."""
        return self._session.streams.fields

    def __repr__(self) -> str:
        """Return the numbers of files, row groups and rows, the order, and the first columns."""
        manifest, options = self.manifest, self._session.planner.options
        files = f"{len(manifest.files):,} files, {manifest.num_row_groups:,} row groups"
        order = f"batch_size={options.batch_size}, shuffle={options.shuffle}"
        lines = [f"ParquetDataset: {files}, {manifest.num_rows:,} rows, {order}"]
        lines += [f"  {field!r}" for field in self.fields[:_FIELDS_SHOWN]]
        if len(self.fields) > _FIELDS_SHOWN:
            lines.append(f"  and {len(self.fields) - _FIELDS_SHOWN:,} more, see fields")
        return "\n".join(lines)

    @property
    def num_epochs(self) -> int | None:
        """How many epochs one iteration reads; None for epoch after epoch without end."""
        return self._session.num_epochs

    @property
    def decoded_bytes(self) -> int | None:
        """The bytes of the decoded rows that `shuffle="global"` keeps; None without it.

        With strings and lists, about so many, as the footers say.
        """
        streams = self._session.streams
        return streams.store.num_bytes if isinstance(streams, GlobalOpener) else None

    def marking_repeats(self) -> ParquetDataset:
        """Return a copy with `batch["row.valid"]`, False for repeats, as `even="pad"` has it."""
        made = copy.copy(self)
        made._session = self._session.marking_repeats()
        return made

    def __iter__(self) -> Iteration:
        """Return an iterator. Its first `next` begins the next epoch or resumes from a state.

        An iterator that is dropped before its second `next` takes no epoch.

        Raises:
            ValueError: The environment and the arguments disagree about this process's rank,
                another DataLoader worker took the state, two batches do not fit `max_memory`, or a
                loader would divide the batches among ranks a second time, or stack them.
            RankMismatchError: Ranks disagree, see `check_ranks_agree`; the first time only.
        """
        self._session.refuse_second_sharding()
        refuse_second_batching(self)
        num_dropped = num_dropped_by_accelerate(self) if self._session.can_pass_over else 0
        if num_dropped:
            iteration: Iteration = SkippingIteration(self._session, num_dropped)
        else:
            iteration = Iteration(self._session)
        end_orphaned_worker()
        return iteration

    def __len__(self) -> int:
        """Return the exact number of batches of an epoch that this rank delivers.

        The epoch is the one under way, or else the next one. Batches before a loaded state count.
        The number is the same on all ranks unless `even="none"`, and in all epochs without
        `shuffle` or with `even="split"`. A DataLoader worker counts its own; `len(loader)` counts
        those of all workers.
        """
        self._session.refuse_dynamic("length")
        worker = None if in_worker() else (0, max(1, num_workers_of_caller(self)))
        return self._session.num_steps(self._session.topology(worker), of_rank=worker is not None)

    def num_steps(self, num_workers: int = 0) -> int:
        """Return the batches of this rank under a DataLoader with `num_workers` workers."""
        self._session.refuse_dynamic("number of steps")
        checked_int("num_workers", num_workers, 0, 2**16)
        topology = self._session.topology((0, max(1, num_workers)))
        return self._session.num_steps(topology, of_rank=True)

    def load_state_dict(self, state: dict[str, Any], other_data: OtherData = "error") -> None:
        """Make the next iteration resume where `state` was taken, without reading earlier rows.

        A live iterator resumes there too. A state taken after the last batch begins the next
        epoch. If the number of ranks or workers, or the batch size, has changed since, the rows of
        the epoch that no rank delivered are divided among the new ranks, each once.

        Args:
            state: A result of `state_dict`.
            other_data: ``"next_epoch"`` takes a state of other files or rows too, such as those of
                an older version of a table: this data begins with the next epoch, or with that of
                the state if nothing of it was read. The rest of the old epoch is not read.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is of another kind, of other columns or options, or of other data
                with ``"error"``; the message names the difference. Or `other_data` is another word.
        """
        self._session.load_state_dict(state, other_data)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch, counted from 0, the next one, without reading others.

        Moves the iterator under way. If there is none, the next iteration begins there.

        Raises:
            TypeError: `step` is not an int.
            ValueError: The epoch has no such batch, or another world delivered it.
        """
        self._session.refuse_dynamic("step to go to")
        step = checked_int("step", step, 0, 2**62)
        self._session.seek(step)

    def skip(self, num_steps: int) -> None:
        """Pass over the next `num_steps` batches without reading them; see `seek`."""
        self._session.refuse_dynamic("step to go to")
        num_steps = checked_int("num_steps", num_steps, 0, 2**62)
        place = self._session.live_position()
        if place is not None:
            self.seek(place.steps_before + place.steps + num_steps)
        else:
            self._session.move(num_steps, by=True)

    def get_shard_distribution_info(self) -> ShardDistribution:
        """Return how the row groups of the epoch are dealt among ranks and workers."""
        self._session.refuse_dynamic("distribution")
        topology = self._session.topology()
        place = self._session.present_place(topology)
        plan = self._session.planner.present_plan(place)
        return shard_distribution(self.manifest, plan, topology)

    def plan(self, epoch: int | None = None, num_workers: int = 0) -> EpochPlan:
        """Return the plan of `epoch` (None: the current one) for all ranks and workers."""
        self._session.refuse_dynamic("plan")
        topology = self._session.topology(None if in_worker() else (0, max(1, num_workers)))
        place = self._session.present_place(topology)
        if epoch is not None and epoch != place.epoch:
            place = self._session.planner.begin(epoch, topology)
        return self._session.planner.present_plan(place)

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker.

        Raises:
            ValueError: The environment and the arguments disagree about it.
        """
        return self._session.topology()

    def data_parallel_groups(self) -> list[dist.ProcessGroup | None]:
        """Return the process groups that make up the data-parallel ranks, slowest first.

        One for each data-parallel dimension of the mesh, or else the given group. None stands for
        the default group.
        """
        return self._session.membership.data_parallel_groups()

    def check_ranks_agree(self, num_workers: int = 0) -> None:
        """Check that all ranks are about to read the same data in the same order.

        The call compares the files (names, sizes and footers, not their times of change), the
        columns and how each is read, every option that shapes the order, the number of ranks and
        workers, and the next epoch and batch. Model-parallel peers are compared too: all processes
        of the mesh of `ranks`, or else those of its group, or else the world.

        Under an initialised torch.distributed the first iteration compares by itself, once, when
        its second batch is asked for; but not with `Ranks(check=False)`, with `rank` and
        `world_size` given without a group or mesh, and in DataLoader workers: with workers, call
        this before the loop. Every rank must call it, in the same order as it first iterates or
        compares other data sets. A missing rank is named: in a log message after 8 seconds, and in
        an error after the timeout of torch.distributed's store.

        Args:
            num_workers: Workers of the DataLoader that will iterate the data set.

        Raises:
            RankMismatchError: Ranks disagree, or one of them failed or did not join. All ranks
                raise it.
        """
        checked_int("num_workers", num_workers, 0, 2**16)
        self._session.rank_check.compare(partial(self._session.standing, num_workers))

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes; a subclass may leave out those that cannot be copied."""
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the attributes of a copy."""
        self.__dict__.update(state)

    def __copy__(self) -> ParquetDataset:
        """Return a copy that counts epochs on its own."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        made._session = copy.copy(self._session)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> ParquetDataset:
        """Return `copy.copy`: copies share only objects that never change."""
        return copy.copy(self)

    def unbatched(
        self,
        *,
        processors: Mapping[str, Processor] | None = None,
        transform: Transform | None = None,
    ) -> UnbatchedDataset:
        """Return a data set of this one's rows, one by one, as dicts.

        It reads through this data set and shares its epochs, shares and position. Its states are
        exact to the row.

        Args:
            processors: A dict of callables by column, on the column's value of each row.
            transform: A callable on each row, after the processors, that returns the dict to
                deliver. The data set's own functions run before, on whole batches.

        Raises:
            TypeError: A processor or the transform cannot be called.
        """
        return UnbatchedDataset(self, processors, transform)
