"""Column(vocab=...): strings as the numbers of words, which are stated or found in the files."""

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

from tests.columns.test_strings import ENCODINGS, nulled, words
from tests.fixtures.datasets import batches_of, open_alone
from tests.fixtures.encrypted_files import decryption, write_encrypted
from tests.fixtures.parquet_files import write
from torchparquet import (
    Column,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
)


def read(paths: Any, column: Any, **options: Any) -> Any:
    return torch.cat([batch["o"] for batch in batches_of(paths, {"o": column}, **options)])


def codes(values: Any, vocab: Any, unknown: int = -1, null: Any = None) -> Any:
    """By looking each string up in the list of words."""
    known = [word.encode() if isinstance(word, str) else word for word in vocab]
    strings = [value.encode() if isinstance(value, str) else value for value in values]
    return [
        null if value is None else known.index(value) if value in known else unknown
        for value in strings
    ]


def layout_of(encoding: Any, name: str = "s") -> dict[str, Any]:
    if encoding == "dictionary":
        return {"use_dictionary": True}
    return {"use_dictionary": False, "column_encoding": {name: encoding}}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("nulls", [False, True])
def test_every_encoding(tmp_path: Path, encoding: Any, version: str, nulls: bool) -> None:
    """Pages of few and of many values, read whole and skipped into."""
    values = words(3000, distinct=150)
    if nulls:
        values = nulled(values, np.random.default_rng(1).random(3000) < 0.2)
    vocab = sorted({value for value in values if value})[::2]
    expected = codes(values, vocab, null=-7)
    column = Column("s", vocab=vocab, nulls=-7)
    for page_size, write_batch in ((200, 10), (2**20, 1024)):
        layout: dict[str, Any] = {"data_page_size": page_size, "write_batch_size": write_batch}
        layout |= {"data_page_version": version, "row_group_size": 1900} | layout_of(encoding)
        path = write(tmp_path / "a.parquet", pa.table({"s": values}), **layout)
        for batch_size in (50, None):
            got = read(path, column, batch_size=batch_size)
            assert got.dtype == torch.int64
            assert got.tolist() == expected
        rank = {"row_ids": True, "rank": 1, "world_size": 3}
        for batch in batches_of(path, {"o": column}, **rank):
            assert batch["o"].tolist() == [expected[i] for i in batch["row.id"].tolist()]


def test_words_are_str_or_bytes(tmp_path: Path) -> None:
    """Empty ones, NUL bytes and what is not UTF-8 among them."""
    values = [b"a", b"", b"\0", b"\xff\xfe", b"\xc3\xa9", b"a\0", b"zz", b"A"]
    path = write(tmp_path / "a.parquet", pa.table({"s": values}))
    vocab = [b"\xff\xfe", "é", "", b"\0", "a"]
    assert read(path, Column("s", vocab=vocab, unknown=9)).tolist() == [4, 2, 3, 0, 1, 9, 9, 9]  # type: ignore[arg-type]
    assert read(path, Column("s", vocab=tuple(vocab))).tolist() == [4, 2, 3, 0, 1, -1, -1, -1]  # type: ignore[arg-type]


def test_a_hundred_thousand_words(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    vocab = [f"word {i}" for i in range(100_000)]
    picked = rng.integers(0, 110_000, 20_000).tolist()
    path = write(tmp_path / "a.parquet", pa.table({"s": [f"word {i}" for i in picked]}))
    expected = [i if i < 100_000 else -5 for i in picked]
    column = Column("s", vocab=vocab, unknown=-5, dtype=torch.int32)
    assert read(path, column).tolist() == expected


@pytest.mark.parametrize("policy", [None, "error", 7, "mask"])
def test_policies(tmp_path: Path, policy: int | str | None) -> None:
    """A null is no word and not the unknown either."""
    path = write(tmp_path / "a.parquet", pa.table({"s": ["b", None, "?", "a"]}))
    columns = {"o": Column("s", vocab=["a", "b"], nulls=policy)}  # type: ignore[arg-type]
    if policy in (None, "error"):
        with pytest.raises(NullValueError, match=r"column 's' .*row 1 of its row group"):
            batches_of(path, columns)
        return
    (batch,) = batches_of(path, columns)
    assert batch["o"].tolist() == [1, 0 if policy == "mask" else 7, -1, 0]
    if policy == "mask":
        assert batch["o.valid"].tolist() == [True, False, True, True]


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
def test_lists_of_strings(tmp_path: Path, encoding: str) -> None:
    rows = [["a", "?", None], None, [], ["b"], [None, "", "a"]] * 40
    pairs = [["a", "b"], ["?", None], None, ["b", "b"]] * 50
    table = pa.table({"s": rows, "p": pairs})
    layout = {"row_group_size": 70, "data_page_size": 50, "write_batch_size": 9}
    layout |= layout_of(encoding, "s.list.element")
    path = write(tmp_path / "a.parquet", table, **layout)
    vocab = ["b", "a", ""]
    columns = {
        "s": Column("s", vocab=vocab, dtype="int8", nulls="mask", unknown=-2),
        "p": Column("p", vocab=vocab, length=2, dtype="int16", nulls=9, unknown=0),
    }
    expected = [[] if row is None else codes(row, vocab, -2, null=0) for row in rows]
    first = 0
    for batch in batches_of(path, columns, batch_size=33):
        taken = slice(first, first := first + len(batch["s"]))
        assert batch["s"].values.dtype == torch.int8
        assert batch["s"].to_list() == expected[taken]
        valid = [value is not None for row in rows[taken] for value in row or []]
        assert batch["s.values.valid"].tolist() == valid
        assert batch["s.valid"].tolist() == [row is not None for row in rows[taken]]
        assert batch["p"].tolist() == ([[1, 0], [0, 9], [9, 9], [0, 0]] * 50)[taken]
    assert first == 200
    with pytest.raises(NullValueError, match="row 0 of its row group"):
        batches_of(path, {"s": Column("s", vocab=vocab)})


def test_groups(tmp_path: Path) -> None:
    """Several columns of strings with one vocabulary, side by side."""
    values = words(300, distinct=50)
    table = pa.table({"a": values, "b": values[::-1], "c": nulled(values, np.arange(300) % 3 == 0)})
    path = write(tmp_path / "a.parquet", table, row_group_size=70)
    vocab = list(dict.fromkeys(values))[::2]
    got = read(path, Column(["b", "c", "a"], vocab=vocab, nulls=-3))
    assert got.shape == (300, 3)
    for place, name in enumerate("bca"):
        assert got[:, place].tolist() == codes(table[name].to_pylist(), vocab, null=-3)


@pytest.fixture
def by_region(tmp_path: Path) -> Any:
    """Files below region=/year= directories, of two rows each."""
    for region in ("de", "fr", "it"):
        for year in (2023, 2024):
            path = tmp_path / "data" / f"region={region}" / f"year={year}" / "a.parquet"
            write(path, pa.table({"s": [region, "fr"], "i": [1, 2]}))
    return tmp_path / "data"


def test_partition_keys(by_region: Any) -> None:
    """Also together with a column of strings, in one tensor."""
    vocab = ["fr", b"de"]
    column = Column("region", vocab=vocab, unknown=-4, dtype="int8")  # type: ignore[arg-type]
    got = read(by_region, column)
    assert got.dtype == torch.int8
    assert got.tolist() == [1] * 4 + [0] * 4 + [-4] * 4
    group = read(by_region, Column(["region", "s"], vocab=vocab, unknown=7))  # type: ignore[arg-type]
    assert group[:, 0].tolist() == [1] * 4 + [0] * 4 + [7] * 4
    assert group[:, 1].tolist() == [1, 0] * 2 + [0, 0] * 2 + [7, 0] * 2
    years = read(by_region, Column("year", vocab=["2024", "2023"]))
    assert years.tolist() == [1, 1, 0, 0] * 3
    masked = batches_of(by_region, {"o": Column("region", vocab=vocab, nulls="mask")})  # type: ignore[arg-type]
    assert all(batch["o.valid"].all() for batch in masked)
    for column in (Column("region", vocab="auto"), Column(["region", "s"], vocab="auto")):
        assert words_of(by_region, column) == (b"de", b"fr", b"it")


def test_files_may_hold_strings_or_bytes(tmp_path: Path) -> None:
    """Or lack the column, for whose rows the default is a number or a word."""
    strings = [pa.array(["a", "b"]), pa.array([b"b"]), pa.array(["?"], pa.large_string())]
    for number, array in enumerate(strings):
        write(tmp_path / f"{number}.parquet", pa.table({"s": array, "i": [number] * len(array)}))
    assert read(tmp_path, Column("s", vocab=["a", "b"])).tolist() == [0, 1, 1, -1]
    write(tmp_path / "d.parquet", pa.table({"i": [4, 5]}))
    for default, code in ((1, 1), ("b", 1), (b"a", 0), ("zebra", -1)):
        column = Column("s", vocab=["a", "b"], default=default)
        assert read(tmp_path, column).tolist() == [0, 1, 1, -1, code, code]
    write(tmp_path / "e.parquet", pa.table({"s": [["a"]], "i": [6]}))
    with pytest.raises(SchemaMismatchError, match=r"string in .*list<string> in"):
        read(tmp_path, Column("s", vocab=["a"], default=1))


# Words that are found


def dataset_of(paths: Any, column: Column, **options: Any) -> ParquetDataset:
    return open_alone(paths, columns={"o": column}, **options)


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


@pytest.mark.long
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
