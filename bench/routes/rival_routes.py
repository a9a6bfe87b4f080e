"""The ways of other packages to batches of tensors; imported by an interpreter that has them.

Each is written as its documentation has it, told to use two threads or workers where it can be
told, and copies nothing that it does not copy itself. A package that must convert files
first does so before the clock runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from routes.pyarrow_routes import Batch, rebatched, record_batch_tensors, table_tensors

Batches = Callable[[], Iterator[Batch]]


@dataclass(frozen=True)
class Work:
    """The data to read.

    Attributes:
        path: A Parquet file of flat columns.
        batch_size: Rows.
        num_threads: Threads or workers.
        folder: For what a package converts; its own.
    """

    path: Path
    batch_size: int
    num_threads: int
    folder: Path


@dataclass(frozen=True)
class Rival:
    """One way of one package.

    Attributes:
        name: Unique among them.
        package: As installed.
        prepare: Converts what must be converted, and returns what makes the batches of a pass.
    """

    name: str
    package: str
    prepare: Callable[[Work], Batches]


def _hugging_face(work: Work, *, streaming: bool, form: str) -> Batches:
    import datasets

    dataset: Any = datasets.load_dataset(
        "parquet",
        data_files=str(work.path),
        split="train",
        streaming=streaming,
        cache_dir=str(work.folder),
    ).with_format(form)

    def batches() -> Iterator[Batch]:
        for batch in dataset.iter(batch_size=work.batch_size):
            yield table_tensors(batch) if form == "arrow" else batch

    return batches


def _litdata(work: Work) -> Batches:
    import litdata
    import pyarrow.parquet

    work.folder.mkdir(parents=True, exist_ok=True)
    link = work.folder / work.path.name
    if not link.exists():
        link.hardlink_to(work.path)
    litdata.index_parquet_dataset(str(work.folder))
    dataset = litdata.StreamingDataset(
        str(work.folder), item_loader=litdata.streaming.item_loader.ParquetLoader()
    )
    loader = litdata.StreamingDataLoader(
        dataset,
        batch_size=work.batch_size,
        num_workers=work.num_threads,
        multiprocessing_context="spawn",  # it refuses to fork, as it reads by Polars
    )

    names = pyarrow.parquet.read_schema(work.path).names

    def batches() -> Iterator[Batch]:
        for batch in loader:
            # Rows are tuples, of which the loader makes a list of columns.
            yield batch if isinstance(batch, dict) else dict(zip(names, batch, strict=True))

    return batches


def _ray(work: Work) -> Batches:
    import ray

    ray.init(num_cpus=work.num_threads, include_dashboard=False, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False

    def batches() -> Iterator[Batch]:
        dataset = ray.data.read_parquet(str(work.path))
        yield from dataset.iter_torch_batches(batch_size=work.batch_size, prefetch_batches=4)

    return batches


def _frame_tensors(frame: Any) -> Batch:
    return {column.name: torch.from_numpy(column.to_numpy()) for column in frame.get_columns()}


def _polars_streaming(work: Work) -> Batches:
    import polars

    def batches() -> Iterator[Batch]:
        scanned = polars.scan_parquet(work.path)
        for frame in scanned.collect_batches(chunk_size=work.batch_size, maintain_order=True):
            yield _frame_tensors(frame)

    return batches


def _polars_whole(work: Work) -> Batches:
    import polars

    def batches() -> Iterator[Batch]:
        whole = polars.read_parquet(work.path)
        yield from map(_frame_tensors, whole.iter_slices(work.batch_size))

    return batches


def _duckdb(work: Work) -> Batches:
    import duckdb

    connection = duckdb.connect(config={"threads": work.num_threads})

    def batches() -> Iterator[Batch]:
        relation = connection.read_parquet(str(work.path))
        yield from map(record_batch_tensors, relation.to_arrow_reader(work.batch_size))

    return batches


def _lance(work: Work) -> Batches:
    import lance
    import pyarrow.dataset

    if not work.folder.exists():
        lance.write_dataset(pyarrow.dataset.dataset(work.path), str(work.folder))
    dataset = lance.dataset(str(work.folder))

    def batches() -> Iterator[Batch]:
        yield from map(record_batch_tensors, dataset.to_batches(batch_size=work.batch_size))

    return batches


def _torchdata(work: Work) -> Batches:
    import pyarrow.parquet
    from torchdata import nodes

    footer = pyarrow.parquet.read_metadata(work.path)

    def read(index: Any) -> Batch:
        # A ParquetFile is not safe to share between threads.
        with pyarrow.parquet.ParquetFile(work.path, metadata=footer, memory_map=True) as file:
            return table_tensors(file.read_row_group(index, use_threads=False))

    def batches() -> Iterator[Batch]:
        indices = nodes.IterableWrapper(range(footer.num_row_groups))
        mapped = nodes.ParallelMapper(
            indices, map_fn=read, num_workers=work.num_threads, method="thread"
        )
        yield from rebatched(nodes.Loader(mapped), work.batch_size)

    return batches


RIVALS = (
    Rival(
        "datasets, streamed, arrow",
        "datasets",
        partial(_hugging_face, streaming=True, form="arrow"),
    ),
    Rival(
        "datasets, streamed, torch",
        "datasets",
        partial(_hugging_face, streaming=True, form="torch"),
    ),
    Rival(
        "datasets, its own cache, arrow",
        "datasets",
        partial(_hugging_face, streaming=False, form="arrow"),
    ),
    Rival(
        "datasets, its own cache, torch",
        "datasets",
        partial(_hugging_face, streaming=False, form="torch"),
    ),
    Rival("LitData", "litdata", _litdata),
    Rival("Ray Data", "ray", _ray),
    Rival("Polars, streamed", "polars", _polars_streaming),
    Rival("Polars, whole file", "polars", _polars_whole),
    Rival("DuckDB", "duckdb", _duckdb),
    Rival("Lance, its own format", "pylance", _lance),
    Rival("torchdata with pyarrow", "torchdata", _torchdata),
)
