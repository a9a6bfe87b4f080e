"""The null policies: error, fill, NaN and mask, per column and for the whole data set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.fixtures.parquet_files import (
    KINDS,
    random_array,
    read_all,
    same_bits,
    stored_values,
    validity,
    with_nulls,
    write,
)
from torchparquet import Column, NullValueError, Pack, ParquetDataset

NUM_ROWS = 2500
FILLS = {"bool": True, "uint8": 255, "int8": -128, "uint64": 2**64 - 1, "int64": -(2**63)}


def table_of(kinds: Any, null_share: float = 0.2, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {}
    for kind in kinds:
        array = random_array(kind, NUM_ROWS, rng, distinct=100)
        columns[kind] = with_nulls(array, rng.random(NUM_ROWS) < null_share)
    return pa.table(columns)


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: Any) -> Any:
    table = table_of(KINDS)
    path = tmp_path_factory.mktemp("nulls") / "a.parquet"
    return table, write(path, table, row_group_size=1300, data_page_size=700, write_batch_size=70)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: Any) -> Any:
    """Columns f (float32) and i, j (int32) whose nulls differ, and k without any."""
    ids = np.arange(NUM_ROWS)
    table = pa.table(
        {
            "f": pa.array(ids.astype(np.float32), mask=ids % 7 == 0),
            "i": pa.array(ids.astype(np.int32), mask=ids % 5 == 0),
            "j": pa.array(ids.astype(np.int32) + 10**6, mask=ids % 3 == 0),
            "k": pa.array(ids.astype(np.int32)),
        }
    )
    path = tmp_path_factory.mktemp("nulls") / "a.parquet"
    return table, write(path, table, row_group_size=900)


@pytest.mark.parametrize("kind", KINDS)
def test_fill_of_every_kind(every_kind: Any, kind: Any) -> None:
    table, path = every_kind
    fill = FILLS.get(kind, 7)
    nan = {"d": kind, "n": Column(kind, nulls="nan")} if kind.startswith("float") else {}
    columns = {"x": Column(kind, nulls=fill), "m": Column(kind, nulls="mask")} | nan
    read = read_all(path, columns=columns, batch_size=333)
    assert list(read) == ["x", "m", "m.valid", *nan]
    for name in nan:  # the NaN of a null is numpy's quiet one, the values keep their own bits
        assert same_bits(read[name], stored_values(table[kind], np.nan))
    assert same_bits(read["x"], stored_values(table[kind], fill))
    assert same_bits(read["m"], stored_values(table[kind]))
    assert same_bits(read["m.valid"], validity(table[kind]))


def test_column_overrules_the_data_set(numbers: Any) -> None:
    table, path = numbers
    columns = {
        **{"f": "f", "nan": Column("f", nulls="nan"), "i": Column("i", nulls="mask"), "j": "j"},
        "k": Column("k", nulls="error"),
    }
    read = read_all(path, columns=columns, nulls=-1)
    expected = {
        "f": stored_values(table["f"], -1),
        "nan": stored_values(table["f"], np.nan),
        "i": stored_values(table["i"]),
        "i.valid": validity(table["i"]),
        "j": stored_values(table["j"], -1),
        "k": stored_values(table["k"]),
    }
    assert list(read) == list(expected)
    assert all(same_bits(read[name], expected[name]) for name in expected)


@pytest.mark.parametrize("page_rows", [50, 10**6])
@pytest.mark.parametrize("batch_size", [1, 64, 999, 10**5])
def test_error_names_the_row_wherever_pages_and_batches_end(
    tmp_path: Path, batch_size: int, page_rows: int
) -> None:
    ids = np.arange(6000)
    numbers = pa.array(ids, mask=ids == 4321)
    layout = {"row_group_size": 3000, "data_page_size": 1, "write_batch_size": page_rows}
    for array, way in ((numbers, r"\"v\": 0"), (numbers.cast(pa.string()), '"empty"')):
        path = write(tmp_path / "a.parquet", pa.table({"u": ids, "v": array}), **layout)
        for memory in ("1GiB", max(200, 2 * batch_size) * 128):
            options: Any = {"batch_size": batch_size, "max_memory": memory}
            message = rf"^column 'v' has a null .*{way}.*row 1321\b.*a\.parquet.*row group 1\b"
            with pytest.raises(NullValueError, match=message) as caught:
                list(ParquetDataset(path, rank=0, world_size=1, **options))
            assert '"mask"' in str(caught.value)
            assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("policy", [None, "error"])
def test_error_is_the_default_except_for_floats(numbers: Any, policy: str | None) -> None:
    table, path = numbers
    assert same_bits(read_all(path, columns=["k"], nulls=policy)["k"], stored_values(table["k"]))
    for columns, name in ((["i"], "'i'"), ({"g": ["k", "j"]}, r"column 'j' of 'g' .*row 0\b")):
        with pytest.raises(NullValueError, match=name):
            read_all(path, columns=columns, nulls=policy)
    if policy is None:
        assert np.isnan(read_all(path, columns=["f"])["f"][::7]).all()
    else:
        with pytest.raises(NullValueError, match="'f'"):
            read_all(path, columns=["f"], nulls=policy)


def test_the_way_out_is_for_all_columns_with_nulls(tmp_path: Path) -> None:
    """What the error offers is taken as it stands, and leaves no null."""
    columns = {
        "i": [1, None, 3],
        "full": [1, 2, 3],
        "s": ["a", None, "c"],
        "b": [True, None, False],
        "l": [[1], None, [2, None]],
        "word": [None, "x", "y"],
        "x.y": [None, 2, 3],
        'a "name"': [None, 2, 3],
        "ls": [["a"], [None], None],
    }
    path = write(tmp_path / "a.parquet", pa.table(columns))
    asked: list[Any] = [
        "*",
        Column("word", vocab=["x", "y"]),
        Column("i", dtype="float32"),
    ]
    with pytest.raises(NullValueError) as caught:
        list(ParquetDataset(path, batch_size=3, columns=asked))
    message = str(caught.value)
    assert re.match(r"column '\S+' has a null \(nulls=\{", message)
    offered = json.loads(message[message.index("{") : message.index("}") + 1].replace("False", "0"))
    numbers = {"b": 0, "l": 0, "word": -1, "x.y": 0, 'a "name"': 0}
    assert offered == {"s": "empty", "ls": "empty", **numbers}
    (batch,) = ParquetDataset(path, batch_size=3, columns=asked, nulls=offered)
    assert batch["s"].to_str() == ["a", "", "c"]
    assert batch["l"].to_list() == [[1], [], [2, 0]]


def test_the_way_out_of_a_policy_that_a_column_has(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.parquet", pa.table({"a": [1, None], "b": [None, 2.0]})))
    for columns, way in (
        ({"u": "a", "v": Column("a", nulls=0)}, r"'a' of 'u' .* .nulls=\{\"u\": 0\} gives"),
        ({"v": Column("a", nulls=0), "u": "a"}, r"'a' of 'u' .* .nulls=\{\"u\": 0\} gives"),
        ([Column("b", nulls="error")], r"'b' has a null .Column\(\"b\", nulls=\"nan\"\) gives"),
        (
            {"g": Column(["a", "b"], dtype="float32", nulls={"a": "error"})},
            r"'a' of 'g' .*Column\(\[...\], nulls=\{\"a\": \"nan\"\}\) gives",
        ),
    ):
        asked: Any = columns
        with pytest.raises(NullValueError, match=way):
            list(ParquetDataset(path, batch_size=2, columns=asked))


def test_a_mask_is_not_offered_to_what_takes_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"t": [[1], None], "image": [b"", None]}))
    with pytest.raises(NullValueError, match=r'nulls=\{"t": 0\} gives each null a value\)'):
        list(ParquetDataset(path, batch_size=2, pack=Pack("t", length=4)))
    decoded = {"image": Column("image", decode=len)}
    with pytest.raises(NullValueError, match=r'\(Column\(..., on_error="flag"\) flags'):
        list(ParquetDataset(path, batch_size=2, columns=decoded))


def test_each_column_of_a_tensor_has_a_value_for_its_nulls(numbers: Any) -> None:
    table, path = numbers
    columns = {"g": Column(["i", "j", "k"], nulls={"i": -1, "k": 7})}
    for shuffle in (False, True):
        dataset = ParquetDataset(
            path, batch_size=100, columns=columns, nulls=-9, row_ids=True, shuffle=shuffle
        )
        for batch in dataset:
            ids = batch["row.id"].numpy()
            for place, (name, fill) in enumerate({"i": -1, "j": -9, "k": 7}.items()):
                expected = stored_values(table[name], fill)[ids]
                assert same_bits(batch["g"][:, place].numpy(), expected)
    with pytest.raises(NullValueError, match=r"column 'j' of 'g' has a null"):
        list(ParquetDataset(path, batch_size=100, columns=columns))
    other = {"g": Column(["i", "j", "k"], nulls={"i": -2, "k": 7})}
    state = dataset.state_dict()
    with pytest.raises(ValueError, match="columns"):
        ParquetDataset(
            path, batch_size=100, columns=other, nulls=-9, row_ids=True, shuffle=True
        ).load_state_dict(state)


def null_at(folder: Any, *places: Any) -> Any:
    """20 row groups of 100 rows; column x of places[0] is null there, y of places[1]."""
    ids = np.arange(2000)
    columns = {
        name: pa.array(ids, mask=ids == place) for name, place in zip("xy", places, strict=False)
    }
    return write(folder / "a.parquet", pa.table(columns), row_group_size=100)


def batches_until_error(path: Path, **options: Any) -> Any:
    options = {"rank": 0, "world_size": 1, **options}
    iterator = iter(ParquetDataset(path, **options))
    batches: list[Any] = []
    with pytest.raises(NullValueError) as caught:
        batches.extend(iterator)
    # From then on every call raises the same.
    for _ in range(2):
        with pytest.raises(NullValueError) as again:
            next(iterator)
        assert str(again.value) == str(caught.value)
    iterator.close()
    return batches, str(caught.value)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [10, 100, 250])
def test_batches_before_the_null_arrive_whole(
    tmp_path: Path, batch_size: int, num_threads: int
) -> None:
    """An error takes its place in the order, whatever was decoded ahead of it."""
    path = null_at(tmp_path, 1357)
    batches, message = batches_until_error(path, batch_size=batch_size, num_threads=num_threads)
    assert re.search(r"row 57\b.*row group 13\b", message)
    rows = [row for batch in batches for row in batch["x"].tolist()]
    # All batches that end before the row group of the null; at most up to its batch.
    assert rows == list(range(len(rows)))
    assert 1300 // batch_size * batch_size <= len(rows) <= 1357 // batch_size * batch_size
