"""Batches that are delivered on a device.

If there is no accelerator, the CPU takes its place: everything is as for one, but for the
stream that copies. `pytest -p MODULE` brings an accelerator of another package's.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

import torchparquet
from tests.fixtures.failing_loaders import raises_in_worker
from tests.fixtures.shape_files import COLUMNS, digest_of_batch, shape_files, tensors_of
from torchparquet import Ahead, Column, NullValueError, Order, ParquetDataset, TransformError, mix

PACKAGE = Path(torchparquet.__file__).parent
ACCELERATOR = (
    torch.accelerator.current_accelerator()
    if hasattr(torch, "accelerator") and torch.accelerator.is_available()
    else None
)
NUM_ROWS = 3000


def digests(batches: Iterable[dict[str, Any]]) -> list[str]:
    """A digest of each batch's bytes, taken at once."""
    return [digest(batch) for batch in batches]


def digest(batch: dict[str, Any]) -> str:
    return digest_of_batch({name: value.to("cpu") for name, value in batch.items()})


@pytest.fixture(params=["CPU in its place", "accelerator"])
def on_device(request: Any, monkeypatch: Any) -> dict[str, Any]:
    """Options with which a data set delivers on a device."""
    if request.param == "accelerator":
        if ACCELERATOR is None:
            pytest.skip("torch finds no accelerator")
        return {"device": ACCELERATOR.type}
    monkeypatch.setattr(
        "torchparquet._impl.reading.streams.resolved_device", lambda device: torch.device("cpu")
    )
    return {"device": "cuda", "pin_memory": False}


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> str:
    return shape_files(tmp_path_factory.mktemp("device"), NUM_ROWS, 2, 6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "shuffle_window": 3, "seed": 4},
        {"max_memory": "120KB"},
        {"even": "pad", "world_size": 2, "rank": 1},
        {"batch_size": None},
        {"order": Order(canonical_world_size=4)},
        {"num_epochs": 3, "shuffle": True},
    ],
    ids=str,
)
def test_batches_are_those_of_the_host(
    files: str, on_device: dict[str, Any], options: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"columns": COLUMNS, "batch_size": 128, "row_ids": True} | options  # type: ignore[no-redef]
    expected = digests(ParquetDataset(files, **options))
    kept = list(ParquetDataset(files, **options, **on_device))
    if "pin_memory" not in on_device:
        found = {t.device.type for batch in kept for v in batch.values() for t in tensors_of(v)}
        assert found == {on_device["device"]}
    assert digests(kept) == expected


def test_all_parts_of_a_keyed_jagged_arrive(tmp_path: Path, on_device: dict[str, Any]) -> None:
    lists = [[number] * (number % 4) for number in range(300)]
    weights = [[number / 4] * (number % 4) for number in range(300)]
    table = pa.table({"list": lists, "id": range(300), "w": weights, "one": [1.0] * 300})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    columns = {"keyed": Column(["list", "id"], weights=["w", "one"])}
    options: dict[str, Any] = {"columns": columns, "batch_size": 64}
    expected = [batch["keyed"] for batch in ParquetDataset(tmp_path, **options)]
    found = [batch["keyed"] for batch in ParquetDataset(tmp_path, **options, **on_device)]
    assert len(found) == len(expected) == 5
    for keyed, on_host in zip(found, expected, strict=True):
        parts = [keyed.values, keyed.lengths, keyed.weights]
        wanted = [on_host.values, on_host.lengths, on_host.weights]
        if "pin_memory" not in on_device:
            assert {part.device.type for part in parts} == {on_device["device"]}
        assert [part.tolist() for part in parts] == [part.tolist() for part in wanted]
        assert keyed.length_per_key == on_host.length_per_key


class Pair(NamedTuple):
    """A value of a transform's own."""

    values: torch.Tensor
    name: str


def changed(batch: Any) -> dict[str, Any]:
    """Return values of many kinds: new memory, views of a slab, objects."""
    ids = batch["id"]
    assert ids.device.type == "cpu"
    return {
        "double": ids * 2,
        "every second": ids[::2],
        "empty": ids[:0],
        "lists": batch["list"],
        "nested": [Pair(ids[5:7], "of two"), {"of one": ids[:1]}],
        "text": "a name",
    }


class Marked(torch.Tensor):
    """A tensor of a transform's own class."""


def test_tensors_that_are_more_than_their_bytes_keep_their_values(
    files: str, on_device: dict[str, Any]
) -> None:
    def more(batch: dict[str, Any]) -> dict[str, Any]:
        ids = batch["id"].double()
        spiral = torch.complex(ids, ids)
        return {
            "conjugate": spiral.conj(),
            "negative": spiral.conj().imag,
            "marked": ids.as_subclass(Marked),
            "few": torch.nested.nested_tensor([ids[:2], ids[2:7]]).unbind()[1],
            "sparse": ids.to_sparse(),
            "quantized": torch.quantize_per_tensor(ids.float(), 16.0, 0, torch.quint8),
        }

    options: dict[str, Any] = {"columns": ["id"], "batch_size": 500, "transform": more}
    expected = next(iter(ParquetDataset(files, **options)))
    found = next(iter(ParquetDataset(files, **options, **on_device)))
    for name in ("conjugate", "negative", "marked", "few"):
        assert type(found[name]) is type(expected[name])
        torch.testing.assert_close(found[name].cpu(), expected[name], rtol=0, atol=0)
    assert torch.equal(found["sparse"].cpu().to_dense(), expected["sparse"].to_dense())
    assert torch.equal(found["quantized"].cpu().dequantize(), expected["quantized"].dequantize())


@pytest.mark.parametrize(
    "transform",
    [changed, Ahead(changed, threads=2), Ahead(changed, processes=1)],
    ids=["loop", "threads", "processes"],
)
def test_transforms_come_before_the_copy(
    files: str, on_device: dict[str, Any], transform: Any
) -> None:
    options: dict[str, Any] = {"columns": ["id", "list"], "nulls": 0, "batch_size": 500}
    expected = [changed(batch) for batch in ParquetDataset(files, **options)]
    dataset = ParquetDataset(files, **options, transform=transform, **on_device)
    found = list(dataset)
    dataset.close()
    assert len(found) == len(expected) == 6
    for batch, other in zip(found, expected, strict=True):
        assert isinstance(batch["nested"][0], Pair)
        parts, structure = pytree.tree_flatten(batch)
        others, expected_structure = pytree.tree_flatten(other)
        assert structure == expected_structure
        for own, theirs in zip(parts, others, strict=True):
            assert own == theirs if isinstance(own, str) else torch.equal(own.cpu(), theirs)


@dataclass(frozen=True)
class Sample:
    """What a transform puts in place of a dict."""

    ids: torch.Tensor
    parts: list[torch.Tensor]
    name: str
    size: int = field(default=0, init=False)


def test_the_tensors_of_a_dataclass_are_copied_too(files: str, on_device: dict[str, Any]) -> None:
    on_host = []

    def sampled(batch: dict[str, Any]) -> dict[str, Any]:
        on_host.append(Sample(batch["id"], [batch["id"][:2]], "of two"))
        return {"sample": on_host[-1]}

    dataset = ParquetDataset(files, columns=["id"], batch_size=50, transform=sampled, **on_device)
    found = next(iter(dataset))["sample"]
    assert (type(found), found.name, found.size) == (Sample, "of two", 0)
    for copied, own in ((found.ids, on_host[0].ids), (found.parts[0], on_host[0].parts[0])):
        assert torch.equal(copied.cpu(), own)
        assert copied.data_ptr() != own.data_ptr()


def test_a_transform_that_fails_does_so_at_its_batch(files: str, on_device: dict[str, Any]) -> None:
    fails = [True]

    def failing(batch: Any) -> dict[str, Any]:
        if fails[0] and batch["id"][0] == 300:
            raise KeyError("third")
        return {"id": batch["id"]}

    dataset = ParquetDataset(
        files, columns=["id"], batch_size=100, transform=failing, num_threads=1, **on_device
    )
    iterator = iter(dataset)
    found = [int(next(iterator)["id"][0]) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(TransformError, match="batch 3 of epoch 0"):
            next(iterator)
    fails[0] = False
    found += [int(batch["id"][0]) for batch in iterator]
    assert found == list(range(0, NUM_ROWS, 100))


@pytest.mark.parametrize("step", [0, 1, 2, 11, 29, 30])
def test_a_state_counts_what_was_delivered(
    files: str, on_device: dict[str, Any], step: int
) -> None:
    options: dict[str, Any] = {"columns": COLUMNS, "batch_size": 100, "shuffle": True, "seed": 9}
    expected = digests(ParquetDataset(files, **options))
    dataset = ParquetDataset(files, **options, **on_device)
    iterator = iter(dataset)
    found = [digest(next(iterator)) for _ in range(step)]
    state = dataset.state_dict()
    host = ParquetDataset(files, **options)
    host.load_state_dict(state)
    assert digests(host)[: 30 - step] == expected[step:]
    resumed = ParquetDataset(files, **options, **on_device)
    resumed.load_state_dict(state)
    if step < 30:
        assert [*found, *digests(resumed)] == expected


def test_an_error_comes_after_the_batches_before_it(
    tmp_path: Path, on_device: dict[str, Any]
) -> None:
    values = [None if row == 750 else row for row in range(1000)]
    pq.write_table(pa.table({"n": values}), tmp_path / "part.parquet", row_group_size=100)
    dataset = ParquetDataset(tmp_path, batch_size=100, **on_device)
    iterator = iter(dataset)
    assert [next(iterator)["n"][0].item() for _ in range(7)] == list(range(0, 700, 100))
    for _ in range(2):
        with pytest.raises(NullValueError, match="row 50"):
            next(iterator)


def test_mixed_rows(files: str, on_device: dict[str, Any]) -> None:
    def mixed(**options: Any) -> Any:
        sets = [
            ParquetDataset(
                files, columns=COLUMNS, batch_size=60, seed=seed, shuffle=True, **options
            )
            for seed in (1, 2)
        ]
        return mix(
            sets, weights=[2, 1], within_batch=True, batch_size=90, seed=5, source_key="from"
        )

    found = next(iter(mixed(**on_device)))
    assert found["from"].device == found["id"].device
    assert digests(mixed(**on_device)) == digests(mixed())


def test_a_batch_that_fails_to_be_joined_keeps_none_before_it(
    tmp_path: Path, on_device: dict[str, Any]
) -> None:
    def row_group(num_lists: int) -> pa.Table:
        kind = pa.list_(pa.list_(pa.int8()))
        return pa.table({"l": pa.array([[[1]] * num_lists] * 10, kind)})

    with pq.ParquetWriter(tmp_path / "part.parquet", row_group(1).schema) as writer:
        for number in range(12):
            writer.write_table(row_group(9000 if number in (8, 9) else 5), row_group_size=10)

    def outcomes(**options: Any) -> Any:
        dataset = ParquetDataset(
            tmp_path, batch_size=20, nulls=0, max_memory="1MB", num_threads=1, **options
        )
        iterator, found = iter(dataset), []
        for _ in range(6):
            try:
                found.append(digest(next(iterator)))
            except MemoryError:
                found.append("MemoryError")
        return found

    expected = outcomes()
    assert expected[4:] == ["MemoryError"] * 2 != expected[2:4]
    assert outcomes(**on_device) == expected


# An exception between taking a batch and delivering it loses nothing.

# Of ExactIterator.__next__.
BEHIND = ("self._in_next = None", "return item")
DELIVERING = (
    "_next",
    "_next_item",
    "_take",
    "_begin",
    "_spans",
    "_view",
    "_with_tensors",
    "begin_copies",
    "await_copies",
    "cut",
    "__next__",
    "_fetch",
    "wait_range",
    "__enter__",
    "__exit__",
    "_slab",
    "_lend",
    "tensors_of_items",
)


class InterruptedHere(Exception):  # noqa: N818
    """An exception that a signal handler might raise."""


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("place", ["host", "device", "traced"])
def test_an_interrupt_anywhere_loses_no_batch(
    files: str, on_device: dict[str, Any], place: str, monkeypatch: Any
) -> None:
    if place == "traced":
        # As where CUDA is: the range ends after all that `next` does.
        monkeypatch.setattr("torchparquet._impl.metrics.wait_ranges._has_nvtx", lambda: True)
        for name in ("range_push", "range_pop"):
            monkeypatch.setattr(torch.cuda.nvtx, name, lambda *_: None)
    options: dict[str, Any] = {"columns": ["id", "list"], "nulls": 0, "batch_size": 300}
    expected = digests(ParquetDataset(files, **options))
    if place == "device":
        options |= on_device
    stop_at, passed, num_interrupts = 0, 0, 0

    def trace(frame: Any, event: Any, argument: Any) -> Any:
        nonlocal passed, num_interrupts
        if (
            not frame.f_code.co_filename.startswith(str(PACKAGE))
            or frame.f_code.co_name not in DELIVERING
        ):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # After the count of batches no call follows, so that no signal's handler runs.
        is_behind = Path(frame.f_code.co_filename).stem == "session_iterator" and line in BEHIND
        if event == "line" and not is_behind:
            passed += 1
            if passed == stop_at:
                num_interrupts += 1
                raise InterruptedHere
        return trace

    while True:
        stop_at, passed = stop_at + 1, 0
        iterator = iter(ParquetDataset(files, **options))
        found = [digest(next(iterator)) for _ in range(3)]
        sys.settrace(trace)
        try:
            found.append(digest(next(iterator)))
        except InterruptedHere:
            pass
        finally:
            sys.settrace(None)
        is_over = passed < stop_at
        found += digests(iterator)
        assert found == expected
        if is_over:
            break
    assert num_interrupts > 20


def test_workers_are_refused(files: str) -> None:
    dataset = ParquetDataset(files, columns=["id"], batch_size=100, device="cuda")
    with raises_in_worker(ValueError, match="device='cuda' needs a DataLoader with num_workers=0"):
        next(iter(DataLoader(dataset, batch_size=None, num_workers=1)))


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
def test_the_cpu_is_where_batches_are_anyway(files: str, device: Any) -> None:
    batch = next(iter(ParquetDataset(files, columns=["id"], batch_size=5, device=device)))
    assert batch["id"].tolist() == list(range(5))


def test_a_device_that_is_not_there(files: str) -> None:
    absent = "xpu" if torch.cuda.is_available() else "cuda"
    dataset = ParquetDataset(files, columns=["id"], batch_size=5, device=absent)
    with pytest.raises(RuntimeError, match=f"device='{absent}': torch .* finds no such device"):
        next(iter(dataset))


@pytest.mark.skipif(ACCELERATOR is None, reason="torch finds no accelerator")
def test_checksums_while_slabs_are_used_again(tmp_path: Path) -> None:
    """10,000 batches, each summed up on the device by work that runs beside the loop."""
    rng = np.random.default_rng(1)
    num_rows = 10_000 * 256
    table = pa.table(
        {"a": rng.integers(0, 1 << 40, num_rows), "b": rng.random(num_rows, np.float32)}
    )
    pq.write_table(table, tmp_path / "part.parquet", row_group_size=100_000)
    dataset = ParquetDataset(tmp_path, batch_size=256, device=ACCELERATOR, max_memory="1MB")
    sums = [
        torch.stack([batch["a"].sum(), batch["b"].view(torch.int32).sum()]) for batch in dataset
    ]
    assert len(sums) == 10_000
    a = table["a"].to_numpy().reshape(-1, 256).sum(axis=1)
    b = table["b"].to_numpy().view(np.int32).reshape(-1, 256).sum(axis=1, dtype=np.int64)
    assert torch.equal(torch.stack(sums).cpu(), torch.from_numpy(np.stack([a, b], axis=1)))


@pytest.mark.skipif(ACCELERATOR is None, reason="torch finds no accelerator")
def test_the_threads_current_stream_stays_what_it_was(files: str) -> None:
    """Loops at once, each on a stream of its own."""

    def strays(thread: int) -> int:
        own, found = torch.Stream(device=ACCELERATOR), 0
        with own:
            for _batch in ParquetDataset(files, columns=["id"], batch_size=5, device=ACCELERATOR):
                found += torch.accelerator.current_stream().stream_id != own.stream_id
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(strays, range(3))) == 0
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.skipif(ACCELERATOR is None, reason="torch finds no accelerator")
def test_memory_is_not_written_to_while_the_loop_still_computes(files: str) -> None:
    options: dict[str, Any] = {"columns": ["id", "x"], "batch_size": 30}
    expected = torch.cat([batch["id"].clone() for batch in ParquetDataset(files, **options)])
    busy = torch.zeros(1 << 26, dtype=torch.uint8, device=ACCELERATOR)
    with torch.Stream(device=ACCELERATOR):
        found = []
        for batch in ParquetDataset(files, **options, device=ACCELERATOR):
            for _ in range(4):
                busy.copy_(torch.empty_like(busy))
            # Copied after all of that, long after the batch was given up.
            found.append(batch["id"].clone())
            del batch
        assert torch.equal(torch.cat(found).cpu(), expected)
