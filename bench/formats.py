"""Column by column: torchparquet beside pyarrow for each type, encoding and codec, in one run.

A file of one column each, in eight row groups, page cache warm, two threads. Contenders take turns,
an untimed round first; every byte of every tensor is read. All deliver whole row groups. pyarrow
reads each by a thread of its own, the fastest of its routes, and hands its buffers to torch without
a copy where it can.

    python bench/formats.py                         # everything
    python bench/formats.py --only list string      # cases whose name contains one of these
    python bench/formats.py --jollyjack PYTHON      # also JollyJack, by an interpreter that has it
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

import torchparquet
from torchparquet import Column, Jagged, ParquetDataset

NUM_THREADS = 2
NUM_ROW_GROUPS = 8
_JOLLYJACK = Path(__file__).resolve().with_name("jollyjack_pass.py")
_CODECS = ("none", "snappy", "zstd")


@dataclass(frozen=True)
class Case:
    """One column as one writer stores it.

    Attributes:
        name: Type, encoding and codec.
        values: The column.
        options: Of pyarrow's writer.
        column: How torchparquet is to read it.
        is_plain_float: Whether JollyJack reads it.
    """

    name: str
    values: pa.Array
    options: dict[str, Any]
    column: Column = field(default_factory=lambda: Column("x"))
    is_plain_float: bool = False


def _flat_types(rng: np.random.Generator, num_rows: int) -> dict[str, pa.Array]:
    integers = rng.integers(-(1 << 40), 1 << 40, num_rows)
    return {
        "bool": pa.array(rng.random(num_rows) < 0.3),
        "int32": pa.array(rng.integers(0, 1000, num_rows).astype(np.int32)),
        "int64": pa.array(integers),
        "int64 of 5000": pa.array(integers[:5000][rng.integers(0, 5000, num_rows)]),
        "float32": pa.array(rng.random(num_rows, np.float32)),
        "float64": pa.array(rng.random(num_rows)),
        "float64, 10 % null": pa.array(rng.random(num_rows), mask=rng.random(num_rows) < 0.1),
        "timestamp": pa.array(integers, pa.timestamp("us")),
        "fixed binary 16": pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), num_rows, [None, pa.py_buffer(rng.bytes(16 * num_rows))]
        ),
    }


_ENCODINGS = {
    "bool": ("PLAIN", "RLE"),
    "int32": ("PLAIN", "dictionary", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "int64": ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "int64 of 5000": ("dictionary",),
    "float32": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "float64": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "float64, 10 % null": ("PLAIN", "dictionary"),
    "timestamp": ("PLAIN", "DELTA_BINARY_PACKED"),
    "fixed binary 16": ("PLAIN", "dictionary"),
    "string": ("PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"),
    "string of 5000": ("dictionary",),
    "list of float32": ("PLAIN",),
    "list of int64": ("PLAIN", "DELTA_BINARY_PACKED"),
    "list of int64 of 5000": ("dictionary",),
    "list of int64, 10 % null": ("PLAIN",),
    "list of string": ("dictionary",),
    "256 float32": ("PLAIN",),
    "256 float32 as lists": ("PLAIN",),
}


def _lists(values: pa.Array, rng: np.random.Generator, num_rows: int) -> pa.Array:
    lengths = rng.integers(0, 2 * len(values) // num_rows, num_rows)
    offsets = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), len(values))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _nested_types(rng: np.random.Generator, num_rows: int) -> dict[str, pa.Array]:
    words = pa.array([f"word {i} " * (1 + i % 4) for i in range(5000)])
    texts = words.take(pa.array(rng.integers(0, 5000, num_rows)))
    unique = pa.array([f"{i:x}" for i in rng.integers(0, 1 << 60, num_rows).tolist()])
    floats = pa.array(rng.random(num_rows * 4, np.float32))
    integers = rng.integers(0, 1 << 40, num_rows * 4)
    few = pa.array(integers[:5000][rng.integers(0, 5000, num_rows * 4)])
    some = pa.array(integers, mask=rng.random(len(integers)) < 0.1)
    num_lists = num_rows // 5
    vectors = pa.array(rng.random(num_rows * 8, np.float32))
    return {
        "string": unique,
        "string of 5000": texts,
        "list of float32": _lists(floats, rng, num_lists),
        "list of int64": _lists(pa.array(integers), rng, num_lists),
        "list of int64 of 5000": _lists(few, rng, num_lists),
        "list of int64, 10 % null": _lists(some, rng, num_lists),
        "list of string": _lists(texts, rng, num_lists),
        "256 float32": pa.FixedSizeListArray.from_arrays(vectors, 256),
        "256 float32 as lists": pa.FixedSizeListArray.from_arrays(vectors, 256),
    }


def cases(num_rows: int) -> Iterator[Case]:
    """Every type with each of its encodings and every codec; flat ones of `num_rows` rows."""
    rng = np.random.default_rng(0)
    types = _flat_types(rng, num_rows) | _nested_types(rng, num_rows // 4)
    for name, values in types.items():
        for encoding, codec in product(_ENCODINGS[name], _CODECS):
            options: dict[str, Any] = {"compression": codec, "use_dictionary": True}
            if encoding != "dictionary":
                leaf = "x.list.element" if pa.types.is_nested(values.type) else "x"
                options |= {"use_dictionary": False, "column_encoding": {leaf: encoding}}
            yield Case(
                f"{name}, {encoding}, {codec}",
                values,
                options,
                Column(
                    "x",
                    nulls=0 if "null" in name else None,
                    length=256 if name == "256 float32" else None,
                ),
                name in ("float32", "float64") and encoding == "PLAIN",
            )
    for name, encoding in (("float32", "PLAIN"), ("string", "PLAIN"), ("int64 of 5000", "RLE")):
        options = {"compression": "none", "use_dictionary": encoding == "RLE"}
        for checksums in (False, True):
            yield Case(
                f"{name}, {'with' if checksums else 'without'} checksums, none",
                types[name],
                options | {"write_page_checksum": checksums},
            )


def read_bytes(array: NDArray[Any]) -> int:
    """Sum all bytes as words, so that each is read."""
    flat = array.reshape(-1).view(np.uint8)
    whole = len(flat) // 8 * 8
    total = int(np.add.reduce(flat[:whole].view(np.uint64)))
    return total + int(np.add.reduce(flat[whole:], dtype=np.uint64))


def _tensors(value: torch.Tensor | Jagged) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    else:
        yield value.offsets
        yield from _tensors(value.values)


def ours(case: Case, path: Path) -> Callable[[], int]:
    """Return a pass of torchparquet over `path`, which returns the bytes of all values."""
    dataset = ParquetDataset(
        path, batch_size=None, columns={"x": case.column}, num_threads=NUM_THREADS
    )

    def one_pass() -> int:
        num_bytes = 0
        for batch in dataset:
            parts = list(_tensors(batch["x"]))
            for part in parts:
                read_bytes(part.numpy())
            num_bytes += parts[-1].nbytes
        return num_bytes

    return one_pass


def _arrow_arrays(array: pa.Array) -> Iterator[NDArray[Any]]:
    """What of an array would be tensors: offsets first, values last."""
    kind = array.type
    if pa.types.is_string(kind):
        offsets = np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1]
        yield offsets
        yield np.frombuffer(array.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    elif pa.types.is_fixed_size_list(kind):
        yield from _arrow_arrays(array.flatten())
    elif pa.types.is_list(kind):
        yield array.offsets.to_numpy()
        yield from _arrow_arrays(array.flatten())
    elif pa.types.is_fixed_size_binary(kind):
        yield np.frombuffer(array.buffers()[1], np.uint8)
    else:
        filled = array.fill_null(0) if array.null_count else array
        if pa.types.is_timestamp(kind):
            filled = filled.view(pa.int64())
        yield filled.to_numpy(zero_copy_only=not pa.types.is_boolean(kind))


def pyarrows(path: Path) -> Callable[[], int]:
    """Return a pass of pyarrow over `path`, of whole row groups on two threads."""
    footer = pq.read_metadata(path)

    def read(index: int) -> pa.ChunkedArray:
        with pq.ParquetFile(path, metadata=footer, memory_map=True) as file:
            return file.read_row_group(index, use_threads=False).column(0)

    def one_pass() -> int:
        num_bytes = 0
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            for column in threads.map(read, range(footer.num_row_groups)):
                for chunk in column.chunks:
                    parts = [torch.from_numpy(part) for part in _arrow_arrays(chunk)]
                    for part in parts:
                        read_bytes(part.numpy())
                    num_bytes += parts[-1].nbytes
        return num_bytes

    return one_pass


class JollyJack:
    """Passes of JollyJack, which needs another pyarrow, by an interpreter that has both."""

    def __init__(self, python: str, path: Path) -> None:
        """Start it on `path`."""
        command = [python, str(_JOLLYJACK), str(path), str(NUM_THREADS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def timed_pass(self) -> tuple[float, int]:
        """Return the seconds and the bytes of one pass."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        seconds, num_bytes = self._process.stdout.readline().split()
        return float(seconds), int(num_bytes)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def timed(one_pass: Callable[[], int]) -> tuple[float, int]:
    """Return the seconds and the bytes of one pass."""
    begin = time.perf_counter()
    num_bytes = one_pass()
    return time.perf_counter() - begin, num_bytes


def measure(case: Case, path: Path, repeats: int, jollyjack: str | None) -> list[str]:
    """Return the row of the table: name, ours and pyarrow's GB/s, ratio, JollyJack's GB/s."""
    table = pa.table({"x": case.values})
    size = -(-len(table) // NUM_ROW_GROUPS)
    pq.write_table(table, path, row_group_size=size, **case.options)
    passes: dict[str, Callable[[], tuple[float, int]]] = {}
    our_pass, their_pass = ours(case, path), pyarrows(path)
    passes["ours"] = lambda: timed(our_pass)
    passes["pyarrow"] = lambda: timed(their_pass)
    other = JollyJack(jollyjack, path) if jollyjack and case.is_plain_float else None
    if other is not None:
        passes["jollyjack"] = other.timed_pass
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for repeat in range(repeats + 1):
        num_bytes = {}
        for name, one_pass in passes.items():
            took, num_bytes[name] = one_pass()
            if repeat > 0:
                seconds[name].append(took)
        if len(set(num_bytes.values())) > 1:
            raise RuntimeError(f"contenders delivered different bytes: {case.name}: {num_bytes}")
    if other is not None:
        other.close()
    median = {name: statistics.median(took) for name, took in seconds.items()}
    speed = {name: num_bytes[name] / took / 1e9 for name, took in median.items()}
    row = [case.name, f"{speed['ours']:.2f}", f"{speed['pyarrow']:.2f}"]
    row.append(f"{speed['ours'] / speed['pyarrow']:.2f}x")
    row.append(f"{speed['jollyjack']:.2f}" if "jollyjack" in speed else "")
    return row


def main() -> None:
    """Measure the cases that are asked for, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of cases")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8_000_000, help="of flat columns")
    parser.add_argument("--jollyjack", help="a Python interpreter that has JollyJack")
    arguments = parser.parse_args()
    pa.set_cpu_count(NUM_THREADS)
    print(
        f"torchparquet {torchparquet.__version__}, pyarrow {pa.__version__}, "
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
        f"{datetime.datetime.now(datetime.UTC).date()}, median of {arguments.repeats}, "
        "GB/s of values"
    )
    print("| column, encoding, codec | torchparquet | pyarrow | ratio | JollyJack |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(arguments.rows):
            if not any(part in case.name for part in arguments.only):
                continue
            path = Path(folder, "column.parquet")
            row = measure(case, path, arguments.repeats, arguments.jollyjack)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
