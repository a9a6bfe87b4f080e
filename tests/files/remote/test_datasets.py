"""Data sets of stores read as data sets of the same files on disk."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from tests.files.remote.conftest import Bucket, RecordingStore, upload
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import CorruptFileError, ParquetDataset, mix
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import open_manifest
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.native import has_http

OPTIONS: dict[str, Any] = {
    "batch_size": 32,
    "shuffle": True,
    "seed": 3,
    "rank": 0,
    "world_size": 1,
    "columns": ["id", "x", "day"],
}
PLAIN = OPTIONS | {"columns": ["id", "x"]}


def rows(dataset: Any) -> list[Any]:
    return [row for batch in dataset for row in batch["id"].tolist()]


def assert_same(dataset: ParquetDataset, tree: Path, **options: Any) -> None:
    local = ParquetDataset(tree, **(OPTIONS | options))
    assert dataset.manifest.content_fingerprint == local.manifest.content_fingerprint
    assert dataset.manifest.num_rows == local.manifest.num_rows
    assert (dataset.manifest.file_mtime_ns == -1).all()
    assert (dataset.manifest.file_inode == -1).all()
    state = dataset.state_dict()
    for mine, theirs in zip(dataset, local, strict=True):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    local.load_state_dict(state)
    dataset.close()


def test_memory(tree: Path, memory: Any, native_store: type[RecordingStore]) -> None:
    upload(tree, memory, "/root")
    dataset = ParquetDataset("memory://root", **OPTIONS)
    assert dataset.manifest.files[0] == "memory://root/day=0/part-0.parquet"
    assert dataset.manifest.root == "memory://root"
    assert_same(dataset, tree)
    # One for footers, one for batches; both are closed.
    assert [store.with_addresses for store in native_store.made] == [False, False]
    assert all(store.closed for store in native_store.made)


def test_s3(tree: Path, bucket: Bucket, native_store: type[RecordingStore]) -> None:
    url = bucket.upload(tree)
    dataset = ParquetDataset(url, storage_options=bucket.options, **OPTIONS)
    assert_same(dataset, tree)
    assert all(store.with_addresses == has_http() for store in native_store.made)
    assert all(etag.startswith('"') for store in native_store.made for etag in store.etags)
    # By names of Polars, and by a file system of fsspec, with and without a scheme.
    polars = {
        "aws_access_key_id": bucket.options["key"],
        "AWS_SECRET_ACCESS_KEY": bucket.options["secret"],
        "aws_endpoint_url": bucket.options["endpoint_url"],
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }
    assert_same(ParquetDataset(url, storage_options=polars, **OPTIONS), tree)
    root = url.removeprefix("s3://")
    for paths in (url, root, [f"{root}/day=0", f"{root}/day=1/*"]):
        assert_same(ParquetDataset(paths, filesystem=bucket.filesystem, **OPTIONS), tree)


def test_s3_by_pyarrow(tree: Path, bucket: Bucket, native_store: type[RecordingStore]) -> None:
    url = bucket.upload(tree)
    root = url.removeprefix("s3://")
    dataset = ParquetDataset(root, filesystem=bucket.of_arrow(), **OPTIONS)
    assert dataset.manifest.files[0] == f"{url}/day=0/part-0.parquet"
    again = pickle.loads(pickle.dumps(dataset))
    assert_same(dataset, tree)
    assert_same(again, tree)
    assert not any(store.with_addresses for store in native_store.made)


@pytest.mark.mostly_long(every=2)
def test_http(tree: Path, origin: FaultyOrigin) -> None:
    for path in tree.rglob("part-[0-3].parquet"):
        origin.put(path.name, path.read_bytes())
    urls = [f"{origin.url}/part-{number}.parquet" for number in range(4)]
    origin.wanted = {"Authorization": "Bearer t0ken-of-the-test"}
    with pytest.raises(PermissionError, match=rf"refuses access: HTTP 401.*{urls[0]}"):
        ParquetDataset(urls, batch_size=32)
    local = ParquetDataset([*sorted(tree.rglob("part-[0-3].parquet"))], batch_size=32)
    for options in (
        {"headers": origin.wanted},
        {"client_kwargs": {"headers": origin.wanted}},
        dict(origin.wanted),  # as pandas takes them
    ):
        dataset = ParquetDataset(urls, batch_size=32, storage_options=options)
        assert rows(dataset) == rows(local)
        dataset.close()


def test_local_file_systems_are_local(tree: Path, native_store: type[RecordingStore]) -> None:
    import pyarrow.fs as pafs

    for filesystem in (pafs.LocalFileSystem(), fsspec.filesystem("file")):
        dataset = ParquetDataset(str(tree), filesystem=filesystem, **OPTIONS)
        assert rows(dataset) == rows(ParquetDataset(tree, **OPTIONS))
    assert not native_store.made


def test_s3_file_that_changed_is_an_error(tree: Path, bucket: Bucket) -> None:
    dataset = ParquetDataset(bucket.upload(tree), storage_options=bucket.options, **OPTIONS)
    content = (tree / "day=0/part-0.parquet").read_bytes()
    bucket.filesystem.pipe_file(f"{bucket.name}/root/day=1/part-3.parquet", content)
    with pytest.raises(CorruptFileError, match=r"part-3\.parquet"):
        rows(dataset)


def test_stamp_is_in_the_fingerprint_and_not_in_states(tree: Path, memory: Any) -> None:
    upload(tree, memory, "/root")
    first = ParquetDataset("memory://root", **OPTIONS)
    state = first.state_dict()
    upload(tree, memory, "/root")  # the same content, written later
    second = ParquetDataset("memory://root", **OPTIONS)
    assert first.manifest.fingerprint != second.manifest.fingerprint
    second.load_state_dict(state)
    upload(tree, memory, "/elsewhere")
    ParquetDataset("memory://elsewhere", **OPTIONS).load_state_dict(state)


@pytest.mark.parametrize("where", ["disk", "store"])
def test_manifest_cache(
    tree: Path,
    memory: Any,
    tmp_path: Path,
    native_store: type[RecordingStore],
    where: str,
) -> None:
    upload(tree, memory, "/root")
    cache = str(tmp_path / "cache") if where == "disk" else "memory://caches/cache"
    first = ParquetDataset("memory://root", manifest_cache=cache, **OPTIONS)
    assert len(native_store.made) == 1
    second = ParquetDataset("memory://root", manifest_cache=cache, **OPTIONS)
    assert len(native_store.made) == 1  # no footer was read
    assert second.manifest.fingerprint == first.manifest.fingerprint
    assert_same(second, tree)
    count = len(native_store.made)
    upload(tree, memory, "/root")
    third = ParquetDataset("memory://root", manifest_cache=cache, **OPTIONS)
    assert len(native_store.made) == count + 1
    assert third.manifest.fingerprint != first.manifest.fingerprint


def test_mix(tree: Path, memory: Any) -> None:
    upload(tree, memory, "/root")

    def mixed(first: Any, second: Any) -> Any:
        made = [ParquetDataset(paths, **PLAIN) for paths in (first, second)]
        return mix(made, weights=[1, 2])

    day0, day1 = str(tree / "day=0"), str(tree / "day=1")
    expected = rows(mixed(day0, day1))
    assert rows(mixed("memory://root/day=0", "memory://root/day=1")) == expected
    assert rows(mixed("memory://root/day=0", day1)) == expected


def _read_in_child(dataset: ParquetDataset, queue: Any) -> None:
    queue.put(rows(dataset))
    dataset.close()


@pytest.mark.mostly_long(every=6)
@pytest.mark.parametrize("has_read", [False, True])
@pytest.mark.parametrize("by", ["options", "fsspec", "pyarrow"])
def test_a_forked_child_makes_its_own_connections(
    tree: Path, bucket: Bucket, by: str, has_read: bool
) -> None:
    options: dict[str, Any] = {"storage_options": bucket.options}
    if by != "options":
        made = bucket.filesystem if by == "fsspec" else bucket.of_arrow()
        options = {"filesystem": made}
    dataset = ParquetDataset(bucket.upload(tree), **options, **OPTIONS)
    if has_read:
        iterator = iter(dataset)
        next(iterator)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_read_in_child, args=(dataset, queue))
    child.start()
    found = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert sorted(found) == list(range(400))
    dataset.close()


def broker_threads() -> set[threading.Thread]:
    gc.collect()  # Data sets of other tests may wait for it.
    return {thread for thread in threading.enumerate() if "torchparquet" in thread.name}


@pytest.mark.long
def test_threads_do_not_keep_a_data_set_alive(tree: Path, memory: Any) -> None:
    before = broker_threads()
    upload(tree, memory, "/root")
    dataset = ParquetDataset("memory://root", **OPTIONS)
    iterator = iter(dataset)
    next(iterator)
    threads = broker_threads() - before
    assert threads
    del iterator, dataset
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_each_footer_is_read_by_one_rank_for_all(tree: Path, memory: Any) -> None:
    upload(tree, memory, "/root")
    left: dict[str, list[bytes]] = {}

    def share(what: str, most: int, work: Callable[[int, int], bytes], *_: Any) -> list[bytes]:
        num_parts = min(most, 3)
        if what not in left:
            left[what] = [work(part, num_parts) for part in range(num_parts)]
        return [*left[what]]

    def select(share: Any) -> Manifest:
        return open_manifest(
            "memory://root", storage=StorageArguments(share=share), with_chunk_sizes=True
        )[0]

    alone = select(None)
    first = select(share)
    memory.rm("/root", recursive=True)
    second = select(share)
    assert second.listing.paths == alone.files
    assert first.digest() == second.digest() == alone.digest()
    assert second.schemas == alone.schemas
    assert second.bytes_of_columns(["x"]).tolist() == alone.bytes_of_columns(["x"]).tolist()
    with pytest.raises(FileNotFoundError):
        select(None)


@pytest.mark.parametrize(
    ("errors", "num_tries", "said"),
    [
        ([OSError("reset"), PermissionError("the key is old"), RuntimeError("busy")], 4, ""),
        ([OSError("reset")] * 99, 4, "cannot read 'memory://root/.*: reset"),
        ([b"short"] * 99, 4, r"cannot read 'memory://root/.*: \d+ bytes at \d+ .*, 5 came"),
        ([PermissionError("no")] * 99, 2, "the store refuses access: no"),
        ([FileNotFoundError("gone")] * 99, 1, "memory://root"),
        ([TypeError("a fault of the code")] * 99, 1, "a fault of the code"),
        ([RuntimeError("https://me:pw@host/x?sig=1 is bad")] * 99, 4, "https://host/x is bad"),
    ],
)
def test_failures_of_a_library_pass_or_are_named(
    tree: Path, memory: Any, monkeypatch: Any, errors: Any, num_tries: int, said: str
) -> None:
    """By default a range is asked for ten times."""
    upload(tree, memory, "/root")
    options = {"max_retries": 3}
    dataset = ParquetDataset("memory://root/day=0/part-0.parquet", storage_options=options, **PLAIN)
    cat_file, left, tries = memory.cat_file, list(errors), Counter[Any]()

    def failing(name: str, **span: int) -> bytes:
        tries[span["start"]] += 1
        if left and isinstance(left[-1], Exception):
            raise left.pop()
        return left.pop() if left else bytes(cat_file(name, **span))

    monkeypatch.setattr(memory, "cat_file", failing)
    if said:
        is_gone = isinstance(errors[0], FileNotFoundError)
        with pytest.raises(FileNotFoundError if is_gone else OSError, match=said):
            rows(dataset)
    else:
        assert sorted(rows(dataset)) == list(range(100))
    assert max(tries.values()) == num_tries or not said
    # The threads live on.
    left.clear()
    assert sorted(rows(dataset)) == list(range(100))


def test_a_file_of_a_library_that_is_replaced_under_way_is_an_error(
    tree: Path, memory: Any, monkeypatch: Any
) -> None:
    upload(tree, memory, "/root")
    dataset = ParquetDataset("memory://root", **OPTIONS)
    cat_file = memory.cat_file

    def replaced_meanwhile(name: str, **span: int) -> bytes:
        memory.pipe_file(name, cat_file(name))
        return bytes(cat_file(name, **span))

    monkeypatch.setattr(memory, "cat_file", replaced_meanwhile)
    with pytest.raises(CorruptFileError, match=r"data set anew.*has changed.*memory://root"):
        rows(dataset)
