"""Tokens per second in packed sequences, beside others that pack, and a memory-mapped file.

    python bench/sequences/packed.py                        # those that are installed here
    python bench/sequences/packed.py --rivals-python PATH   # the others, in their environment

40,000 documents of 1 to 20,000 tokens, log-normal, median 490, of a vocabulary of 50,257 by Zipf's
law, in row groups of 2,000. Each side delivers batches of 32 sequences of 2,048 tokens, and sums
them. Sides take turns, each in a process of its own; a pass that does not count comes first in it;
page cache warm; torch computes on one thread. Medians.

Sides that read Parquet: torchparquet; Hugging Face's datasets, whose map packs a thousand documents
at a time and whose streamed form a buffer packs as torchtitan's does; pyarrow with such a buffer.
Sides with a format of their own, into which the tokens were written before: LitData's TokensLoader,
Mosaic's StreamingDataset with concatenated tokens, and a memory-mapped file of uint16.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

_DATA = Path(__file__).resolve().parents[1] / "data" / "packed_tokens"
_DOCUMENTS, _ROW_GROUP, _VOCABULARY = 40_000, 2_000, 50_257
_LENGTH, _BATCH, _THREADS = 2048, 32, 2
_BLOCK = 1 << 20
_CODECS = ("zstd", "snappy", "none")

Batches = Iterable[torch.Tensor]


def _documents() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns all tokens and the ends of documents."""
    rng = np.random.Generator(np.random.PCG64(0))
    lengths = np.clip(rng.lognormal(6.2, 1.0, _DOCUMENTS).astype(np.int64), 1, 20_000)
    ends = np.cumsum(lengths)
    return (rng.zipf(1.3, ends[-1]) % _VOCABULARY).astype(np.int32), ends


def _write() -> None:
    _DATA.mkdir(parents=True, exist_ok=True)
    if (_DATA / "tokens.bin").exists():
        return
    tokens, ends = _documents()
    offsets = pa.array(np.append(0, ends), pa.int32())
    table = pa.table({"tokens": pa.ListArray.from_arrays(offsets, pa.array(tokens))})
    for codec in _CODECS:
        path = _DATA / f"{codec}.parquet"
        pq.write_table(table, path, row_group_size=_ROW_GROUP, compression=codec)
    tokens.astype(np.uint16).tofile(_DATA / "tokens.bin")


def _ours(codec: str, strategy: Any, boundaries: Any, **options: Any) -> Batches:
    from torchparquet import Pack, ParquetDataset

    pack = Pack("tokens", _LENGTH, strategy, boundaries=boundaries)
    path = _DATA / f"{codec}.parquet"
    dataset = ParquetDataset(path, batch_size=_BATCH, pack=pack, num_threads=_THREADS, **options)
    return _again(lambda: (batch["tokens"] for batch in dataset))


class _again:  # noqa: N801
    """Iterates anew each time."""

    def __init__(self, make: Callable[[], Iterator[torch.Tensor]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[torch.Tensor]:
        return self._make()


def _buffered(documents: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Packs by a list of tokens, from whose front full sequences are taken."""
    buffer: list[int] = []
    sequences: list[torch.Tensor] = []
    for document in documents:
        buffer.extend(document)
        while len(buffer) >= _LENGTH:
            sequences.append(torch.tensor(buffer[:_LENGTH], dtype=torch.int32))
            buffer = buffer[_LENGTH:]
            if len(sequences) == _BATCH:
                yield torch.stack(sequences)
                sequences = []


def _torchtitan() -> Batches:
    import datasets

    data = datasets.load_dataset(
        "parquet", data_files=str(_DATA / "zstd.parquet"), split="train", streaming=True
    )
    return _again(lambda: _buffered(row["tokens"] for row in data))


def _pyarrow_buffer() -> Batches:
    def documents() -> Iterator[Any]:
        for batch in pq.ParquetFile(_DATA / "zstd.parquet").iter_batches(1000):
            yield from batch.column(0).to_pylist()

    return _again(lambda: _buffered(documents()))


def _datasets_map() -> Batches:
    """Packs by map once, as recipes for training do; then reads what it has cached."""
    import datasets

    def packed(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        tokens = [token for document in rows["tokens"] for token in document]
        ends = range(0, len(tokens) // _LENGTH * _LENGTH, _LENGTH)
        return {"tokens": [tokens[begin : begin + _LENGTH] for begin in ends]}

    def batches() -> Iterator[torch.Tensor]:
        datasets.disable_progress_bars()
        data = datasets.load_dataset(
            "parquet", data_files=str(_DATA / "zstd.parquet"), split="train"
        )
        made = data.map(packed, batched=True, load_from_cache_file=False)
        for rows in made.with_format("torch").iter(_BATCH, drop_last_batch=True):
            yield rows["tokens"]

    return _again(batches)


def _block(number: int) -> torch.Tensor:
    tokens = np.memmap(_DATA / "tokens.bin", np.uint16, "r")
    return torch.from_numpy(tokens[number * _BLOCK : (number + 1) * _BLOCK].astype(np.int32))


def _litdata() -> Batches:
    import litdata

    folder = _DATA / "litdata"
    if not folder.exists():
        size = (_DATA / "tokens.bin").stat().st_size // 2
        litdata.optimize(
            fn=_block,
            inputs=list(range(-(-size // _BLOCK))),
            output_dir=str(folder),
            chunk_size=_LENGTH * 2048,
            item_loader=litdata.TokensLoader(),
            num_workers=1,
        )
    data = litdata.StreamingDataset(
        str(folder), item_loader=litdata.TokensLoader(block_size=_LENGTH), shuffle=False
    )
    loader = litdata.StreamingDataLoader(data, batch_size=_BATCH, num_workers=_THREADS)
    return _again(lambda: iter(loader))


def _mosaic() -> Batches:
    from streaming import MDSWriter, StreamingDataset  # type: ignore[import-not-found]
    from torch.utils.data import DataLoader

    folder = _DATA / "mosaic"
    if not folder.exists():
        tokens = np.fromfile(_DATA / "tokens.bin", np.uint16)
        with MDSWriter(out=str(folder), columns={"tokens": "ndarray:uint16"}) as writer:
            for begin in range(0, len(tokens) // _LENGTH * _LENGTH, _LENGTH):
                writer.write({"tokens": tokens[begin : begin + _LENGTH]})
    data = StreamingDataset(local=str(folder), batch_size=_BATCH, shuffle=False)

    def joined(rows: list[Any]) -> torch.Tensor:
        return torch.from_numpy(np.stack([row["tokens"] for row in rows]).astype(np.int32))

    loader = DataLoader(data, batch_size=_BATCH, num_workers=_THREADS, collate_fn=joined)
    return _again(lambda: iter(loader))


def _memmap() -> Batches:
    tokens = np.memmap(_DATA / "tokens.bin", np.uint16, "r")
    size = _BATCH * _LENGTH

    def batches() -> Iterator[torch.Tensor]:
        for begin in range(0, len(tokens) // size * size, size):
            block = tokens[begin : begin + size].astype(np.int32)
            yield torch.from_numpy(block).view(_BATCH, _LENGTH)

    return _again(batches)


_SIDES: dict[str, Callable[[], Batches]] = {
    "torchparquet, zstd": lambda: _ours("zstd", "concat", "none"),
    "torchparquet, snappy": lambda: _ours("snappy", "concat", "none"),
    "torchparquet, uncompressed": lambda: _ours("none", "concat", "none"),
    "torchparquet, zstd, documents and positions": lambda: _ours("zstd", "concat", "tokens"),
    "torchparquet, zstd, cu_seqlens": lambda: _ours("zstd", "concat", "cu_seqlens"),
    "torchparquet, zstd, best_fit": lambda: _ours("zstd", "best_fit", "none"),
    "torchparquet, zstd, shuffled": lambda: _ours("zstd", "concat", "none", shuffle=True),
    "pyarrow and a buffer": _pyarrow_buffer,
    "datasets streamed and a buffer (torchtitan)": _torchtitan,
    "datasets, map and pack": _datasets_map,
    "LitData TokensLoader": _litdata,
    "Mosaic StreamingDataset": _mosaic,
    "memory-mapped uint16": _memmap,
}
_RIVALS = [name for name in _SIDES if name.startswith(("datasets", "LitData", "Mosaic"))]


def _pass(batches: Batches) -> tuple[float, int]:
    begin = time.perf_counter()
    num_tokens = 0
    for batch in batches:
        batch.sum()
        num_tokens += batch.numel()
    return time.perf_counter() - begin, num_tokens


def _run_side(name: str) -> None:
    torch.set_num_threads(1)
    batches = _SIDES[name]()
    _pass(batches)
    print(*_pass(batches))


def _rate(name: str, python: str) -> float | None:
    """Returns the tokens per second of a pass; None if the side lacks a package."""
    command = [python, __file__, "--side", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    seconds, num_tokens = done.stdout.split()[-2:]
    return int(num_tokens) / float(seconds)


def _waste() -> Iterator[str]:
    """Yields the padding of each strategy, and of packing all documents offline."""
    from torchparquet import Pack, ParquetDataset

    strategies: list[Any] = ["concat", "split", "best_fit"]
    for strategy in strategies:
        pack = Pack("tokens", _LENGTH, strategy)
        packed = ParquetDataset(_DATA / "none.parquet", batch_size=1, pack=pack).manifest.packed
        assert packed is not None
        waste = 1 - packed.num_tokens.sum() / packed.num_places.sum()
        yield f"| `{strategy}` | {waste:.3%} |"
    lengths = np.diff(_documents()[1], prepend=0)
    whole, rests = lengths // _LENGTH, lengths % _LENGTH
    rooms = np.zeros(0, np.int64)
    for rest in np.sort(rests[rests > 0])[::-1]:
        fitting = np.flatnonzero(rooms >= rest)
        if len(fitting):
            rooms[fitting[0]] -= rest
        else:
            rooms = np.append(rooms, _LENGTH - rest)
    waste = 1 - lengths.sum() / ((whole.sum() + len(rooms)) * _LENGTH)
    yield f"| first fit decreasing, offline, of all documents | {waste:.3%} |"


def main() -> None:
    """Prints two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rivals-python", default=sys.executable)
    parser.add_argument("--side", choices=_SIDES)
    given = parser.parse_args()
    if given.side:
        _run_side(given.side)
        return
    _write()
    pythons = {name: given.rivals_python if name in _RIVALS else sys.executable for name in _SIDES}
    rates: dict[str, list[float]] = {name: [] for name in _SIDES}
    for _ in range(given.repeats):
        for name, python in pythons.items():
            rate = _rate(name, python)
            if rate is not None:
                rates[name].append(rate)
    limit = statistics.median(rates["memory-mapped uint16"])
    print(f"{platform.machine()}, {datetime.date.today()}, {_THREADS} threads or workers\n")
    print("| side | million tokens a second | of the memory map |\n| --- | ---: | ---: |")
    for name, found in rates.items():
        median = statistics.median(found) if found else None
        told = (
            "not installed | " if median is None else f"{median / 1e6:.1f} | {median / limit:.2f}"
        )
        print(f"| {name} | {told} |")
    print("\n| packing | padding |\n| --- | ---: |")
    for line in _waste():
        print(line, flush=True)


if __name__ == "__main__":
    main()
