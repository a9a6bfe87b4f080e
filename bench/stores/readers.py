"""Those that read from a store: torchparquet, and others as their documentation has it."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from report.verdicts import OURS
from routes.pyarrow_routes import Batch, record_batch_tensors
from stores.nginx import Place

KEY, SECRET = "key", "secret"
RANGE_BYTES = 8 << 20
CONNECTIONS = 16
# Arrow's default is 8 threads; its documentation advises more for stores.
IO_THREADS = 32
Open = Callable[[Place, int], Iterator[Batch]]
Count = Callable[[Place], int]


@dataclass(frozen=True)
class Reader:
    """One way to the data.

    Attributes:
        name: Unique among them.
        batches: Opens a place and yields batches of so many rows.
        count: Opens a folder, reads all footers and returns the number of rows.
        missing: Why it cannot run here; empty if it can.
    """

    name: str
    batches: Open | None = None
    count: Count | None = None
    missing: str = ""


def options_of_s3(place: Place) -> dict[str, Any]:
    """Returns the options of fsspec for the place."""
    return {"key": KEY, "secret": SECRET, "endpoint_url": place.endpoint}


def our_batches(place: Place, batch_size: int, **options: Any) -> Iterator[Batch]:
    """Yields an epoch of torchparquet."""
    yield from our_dataset(place, batch_size, **options)


def our_dataset(place: Place, batch_size: int, **options: Any) -> Any:
    """Returns a data set of the place."""
    from torchparquet import ParquetDataset

    given: dict[str, Any] = {
        "storage_options": options_of_s3(place),
        "rank": 0,
        "world_size": 1,
    } | options
    return ParquetDataset(place.s3_url, batch_size=batch_size, num_threads=2, **given)


def _arrow_s3(place: Place) -> Any:
    from pyarrow import fs

    return fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region="us-east-1",
        endpoint_override=place.endpoint.partition("://")[2],
        scheme="http",
    )


def _fsspec_s3(place: Place) -> Any:
    import s3fs

    return s3fs.S3FileSystem(**options_of_s3(place), skip_instance_cache=True)


def _arrow_dataset(place: Place, batch_size: int, *, io_threads: int = 0) -> Iterator[Batch]:
    import pyarrow.dataset as ds

    if io_threads:
        pa.set_io_thread_count(io_threads)
    dataset = ds.dataset(place.path, filesystem=_arrow_s3(place), format="parquet")
    yield from map(record_batch_tensors, dataset.to_batches(batch_size=batch_size))


def _arrow_iter_batches(place: Place, batch_size: int) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    with (
        _arrow_s3(place).open_input_file(place.path) as source,
        pq.ParquetFile(source, pre_buffer=True) as file,
    ):
        yield from map(record_batch_tensors, file.iter_batches(batch_size))


def _fsspec_iter_batches(place: Place, batch_size: int) -> Iterator[Batch]:
    import pyarrow.parquet as pq

    with (
        _fsspec_s3(place).open(place.path) as source,
        pq.ParquetFile(source, pre_buffer=True) as file,
    ):
        yield from map(record_batch_tensors, file.iter_batches(batch_size))


def _fsspec_dataset(place: Place, batch_size: int) -> Iterator[Batch]:
    import pyarrow.dataset as ds

    dataset = ds.dataset(place.path, filesystem=_fsspec_s3(place), format="parquet")
    yield from map(record_batch_tensors, dataset.to_batches(batch_size=batch_size))


def _polars_scan(place: Place) -> Any:
    import polars

    options = {
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint_url": place.endpoint,
        "aws_allow_http": "true",
    }
    return polars.scan_parquet(place.s3_url, storage_options=options)


def _polars(place: Place, batch_size: int) -> Iterator[Batch]:
    frames = _polars_scan(place).collect_batches(chunk_size=batch_size, maintain_order=True)
    for frame in frames:
        yield {column.name: torch.from_numpy(column.to_numpy()) for column in frame.get_columns()}


def _duckdb(place: Place, batch_size: int) -> Iterator[Batch]:
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    connection.execute("LOAD httpfs")
    relation = connection.read_parquet(place.http_url)
    yield from map(record_batch_tensors, relation.to_arrow_reader(batch_size))


def _arrow_count(place: Place) -> int:
    import pyarrow.dataset as ds

    pa.set_io_thread_count(IO_THREADS)
    dataset = ds.dataset(place.path, filesystem=_arrow_s3(place), format="parquet")
    return int(dataset.count_rows())


def _fsspec_count(place: Place) -> int:
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.parquet as pq

    filesystem = _fsspec_s3(place)

    def rows(path: str) -> int:
        with filesystem.open(path) as source:
            return int(pq.read_metadata(source).num_rows)

    with ThreadPoolExecutor(IO_THREADS) as threads:
        return sum(threads.map(rows, filesystem.find(place.path)))


def _polars_count(place: Place) -> int:
    import polars

    return int(_polars_scan(place).select(polars.len()).collect().item())


def _our_count(place: Place) -> int:
    return int(our_dataset(place, 64).manifest.num_rows)


def curl_ranges(place: Place, num_bytes: int, folder: Path) -> int:
    """Reads all bytes of an object by curl, in ranges side by side, and returns their number."""
    lines: list[str] = []
    for begin in range(0, num_bytes, RANGE_BYTES):
        end = min(begin + RANGE_BYTES, num_bytes) - 1
        lines += ["next"] if lines else []
        lines += [f'url = "{place.http_url}"', f'range = "{begin}-{end}"', 'output = "/dev/null"']
        lines += ["silent", "fail", 'write-out = "%{size_download}\\n"']
    config = folder / "curl.config"
    config.write_text("\n".join(lines))
    command = ["curl", "--parallel", "--parallel-immediate", "--parallel-max", str(CONNECTIONS)]
    done = subprocess.run(
        [*command, "--config", str(config)], check=True, capture_output=True, text=True
    )
    return sum(map(int, done.stdout.split()))


def why_no_urls() -> str:
    """Returns why torchparquet cannot be measured; empty if it reads URLs."""
    from torchparquet import ParquetDataset

    try:
        ParquetDataset([], batch_size=1, storage_options={})
    except TypeError:
        return "it reads no URLs yet"
    except ValueError:
        pass
    return _without("s3fs")


def _without(package: str) -> str:
    return "" if importlib.util.find_spec(package) else f"{package} is not installed"


def _without_httpfs() -> str:
    if missing := _without("duckdb"):
        return missing
    import duckdb

    try:
        duckdb.connect(config={"autoinstall_known_extensions": False}).execute("LOAD httpfs")
    except duckdb.Error:
        return "its extension httpfs is not installed"
    return ""


def readers() -> list[Reader]:
    """Returns torchparquet and the others."""
    no_s3fs, no_polars = _without("s3fs"), _without("polars")
    many = f"{IO_THREADS} I/O threads"
    return [
        Reader(OURS, our_batches, _our_count, why_no_urls()),
        Reader("pyarrow.dataset, S3FileSystem", _arrow_dataset),
        Reader(
            f"pyarrow.dataset, S3FileSystem, {many}",
            partial(_arrow_dataset, io_threads=IO_THREADS),
            _arrow_count,
        ),
        Reader("iter_batches, pre_buffer, S3FileSystem", _arrow_iter_batches),
        Reader("pyarrow.dataset, s3fs", _fsspec_dataset, None, no_s3fs),
        Reader("iter_batches, pre_buffer, s3fs", _fsspec_iter_batches, None, no_s3fs),
        Reader(f"read_metadata, s3fs, {IO_THREADS} threads", None, _fsspec_count, no_s3fs),
        Reader("Polars", _polars, _polars_count, no_polars),
        Reader("DuckDB, httpfs", _duckdb, None, _without_httpfs()),
    ]
