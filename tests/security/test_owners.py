"""Caches that another user made, or could have changed, are not read; nor are objects in them."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import Column, ParquetDataset
from torchparquet._impl.files.cache_file import Codec, KeptFile, Pass
from torchparquet._impl.files.remote.storage import NO_STORAGE
from torchparquet._impl.native import FetchOptions, RemoteStore

NUM_ROWS = 20
SOMEBODY = 12345


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    table = pa.table({"x": np.arange(NUM_ROWS), "s": ["a", "b"] * (NUM_ROWS // 2)})
    pq.write_table(table, folder / "a.parquet", row_group_size=5)
    return folder


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, SOMEBODY, SOMEBODY)


def open_to_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


DISTRUSTED = [
    pytest.param(give_away, "belongs to another user, of number 12345", id="of another user"),
    pytest.param(open_to_all, "every user may write to it", id="open to all"),
]


def count(data: Path, cache: Path) -> int:
    """Read by a manifest cache, and by the file of selected rows beside it."""
    dataset = ParquetDataset(
        data, batch_size=4, columns=["x"], filters="s = 'a'", manifest_cache=cache
    )
    return sum(len(batch["x"]) for batch in dataset)


@pytest.mark.parametrize(("spoil", "why"), DISTRUSTED)
def test_manifest_caches(data: Path, tmp_path: Path, spoil: Any, why: str) -> None:
    """Each file is ignored with a warning, stays as it is, and rows are the same."""
    cache = tmp_path / "cache"
    assert count(data, cache) == NUM_ROWS // 2
    made = sorted(tmp_path.glob("cache*"))
    assert len(made) == 2
    for path in made:
        content = path.read_bytes()
        spoil(path)
        path.write_bytes(b"what another user wrote")
        with pytest.warns(UserWarning, match=f"a cache is ignored, because (it )?{why}"):
            assert count(data, cache) == NUM_ROWS // 2
        assert path.read_bytes() == b"what another user wrote"
        path.unlink()
        path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(data, cache) == NUM_ROWS // 2


@pytest.mark.parametrize(("spoil", "why"), DISTRUSTED)
def test_no_rank_replaces_what_another_has_distrusted(tmp_path: Path, spoil: Any, why: str) -> None:
    path, said = tmp_path / "cache", dict[str, list[bytes]]()
    path.write_bytes(b"what another user wrote")
    spoil(path)
    codec: Codec[list[int]] = Codec(lambda value: {"value": value}, lambda parts: parts["value"])
    of: Pass[list[int]] = Pass(["x"], lambda _: codec, lambda _: [3], lambda parts: parts[0])

    def look(what: str, _count: int, work: Any, *_begun: Any) -> list[bytes]:
        said[what] = [work(0, 1)]
        return said[what]

    def hear(what: str, _count: int, work: Any, *_begun: Any) -> list[bytes]:
        return said[what] if '"kept"' in what else [work(0, 1)]

    with pytest.warns(UserWarning, match=f"a cache is ignored, because (it )?{why}"):
        assert of.found([1], KeptFile(path, codec, NO_STORAGE), look) == [3]
    assert of.found([1], KeptFile(path, codec, NO_STORAGE), hear) == [3]
    assert path.read_bytes() == b"what another user wrote"


def test_a_cache_that_is_no_file(data: Path, tmp_path: Path) -> None:
    """A pipe would be waited for."""
    os.mkfifo(tmp_path / "cache")
    with pytest.warns(UserWarning, match="a cache is ignored, because it is no regular file"):
        ParquetDataset(data, batch_size=4, manifest_cache=tmp_path / "cache")


def store_with(folder: Path) -> RemoteStore:
    return RemoteStore(
        paths=[],
        num_bytes=np.zeros(0, np.int64),
        etags=[],
        identities=[],
        with_addresses=False,
        options=FetchOptions(),
        cache_folder=str(folder),
        cache_limit=1 << 30,
    )


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (give_away, "the cache folder belongs to another user.*of user 12345"),
        (open_to_all, "every user may write to the cache folder"),
    ],
)
def test_block_caches_that_others_could_change(
    tmp_path: Path, spoil: Any, why: str, begun: bool
) -> None:
    folder = tmp_path / "blocks"
    folder.mkdir()
    if begun:
        store_with(folder)
    spoil(folder)
    with pytest.raises(ValueError, match=why):
        store_with(folder)


def test_block_caches_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "blocks"
    before = os.umask(0)
    try:
        store_with(folder)
    finally:
        os.umask(before)
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o002 == 0, path


class Bomb:
    """Tells that it was unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_is_unpickled(data: Path, tmp_path: Path) -> None:
    """Neither from caches, nor from numbers of rows, nor from a state."""
    mark = tmp_path / "mark"
    bomb = np.array([Bomb(mark)], dtype=object)
    cache = tmp_path / "cache"
    count(data, cache)
    for path in tmp_path.glob("cache*"):
        content = path.read_bytes()
        for bad in (pickle.dumps(Bomb(mark)), _archive(bomb, tmp_path / "bomb.npz")):
            path.write_bytes(bad)
            with pytest.warns(UserWarning, match="damaged"):
                assert count(data, cache) == NUM_ROWS // 2
        path.write_bytes(content)
    np.save(tmp_path / "rows.npy", bomb, allow_pickle=True)
    with pytest.raises((TypeError, ValueError)):
        ParquetDataset(data, batch_size=4, rows=tmp_path / "rows.npy")
    dataset = ParquetDataset(data, batch_size=4, columns={"x": Column("x")})
    with pytest.raises((TypeError, ValueError)):
        dataset.load_state_dict(pickle.dumps(Bomb(mark)))  # type: ignore[arg-type]
    assert not mark.exists()
    np.load(tmp_path / "rows.npy", allow_pickle=True)
    assert mark.exists()  # so it would have told


def _archive(bomb: Any, path: Path) -> bytes:
    np.savez(path, texts=bomb)
    return path.read_bytes()
