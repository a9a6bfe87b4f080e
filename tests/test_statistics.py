"""Statistics of columns: figures as NumPy, pandas and DuckDB have them, and the file of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.datasets import batch_of, open_alone
from tests.fixtures.texts import Bytes
from torchparquet import ByLength, Column, Pack, ParquetDataset
from torchparquet._impl.statistics import summaries
from torchparquet.statistics import ColumnStatistics, Statistics

GRID = np.arange(1001) / 1000
NUM_ROWS = 30_000


def table_of(num_rows: int = NUM_ROWS, seed: int = 0) -> pa.Table:
    """Rows of each kind of value, some null, in another order than by value."""
    rng = np.random.default_rng(seed)
    rows = range(num_rows)

    def holed(values: Any, kind: pa.DataType | None = None) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(num_rows) < 0.1, from_pandas=False)

    wild = rng.lognormal(0, 3, num_rows).astype(np.float32)
    wild[rng.random(num_rows) < 0.02] = np.nan
    wild[rng.random(num_rows) < 0.02] = -np.inf
    words = [f"wörd {number}" for number in rng.zipf(1.5, num_rows) % 900]
    lists = [rng.normal(size=row % 4).tolist() + [None] * (row % 3 == 0) for row in rows]
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "price": holed(rng.normal(1e6, 3, num_rows)),
            "wild": holed(wild),
            "small": holed(rng.integers(-50, 50, num_rows), pa.int8()),
            "large": holed(rng.integers(2**62, 2**63, num_rows, np.uint64)),
            "flag": holed(rng.random(num_rows) < 0.3),
            "cents": pa.array(rng.integers(-(10**6), 10**6, num_rows), pa.int64()).cast(
                pa.decimal128(25, 2)
            ),
            "when": holed(rng.integers(0, 2**40, num_rows), pa.timestamp("us")),
            "word": holed(words),
            "lists": holed(lists, pa.list_(pa.float64())),
            "tags": holed([words[row : row + row % 3] for row in rows], pa.list_(pa.string())),
            "triple": pa.array(rng.integers(0, 9, (num_rows, 3)).tolist(), pa.list_(pa.int32(), 3)),
            "void": pa.nulls(num_rows, pa.float64()),
        }
    )


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of()


@pytest.fixture(scope="module")
def folder(table: pa.Table, tmp_path_factory: Any) -> Path:
    """Files of several row groups, of different sizes."""
    root: Path = tmp_path_factory.mktemp("statistics")
    cuts = [0, 11_000, 11_001, NUM_ROWS]
    for at, (begin, end) in enumerate(pairwise(cuts)):
        file = root / f"{at}.parquet"
        pq.write_table(table.slice(begin, end - begin), file, row_group_size=3_001)
    return root


@pytest.fixture(scope="module")
def found(folder: Path) -> Statistics:
    return Statistics.of(open_alone(folder), words=["small"])


def values_in(column: pa.ChunkedArray) -> pa.Array:
    """The values of a column, or of its lists, as one array."""
    array = column.combine_chunks()
    return array.flatten() if pa.types.is_nested(array.type) else array


def assert_figures(of: ColumnStatistics, values: Any) -> None:
    """Compare with the figures of a series of pandas, in which NaN is no null."""
    finite = values[np.isfinite(values)]
    assert of.nans == np.isnan(values).sum()
    assert of.infs == np.isinf(values).sum()
    series = pd.Series(finite.astype(np.float64))
    assert of.mean == pytest.approx(series.mean(), rel=1e-12)
    assert of.std == pytest.approx(series.std(ddof=0), rel=1e-9)
    assert (of.min, of.max) == (finite.min(), finite.max())
    assert type(of.max) is (float if finite.dtype.kind == "f" else int)
    assert of.num_sampled == len(finite)
    expected = np.quantile(finite.astype(np.float64), GRID)
    np.testing.assert_allclose(of.quantiles, expected, rtol=1e-11)


# Figures


@pytest.mark.parametrize(
    "name", ["id", "price", "wild", "small", "large", "flag", "cents", "when", "lists", "triple"]
)
def test_figures_of_numbers_are_those_of_pandas(
    table: pa.Table, found: Statistics, name: str
) -> None:
    values = values_in(table[name])
    assert found[name].nulls == values.null_count
    assert found[name].count == len(values) - values.null_count
    valid = values.drop_null()
    if pa.types.is_decimal(valid.type):
        valid = valid.cast(pa.float64())
    if pa.types.is_timestamp(valid.type):
        valid = valid.cast(pa.int64())
    if pa.types.is_boolean(valid.type):
        valid = valid.cast(pa.uint8())
    assert_figures(found[name], valid.to_numpy(zero_copy_only=False))
    assert found.num_rows == NUM_ROWS


@pytest.mark.parametrize("name", ["word", "tags", "small"])
def test_words_are_those_of_duckdb(table: pa.Table, found: Statistics, name: str) -> None:
    values = pa.table({"v": values_in(table[name])})
    query = "select v, count(*) from values where v is not null group by v order by 2 desc, 1"
    counted = duckdb.execute(query).fetchall()
    assert list(found[name].words) == counted
    assert found[name].distinct == len(counted)
    assert found[name].nulls == values["v"].null_count
    assert found[name].count == len(values) - values["v"].null_count


def test_lengths_are_those_of_lists_and_of_strings_in_bytes(
    table: pa.Table, found: Statistics
) -> None:
    for name, length in [
        ("lists", pc.list_value_length),
        ("tags", pc.list_value_length),
        ("word", pc.binary_length),
    ]:
        of, lengths = found[name], length(table[name])
        assert of.null_lists == lengths.null_count > 0
        assert (of.min_length, of.max_length) == tuple(pc.min_max(lengths).as_py().values())
        assert of.mean_length == pytest.approx(pc.mean(lengths).as_py(), rel=1e-12)
    assert found["triple"].null_lists is None
    assert found["price"].max_length is None


def test_a_column_of_nulls_has_no_figure(found: Statistics) -> None:
    void = found["void"]
    assert void == ColumnStatistics(count=0, nulls=NUM_ROWS)
    assert (void.mean, void.min, void.quantiles) == (None, None, ())
    for call in (void.quantile, void.borders):
        with pytest.raises(ValueError, match="has a finite value"):
            call(1 if call == void.quantile else 2)


def test_figures_that_overflow_do_not_exist() -> None:
    data = pa.table({"x": [1.5e308, -1e308, 1.5e308], "y": [1e200, 2e200, 3e200]})
    found = Statistics.of(open_alone(data))
    assert (found["x"].mean, found["x"].std) == (None, None)
    assert (found["x"].min, found["x"].max) == (-1e308, 1.5e308)
    assert np.isfinite(found["x"].quantiles).all()
    assert (found["y"].mean, found["y"].std) == (2e200, None)


def test_equal_values_have_no_deviation() -> None:
    of = Statistics.of(open_alone(pa.table({"x": [0.1] * 1_003}), max_memory="20KiB"))["x"]
    assert (of.mean, of.std) == (0.1, 0.0)


def test_values_are_those_of_tensors_after_casts_and_vocabularies(folder: Path) -> None:
    columns = {
        "half": Column("price", dtype="bfloat16"),
        "code": Column("word", vocab=["wörd 1", "wörd 2"], nulls="mask"),
        "cents": Column("cents", dtype="int64"),
    }
    found = Statistics.of(open_alone(folder, columns=columns))
    batch = batch_of(folder, columns | {"price": "price"}, batch_size=NUM_ROWS)
    valid = ~batch["price"].isnan()
    assert found["half"].mean == pytest.approx(float(batch["half"][valid].double().mean()))
    assert found["half"].nulls == int((~valid).sum())
    codes = batch["code"][batch["code.valid"]]
    assert found["code"].mean == pytest.approx(float(codes.double().mean()))
    assert found["cents"].max == int(batch["cents"].max())


def test_values_of_several_items_are_counted_item_by_item() -> None:
    data = pa.table({"raw": pa.array([b"abc", None, b"ad\x00"], pa.binary(3))})
    of = Statistics.of(open_alone(data))["raw"]
    assert (of.count, of.nulls, of.min, of.max) == (6, 3, 0, ord("d"))
    assert of.mean == pytest.approx(np.mean([*b"abcad\x00"]))


@pytest.mark.parametrize("nulls", ["error", "mask", 0])
def test_nulls_are_counted_whatever_becomes_of_them(
    folder: Path, found: Statistics, nulls: Any
) -> None:
    dataset = open_alone(folder, columns=["price", "small", "lists"], nulls=nulls)
    again = Statistics.of(dataset)
    assert again["price"] == found["price"]
    assert again["lists"] == found["lists"]
    assert again["small"].nulls == found["small"].nulls > 0


def test_columns_of_groups_are_named_by_their_sources(folder: Path, found: Statistics) -> None:
    """A group of scalars, one with lists, and a column that is read twice."""
    columns = {
        "dense": Column(["price", "wild"], dtype="float64"),
        "price": Column("price", dtype="float64"),
        "other": "id",
    }
    again = Statistics.of(open_alone(folder, columns=columns))
    assert [*again] == ["price", "wild", "other"]
    assert again["price"] == found["price"]
    assert again["wild"].quantiles == found["wild"].quantiles
    assert again["other"] == found["id"]
    keyed = Statistics.of(open_alone(folder, columns={"sparse": ["void", "lists"]}))
    assert [*keyed] == ["void", "lists"]
    assert keyed["lists"] == found["lists"]
    assert keyed["void"] == found["void"]


def test_one_name_for_two_readings_is_refused(folder: Path) -> None:
    columns = {"price": Column("price", dtype="float32"), "dense": ["price", "void"]}
    with pytest.raises(ValueError, match="by another name: 'price'"):
        Statistics.of(open_alone(folder, columns=columns))


def test_rows_of_files_without_the_column_have_its_default(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [[1], [2, 3]], "b": [5, 6]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [[4]]}), tmp_path / "1.parquet")

    def column(**options: Any) -> ColumnStatistics:
        columns = {"k": Column(["a", "b"], length="any", **options)}
        return Statistics.of(open_alone(tmp_path, columns=columns))["b"]

    assert (column(default=7).count, column(default=7).max) == (3, 7)
    assert (column(default=[]).count, column(default=[]).nulls) == (2, 1)
    with pytest.raises(ValueError, match="default has several"):
        column(default=[7, 8])


# What they depend on


def assert_same(one: Statistics, other: Statistics) -> None:
    """Equal, but for the rounding of what is summed up."""
    assert [*one] == [*other]
    for name, of in one.items():
        for figure, value in vars(of).items():
            if figure in ("mean", "std") and value is not None:
                assert getattr(other[name], figure) == pytest.approx(value, rel=1e-12), name
            else:
                assert getattr(other[name], figure) == value, (name, figure)


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 4},
        {"num_threads": 1, "max_memory": "300KiB"},
        {"batch_size": 7, "shuffle": True, "seed": 3, "drop_last": True, "limit_steps": 1},
        {"rank": 2, "world_size": 3, "even": "drop"},
        {"batch_size": ByLength("lists", max_tokens=64)},
    ],
    ids=["threads", "small batches", "order", "ranks", "by length"],
)
def test_statistics_do_not_depend_on_threads_batches_order_or_ranks(
    folder: Path, options: dict[str, Any]
) -> None:
    wanted: dict[str, Any] = {"words": ["small"], "sample": 5_000}
    expected = Statistics.of(open_alone(folder, num_threads=1), **wanted)
    assert_same(expected, Statistics.of(open_alone(folder, **options), **wanted))
    again = Statistics.of(open_alone(folder, num_threads=1), **wanted)
    assert dict(again) == dict(expected)


def test_the_epoch_of_the_data_set_stays(folder: Path) -> None:
    dataset, other = (open_alone(folder, columns=["id"], shuffle=True) for _ in range(2))
    Statistics.of(dataset)
    assert dataset.epoch == 0
    assert torch.equal(next(iter(dataset))["id"], next(iter(other))["id"])


def test_filters_and_splits_choose_the_rows(table: pa.Table, folder: Path) -> None:
    kept = table.filter(pc.field("id") < 1234)
    found = Statistics.of(open_alone(folder, filters="id < 1234"))
    assert found.num_rows == 1234
    values = kept["price"].combine_chunks().drop_null().to_numpy(zero_copy_only=False)
    assert_figures(found["price"], values)
    parts = {"train": 0.8, "val": 0.2}
    both = [open_alone(folder, columns=["id"], split=(name, parts)) for name in parts]
    rows = [torch.cat([batch["id"] for batch in part]).numpy() for part in both]
    for part, numbers in zip(both, rows, strict=True):
        of = Statistics.of(part)
        assert of.num_rows == len(numbers)
        assert_figures(of["id"], numbers)


# Samples


@pytest.mark.parametrize("is_list", [False, True])
def test_quantiles_of_a_sample_are_within_its_bound(is_list: bool) -> None:
    """Values ascend with rows, so a sample that favours some rows is off; nulls take no part."""
    num_rows, sample = 400_000, 20_000
    values = np.sqrt(np.arange(num_rows))
    array = pa.array(values, mask=np.arange(num_rows) % 5 == 0)
    if is_list:
        array = pa.ListArray.from_arrays(pa.array(range(0, num_rows + 1, 8), pa.int32()), array)
    dataset = open_alone(pa.table({"x": array}), max_memory="2MiB")
    of = Statistics.of(dataset, sample=sample)["x"]
    assert of.num_sampled == sample
    valid = np.sort(values[np.arange(num_rows) % 5 != 0])
    assert (of.count, of.min, of.max) == (len(valid), valid[0], valid[-1])
    shares = np.searchsorted(valid, of.quantiles) / len(valid)
    # Dvoretzky, Kiefer and Wolfowitz, with the constant of Massart: 95 %.
    assert np.abs(shares - GRID).max() < math.sqrt(math.log(2 / 0.05) / (2 * sample))
    # As far as random draws are, and not nearer: no regular grid of rows.
    assert np.abs(shares - GRID).max() > 0.05 / math.sqrt(sample)
    whole = Statistics.of(dataset)["x"]
    assert whole.num_sampled == len(valid)
    np.testing.assert_allclose(whole.quantiles, np.quantile(valid, GRID), rtol=1e-13)


# Words


def test_words_are_kept_up_to_a_number_and_vocabularies_say_so() -> None:
    texts = ["b"] * 3 + ["a"] * 3 + ["c"] * 2 + ["e", "d", None]
    data = pa.table({"word": texts})
    of = Statistics.of(open_alone(data), max_words=3)["word"]
    assert (of.words, of.distinct) == ((("a", 3), ("b", 3), ("c", 2)), 5)
    assert of.vocabulary(2) == ["a", "b"]
    assert of.vocabulary(min_count=3) == ["a", "b"]
    for options in ({}, {"size": 4}, {"min_count": 1}):
        with pytest.raises(ValueError, match=r"keep 3 of 5 words: .*size=3 or less"):
            of.vocabulary(**options)
    whole = Statistics.of(open_alone(data))["word"]
    assert whole.vocabulary() == whole.vocabulary(99) == ["a", "b", "c", "d", "e"]
    codes = batch_of(data, {"code": Column("word", vocab=whole.vocabulary(2), nulls="mask")})
    assert codes["code"].tolist()[:10] == [1, 1, 1, 0, 0, 0, -1, -1, -1, -1]


def test_words_that_are_no_text_are_bytes_and_survive_a_file(tmp_path: Path) -> None:
    data = pa.table({"raw": pa.array([b"\xff\x00", b"ok", b"\xff\x00", "ß".encode()])})
    found = Statistics.of(open_alone(data))
    assert found["raw"].words == ((b"\xff\x00", 2), ("ok", 1), ("ß", 1))
    found.save(tmp_path / "s.json")
    assert Statistics.load(tmp_path / "s.json")["raw"] == found["raw"]


def test_too_many_words_are_dropped_and_the_result_says_so(monkeypatch: Any) -> None:
    data = pa.table({"id": [f"{row}" for row in range(2_000)], "few": ["a", "b"] * 1_000})
    monkeypatch.setattr(summaries, "MOST_DISTINCT", 1_999)
    found = Statistics.of(open_alone(data))
    assert found["id"].has_too_many_words
    assert (found["id"].distinct, found["id"].words) == (None, ())
    assert found["id"].max_length == 4
    with pytest.raises(ValueError, match="looks like an identifier"):
        found["id"].vocabulary(10)
    assert found["few"].vocabulary() == ["a", "b"]
    monkeypatch.setattr(summaries, "MOST_DISTINCT", 2_000)
    assert Statistics.of(open_alone(data))["id"].distinct == 2_000


@pytest.mark.long
def test_the_bound_of_words_holds_while_they_are_read() -> None:
    num_rows = summaries.MOST_DISTINCT + 1
    data = pa.table({"id": pa.array(np.arange(num_rows, dtype=np.int32))})
    assert Statistics.of(open_alone(data), words=["id"])["id"].has_too_many_words


# What is made of them


def test_borders_cut_into_equal_shares() -> None:
    values = np.random.default_rng(1).lognormal(0, 2, 50_000)
    of = Statistics.of(open_alone(pa.table({"x": values})))["x"]
    for num_buckets in (2, 3, 10, 256, 1000):
        borders = of.borders(num_buckets)
        assert len(borders) == num_buckets - 1
        assert borders == sorted(set(borders))
        counts = np.bincount(np.searchsorted(borders, values), minlength=num_buckets)
        assert np.abs(counts / len(values) * num_buckets - 1).max() < 0.2
    assert of.borders(4) == [of.quantile(0.25), of.quantile(0.5), of.quantile(0.75)]
    assert of.quantile(0.5) == of.quantiles[500] == pytest.approx(np.median(values))
    assert (of.quantile(0), of.quantile(1)) == (values.min(), values.max())
    assert of.quantile(0.0005) == pytest.approx((of.quantiles[0] + of.quantiles[1]) / 2)
    for wrong in (1, 1001, 0):
        with pytest.raises(ValueError, match="num_buckets must be"):
            of.borders(wrong)
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q must be from 0 to 1"):
            of.quantile(q)


def test_borders_that_fall_together_are_one() -> None:
    values = [0] * 80 + list(range(1, 21))
    of = Statistics.of(open_alone(pa.table({"x": values})))["x"]
    assert of.borders(10)[:1] == [0.0]
    assert len(of.borders(10)) == 3


# The mapping


def test_statistics_are_a_mapping_that_suggests_names(found: Statistics) -> None:
    assert len(found) == len([*found]) == 13
    assert "price" in found
    assert "prize" not in found
    with pytest.raises(KeyError, match="did you mean 'price'"):
        found["prize"]
    with pytest.raises(KeyError, match="there are 'id'"):
        found["qqqqqq"]
    with pytest.raises(TypeError, match="item assignment"):
        found["price"] = found["wild"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        found["price"].mean = 0.0  # type: ignore[misc]
    assert repr(found).startswith("Statistics of 30,000 rows: 'id', 'price'")


def test_wrong_arguments_are_refused(folder: Path) -> None:
    dataset = open_alone(folder)
    wrong: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (TypeError, "must be a ParquetDataset", lambda: Statistics.of(folder)),  # type: ignore[arg-type]
        (ValueError, "did you mean 'word'", lambda: Statistics.of(dataset, words=["wort"])),
        (ValueError, "'wild' is float32", lambda: Statistics.of(dataset, words=["wild"])),
        (ValueError, "max_words must be >= 1", lambda: Statistics.of(dataset, max_words=0)),
        (ValueError, "sample must be >= 1", lambda: Statistics.of(dataset, sample=0)),
        (TypeError, "words must be a list", lambda: Statistics.of(dataset, words="small")),
    ]
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text):
            call()
    with pytest.raises(ValueError, match="words of a column of integers are counted if"):
        Statistics.of(open_alone(folder, columns=["id"]))["id"].vocabulary()


def test_data_sets_with_functions_or_packs_are_refused(folder: Path) -> None:
    for functions in ({"transform": dict}, {"processors": {"id": torch.neg}}):
        with pytest.raises(ValueError, match="before functions"):
            Statistics.of(open_alone(folder, columns=["id"], **functions))
    table = pa.table({"tokens": [[1, 2, 3], [4]], "text": ["a", "b"]})
    texts = Pack("text", length=4, tokenizer=Bytes())
    for packed in ({"pack": Pack("tokens", length=4)}, {"pack": texts, "even": "dynamic"}):
        with pytest.raises(ValueError, match="leave out pack"):
            Statistics.of(ParquetDataset(table, batch_size=1, **packed))


def test_a_failure_of_reading_is_raised(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": np.arange(50_000)}), tmp_path / "0.parquet", compression="none")
    dataset = open_alone(tmp_path / "0.parquet")
    content = bytearray((tmp_path / "0.parquet").read_bytes())
    content[4:40] = bytes(36)
    (tmp_path / "0.parquet").write_bytes(content)
    with pytest.raises(OSError, match=re.escape("0.parquet")):
        Statistics.of(dataset)


# The file


def test_a_file_holds_statistics_exactly(found: Statistics, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    found.save(first)
    again = Statistics.load(first)
    assert [*again.items()] == [*found.items()]
    assert again.num_rows == found.num_rows
    again.save(second)
    assert first.read_bytes() == second.read_bytes()

    def refuse(text: str) -> None:
        raise AssertionError(text)

    content = json.loads(first.read_text(), parse_constant=refuse)
    assert [*content] == ["format", "version", "rows", "columns"]
    assert [*content["columns"]] == [*found]
    assert content["columns"]["void"]["mean"] is None
    assert first.stat().st_size < 30_000 * len(found)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    found: Statistics, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "s.json"
    found.save(path)
    before = path.read_bytes()

    def failing(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="no space"):
        Statistics({}, 0).save(path)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda _: "", "no file of statistics, make it again by torchparquet stats"),
        (lambda text: text[: len(text) // 2], "no file of statistics, make it again"),
        (lambda _: '{"a": 1}', "no file of statistics"),
        (lambda _: "[]", "no file of statistics"),
        (lambda text: text.replace('"version":1', '"version":2'), "version 2, and this torchp"),
        (lambda text: text.replace('"count":', '"number":'), "damaged, make it again"),
        (lambda text: text.replace('"nulls":', '"nulls":-'), "damaged"),
        (lambda text: re.sub(r'"mean":[^,]*', '"mean":"x"', text), "damaged"),
        (lambda text: re.sub(r'"max":[^,]*', '"max":NaN', text), "damaged"),
        (lambda text: re.sub(r'"quantiles":\[[^,]*,', '"quantiles":[', text), "damaged"),
        (lambda text: text[: text.index('"columns"')] + '"columns":[]}', "damaged"),
        (lambda text: re.sub(r'"rows":\d+', '"rows":null', text), "damaged"),
    ],
)
def test_a_broken_file_is_refused_with_the_way_out(
    tmp_path: Path, change: Callable[[str], str], text: str
) -> None:
    path = tmp_path / "s.json"
    Statistics.of(open_alone(pa.table({"x": [1.5, 2.0, None]}))).save(path)
    path.write_text(change(path.read_text()))
    with pytest.raises(ValueError, match=text) as caught:
        Statistics.load(path)
    assert repr(str(path)) in str(caught.value)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        Statistics.load(tmp_path / "none.json")


def test_files_have_the_mode_of_files_of_the_user(tmp_path: Path) -> None:
    """Unlike caches: training, evaluation and serving may be different users."""
    found = Statistics.of(ParquetDataset(pa.table({"x": [1.5, 2.5]}), batch_size=2))
    found.save(tmp_path / "s.json")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "s.json").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "s.json"]
    with pytest.raises(FileNotFoundError, match="make it first"):
        found.save(tmp_path / "none" / "s.json")
    with pytest.raises(ValueError, match="copy it to a store"):
        found.save("s3://bucket/s.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mean", 10**400),
        ("std", -1.0),
        ("distinct", -1.5),
        ("count", True),
        ("has_too_many_words", 1),
        ("min_length", 0.5),
        ("quantiles", [1.0] * 1000 + [0.0]),
        ("words", [[True, 1]]),
        ("none", 0),
    ],
)
def test_damaged_figures_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    path = tmp_path / "s.json"
    Statistics.of(ParquetDataset(pa.table({"x": [1.5, 2.5]}), batch_size=2)).save(path)
    content = json.loads(path.read_text())
    content["columns"]["x"][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="a file of statistics is damaged, make it again"):
        Statistics.load(path)


def test_a_file_of_many_brackets_is_none_of_statistics(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="no file of statistics"):
        Statistics.load(tmp_path / "s.json")
