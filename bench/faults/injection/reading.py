"""Small files of many kinds, the rows that pyarrow reads of them, and the reader under test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from torchparquet import Jagged, ParquetDataset

Rows = list[dict[str, Any]]
NUM_ROWS, ROW_GROUP = 150, 50
CODECS = ("snappy", "zstd", "gzip", "none")


class Configuration(NamedTuple):
    """One way to read: options of the data set, DataLoader workers, and the time for a batch."""

    options: dict[str, Any]
    num_workers: int = 0
    timeout_seconds: int = 0


CONFIGURATIONS = {
    "plain": Configuration({"batch_size": 32, "num_threads": 2}),
    "one thread": Configuration({"batch_size": 32, "num_threads": 1}),
    "windows": Configuration(
        {"batch_size": 32, "num_threads": 2, "shuffle": True, "shuffle_window": 3}
    ),
    "row groups": Configuration({"batch_size": None, "num_threads": 2}),
    "workers": Configuration({"batch_size": 32, "num_threads": 1}, num_workers=2),
}


def write_files(folder: Path, salt: int = 0, num_rows: int = NUM_ROWS) -> None:
    """Write one file for each codec, and one of other rows beside them; `salt` changes values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "data").mkdir(parents=True)
    for number, codec in enumerate(CODECS):
        ids = range(1000 * number, 1000 * number + num_rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "weight": pa.array([(i * 7 + salt) / 4 for i in ids], pa.float32()),
                "maybe": pa.array([None if i % 5 == 0 else i + salt for i in ids], pa.int32()),
                "text": pa.array([None if i % 7 == 0 else f"{i + salt:07d}" * 3 for i in ids]),
                "word": pa.array([f"word {(i + salt) % 9}" for i in ids]),
                "items": pa.array(
                    [[i + salt + j for j in range(i % 4)] for i in ids], pa.list_(pa.int32())
                ),
            }
        )
        path = folder / "data" / f"{number}-{codec}.parquet"
        pq.write_table(
            table,
            path,
            compression=codec,
            row_group_size=ROW_GROUP,
            use_dictionary=["word"],
            data_page_size=1024,
            write_page_checksum=True,
        )
    good = pa.table({"id": pa.array(range(100), pa.int64())})
    pq.write_table(good, folder / "good.parquet", row_group_size=20)


def write_oracle(folder: Path) -> None:
    """Write down the rows of `folder/data`, as pyarrow reads them."""
    import pyarrow.parquet as pq

    rows = [
        row
        for path in sorted((folder / "data").iterdir())
        for row in pq.read_table(path).to_pylist()
    ]
    (folder / "oracle.json").write_text(json.dumps(rows))


@cache
def oracle(folder: Path) -> Rows:
    """Return what `write_oracle` wrote."""
    rows: Rows = json.loads((folder / "oracle.json").read_text())
    return rows


def rows_of(batch: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row, and the row."""
    columns = {}
    for name, value in batch.items():
        if name == "row.id" or name.endswith(".valid"):
            continue
        values = value.tolist() if isinstance(value, torch.Tensor) else _listed(value)
        valid = batch.get(f"{name}.valid")
        if valid is not None:
            values = [v if is_valid else None for v, is_valid in zip(values, valid, strict=True)]
        columns[name] = values
    for number, *row in zip(batch["row.id"].tolist(), *columns.values(), strict=True):
        yield number, dict(zip(columns, row, strict=True))


def _listed(value: Jagged) -> list[Any]:
    if isinstance(value.values, torch.Tensor) and value.values.dtype == torch.uint8:
        return value.to_str()
    return value.to_list()


def dataset_of(folder: Path, configuration: Configuration, **more: Any) -> ParquetDataset:
    """Open the files of a folder as a configuration says."""
    options: dict[str, Any] = {"nulls": "mask", "row_ids": True, "rank": 0, "world_size": 1}
    options |= {"paths": folder / "data", "max_memory": "32MiB"}
    return ParquetDataset(**(options | configuration.options | more))


def batches_of(dataset: ParquetDataset, configuration: Configuration) -> Iterator[dict[str, Any]]:
    """Return an iterator over one epoch."""
    if configuration.num_workers == 0:
        return iter(dataset)
    return iter(
        DataLoader(
            dataset,
            batch_size=None,
            num_workers=configuration.num_workers,
            timeout=configuration.timeout_seconds,
        )
    )


class DifferenceError(Exception):
    """Rows that are wrong, doubled or missing."""


class Collected:
    """Rows as they are delivered, each checked against those that pyarrow read."""

    def __init__(self, expected: Rows, *others: Rows) -> None:
        """Expect these rows, or those of one of the others and no mix."""
        self._versions = self._expected = [expected, *others]
        self._seen: set[int] = set()

    def anew(self) -> Collected:
        """Return one that expects the same and has seen nothing."""
        return Collected(*self._versions)

    def add(self, batch: dict[str, Any]) -> None:
        """Check the rows of a batch.

        Raises:
            DifferenceError: A row is wrong or comes again.
        """
        for number, row in rows_of(batch):
            if number in self._seen:
                raise DifferenceError(f"row {number} came twice")
            self._seen.add(number)
            self._expected = [rows for rows in self._expected if rows[number] == row]
            if not self._expected:
                raise DifferenceError(f"row {number} is {row}")

    def end(self) -> None:
        """Check that no row is missing.

        Raises:
            DifferenceError: One is.
        """
        missing = set(range(len(self._expected[0]))) - self._seen
        if missing:
            raise DifferenceError(f"{len(missing)} rows are missing, as {min(missing)}")


def read_good(folder: Path) -> None:
    """Read the good file.

    Raises:
        DifferenceError: Its rows are not right.
    """
    path = folder / "good.parquet"
    dataset = ParquetDataset(path, batch_size=30, num_threads=2, rank=0, world_size=1)
    ids = [number for batch in dataset for number in batch["id"].tolist()]
    dataset.close()
    if ids != list(range(100)):
        raise DifferenceError(f"the good file has the rows {ids}")


def open_descriptors() -> set[str]:
    """Return the open descriptors and what they are of."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of this listing
        # Connections to a store are kept for the next reader.
        if not target.startswith("socket:"):
            found.add(f"{name} {target}")
    return found


def num_threads() -> int:
    """Return the threads of this process."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208
