"""Sequences counted by footers, where these tell of lists, and checked as they are read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import CorruptFileError, Pack, ParquetDataset
from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.files.listing import Listing
from torchparquet._impl.files.manifest_reading import footers_of, read_manifest
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.sequences import length_pass

NUM_LISTS, LIST_LENGTH, NUM_EMPTY, LENGTH = 1000, 4, 63, 10
# A footer's list of the numbers of values at each level: null and empty lists, null and other
# items. Its numbers are Thrift's, twice the value in groups of 7 bits.
ALL_FILLED = bytes([0x46, 0, 0, 0, 0xC0, 0x3E])  # 4,000 items
SOME_EMPTY = bytes([0x46, 0, 0x7E, 0, 0xC2, 0x3D])  # 63 empty lists, 3,937 items


def write(path: Path, lengths: list[int], *, nulls: bool = False) -> None:
    """Write lists of these lengths, in row groups of 400."""
    ends = np.cumsum([0, *lengths])
    lists: list[Any] = [list(range(a, b)) for a, b in pairwise(ends.tolist())]
    if nulls:
        lists = [[None, *items[1:]] if i % 7 == 1 else items for i, items in enumerate(lists)]
        lists = [None if i % 11 == 3 else items for i, items in enumerate(lists)]
    table = pa.table({"tokens": pa.array(lists, pa.list_(pa.int32()))})
    pq.write_table(table, path, row_group_size=NUM_LISTS)


def damage_pages(path: Path) -> None:
    """Overwrite all pages, and no byte of the footer."""
    content = bytearray(path.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[4:end] = bytes(end - 4)
    path.write_bytes(content)


def replace_counts(path: Path, told: bytes, other: bytes) -> None:
    """Make the footer count its lists in another way."""
    content = path.read_bytes()
    assert content.count(told) == 1
    path.write_bytes(content.replace(told, other))


def tokens_of(dataset: ParquetDataset) -> list[int]:
    return [token for batch in dataset for token in batch["tokens"].flatten().tolist()]


def test_lists_are_not_read_to_be_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, [LIST_LENGTH] * NUM_LISTS)
    damage_pages(path)
    dataset = ParquetDataset(path, batch_size=None, pack=Pack("tokens", LENGTH, separator=-1))
    # Four tokens and a separator.
    info = dataset.get_shard_distribution_info()
    assert (info["rows"], info["tokens"]) == (NUM_LISTS * 5 // LENGTH, NUM_LISTS * 5)
    # Here the length of each list counts.
    with pytest.raises(CorruptFileError):
        ParquetDataset(path, batch_size=None, pack=Pack("tokens", LENGTH, "split"))


def test_parts_of_a_pass_read_the_footers_of_their_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        write(tmp_path / f"{number}.parquet", [number] * NUM_LISTS)
    manifest, read = read_manifest(str(tmp_path)), list[str]()

    def counted(listing: Listing, *options: Any, **named: Any) -> Any:
        read.extend(listing.paths)
        return footers_of(listing, *options, **named)

    def share(_: str, most: int, work: Any, *__: Any) -> list[bytes]:
        return [work(part, most) for part in range(most)]

    monkeypatch.setattr(length_pass, "footers_of", counted)
    found = []
    for storage in (NO_STORAGE, StorageArguments(share=share)):
        lengths = length_pass.LengthPass(manifest, ReadOptions(), None, storage)
        fields = resolve_columns(["tokens"], manifest, None, Pack("tokens", LENGTH, separator=-1))
        found.append(length_pass.pack_rows(lengths, fields))
        assert sorted(read) == list(manifest.files)
        read.clear()
    assert found[0].fingerprint == found[1].fingerprint


@pytest.mark.parametrize("nulls", [False, True])
def test_null_and_empty_lists_have_no_token(tmp_path: Path, nulls: bool) -> None:
    write(tmp_path / "a.parquet", [i % 5 for i in range(NUM_LISTS)], nulls=nulls)
    written = pq.read_table(tmp_path / "a.parquet")["tokens"].to_pylist()
    pack = Pack("tokens", LENGTH, separator=-1, padding=-2)
    dataset = ParquetDataset(tmp_path, batch_size=7, pack=pack, nulls=0)
    expected = [token for items in written if items for token in [*items, -1]]
    expected = [0 if token is None else token for token in expected]
    found = tokens_of(dataset)
    assert found[: len(expected)] == expected
    assert found[len(expected) :] == [-2] * (-len(expected) % LENGTH)


@pytest.mark.parametrize(
    ("lengths", "told", "other", "message"),
    [
        ([LIST_LENGTH] * NUM_LISTS, ALL_FILLED, SOME_EMPTY, "fill more than the 394 sequences"),
        (
            [0] * NUM_EMPTY + [LIST_LENGTH] * 936 + [LIST_LENGTH * 48 + 1],
            SOME_EMPTY,
            ALL_FILLED,
            "fill 394 sequences, but 400 were planned",
        ),
    ],
)
def test_a_footer_that_counts_wrongly_loses_no_token(
    tmp_path: Path, lengths: list[int], told: bytes, other: bytes, message: str
) -> None:
    path = tmp_path / "a.parquet"
    write(path, lengths)
    replace_counts(path, told, other)
    dataset = ParquetDataset(path, batch_size=1, pack=Pack("tokens", LENGTH))
    with pytest.raises(CorruptFileError, match=rf"{message}.*a\.parquet.*row group 0.*'tokens'"):
        tokens_of(dataset)
    # The rank that reads the last sequence finds it.
    num_refused = 0
    for rank in range(3):
        pack = Pack("tokens", LENGTH)
        part = ParquetDataset(path, batch_size=1, pack=pack, rank=rank, world_size=3)
        try:
            tokens_of(part)
        except CorruptFileError:
            num_refused += 1
    assert num_refused == 1


def test_a_row_group_that_is_empty_by_its_footer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, [1] * 63)
    # 63 items become 63 empty lists.
    replace_counts(path, bytes([0x46, 0, 0, 0, 0x7E]), bytes([0x46, 0, 0x7E, 0, 0]))
    assert tokens_of(ParquetDataset(path, batch_size=1, pack=Pack("tokens", 9))) == list(range(63))
