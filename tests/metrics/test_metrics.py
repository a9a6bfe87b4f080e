"""`metrics()`: its numbers are those of the batches, of the files and of the clock."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from torchparquet import Ahead, Column, Jagged, Order, ParquetDataset, mix
from torchparquet._impl.metrics.bottleneck import describe
from torchparquet._impl.metrics.read_metrics import CodecMetrics, ColumnMetrics, Metrics, Ring

NUM_ROWS, GROUP_ROWS = 6_000, 750
CODECS = {"id": "zstd", "x0": "snappy", "x1": "snappy", "word": "none"}
CODECS |= {"tokens.list.element": "lz4"}
COLUMNS = {
    **{"id": "id", "x": ["x0", "x1"], "masked": Column("x0", nulls="mask"), "word": "word"},
    "tokens": Column("tokens", nulls="mask"),
}
# These numbers may fall.
LEVELS = {"num_threads", "batches_ready", "batches_in_flight", "max_batches_in_flight"} | {
    *("memory_bytes", "max_memory_bytes", "rows_per_second", "wait_fraction", "python_seconds"),
    *("wait_p50_seconds", "wait_p95_seconds", "wait_p99_seconds"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Any:
    """Two files of every shape, in a codec for each column."""
    made = tmp_path_factory.mktemp("metrics")
    for number in range(2):
        write(made / f"{number}.parquet", NUM_ROWS // 2, CODECS, seed=number)
    return made


def write(path: Path, num_rows: int, codec: str | dict[str, str], seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    # Of so few digits that no float repeats and all codecs find something.
    x0 = pa.array(
        rng.integers(0, 1000, num_rows).astype(np.float32), mask=rng.random(num_rows) < 0.1
    )
    tokens = [None if row % 11 == 0 else list(range(row % 5)) for row in range(num_rows)]
    table = pa.table(
        {
            "id": np.arange(num_rows),
            "x0": x0,
            "x1": rng.random(num_rows, dtype=np.float32),
            "word": [f"word {row % 100}" for row in range(num_rows)],
            "tokens": tokens,
        }
    )
    pq.write_table(table, path, row_group_size=GROUP_ROWS, compression=codec)


def bytes_of(value: torch.Tensor | Jagged) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return bytes_of(value.values) + bytes_of(value.offsets)


def counts_of(metrics: Metrics) -> dict[str, float]:
    """All that may only grow."""
    return {k: v for k, v in metrics.as_dict().items() if k not in LEVELS}


def read(dataset: Any, counts: Any = (0, 0, 0)) -> tuple[int, int, int]:
    """The batches, rows and bytes of an iteration."""
    batches, rows, size = counts
    for batch in dataset:
        batches += 1
        rows += len(next(iter(batch.values())))
        size += sum(map(bytes_of, batch.values()))
    return batches, rows, size


def delivered(metrics: Metrics) -> tuple[int, int, int]:
    return metrics.batches, metrics.rows, metrics.bytes_produced


WAYS = {
    "plain": {},
    "one thread": {"num_threads": 1},
    "row groups": {"batch_size": None, "shuffle": True, "shuffle_window": 0},
    "windows": {"shuffle": True, "shuffle_window": 3, "row_ids": True},
    "pad": {"even": "pad", "rank": 1, "world_size": 3, "row_ids": True},
    "split": {"rank": 2, "world_size": 5, "shuffle": True},
    "dynamic": {"even": "dynamic", "row_ids": True},
    "canonical": {"order": Order(canonical_world_size=2), "batch_size": 64},
    "little memory": {"max_memory": 60_000, "num_threads": 3},
}


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)
def test_delivered_is_what_batches_held(folder: Path, options: Any) -> None:
    dataset = ParquetDataset(folder, **({"batch_size": 100, "columns": COLUMNS} | options))
    for _ in range(2):
        found = read(dataset)
        metrics = dataset.metrics()
        assert delivered(metrics) == found
        assert sum(one.bytes_produced for one in metrics.columns.values()) == found[2]
    assert metrics.batches > 1
    both = dataset.metrics(all_iterations=True)
    assert both.rows == 2 * found[1]
    assert counts_of(both.since(metrics))["rows"] == found[1]
    assert metrics.since(Metrics()) == metrics
    with pytest.raises(ValueError, match=f"{metrics.batches} batches, here 0"):
        Metrics().since(metrics)


@pytest.mark.parametrize("way", ["plain", "windows", "dynamic", "little memory"])
def test_columns_and_codecs_add_up(folder: Path, way: str) -> None:
    dataset = ParquetDataset(folder, **({"batch_size": 100, "columns": COLUMNS} | WAYS[way]))  # type: ignore[operator]
    read(dataset)
    metrics = dataset.metrics()
    stored = {name.partition(".")[0] for name in metrics.columns if not name.startswith("row.")}
    assert stored == {name.partition(".")[0] for name in CODECS}
    assert set(metrics.codecs) == {"zstd", "snappy", "uncompressed", "lz4"}
    for quantity in ("bytes_read", "open_seconds", "read_seconds", "decompress_seconds"):
        total = getattr(metrics, quantity)
        assert total > 0
        for parts in (metrics.columns, metrics.codecs):
            assert sum(getattr(one, quantity) for one in parts.values()) == pytest.approx(total)
    decoded = sum(one.decode_seconds for one in metrics.columns.values())
    assert decoded == pytest.approx(metrics.decode_seconds)
    assert metrics.codecs["uncompressed"].bytes_decompressed == 0
    assert metrics.codecs["uncompressed"].decompress_seconds == 0
    assert metrics.codecs["lz4"].bytes_decompressed > 0


def test_bytes_read_are_those_of_column_chunks(tmp_path: Path) -> None:
    """Each column chunk is read once, where its rows are taken in order."""
    path, names = tmp_path / "all.parquet", ["id", "x1", "word"]
    write(path, NUM_ROWS, CODECS)
    dataset = ParquetDataset(path, batch_size=100, columns=names, num_threads=1, num_epochs=3)
    read(dataset)
    metrics = dataset.metrics()
    assert metrics.rows == 3 * NUM_ROWS
    footer = pq.ParquetFile(path).metadata
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(footer.num_columns)]
    stored = dict.fromkeys(names, 0)
    for chunk in chunks:
        if chunk.path_in_schema in stored:
            stored[chunk.path_in_schema] += 3 * chunk.total_compressed_size
    assert {name: one.bytes_read for name, one in metrics.columns.items()} == stored
    assert metrics.bytes_read == sum(stored.values())


PROGRAM = """
import sys
from torchparquet import ParquetDataset
columns = ["id", "x0", "word"]
dataset = ParquetDataset(sys.argv[1], batch_size=100, columns=columns, num_threads=2)
for batch in dataset:
    pass
metrics = dataset.metrics()
print(metrics.bytes_read, metrics.num_reads)
print(metrics.bottleneck)
"""


@pytest.mark.long
def test_slow_storage(folder: Path, tmp_path: Path, strace: str) -> None:
    """Reads are those that the system sees; each takes 30 ms, and the loop nothing."""
    path, log = folder / "0.parquet", tmp_path / "strace.log"
    tracer = [strace, "-f", "--seccomp-bpf", "-qq", "-s", "0", "-o", str(log), "-P", str(path)]
    tracer += ["-e", "trace=pread64", "-e", "inject=pread64:delay_enter=30ms"]
    program = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(
        [*tracer, *program], capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    counted, line = done.stdout.splitlines()
    # Footers are read too, with what stands before them.
    footer = path.stat().st_size - 8 - pq.ParquetFile(path).metadata.serialized_size
    calls = re.findall(r"pread64.*, (\d+), (\d+)\) += (\d+)", log.read_text())
    within = [int(size) for _, offset, size in calls if int(offset) + int(size) <= footer]
    assert counted.split() == [str(sum(within)), str(len(within))]
    assert line.startswith("reading from storage is the slower side")


def test_counts_never_fall(folder: Path) -> None:
    dataset = ParquetDataset(folder, batch_size=50, columns=COLUMNS, num_threads=2)  # type: ignore[arg-type]
    before = dataset.metrics()
    assert delivered(before) == (0, 0, 0)
    assert "no batch" in before.bottleneck
    for number, _ in enumerate(dataset, 1):
        metrics = dataset.metrics()
        assert metrics.batches == number
        last, now = counts_of(before), counts_of(metrics)
        assert all(now[name] >= last[name] for name in last)
        ring = metrics.ring
        assert 0 <= ring.batches_ready <= ring.batches_in_flight <= ring.max_batches_in_flight
        assert (ring.memory_bytes > 0) or not ring.batches_in_flight
        assert metrics.wait_seconds <= metrics.elapsed_seconds
        assert metrics.first_wait_seconds <= metrics.wait_seconds
        before = metrics
    assert metrics.rows == NUM_ROWS


def test_nothing_changes_after_the_end(folder: Path) -> None:
    """After an epoch, an iterator that is given up, and `close`."""
    dataset = ParquetDataset(folder, batch_size=50, num_threads=2, columns=["id"])
    read(dataset)
    ended = dataset.metrics()
    assert ended == dataset.metrics()
    assert ended.ring == replace(ended.ring, batches_ready=0, batches_in_flight=0, memory_bytes=0)
    for _ in dataset:
        break
    broken_off = dataset.metrics()
    assert broken_off == dataset.metrics()
    iterator = iter(dataset)
    next(iterator)
    next(iterator)
    dataset.close()
    closed = dataset.metrics()
    assert closed == dataset.metrics()
    assert (broken_off.batches, closed.batches) == (1, 2)
    both = dataset.metrics(all_iterations=True)
    assert both.batches == ended.batches + 3
    assert both.bytes_read >= ended.bytes_read + broken_off.bytes_read + closed.bytes_read
    rows = ParquetDataset(folder, batch_size=100, columns=["id"]).unbatched()
    assert sum(1 for _ in rows) == rows.metrics().rows == NUM_ROWS
    assert rows.metrics(all_iterations=True).rows == NUM_ROWS


def test_a_state_reads_the_rest(folder: Path) -> None:
    dataset = ParquetDataset(folder, batch_size=100, columns=["id"])
    batches = iter(dataset)
    for _ in range(45):
        next(batches)
    state = dataset.state_dict()
    other = ParquetDataset(folder, batch_size=100, columns=["id"])
    other.load_state_dict(state)
    assert read(other)[1] == other.metrics().rows == NUM_ROWS - 4500
    whole = ParquetDataset(folder, batch_size=100, columns=["id"])
    read(whole)
    assert other.metrics().bytes_read < whole.metrics().bytes_read


def test_as_dict_has_plain_numbers(folder: Path) -> None:
    dataset = ParquetDataset(folder, batch_size=100, columns=["id", "word"])
    read(dataset)
    metrics = dataset.metrics()
    numbers = metrics.as_dict()
    assert all(type(value) in (int, float) for value in numbers.values())
    assert numbers["rows"] == NUM_ROWS
    assert numbers["column/id/bytes_read"] == metrics.columns["id"].bytes_read
    assert numbers["codec/zstd/decompress_seconds"] == metrics.codecs["zstd"].decompress_seconds
    assert set(metrics.as_dict(columns=False)) == {name for name in numbers if "/" not in name}
    assert numbers["rows_per_second"] == pytest.approx(NUM_ROWS / metrics.elapsed_seconds)


def test_a_report_shares_the_time_out() -> None:
    seconds = {"elapsed": 10.0, "wait": 1.0, "function": 2.0, "next": 8.0}
    metrics = Metrics(**{f"{k}_seconds": v for k, v in seconds.items()}, batches=100, rows=3_200)  # type: ignore[arg-type]
    first, *parts, waits, last = metrics.report().splitlines()
    assert first == "100 batches, 3,200 rows in 10 s, 320 rows/s"
    assert [re.split(r"  +", line) for line in parts] == [
        ["reader", "1 s", "10%"],
        ["torchparquet's own Python", "5 s", "50%"],
        ["your functions", "2 s", "20%"],
        ["your loop", "2 s", "20%"],
    ]
    assert waits == "waits: half up to 0 s, 95 % up to 0 s, 99 % up to 0 s, the longest 0 s"
    assert last == metrics.bottleneck
    assert repr(metrics) == metrics.report()
    assert "no batch" in repr(Metrics())


# Mixes


@pytest.mark.parametrize("within_batch", [False, True])
def test_a_mix_has_those_of_each_source(folder: Path, within_batch: bool) -> None:
    sources = [
        ParquetDataset(folder, batch_size=100, columns=["id"], num_threads=1),
        ParquetDataset(folder / "0.parquet", batch_size=60, columns=["id"], num_threads=1),
    ]
    options = {"within_batch": True, "batch_size": 80} if within_batch else {}
    mixed = mix(sources, weights=[1, 3], stopping="repeat", source_key="source", **options)  # type: ignore[arg-type]
    next(iter(sources[1]))  # is no part of the mix
    for _ in range(2):
        rows = torch.zeros(2, dtype=torch.int64)
        for batch in mixed:
            rows += batch["source"].bincount(minlength=2)
        metrics = mixed.metrics()
        if not within_batch:
            assert [source.rows for source in metrics.sources] == rows.tolist()  # type: ignore[union-attr]
        assert all(s.rows >= n for s, n in zip(metrics.sources, rows.tolist(), strict=True))  # type: ignore[union-attr]
        assert metrics.rows == sum(source.rows for source in metrics.sources)  # type: ignore[misc, union-attr]
        assert metrics.columns["id"].bytes_produced == metrics.bytes_produced == 8 * metrics.rows
        assert metrics.as_dict()["source/1/rows"] == metrics.sources[1].rows  # type: ignore[union-attr]
        own_work = metrics.elapsed_seconds - metrics.next_seconds
        for source in metrics.sources:
            assert source.elapsed_seconds - source.next_seconds == pytest.approx(own_work)  # type: ignore[union-attr]
    assert mixed.metrics(all_iterations=True).rows > metrics.rows


# DataLoader workers


class AddMetrics:
    """A transform that puts its worker's own rows so far into the batch."""

    def __call__(self, batch: Any) -> Any:
        worker = get_worker_info()
        if worker is None:
            return batch
        metrics = worker.dataset.metrics()  # type: ignore[attr-defined]
        return batch | {"rows": torch.tensor([worker.id, metrics.rows, metrics.batches])}


def test_workers_have_their_own(folder: Path) -> None:
    dataset = ParquetDataset(
        folder, batch_size=100, columns=["id"], transform=AddMetrics(), num_threads=1
    )
    plain = ParquetDataset(folder, batch_size=100, columns=["id"])
    read(dataset)  # in this process, before there are workers
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    of_worker = {0: [0, 0], 1: [0, 0]}
    for batch in loader:
        worker, rows, batches = batch["rows"].tolist()
        of_worker[worker][0] += len(batch["id"])
        of_worker[worker][1] += 1
        assert [rows, batches] == of_worker[worker]
    assert sum(rows for rows, _ in of_worker.values()) == NUM_ROWS
    with pytest.raises(RuntimeError, match=r"get_worker_info\(\)\.dataset\.metrics\(\)"):
        dataset.metrics()
    assert dataset.metrics(all_iterations=True).rows == NUM_ROWS  # those of this process
    assert plain.metrics().rows == 0


# Which side is slower


def test_a_slow_loop_is_told(folder: Path) -> None:
    """The loop takes a batch only when decode threads have waited for it, or are done."""
    dataset = ParquetDataset(
        folder, batch_size=200, columns=["id", "x1"], max_memory=12_000, num_threads=2
    )
    last = len(dataset)
    for number, _ in enumerate(dataset, 1):
        before = dataset.metrics().threads_waited_for_loop_seconds
        while number < last:
            now = dataset.metrics()
            is_full = now.threads_waited_for_loop_seconds > before + 0.005
            if is_full or now.ring.batches_ready == last - number:
                break
    metrics = dataset.metrics()
    assert metrics.bottleneck.startswith("the training loop is the slower side"), metrics
    assert metrics.threads_waited_for_loop_seconds > metrics.threads_waited_for_memory_seconds


def test_small_batches_are_told(tmp_path: Path) -> None:
    """An empty loop has no time of its own: all is within `next`, as a clock around it sees."""
    table = pa.table({f"x{i}": np.arange(2_000, dtype=np.float32) for i in range(10)})
    pq.write_table(table, tmp_path / "a.parquet")
    dataset = ParquetDataset(tmp_path, batch_size=1, num_threads=4)
    list(dataset)
    batches, within = iter(dataset), 0.0
    for _ in range(2_000):
        begin = time.perf_counter()
        next(batches)
        within += time.perf_counter() - begin
    metrics = dataset.metrics()
    parts = metrics.wait_seconds + metrics.function_seconds + metrics.python_seconds
    assert parts == pytest.approx(metrics.next_seconds)
    assert metrics.next_seconds <= within
    assert metrics.next_seconds <= metrics.elapsed_seconds
    assert "torchparquet's own Python" in metrics.bottleneck
    assert metrics.bottleneck.endswith("; try a larger batch_size=")
    # One row group is work for one thread of four.
    most = 4 * metrics.elapsed_seconds
    assert 0 < metrics.threads_idle_at_end_seconds < most
    assert 0 < metrics.threads_held_lock_seconds < metrics.elapsed_seconds
    assert metrics.threads_waited_for_lock_seconds < most


TWO_THREADS = Ring(num_threads=2, max_batches_in_flight=3)
DECODED = {"a": ColumnMetrics(decode_seconds=2.0), "b": ColumnMetrics(decode_seconds=7.0)}


def told_of(processors: int = 2, *, in_worker: bool = False, **spent: Any) -> str:
    """Describe a loop that waited for half of its time, or spent it otherwise."""
    even = {"batches": 100, "elapsed_seconds": 11.0, "wait_seconds": 6.0, "first_wait_seconds": 1.0}
    numbers = even | {"ring": TWO_THREADS} | spent
    python = numbers.pop("python", 0.0)
    within = numbers["wait_seconds"] + numbers.get("function_seconds", 0.0)
    made = Metrics(**numbers, next_seconds=within + python)
    return describe(made, processors, in_worker=in_worker)


ZSTD = {
    "decompress_seconds": 9.0,
    "decode_seconds": 1.0,
    "codecs": {"zstd": CodecMetrics(decompress_seconds=9.0)},
}
LZ4 = ZSTD | {"codecs": {"lz4": CodecMetrics(decompress_seconds=9.0)}}
STORE = {"bytes_received": 10**9, "threads_waited_for_bytes_seconds": 9.0}
LOOP = {"wait_seconds": 1.9, "threads_waited_for_loop_seconds": 7.0}
OWN = {"python": 7.0, "wait_seconds": 2.0}
FUNCTIONS = {"function_seconds": 7.0}
MEMORY = {"threads_waited_for_memory_seconds": 9.0, "read_seconds": 4.0}
DECODING = {"decode_seconds": 9.0, "columns": DECODED}


@pytest.mark.parametrize(
    ("spent", "begin", "says"),
    [
        ({"batches": 0}, "nothing is known yet", "no batch was delivered$"),
        (LOOP, "the training loop", "9% of 10 s for batches after 1 s for the first.* no option"),
        (LOOP | {"python": 3.0}, "the training loop", "try a larger batch_size=, .* up to 3 s"),
        (OWN, "torchparquet's own Python", "7 of 10 s, 70 ms for each.*; try a larger batch_size="),
        (FUNCTIONS, "processors and", "7 of 10 s on them.*; try transform=Ahead with more proc"),
        (FUNCTIONS | {"in_worker": True}, "processors and", "; try a larger num_workers= of the D"),
        (MEMORY, "max_memory", "9 s for room; 3 batches fit; try a larger max_memory="),
        (STORE, "the network", "9 s for bytes.* 100 MB came per second; try cache_dir="),
        (STORE | {"bytes_from_cache": 1}, "the network", "; try a larger cache_limit="),
        ({"read_seconds": 9.0}, "reading from storage", r"9 s on .*; try num_threads=4 \(2 now\)"),
        (
            {"read_seconds": 9.0, "ring": Ring(num_threads=4)},
            "reading",
            "; try columns= with fewer",
        ),
        (
            DECODING,
            "decoding is",
            "50% of 10 s for.* on column 'b'; try columns= with all that you",
        ),
        (DECODING | {"batches": 1}, "decoding is the slower side", "55% of 11 s"),
        (DECODING | {"batches": 2}, "decoding is the slower side", "50% of 10 s.* after 1 s for"),
        (DECODING | {"ring": Ring(num_threads=1)}, "decoding", r"; try num_threads=2 \(1 now\)"),
        # The loop waits for 6 s: one of three threads more saves 2 s, half of the codec 2.7 s.
        (ZSTD | {"processors": 3}, "decoding", "9 s in zstd.*; try a faster codec: .*--codec lz4$"),
        (ZSTD | {"processors": 5}, "decoding", r"; try num_threads=5 \(2 now\)"),
        (LZ4, "decoding", "9 s in lz4.*; try columns= with fewer of them"),
        (ZSTD | {"python": 3.0}, "decoding", "; try a larger batch_size="),
    ],
)
def test_bottleneck(spent: dict[str, Any], begin: str, says: str) -> None:
    """It names one option: the one by which the loop would wait least, as it is written."""
    line = told_of(**spent)
    assert line.startswith(begin)
    assert re.search(says, line), line
    assert "\n" not in line
    _, _, option = line.rpartition("try ")
    assert len(re.findall(r"\w+=", option)) <= 1


def slow(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.03)  # as long as it takes to be the slower side
    return batch


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("ahead", [{}, {"threads": 2}, {"processes": 1}], ids=str)
def test_functions_are_told_apart(tmp_path: Path, ahead: Any) -> None:
    pq.write_table(pa.table({"x": range(40)}), tmp_path / "a.parquet")
    transform: Any = Ahead(slow, **ahead) if ahead else slow
    dataset = ParquetDataset(tmp_path, batch_size=4, transform=transform)
    list(dataset)
    metrics = dataset.metrics()
    assert metrics.function_seconds > metrics.wait_seconds - metrics.first_wait_seconds
    assert "processors and transform are the slower side" in metrics.bottleneck
    assert dataset.metrics(all_iterations=True).function_seconds == metrics.function_seconds
    assert ParquetDataset(tmp_path, batch_size=4).metrics().function_seconds == 0
    dataset.close()
