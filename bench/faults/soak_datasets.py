"""Eight data sets that use most of what the package has, and sums of what they deliver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader

from torchparquet import Ahead, ByLength, Jagged, Pack, ParquetDataset, mix

_NUM_FILES, _FILE_ROWS, _ROW_GROUP = 3, 12_000, 2_000
_WORDS = ("click", "view", "buy", "", "a longer word that is no short string")


def write_files(folder: Path) -> None:
    """Write files of numbers, strings and lists, with nulls, each by another codec."""
    rng = np.random.Generator(np.random.PCG64(1))
    for number, codec in zip(range(_NUM_FILES), ("zstd", "snappy", "none"), strict=True):
        lengths = rng.integers(0, 40, _FILE_ROWS)
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        tokens = pa.array(rng.integers(0, 50_000, lengths.sum()), pa.int32())
        words = pa.array(np.array(_WORDS)[rng.integers(0, len(_WORDS), _FILE_ROWS)])
        table = pa.table(
            {
                "label": pa.array(rng.integers(0, 2, _FILE_ROWS), pa.int8()),
                "x": pa.array(
                    rng.random(_FILE_ROWS, np.float32), mask=rng.random(_FILE_ROWS) < 0.1
                ),
                "key": rng.integers(0, 2**40, _FILE_ROWS),
                "word": words,
                "tokens": pa.ListArray.from_arrays(offsets, tokens),
            }
        )
        path = folder / f"{number}.parquet"
        pq.write_table(table, path, row_group_size=_ROW_GROUP, compression=codec)


def _doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return batch | {"double": batch["key"] * 2}


def open_all(folder: Path) -> dict[str, Callable[[int], Iterable[Any]]]:
    """Return what gives the batches of an epoch, by name."""
    common: dict[str, Any] = {"batch_size": 512, "num_threads": 2, "max_memory": "32MB"}
    numbers: dict[str, Any] = common | {"columns": ["label", "x", "key"], "nulls": 0}
    flat = ParquetDataset(folder, **numbers)
    windows = ParquetDataset(folder, shuffle=True, shuffle_window=4, **numbers)
    strings = ParquetDataset(folder, columns=["word", "key"], shuffle=True, **common)
    lists = ParquetDataset(folder, columns=["tokens"], **common)
    packed = ParquetDataset(
        folder,
        columns=["tokens"],
        pack=Pack("tokens", 512, "best_fit"),
        **common | {"batch_size": 16},
    )
    by_length = ParquetDataset(
        folder, columns=["tokens"], **common | {"batch_size": ByLength("tokens", 8_192)}
    )
    mixed = mix([ParquetDataset(folder, **numbers) for _ in range(2)], weights=[3, 1], seed=5)
    on_threads = ParquetDataset(folder, transform=Ahead(_doubled, threads=2), **numbers)

    def epoch_of(dataset: Any) -> Callable[[int], Iterable[Any]]:
        def batches(epoch: int) -> Iterable[Any]:
            # The same order in each epoch, so that sums can be compared.
            del epoch
            dataset.set_epoch(0)
            return dataset  # type: ignore[no-any-return]

        return batches

    def with_workers(epoch: int) -> Iterator[Any]:
        # A new data set and new workers for each epoch.
        dataset = ParquetDataset(folder, **numbers)
        context = ("fork", "spawn", "forkserver")[epoch % 40 % 3 if epoch % 40 < 3 else 0]
        yield from DataLoader(
            dataset, batch_size=None, num_workers=2, multiprocessing_context=context
        )

    opened = {
        "flat": flat,
        "windows": windows,
        "strings": strings,
        "lists": lists,
        "packed": packed,
        "by length": by_length,
        "mix": mixed,
        "transform on threads": on_threads,
    }
    return {name: epoch_of(dataset) for name, dataset in opened.items()} | {"workers": with_workers}


# torch's own threads spin while they wait for each other: time that is not reading's.
torch.set_num_threads(1)


def digest(batches: Iterable[Any]) -> tuple[int, int]:
    """Return the number of batches, and a sum of all their bytes that does not depend on order."""
    count = total = 0
    for batch in batches:
        count += 1
        for value in batch.values():
            total += _sum(value)
    return count, total % 2**62


def _sum(value: Any) -> int:
    if isinstance(value, Jagged):
        return _sum(value.values) + _sum(value.offsets)
    if isinstance(value, torch.Tensor):
        return int(value.contiguous().view(torch.uint8).sum(dtype=torch.int64))
    return sum(len(item) for item in value) if isinstance(value, list) else int(value)
