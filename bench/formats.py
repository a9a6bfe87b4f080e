"""Column by column: torchparquet beside pyarrow for each type, encoding and codec, in one run.

A file of one column each, in eight row groups, page cache warm, two threads. Contenders take turns,
each in a process of its own, with an untimed pass before each timed one; every byte of every tensor
is read. All deliver whole row groups. pyarrow reads each by a thread of its own, the fastest of its
routes, and hands its buffers to torch without a copy where it can. "least work" is the ratio of the
least that a reader does: pread and the codec over the same pages, as many bytes as the tensors have
stored once, and read once.

    python bench/formats.py                         # everything
    python bench/formats.py --only list string      # cases whose name contains one of these
    python bench/formats.py --jollyjack PYTHON      # also JollyJack, which PYTHON has
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import warnings
from collections.abc import Iterable, Iterator
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

from passes.ceiling import least_work_side
from passes.consumption import PassTotals, consume
from passes.sides import CommandSide, ContentError, ForkedSide, Side, Work, take_turns
from report.machine import described, environment
from routes.rival_environment import jollyjack_pass
from torchparquet import Column, Jagged, ParquetDataset

NUM_THREADS = 2
NUM_ROW_GROUPS = 8
_CODECS = ("none", "lz4", "snappy", "zstd")


@dataclass(frozen=True)
class Case:
    """One column as one writer stores it.

    Attributes:
        name: Type, encoding and codec.
        values: The column.
        options: Of pyarrow's writer.
        column: How torchparquet is to read it.
        is_plain_float: True if JollyJack reads it.
    """

    name: str
    values: pa.Array
    options: dict[str, Any]
    column: Column = field(default_factory=lambda: Column("x"))
    is_plain_float: bool = False


def _fixed_binary(values: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.shape[1]), len(values), buffers)


def _flat_types(rng: np.random.Generator, num_rows: int) -> dict[str, pa.Array]:
    integers = rng.integers(-(1 << 40), 1 << 40, num_rows)
    uuids = np.frombuffer(rng.bytes(16 * num_rows), np.uint8).reshape(num_rows, 16)
    return {
        "bool": pa.array(rng.random(num_rows) < 0.3),
        "int32": pa.array(rng.integers(0, 1000, num_rows).astype(np.int32)),
        "int64": pa.array(integers),
        "int64 of 5000": pa.array(integers[:5000][rng.integers(0, 5000, num_rows)]),
        "float32": pa.array(rng.random(num_rows, np.float32)),
        "float64": pa.array(rng.random(num_rows)),
        "float64, 10 % null": pa.array(rng.random(num_rows), mask=rng.random(num_rows) < 0.1),
        "float64 of 5000, 10 % null": pa.array(
            rng.random(5000)[rng.integers(0, 5000, num_rows)], mask=rng.random(num_rows) < 0.1
        ),
        "timestamp": pa.array(integers, pa.timestamp("us")),
        "fixed binary 16": _fixed_binary(uuids),
        "fixed binary 16 of 5000": _fixed_binary(uuids[rng.integers(0, 5000, num_rows)]),
    }


_ENCODINGS = {
    "bool": ("PLAIN", "RLE"),
    "int32": ("PLAIN", "dictionary", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "int64": ("PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"),
    "int64 of 5000": ("dictionary",),
    "float32": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "float64": ("PLAIN", "BYTE_STREAM_SPLIT"),
    "float64, 10 % null": ("PLAIN",),
    "float64 of 5000, 10 % null": ("dictionary",),
    "timestamp": ("PLAIN", "DELTA_BINARY_PACKED"),
    "fixed binary 16": ("PLAIN",),
    "fixed binary 16 of 5000": ("dictionary",),
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


def take(batches: Iterable[list[torch.Tensor]]) -> PassTotals:
    """Read every byte of ``batches``; only those of values, which come last, are counted.

    Offsets are 4 bytes each here and 8 there.
    """
    num_bytes = 0

    def named() -> Iterator[dict[str, torch.Tensor]]:
        nonlocal num_bytes
        for parts in batches:
            num_bytes += parts[-1].nbytes
            yield {str(i): part for i, part in enumerate(parts)}

    consume(named())
    return PassTotals(num_bytes=num_bytes)


def _tensors(value: torch.Tensor | Jagged) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    else:
        yield value.offsets
        yield from _tensors(value.values)


class Ours:
    """Passes of torchparquet over `path`."""

    def __init__(self, case: Case, path: Path) -> None:
        """Opens nothing yet, so that this can be handed to a fork."""
        self._case, self._path = case, path

    @functools.cached_property
    def _dataset(self) -> ParquetDataset:
        return ParquetDataset(
            self._path, batch_size=None, columns={"x": self._case.column}, num_threads=NUM_THREADS
        )

    def _batches(self) -> Iterator[list[torch.Tensor]]:
        return (list(_tensors(batch["x"])) for batch in self._dataset)

    def run(self) -> PassTotals:
        """Reads every byte of all row groups."""
        return take(self._batches())

    def row_group_bytes(self) -> list[int]:
        """Returns what the tensors of each row group take."""
        return [sum(part.nbytes for part in parts) for parts in self._batches()]


def _arrow_arrays(array: pa.Array) -> Iterator[NDArray[Any]]:
    """The parts of an array that would be tensors: offsets first, values last."""
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


def pyarrows(path: Path) -> Work:
    """Return a pass of pyarrow over `path`, of whole row groups on two threads."""
    footer = pq.read_metadata(path)

    def read(index: Any) -> pa.ChunkedArray:
        with pq.ParquetFile(path, metadata=footer, memory_map=True) as file:
            return file.read_row_group(index, use_threads=False).column(0)

    def batches() -> Iterator[list[torch.Tensor]]:
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            for column in threads.map(read, range(footer.num_row_groups)):
                for chunk in column.chunks:
                    yield [torch.from_numpy(part) for part in _arrow_arrays(chunk)]

    return lambda: take(batches())


def measure(case: Case, path: Path, repeats: int, jollyjack: str | None) -> list[str]:
    """Return the row of the table, as `main` heads it."""
    table = pa.table({"x": case.values})
    size = -(-len(table) // NUM_ROW_GROUPS)
    pq.write_table(table, path, row_group_size=size, **case.options)
    take([])  # compiles
    ours = Ours(case, path)
    reading = ForkedSide("ours", ours.run, {"row group bytes": ours.row_group_bytes})
    sides: list[Side] = [
        reading,
        ForkedSide("pyarrow", pyarrows(path)),
        least_work_side(
            "least work",
            path,
            NUM_THREADS,
            "codec",
            output_bytes=reading.ask("row group bytes"),
        ),
    ]
    if jollyjack and case.is_plain_float:
        command = jollyjack_pass(jollyjack, path, NUM_THREADS, "one array")
        sides.append(CommandSide("jollyjack", command))
    passes = take_turns(sides, repeats, content="same in each")
    # The least work also counts the bytes of offsets.
    num_bytes = {
        name: those[0].totals.num_bytes for name, those in passes.items() if name != "least work"
    }
    if len(set(num_bytes.values())) > 1:
        raise ContentError(f"sides delivered different bytes: {case.name}: {num_bytes}")
    speed = {
        name: num_bytes["ours"] / 1e9 / statistics.median(one.seconds for one in those)
        for name, those in passes.items()
    }
    row = [case.name, f"{speed['ours']:.2f}", f"{speed['pyarrow']:.2f}"]
    row += [f"{speed[name] / speed['pyarrow']:.2f}x" for name in ("ours", "least work")]
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
    # Consumers only read, so tensors over Arrow's read-only buffers are fine.
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    machine = described(environment(NUM_THREADS))
    print(f"{machine}; median of {arguments.repeats}, GB/s of values")
    print("| column, encoding, codec | torchparquet | pyarrow | ratio | least work | JollyJack |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(arguments.rows):
            if not any(part in case.name for part in arguments.only):
                continue
            path = Path(folder, "column.parquet")
            row = measure(case, path, arguments.repeats, arguments.jollyjack)
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
