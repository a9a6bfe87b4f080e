"""ParquetDataset: Parquet files as an iterable data set of batches."""

from __future__ import annotations

import copy
import os
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from torchparquet.column import Nulls
from torchparquet.columns import ColumnsArgument, resolve_columns
from torchparquet.epochs import EpochCounter
from torchparquet.fields import Field
from torchparquet.filters import FiltersArgument, filter_row_groups
from torchparquet.manifest import Manifest, SourceArgument, read_manifest
from torchparquet.options import ReadOptions
from torchparquet.plan import EpochPlan
from torchparquet.plan_options import Even, PlanOptions, checked_int
from torchparquet.reader import BatchStream, ReaderStats, SinkPool, SlabPool
from torchparquet.sharding import Topology, resolve_topology
from torchparquet.share import Share
from torchparquet.tensors import Batch

if TYPE_CHECKING:
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh


_RUNTIME = (
    *("_streams", "_stream", "_epoch_of_stream"),
    *("_pool", "_sinks", "_pool_pid", "_last_plan"),
)


class ShardDistribution(TypedDict):
    """What `ParquetDataset.get_shard_distribution_info` returns; a shard is a row group.

    The lists `*_per_rank` have one entry per rank, `*_per_worker` one per DataLoader worker of
    this rank. `assigned_shards` are the row groups, by global number, that this rank's worker
    (`worker_id` of `num_workers`) reads rows of, in reading order; `rows`, `bytes` and `steps`
    are this worker's.
    """

    epoch: int
    total_shards: int
    shards_per_rank: list[int]
    shards_per_worker: list[int]
    rows_per_rank: list[int]
    steps_per_rank: list[int]
    rank: int
    world_size: int
    worker_id: int
    num_workers: int
    assigned_shards: list[int]
    rows: int
    bytes: int
    steps: int


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
        drop_last: bool = False,
        even: Even = "split",
        rank: int | None = None,
        world_size: int | None = None,
        device_mesh: DeviceMesh | None = None,
        process_group: dist.ProcessGroup | None = None,
        row_ids: bool = False,
        num_threads: int | None = None,
        max_memory: int | str = "1GiB",
        pin_memory: bool | None = None,
    ) -> None:
        """Find the files, read their footers and check the options; starts no lasting thread.

        Args:
            paths: A file, directory (searched recursively), glob pattern or `file://` URL, or a
                sequence of these. Or data in memory: a Parquet file in a buffer (`bytes`,
                `bytearray`, `memoryview`, `pyarrow.Buffer`, `io.BytesIO`), a `pyarrow.Table` or
                `RecordBatch`, a pandas or Polars DataFrame, or a sequence of these. Tables are
                encoded once, as 64 row groups; what can be written to is copied. It travels
                with the data set when that is pickled.
            batch_size: Rows per batch and rank; None for one batch per row group.
            columns: Names to read; or a mapping from output name to a source name, a list of
                them (one `[B, F]` tensor) or a `Column`. None for all columns.
            nulls: What a null becomes in columns whose `Column` does not say: "error", "nan",
                "mask", "empty" or a fill value. None for "nan" in float columns and "error"
                elsewhere.
            filters: pyarrow's tuples or Expression: row groups that statistics or the partition
                keys of paths rule out are left out before rows are dealt to ranks, so shares stay
                even and lengths exact. Single rows are not filtered. Reads each footer once more.
            shuffle: Permute the row groups, differently in each epoch.
            seed: Of the permutation; the same on all ranks.
            drop_last: Leave out a last batch that is not full.
            even: How ranks are given the same number of steps: "split" balances rows to within
                one, "drop" stops at the shortest share, "pad" repeats rows and flags them in
                `batch["row.valid"]`, "none" lets step counts differ.
            rank: This process among the data-parallel ranks. None to find out at iteration.
            world_size: Number of data-parallel ranks; goes with `rank`.
            device_mesh: Take rank and world size from its data-parallel dimension.
            process_group: Take rank and world size from this group.
            row_ids: Add `batch["row.id"]`, int64 `[B]`: global row number, in file order.
            num_threads: Decode threads; None for this process's share of the processors.
            max_memory: Bound of the memory of batches in flight, in bytes or such as "512MiB".
            pin_memory: Deliver in page-locked memory; None for where CUDA is available.

        Raises:
            FileNotFoundError: No such path, or nothing there to read.
            CorruptFileError: A file is not Parquet, or damaged.
            SchemaMismatchError: Files disagree about a selected column.
            UnsupportedColumnError: A selected column has a kind that is not covered yet.
            TypeError: An argument has a wrong type.
            ValueError: An argument is out of its range, or the files hold no row.
        """
        super().__init__()
        if (rank is None) != (world_size is None):
            raise ValueError(
                f"rank and world_size go together, got rank={rank}, world_size={world_size}"
            )
        if rank is not None and world_size is not None:
            Topology(rank, world_size)
        if not isinstance(row_ids, bool):
            raise TypeError(f"row_ids must be a bool, got {row_ids!r}")
        self._plan_options = PlanOptions(
            batch_size, shuffle=shuffle, seed=seed, even=even, drop_last=drop_last
        )
        self._read_options = ReadOptions(num_threads, max_memory, pin_memory)
        self._rank = rank
        self._world_size = world_size
        self._device_mesh = device_mesh
        self._process_group = process_group
        self._row_ids = row_ids
        manifest = read_manifest(paths, self._read_options.num_threads)
        self._manifest = filter_row_groups(manifest, filters)
        self._fields = resolve_columns(columns, self._manifest, nulls)
        self._epochs = EpochCounter()
        self._lost_groups = False
        self._topology_of_loader: Topology | None = None
        self._reset_runtime()

    def _reset_runtime(self) -> None:
        """Set what belongs to this process alone: streams, their memory, the last plan."""
        self._streams: weakref.WeakSet[BatchStream] = weakref.WeakSet()
        self._stream: weakref.ref[BatchStream] | None = None
        self._epoch_of_stream = 0
        self._pool: SlabPool | None = None
        self._sinks: SinkPool | None = None
        self._pool_pid = os.getpid()
        self._last_plan: EpochPlan | None = None

    @property
    def manifest(self) -> Manifest:
        """What the footers say: files, row groups, rows, bytes, schema and fingerprint."""
        return self._manifest

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of a batch, `row.id` and `row.valid` aside, in order."""
        return self._fields

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch.

        Raises:
            ValueError: Two sources disagree about this process's rank, or two batches do not fit
                `max_memory`.
        """
        topology = self._topology()
        epoch = self._epochs.begin()
        plan = self._plan(epoch, topology)
        share = plan.share(topology.share_index)
        if share.num_steps == 0:
            self._warn_of_no_steps(plan, topology)
            return iter(())
        if self._pool_pid != os.getpid():
            # Inherited over a fork: its lock may be held by a thread that is not here.
            self._pool, self._sinks, self._pool_pid = None, None, os.getpid()
        stream = BatchStream(
            self._manifest,
            share,
            self._fields,
            row_ids=self._row_ids,
            row_valid=self._plan_options.even == "pad",
            num_threads=self._read_options.threads_per_worker(topology.num_workers),
            max_memory_bytes=self._read_options.memory_per_worker(topology.num_workers),
            pin_memory=self._pins_memory(),
            pool=self._pool,
            sinks=self._sinks,
        )
        self._pool, self._sinks = stream.pool, stream.sinks
        self._streams.add(stream)
        self._stream = weakref.ref(stream)
        self._epoch_of_stream = epoch
        return stream

    def __len__(self) -> int:
        """Return the exact number of batches that this rank (in a worker: the worker) delivers.

        It is that of the epoch under way, or of the next one; the same on all ranks unless
        `even="none"`. DataLoader workers are shares of their own: see `num_steps`.
        """
        topology = self._topology()
        return int(self._plan(self._current_epoch(), topology).share_steps[topology.share_index])

    def num_steps(self, num_workers: int = 0) -> int:
        """Return the batches of this rank under a DataLoader with `num_workers` workers."""
        checked_int("num_workers", num_workers, 0, 2**16)
        topology = self._topology()
        own = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        return self._plan(self._current_epoch(), own).num_steps(own.rank)

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else that the next one will have."""
        return self._current_epoch()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration; later ones count on from there.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative.
        """
        self._epochs.set(checked_int("epoch", epoch, 0, 2**62))

    def get_shard_distribution_info(self) -> ShardDistribution:
        """Return how the row groups of the epoch are dealt among ranks and workers."""
        topology = self._topology()
        epoch = self._current_epoch()
        plan = self._plan(epoch, topology)
        shares = [plan.share(index) for index in range(plan.num_shares)]
        own = shares[topology.share_index]
        num_shards = np.array([len(_shards_of(share)) for share in shares])
        by_worker = num_shards.reshape(topology.num_workers, topology.world_size)
        shape = by_worker.shape
        return {
            "epoch": epoch,
            "total_shards": self._manifest.num_row_groups,
            "shards_per_rank": by_worker.sum(0).tolist(),
            "shards_per_worker": by_worker[:, topology.rank].tolist(),
            "rows_per_rank": plan.share_rows.reshape(shape).sum(0).tolist(),
            "steps_per_rank": plan.share_steps.reshape(shape).sum(0).tolist(),
            "rank": topology.rank,
            "world_size": topology.world_size,
            "worker_id": topology.worker_id,
            "num_workers": topology.num_workers,
            "assigned_shards": _shards_of(own),
            "rows": own.total_rows,
            "bytes": self._bytes_of(own),
            "steps": own.num_steps,
        }

    def plan(self, epoch: int | None = None, num_workers: int = 0) -> EpochPlan:
        """Return the plan of `epoch` (None: the current one) for all ranks and workers."""
        topology = self._topology()
        if get_worker_info() is None:
            topology = Topology(topology.rank, topology.world_size, 0, max(1, num_workers))
        return self._plan(self._current_epoch() if epoch is None else epoch, topology)

    def topology(self) -> Topology:
        """Return this process's data-parallel rank and DataLoader worker.

        Raises:
            ValueError: Two sources disagree about it.
        """
        return self._topology()

    def data_parallel_group(self) -> dist.ProcessGroup | None:
        """Return the process group of the data-parallel ranks; None for the default group."""
        if self._device_mesh is not None:
            names = self._device_mesh.mesh_dim_names or ()
            return self._device_mesh.get_group("dp" if "dp" in names else 0)
        return self._process_group

    @property
    def stats(self) -> ReaderStats | None:
        """Of the latest iteration in this process, while its iterator exists; else None."""
        stream = self._stream() if self._stream is not None else None
        return None if stream is None else stream.stats

    def close(self) -> None:
        """End all iterations of this process and free their memory. The data set stays usable."""
        for stream in list(self._streams):
            stream.close()
        self._reset_runtime()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process alone."""
        state = self.__dict__.copy()
        for name in _RUNTIME:
            del state[name]
        has_groups = self._device_mesh is not None or self._process_group is not None
        state.update(_device_mesh=None, _process_group=None)
        state["_lost_groups"] = self._lost_groups or has_groups
        # A spawned DataLoader worker knows nothing of its parent's process groups. Any other
        # copy may go to another rank, which must find out for itself who it is.
        if get_spawning_popen() is not None and (has_groups or _is_distributed()):
            state["_topology_of_loader"] = self._topology()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a copy's place in this process."""
        self.__dict__.update(state)
        self._reset_runtime()

    def __copy__(self) -> ParquetDataset:
        """Return a copy for this process, which counts epochs by itself."""
        made = type(self).__new__(type(self))
        state = self.__getstate__()
        state["_epochs"] = copy.deepcopy(self._epochs)
        groups = ("_device_mesh", "_process_group", "_lost_groups")
        made.__setstate__(state | {name: self.__dict__[name] for name in groups})
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> ParquetDataset:
        """As `copy.copy`: what copies share is never changed."""
        return copy.copy(self)

    def _topology(self) -> Topology:
        worker = get_worker_info()
        loader = self._topology_of_loader
        if worker is not None and loader is not None:
            return Topology(loader.rank, loader.world_size, worker.id, worker.num_workers)
        if self._lost_groups:
            raise ValueError(
                "device_mesh and process_group do not travel with a pickled ParquetDataset: make "
                "the data set in the process that reads it, or give rank and world_size"
            )
        return resolve_topology(
            self._rank, self._world_size, self._process_group, self._device_mesh
        )

    def _current_epoch(self) -> int:
        stream = self._stream() if self._stream is not None else None
        if stream is not None and not stream.closed:
            return self._epoch_of_stream
        return self._epochs.next()

    def _plan(self, epoch: int, topology: Topology) -> EpochPlan:
        options = PlanOptions(
            self._plan_options.batch_size,
            shuffle=self._plan_options.shuffle,
            seed=self._plan_options.seed,
            epoch=epoch,
            world_size=topology.world_size,
            num_workers=topology.num_workers,
            even=self._plan_options.even,
            drop_last=self._plan_options.drop_last,
        )
        if self._last_plan is None or self._last_plan.options != options:
            self._last_plan = EpochPlan(self._manifest.row_group_num_rows, options)
        return self._last_plan

    def _bytes_of(self, share: Share) -> int:
        """Return the compressed bytes of the share's rows, prorated within a row group."""
        rows = np.maximum(self._manifest.row_group_num_rows[share.row_group], 1)
        num_bytes = self._manifest.row_group_num_bytes[share.row_group]
        return int((share.num_rows / rows * num_bytes).sum())

    def _pins_memory(self) -> bool:
        if get_worker_info() is not None:
            # A worker sends its batches through shared memory; CUDA may not survive its fork.
            return False
        wanted = self._read_options.pin_memory
        if wanted is False or torch.cuda.is_available():
            return wanted is not False
        if wanted:
            warnings.warn("pin_memory=True has no effect: CUDA is not available", stacklevel=3)
        return False

    def _warn_of_no_steps(self, plan: EpochPlan, topology: Topology) -> None:
        if self._plan_options.even == "none":
            return
        warnings.warn(
            "this epoch has no step: the rows do not make one batch for each of "
            f"{plan.num_shares} shares (even={self._plan_options.even!r}, "
            f"batch_size={self._plan_options.batch_size}, "
            f"drop_last={self._plan_options.drop_last}, {self._manifest.num_rows} rows in "
            f"{self._manifest.num_row_groups} row groups)",
            stacklevel=3,
        )


def _shards_of(share: Share) -> list[int]:
    """Return the row groups that a share reads rows of, each once, in reading order."""
    read: list[int] = share.row_group[(share.num_rows > 0) & share.valid].tolist()
    return list(dict.fromkeys(read))


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
