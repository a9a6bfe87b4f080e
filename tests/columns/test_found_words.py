"""Column(vocab="auto"): the words are all different strings of the files, sorted by bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.columns.test_strings import nulled, words
from tests.columns.test_vocab import codes, layout_of
from tests.fixtures.encrypted_files import decryption, write_encrypted
from tests.fixtures.parquet_files import write
from torchparquet import Column, ParquetDataset


def dataset_of(paths: Any, column: Column, **options: Any) -> ParquetDataset:
    return ParquetDataset(
        paths, columns={"o": column}, **{"batch_size": 100, "rank": 0, "world_size": 1} | options
    )


def words_of(paths: Any, column: Column, **options: Any) -> Any:
    return dataset_of(paths, column, **options).fields[0].words


def different(*arrays: Any) -> tuple[bytes, ...]:
    """By pyarrow: the words of arrays of strings."""
    joined = pa.chunked_array([pa.array(array).cast(pa.binary()) for array in arrays])
    found = pc.drop_null(pc.unique(joined))
    return tuple(sorted(found.to_pylist()))


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
def test_words_of_several_files(tmp_path: Path, encoding: Any) -> None:
    """Each file has words that the other lacks, and nulls, which are no words."""
    first = nulled(words(3000, distinct=150), np.arange(3000) % 5 == 0)
    second = ["", "é", "z", "Z", "a", None]
    layout = {"row_group_size": 700, "data_page_size": 500} | layout_of(encoding)
    for name, values in (("a", first), ("b", second)):
        write(tmp_path / f"{name}.parquet", pa.table({"s": values}), **layout)
    expected = different(first, second)
    for options in ({}, {"max_memory": "100kB"}):
        dataset = dataset_of(tmp_path, Column("s", vocab="auto", nulls=-2), **options)
        assert dataset.fields[0].words == expected
        got = torch.cat([batch["o"] for batch in dataset])
        assert got.tolist() == codes([*first, *second], expected, null=-2)
    assert len(repr(dataset)) < 300
    # Words that were found number the strings of others.
    other = dataset_of(pa.table({"s": ["c", "Z"]}), Column("s", vocab=expected))
    assert next(iter(other))["o"].tolist() == codes(["c", "Z"], expected)


def test_words_are_of_all_rows(tmp_path: Path) -> None:
    """Parts of a split and filtered data sets number words alike, and take each other's states."""
    table = pa.table({"s": [f"w{i % 37}" for i in range(1000)], "i": range(1000)})
    write(tmp_path / "a.parquet", table, row_group_size=100)
    column = Column("s", vocab="auto")
    expected = different(table["s"].to_pylist())
    for options in (
        {"split": ("a", {"a": 0.01, "b": 0.99})},
        {"rows": [3]},
        {"filters": "i = 4"},
        {"filters": [("i", "<", 100)]},
        {"shuffle": True, "rank": 1, "world_size": 2},
        {"manifest_cache": tmp_path / "cache"},
        {"manifest_cache": tmp_path / "cache"},
    ):
        assert words_of(tmp_path / "a.parquet", column, **options) == expected
    assert len(list(tmp_path.glob("cache.*.words"))) == 1
    found = dataset_of(tmp_path / "a.parquet", column, batch_size=10)
    stated = dataset_of(tmp_path / "a.parquet", Column("s", vocab=expected), batch_size=10)
    batches = iter(stated)
    for _ in range(3):
        next(batches)
    found.load_state_dict(stated.state_dict())
    assert next(iter(found))["o"].tolist() == next(batches)["o"].tolist()


def test_lists_structs_and_groups(tmp_path: Path) -> None:
    table = pa.table(
        {
            "l": [["x", None], None, [], ["y", "x"]],
            "p": [["x", "q"], ["y", "x"], ["z", "x"], ["y", "x"]],
            "n": [[["m"], []], None, [[]], [["k", None]]],
            "t": [{"c": text} for text in "gghi"],
            "u": ["i", None, "j", "j"],
        }
    )
    write(tmp_path / "a.parquet", table)
    for column, expected in (
        (Column("l", vocab="auto", nulls=-2), (b"x", b"y")),
        (Column("p", vocab="auto", length=2), (b"q", b"x", b"y", b"z")),
        (Column("n", vocab="auto", nulls=-2), (b"k", b"m")),
        (Column("t.c", vocab="auto"), (b"g", b"h", b"i")),
        (Column(["u", "t.c"], vocab="auto", nulls=-2), (b"g", b"h", b"i", b"j")),
    ):
        dataset = dataset_of(tmp_path / "a.parquet", column)
        assert dataset.fields[0].words == expected
    assert next(iter(dataset))["o"].tolist() == [[2, 0], [-2, 0], [3, 1], [3, 2]]


def test_files_without_the_column_have_no_words(tmp_path: Path) -> None:
    """The default is a word only if a file has it."""
    write(tmp_path / "a.parquet", pa.table({"s": ["b", "a"], "i": [0, 1]}))
    write(tmp_path / "b.parquet", pa.table({"i": [2]}))
    for default, code in (("b", 1), ("c", -1), (0, 0)):
        dataset = dataset_of(tmp_path, Column("s", vocab="auto", default=default))
        assert dataset.fields[0].words == (b"a", b"b")
        assert next(iter(dataset))["o"].tolist() == [1, 0, code]


def test_partition_keys(tmp_path: Path) -> None:
    for region in ("fr", "de", "__HIVE_DEFAULT_PARTITION__"):
        write(tmp_path / f"region={region}" / "a.parquet", pa.table({"s": ["it"]}))
    dataset = dataset_of(tmp_path, Column("region", vocab="auto", nulls=-2))
    assert dataset.fields[0].words == (b"de", b"fr")
    assert sorted(next(iter(dataset))["o"].tolist()) == [-2, 0, 1]
    group = Column(["region", "s"], vocab="auto", nulls=-2)
    assert words_of(tmp_path, group) == (b"de", b"fr", b"it")


def test_encrypted_files(tmp_path: Path) -> None:
    values = words(300, distinct=40)
    path = write_encrypted(
        tmp_path / "a.parquet", pa.table({"s": values}), {"column_keys": {"key": ["s"]}}
    )
    keys = decryption()
    found = words_of(path, Column("s", vocab="auto"), decryption_properties=keys)
    assert found == different(values)


def test_rows_that_a_delta_table_has(tmp_path: Path) -> None:
    """Of all its files, also if a filter leaves some out; not of files that it has replaced."""
    deltalake = pytest.importorskip("deltalake")
    folder = str(tmp_path / "t")
    for key in ("k", "l"):
        table = pa.table({"s": [f"{key}1", f"{key}2"], "key": [key, key]})
        deltalake.write_deltalake(folder, table, partition_by=["key"], mode="append")
    table = deltalake.DeltaTable(folder)
    table.delete("s = 'k1'")
    left = table.to_pyarrow_table()["s"].to_pylist()
    for options in ({}, {"filters": [("key", "=", "k")]}):
        assert words_of(table, Column("s", vocab="auto"), **options) == different(left)
    assert words_of(table, Column("key", vocab="auto")) == (b"k", b"l")


def test_a_spawned_worker_has_the_words(tmp_path: Path) -> None:
    values = words(300, distinct=40)
    path = write(tmp_path / "a.parquet", pa.table({"s": values}), row_group_size=40)
    dataset = dataset_of(path, Column("s", vocab="auto"), even="none")
    loader = DataLoader(dataset, None, num_workers=1, multiprocessing_context="spawn")
    got = torch.cat([batch["o"] for batch in loader])
    assert got.tolist() == codes(values, different(values))


def test_identifiers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchparquet._impl.reading.word_pass.MOST_WORDS", 30)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": [f"w{i}" for i in range(30)] * 2}), path)
    assert len(words_of(path, Column("s", vocab="auto"))) == 30
    pq.write_table(pa.table({"s": [f"w{i}" for i in range(31)]}), path)
    with pytest.raises(ValueError, match=r"looks like an identifier.*'o' has more than 30 words"):
        dataset_of(path, Column("s", vocab="auto"))
