"""ParquetDataset: Parquet files as an iterable data set of batches."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch.utils.data import IterableDataset

from torchparquet.batches.column import Nulls
from torchparquet.batches.columns import ColumnsArgument
from torchparquet.batches.fields import Field
from torchparquet.batches.tensors import Batch
from torchparquet.batches.transforms import Processor, Transform
from torchparquet.checks import checked_int
from torchparquet.files.decryption import DecryptionArgument
from torchparquet.files.filters import FiltersArgument
from torchparquet.files.manifest import Manifest, SourceArgument
from torchparquet.files.manifest_cache import CacheArgument
from torchparquet.iteration.assembly import (
    DataArguments,
    DeliveryArguments,
    IterationOptions,
    assemble,
)
from torchparquet.iteration.dynamic import DynamicIteration
from torchparquet.iteration.iteration import Iteration
from torchparquet.metrics.read_metrics import Metrics
from torchparquet.mixing.unbatched import UnbatchedDataset
from torchparquet.plan.epoch_plan import EpochPlan
from torchparquet.plan.plan_options import Balance, Even, PlanOptions
from torchparquet.plan.row_places import Reach
from torchparquet.plan.topology import Topology
from torchparquet.ranks.distribution import ShardDistribution, shard_distribution
from torchparquet.ranks.membership import Membership
from torchparquet.ranks.second_sharding import refuse_second_sharding
from torchparquet.ranks.sharding import in_worker, num_workers_of_caller, warn_of_second_batching
from torchparquet.reading.read_options import ReadOptions

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import Store
    from torch.distributed.device_mesh import DeviceMesh


class ParquetDataset(IterableDataset[Batch]):
    """Batches of tensors from Parquet files, for this rank and worker its exact share.

    Use it bare (`for batch in dataset`) or as `DataLoader(dataset, batch_size=None)`, with any
    number of workers; none is usually fastest, since decoding runs on native threads either way.
    A batch is a `dict[str, Tensor | Jagged]`: `[B]` per column, `[B, F]` per group of columns,
    `[B, L]` for lists of a stated length, a `Jagged` for strings and other lists.

    Every iteration is an epoch, the next one unless `set_epoch` says which. The order of rows is
    a function of the files, the seed, the epoch and the number of ranks and workers alone.
    """

    def __init__(
        self,
        paths: SourceArgument,
        *,
        batch_size: int | None,
        columns: ColumnsArgument = None,
        nulls: Nulls = None,
        filters: FiltersArgument = None,
        shuffle: bool = False,
        seed: int = 0,
        shuffle_window: int | None = None,
        shuffle_within_rank: bool = False,
        drop_last: bool = False,
        even: Even = "split",
        balance: Balance = "rows",
        canonical_world_size: int | None = None,
        num_epochs: int | None = 1,
        limit_steps: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        device_mesh: DeviceMesh | None = None,
        mesh_dims: str | Sequence[str] | None = None,
        process_group: dist.ProcessGroup | None = None,
        store: Store | None = None,
        row_ids: bool = False,
        num_threads: int | None = None,
        max_memory: int | str = "1GiB",
        pin_memory: bool | None = None,
        device: torch.device | str | None = None,
        check_ranks: bool = True,
        processors: Mapping[str, Processor] | None = None,
        transform: Transform | None = None,
        decryption_properties: DecryptionArgument = None,
        manifest_cache: CacheArgument = None,
    ) -> None:
        """Find the files, read their footers and check the options; starts no lasting thread.

        Args:
            paths: A file, directory, glob pattern or `file://` URL, or a sequence of these. Of a
                directory what ends in `.parquet`, `.parq` or `.pq` is read, at any depth, or all
                that is there if nothing does. Or data in memory: a Parquet file in a buffer
                (`bytes`, `bytearray`, `memoryview`, `pyarrow.Buffer`, `io.BytesIO`), a
                `pyarrow.Table` or `RecordBatch`, a pandas or Polars DataFrame, or a sequence of
                these. Tables are encoded once, as 64 row groups; what can be written to is copied.
                It travels with the data set when that is pickled.
            batch_size: Rows per batch and rank; None for one batch per row group.
            columns: Names to read; or a mapping from output name to a source name, a list of
                them (one `[B, F]` tensor) or a `Column`. None for all columns.
            nulls: What a null becomes in columns whose `Column` does not say: "error", "nan",
                "mask", "empty" or a fill value. None for "nan" in float columns and "error"
                elsewhere.
            filters: pyarrow's tuples or Expression: row groups that statistics or the partition
                keys of paths rule out are left out before rows are dealt to ranks, so shares stay
                even and lengths exact. Single rows are not filtered. Reads each footer once more.
            shuffle: Permute row groups, and rows within windows of them, differently in each
                epoch.
            seed: Of the permutation; the same on all ranks.
            shuffle_window: How many consecutive row groups of a share have their rows permuted
                together; 0 for none. None for 8, or as many as half of `max_memory` holds.
            shuffle_within_rank: Deal row groups in file order and permute each rank's own, so
                that a rank reads the same files in every epoch, as caches on its node like it.
            drop_last: Leave out a last batch that is not full.
            even: How ranks are given the same number of steps: "split" balances rows to within
                one, "drop" stops at the shortest share, "pad" repeats rows and flags them in
                `batch["row.valid"]`, "none" lets step counts differ. "dynamic" deals nothing out:
                each rank takes the next row group when it is ready for one, so that none waits for
                a slow one; each row once, for work without collectives, see `store`.
            balance: What ranks are dealt equal amounts of: "rows", or "bytes", compressed, which
                is nearer to what reading costs; with `even=` other than "split".
            canonical_world_size: The number of ranks whose global batches every number of ranks
                that divides it is to have, as long as `batch_size` times their number is equal.
                Not with `drop_last` and `even="none"`, unless it is the number of ranks.
            num_epochs: How many epochs one iteration reads; None for epoch after epoch without
                end. An iteration ends behind epochs that are a multiple of it.
            limit_steps: The most batches of an epoch that this rank delivers; None for all.
            rank: This process among the data-parallel ranks. None to find out at iteration.
            world_size: Number of data-parallel ranks; goes with `rank`.
            device_mesh: Take rank and world size from its data-parallel dimensions; processes
                that differ in others only (tensor, context, pipeline) read the same.
            mesh_dims: Which these are: a name, or several that count as one rank, row-major. None
                for "dp", or "dp_replicate" and "dp_shard", or the only dimension.
            process_group: Take rank and world size from this group.
            store: Of torch.distributed, for `even="dynamic"`: all processes that are given it
                share the rows of a pass, whoever they are. None for the store that
                torch.distributed was initialised with. All processes make the same passes, in
                the same order.
            row_ids: Add `batch["row.id"]`, int64 `[B]`: global row number, in file order.
            num_threads: Decode threads; None for this process's share of the processors.
            max_memory: Bound of the memory of batches in flight, in bytes or such as "512MiB".
            pin_memory: Deliver in page-locked memory; None for where CUDA is available. With
                `device`, copy out of page-locked memory unless this is False.
            device: Deliver batches on this device, such as "cuda" for the iterating thread's
                current one, copied beside the loop's own work on it, one batch ahead; the loop's
                stream waits for the copy, the loop does not. Not with DataLoader workers. None for
                the CPU.
            check_ranks: Compare the ranks before the first batch, see `check_ranks_agree`.
            processors: By column, a callable that is given its tensor or `Jagged` of each batch,
                and returns what is to stand there instead.
            transform: A callable that is given each batch, behind the processors, and returns the
                dict that is delivered. Both run in the process that iterates, are no part of the
                order, of states or of what ranks compare, and must be picklable for workers that
                are not forked.
            decryption_properties: Keys of encrypted files: pyarrow's `FileDecryptionProperties`
                for all of them, or a function that returns those of a path, or None. Key
                management is asked while footers are read, and not again. Spawned workers need
                a function, which they can import.
            manifest_cache: A file that keeps what the footers say, for data sets of thousands of
                files: while all files have the sizes, times of change and inodes that it knows,
                no footer is read; else all are, and it is written anew. Ranks may share it.

        Raises:
            FileNotFoundError: No such path, or nothing there to read.
            CorruptFileError: A file is not Parquet, or damaged.
            EncryptedFileError: A file is encrypted, and there is no key that decrypts it.
            SchemaMismatchError: Files disagree about a selected column.
            UnsupportedColumnError: A selected column has a kind that is not covered yet.
            TypeError: An argument has a wrong type.
            ValueError: An argument is out of its range, or the files hold no row.
        """
        super().__init__()
        self._feed = assemble(
            Membership(rank, world_size, device_mesh, mesh_dims, process_group, store),
            DataArguments(paths, columns, nulls, filters, decryption_properties, manifest_cache),
            PlanOptions(
                batch_size,
                shuffle=shuffle,
                seed=seed,
                even=even,
                drop_last=drop_last,
                balance=balance,
                shuffle_within_rank=shuffle_within_rank,
                shuffle_window=shuffle_window or 0,
            ),
            IterationOptions(
                num_epochs, limit_steps, shuffle_window, canonical_world_size, row_ids, check_ranks
            ),
            ReadOptions(num_threads, max_memory, pin_memory),
            DeliveryArguments(device, processors, transform),
        )

    @property
    def manifest(self) -> Manifest:
        """What the footers say: files, row groups, rows, bytes, schema and fingerprint."""
        return self._feed.streams.manifest

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch, `row.id` and `row.valid` aside, in order."""
        return self._feed.streams.fields

    @property
    def num_epochs(self) -> int | None:
        """How many epochs one iteration reads; None for epoch after epoch without end."""
        return self._feed.num_epochs

    def __iter__(self) -> Iteration:
        """Return an iterator, whose first `next` begins the next epoch, or goes on with a state.

        Raises:
            ValueError: Two sources disagree about this process's rank, a state was taken by
                another DataLoader worker, two batches do not fit `max_memory`, or a loader of
                Accelerate would divide the batches among ranks a second time.
            RankMismatchError: Ranks disagree, see `check_ranks_agree`; the first time only.
        """
        self._refuse_second_sharding()
        warn_of_second_batching(self)
        kind = DynamicIteration if self._feed.is_dynamic else Iteration
        return kind(self._feed)

    def __len__(self) -> int:
        """Return the exact number of batches of an epoch that this rank delivers.

        It is that of the epoch under way, or of the next one, with what was delivered before a
        state was loaded; the same on all ranks unless `even="none"`. Within a DataLoader worker
        it is the worker's, and `len(loader)` is that of all its workers.
        """
        self._feed.refuse_dynamic("length")
        topology = self._feed.membership.topology()
        if not in_worker():
            num_workers = num_workers_of_caller(self)
            topology = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
            return self._num_steps(topology, of_rank=True)
        return self._num_steps(topology, of_rank=False)

    def num_steps(self, num_workers: int = 0) -> int:
        """Return the batches of this rank under a DataLoader with `num_workers` workers."""
        self._feed.refuse_dynamic("number of steps")
        checked_int("num_workers", num_workers, 0, 2**16)
        topology = self._feed.membership.topology()
        topology = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        return self._num_steps(topology, of_rank=True)

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else that the next one will have."""
        place = self._feed.live_place()
        if place is None:
            place = self._feed.progress.next_place()
        return place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration; later ones count on from there.

        A state that was loaded stays in force if it is of this epoch.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative, or a loader of Accelerate that asks for it would
                divide the batches among ranks a second time.
        """
        self._refuse_second_sharding()
        self._feed.progress.set_epoch(checked_int("epoch", epoch, 0, 2**62))

    def state_dict(self) -> dict[str, Any]:
        """Return where the latest iteration stands, counting batches that it has returned.

        The state is a dict of a few hundred bytes that JSON, pickle and torch.save take. It is
        the same on every rank at the same step, so that of one rank will do, also for another
        number of ranks, of DataLoader workers or another batch size: see `load_state_dict`.

        Raises:
            RuntimeError: DataLoader workers have iterated the data set, which only they, by way
                of torchdata's `StatefulDataLoader`, know the state of.
        """
        return self._feed.latest_state()

    def state_at_row(self, num_rows: int) -> dict[str, Any]:
        """Return a state behind `num_rows` rows that each rank was given in the present world.

        For what takes rows rather than batches, as `mix` within batches does. Where a state leads
        into a batch, that comes first, without the rows that were delivered; in another world the
        batch counts as delivered for the length of the epoch.

        Raises:
            ValueError: Batches of `canonical_world_size` are made of shares that are not even.
        """
        return self._feed.state_at_row(num_rows)

    def reaches(self, num_workers: int = 0) -> list[Reach]:
        """Return how far this rank is in the epoch under way or to come, for each worker."""
        self._feed.refuse_dynamic("length")
        topology = self._feed.membership.topology()
        topologies = [topology]
        if not in_worker() and num_workers > 0:
            workers = range(num_workers)
            rank, world_size = topology.rank, topology.world_size
            topologies = [Topology(rank, world_size, of, num_workers) for of in workers]
        return [self._feed.planner.reach(self._feed.present_place(of), of) for of in topologies]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration go on where `state` was taken; nothing before it is read.

        A live iterator goes on there too. A state taken behind the last batch leads to the next
        epoch. With other ranks, workers or batches than those of the state, the rows of the epoch
        that no rank has delivered are dealt anew, each once.

        Raises:
            TypeError: `state` is no dict.
            ValueError: It is not a state, or one of other data, columns or options, which the
                message names.
        """
        self._feed.load_state_dict(state)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch, counted from 0, the next one; others are not read.

        Moves the iterator under way; where there is none, the next iteration begins there.

        Raises:
            TypeError: `step` is not an int.
            ValueError: The epoch has no such batch, or another world has delivered it.
        """
        self._feed.refuse_dynamic("step to go to")
        step = checked_int("step", step, 0, 2**62)
        latest = self._feed.live_iteration()
        if latest is not None:
            latest.seek(step)
        else:
            self._feed.progress.move(step)

    def skip(self, num_steps: int) -> None:
        """Pass over the next `num_steps` batches without reading them; see `seek`."""
        self._feed.refuse_dynamic("step to go to")
        num_steps = checked_int("num_steps", num_steps, 0, 2**62)
        place = self._feed.live_place()
        if place is not None:
            self.seek(place.steps_before + place.steps + num_steps)
        else:
            self._feed.progress.move(num_steps, by=True)

    def get_shard_distribution_info(self) -> ShardDistribution:
        """Return how the row groups of the epoch are dealt among ranks and workers."""
        self._feed.refuse_dynamic("distribution")
        topology = self._feed.membership.topology()
        place = self._feed.present_place(topology)
        plan = self._feed.planner.present_plan(place)
        return shard_distribution(self.manifest, plan, topology)

    def plan(self, epoch: int | None = None, num_workers: int = 0) -> EpochPlan:
        """Return the plan of `epoch` (None: the current one) for all ranks and workers."""
        self._feed.refuse_dynamic("plan")
        topology = self._feed.membership.topology()
        if not in_worker():
            topology = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        place = self._feed.present_place(topology)
        if epoch is not None and epoch != place.epoch:
            place = self._feed.planner.begin(epoch, topology)
        return self._feed.planner.present_plan(place)

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker.

        Raises:
            ValueError: Two sources disagree about it.
        """
        return self._feed.membership.topology()

    def data_parallel_groups(self) -> list[dist.ProcessGroup | None]:
        """Return the process groups that make up the data-parallel ranks, the slowest first.

        One for each data-parallel dimension of the mesh; else the group given, or None for the
        default group.
        """
        return self._feed.membership.data_parallel_groups()

    def check_ranks_agree(self, num_workers: int = 0) -> None:
        """Make sure that all ranks are about to read the same data in the same order.

        Compared are the files (names, sizes and footers, not their times of change),
        the columns and how each is read, every option that shapes the order, the number of ranks
        and workers, and the epoch and batch that come next, also where a state was loaded. Each
        data-parallel rank must be held equally often. Model-parallel peers are compared too:
        with `device_mesh` all of its processes, else those of `process_group`, else the world.

        The first iteration under an initialised torch.distributed does this by itself, once,
        before its first batch; not with `check_ranks=False`, where `rank` and `world_size` were
        given without a group or mesh, and inside DataLoader workers, which cannot talk to other
        ranks: with workers, call it before the loop. Every rank makes the call, in the same order
        as other data sets are first iterated or compared. It goes through torch.distributed's
        store, so a rank that does not come is named: in a log message after a minute, by an
        error when the store's timeout is over.

        Args:
            num_workers: Of the DataLoader that is to iterate the data set.

        Raises:
            RankMismatchError: Ranks disagree, or one of them failed or did not come. Raised on
                all ranks.
        """
        checked_int("num_workers", num_workers, 0, 2**16)
        self._feed.rank_check.compare(partial(self._feed.standing, num_workers))

    def metrics(self, *, all_iterations: bool = False) -> Metrics:
        """Return how fast this process reads, and which side is slower: a snapshot.

        It may be called at any time, from the thread that iterates: within an epoch, behind it,
        and after `close`. Counters are always on and cost next to nothing.

        Args:
            all_iterations: Of all that this process has read since the data set was made, whoever
                else iterates. Otherwise of the iteration under way, or else the last one.

        Raises:
            RuntimeError: DataLoader workers iterate the data set: each has metrics of its own,
                which `torch.utils.data.get_worker_info().dataset.metrics()` returns there.
        """
        if all_iterations:
            return self._feed.totals.metrics()
        self._feed.progress.check_own("data set", "metrics")
        return self._feed.latest_totals.metrics()

    def close(self) -> None:
        """End all iterations of this process and free their memory. The data set stays usable."""
        self._feed.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, for a subclass to leave out what has no copy."""
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's place in this process."""
        self.__dict__.update(state)

    def __copy__(self) -> ParquetDataset:
        """Return a copy for this process, which counts epochs by itself."""
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        made._feed = copy.copy(self._feed)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> ParquetDataset:
        """As `copy.copy`: what copies share is never changed."""
        return copy.copy(self)

    def _num_steps(self, topology: Topology, *, of_rank: bool) -> int:
        place = self._feed.present_place(topology)
        return self._feed.planner.num_steps(place, topology, of_rank=of_rank)

    def _refuse_second_sharding(self) -> None:
        # Who says that one process reads everything may have a loader divide it.
        membership = self._feed.membership
        reads_all = membership.is_alone and membership.topology().world_size == 1
        if not reads_all:
            refuse_second_sharding()

    def unbatched(
        self,
        *,
        processors: Mapping[str, Processor] | None = None,
        transform: Transform | None = None,
    ) -> UnbatchedDataset:
        """Return a data set of this one's rows, one by one, as dicts.

        For pipelines that work on rows and for a DataLoader's `batch_size` and `collate_fn`. It
        reads by this data set: its epochs, shares and place are the same ones. States lead to the
        exact row.

        Args:
            processors: By column, a callable that is given a row's value and returns what is to
                stand there instead.
            transform: A callable that is given each row, behind the processors, and returns the
                dict that is delivered. The data set's own functions come first, on batches.

        Raises:
            TypeError: One of them cannot be called.
        """
        return UnbatchedDataset(self, processors, transform)
