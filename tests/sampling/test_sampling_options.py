"""Options beside samples, those that are refused, and the errors of values."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

from torchparquet import (
    Balanced,
    ByLength,
    Column,
    Order,
    Pack,
    ParquetDataset,
    Unique,
    Weights,
    Window,
    mix,
    verify_no_shard_overlap,
)
from torchparquet.cli import main

NUM_ROWS = 600
LABELS = np.random.default_rng(1).choice(["cat", "dog"], NUM_ROWS, p=[0.1, 0.9])
WEIGHTS = np.random.default_rng(2).integers(1, 6, NUM_ROWS) / 2
KEYS = np.random.default_rng(3).integers(0, 90, NUM_ROWS)
SAMPLINGS: dict[str, dict[str, Any]] = {
    "Balanced": {"sample": Balanced("label", {"cat": 1, "dog": 2})},
    "Weights": {"sample": Weights("weight")},
    "Window": {"pack": Window("x", past=2, future=3)},
    "unique": {"unique": "key"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("samples")
    columns: dict[str, Any] = {
        "x": np.arange(NUM_ROWS),
        "label": LABELS,
        "weight": WEIGHTS,
        "key": KEYS,
        "half": [None if row % 2 else row // 2 for row in range(NUM_ROWS)],
        "items": [[row] * (row % 4) for row in range(NUM_ROWS)],
    }
    table = pa.table(columns)
    for begin in (0, 300):
        pq.write_table(table.slice(begin, 300), folder / f"{begin}.parquet", row_group_size=60)
    return folder


def made(data: Any, **options: Any) -> ParquetDataset:
    chosen: dict[str, Any] = {"batch_size": 16, "columns": ["x"], "shuffle": True, "row_ids": True}
    return ParquetDataset(data, **chosen | options)


def rows_of(dataset: Any) -> list[list[int]]:
    return [batch["row.id"].tolist() for batch in dataset]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_workers_deliver_what_one_process_does(data: Path, sampling: str) -> None:
    dataset = made(data, **SAMPLINGS[sampling])
    alone = Counter(chain(*rows_of(dataset)))
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    dataset.set_epoch(0)
    batches = rows_of(loader)
    assert len(batches) == len(loader)
    by_workers = Counter(chain(*batches))
    assert not alone - by_workers
    assert (by_workers - alone).total() <= 16
    if sampling == "unique":
        assert all(len(set(KEYS[batch])) == len(batch) for batch in batches)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_padded_repeats_are_marked(data: Path, sampling: str) -> None:
    once = Counter(chain(*rows_of(made(data, **SAMPLINGS[sampling]))))
    valid: Counter[int] = Counter()
    repeats = 0
    for rank in range(3):
        world = {"rank": rank, "world_size": 3, "even": "pad"}
        for batch in made(data, shuffle_window=1, **world, **SAMPLINGS[sampling]):
            valid.update(batch["row.id"][batch["row.valid"]].tolist())
            repeats += int((~batch["row.valid"]).sum())
    assert repeats
    assert valid.total() == once.total()
    if sampling == "unique":
        assert valid == once


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_filters_and_splits_say_of_which_rows_samples_are(data: Path, sampling: str) -> None:
    split = ("train", {"train": 0.5, "val": 0.5}, 0)
    options: dict[str, Any] = {"filters": [("x", ">=", 77)], "split": split}
    kept = set(chain(*rows_of(made(data, **options))))
    dataset = made(data, **options, **SAMPLINGS[sampling])
    batches = list(dataset)
    for batch in batches:
        anchors = batch["x"] if batch["x"].dim() == 1 else batch["x"][:, 2]
        assert batch["row.id"].tolist() == anchors.tolist()
    rows = Counter(chain(*(batch["row.id"].tolist() for batch in batches)))
    assert set(rows) <= kept
    if sampling == "Window":
        in_order = sorted(kept)
        windows = {tuple(window) for batch in batches for window in batch["x"].tolist()}
        assert windows == {tuple(in_order[at : at + 6]) for at in range(len(in_order) - 5)}
    if sampling == "unique":
        assert rows == Counter(kept)
    if sampling == "Weights":
        of_kept = WEIGHTS[sorted(kept)]
        for row, expected in zip(sorted(kept), of_kept * len(kept) / of_kept.sum(), strict=True):
            assert math.floor(expected - 1e-9) <= rows[row] <= math.ceil(expected + 1e-9)
    if sampling == "Balanced":
        cats = [row for row in kept if LABELS[row] == "cat"]
        assert sum(rows[row] for row in cats) == len(cats)
        assert rows.total() == 3 * len(cats)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs_differ_and_repeat(data: Path, sampling: str, shuffle: bool) -> None:
    dataset = made(data, shuffle=shuffle, **SAMPLINGS[sampling])
    first, second = rows_of(dataset), rows_of(dataset)
    assert rows_of(made(data, shuffle=shuffle, **SAMPLINGS[sampling])) == first
    assert (first != second) == (shuffle or sampling in ("Balanced", "Weights"))
    if shuffle:
        assert rows_of(made(data, seed=1, **SAMPLINGS[sampling])) != first


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_mixes_take_samples(data: Path, sampling: str) -> None:
    dataset = made(data, **SAMPLINGS[sampling])
    mixed = mix([dataset, made(data)], weights=[1, 1])
    expected = rows_of(made(data, **SAMPLINGS[sampling]))
    found = [batch["row.id"].tolist() for batch in mixed]
    first = [batch for batch in found if batch in expected]
    assert first[:5] == expected[:5]


@pytest.mark.parametrize("sampling", ["Balanced", "Weights"])
def test_rows_one_by_one_are_those_of_batches(data: Path, sampling: str) -> None:
    batches = rows_of(made(data, **SAMPLINGS[sampling]))
    rows = made(data, **SAMPLINGS[sampling]).unbatched()
    assert [int(row["x"]) for row in rows] == list(chain(*batches))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_audits_count_samples(data: Path, sampling: str) -> None:
    dataset = made(data, **SAMPLINGS[sampling])
    audit = verify_no_shard_overlap(dataset)
    assert audit.rows_delivered == audit.num_rows == dataset.manifest.num_rows
    if sampling == "unique":
        with pytest.raises(ValueError, match=r"does not go with .*unique="):
            verify_no_shard_overlap(dataset, read=True)
        return
    assert verify_no_shard_overlap(dataset, read=True).rows_delivered == audit.num_rows
    changed = made(data, columns=["x"], transform=without_first_row, **SAMPLINGS[sampling])
    with pytest.raises(RuntimeError, match="are missing"):
        verify_no_shard_overlap(changed, read=True)


def without_first_row(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value[1:] for name, value in batch.items()}


def test_weights_by_row_are_those_of_a_column(data: Path) -> None:
    options: dict[str, Any] = {"filters": [("x", ">", 50)]}
    by_column = rows_of(made(data, sample=Weights("weight", 900), **options))
    assert rows_of(made(data, sample=Weights(WEIGHTS, 900), **options)) == by_column


def test_a_function_fails_by_the_rows_of_its_batch(data: Path) -> None:
    def fail(batch: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("nothing")

    dataset = made(data, transform=fail, shuffle=False, unique="key")
    rows = sorted(rows_of(made(data, shuffle=False, unique="key"))[0])
    of_first = [row for row in rows if row < 60]
    with pytest.raises(Exception, match=f"{len(of_first)} rows of {of_first[0]} to {of_first[-1]}"):
        next(iter(dataset))


def test_a_pass_over_a_column_is_kept_beside_the_manifest(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "manifest"
    first = rows_of(made(data, manifest_cache=cache, unique="key"))
    (kept,) = tmp_path.glob("*.samples")
    written = kept.stat().st_mtime_ns
    assert rows_of(made(data, manifest_cache=cache, unique="key")) == first
    assert kept.stat().st_mtime_ns == written


def test_rows_that_change_blocks_are_held_as_numbers(tmp_path: Path) -> None:
    num_rows = 20_000
    keys = np.arange(num_rows) // 400
    pq.write_table(pa.table({"key": keys}), tmp_path / "a.parquet", row_group_size=200)
    dataset = made(tmp_path, columns=["key"], unique="key", batch_size=32, num_threads=1)
    tracemalloc.start()
    try:
        batch = next(iter(dataset))
        assert tracemalloc.get_traced_memory()[1] < 100 * num_rows
    finally:
        tracemalloc.stop()
    assert len(batch["key"].unique()) == 32


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_states_are_of_one_sampling(data: Path, sampling: str) -> None:
    state = made(data, **SAMPLINGS[sampling]).state_dict()
    for other, options in (SAMPLINGS | {"none": {}}).items():
        if other != sampling:
            with pytest.raises(ValueError, match="state does not fit this data set"):
                made(data, **options).load_state_dict(state)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_states_name_the_shuffling_that_samples_were_chosen_by(data: Path, sampling: str) -> None:
    options: dict[str, Any] = {"shuffle": True, **SAMPLINGS[sampling]}
    state = made(data, **options).state_dict()
    others: list[tuple[dict[str, Any], str]] = [({"shuffle": False}, "in file order")]
    if sampling != "unique":  # whose blocks are longer than the windows here
        others.append(({"shuffle_window": 1}, "shuffled"))
    for other, how in others:
        told = (
            rf"samples are 'shuffled, in blocks of .*' in the state, '{how}, in blocks of .*' here"
        )
        with pytest.raises(ValueError, match=told):
            made(data, **options | other).load_state_dict(state)


# Reasons stand on docs/reference/pairs.md.
REFUSED = [
    ({"batch_size": ByLength("items", max_tokens=9), "columns": None}, r"batch_size=ByLength"),
    ({"batch_size": None}, "batch_size=None"),
    ({"pack": Pack("items", length=8), "columns": ["items"]}, "pack"),
    ({"order": Order(within_rank=True)}, "order"),
    ({"even": "dynamic"}, 'even="dynamic"'),
    ({"shuffle_window": 0}, "shuffle_window=0"),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("options", "name"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_does_not_go_with_samples_is_named(
    data: Path, sampling: str, options: dict[str, Any], name: str
) -> None:
    if options.keys() & SAMPLINGS[sampling].keys():
        pytest.skip("both are values of one argument")
    with pytest.raises(ValueError, match=f"does not go with {name}"):
        made(data, **SAMPLINGS[sampling], **options)


def test_samples_and_unique_keys_exclude_each_other(data: Path) -> None:
    with pytest.raises(ValueError, match=r"sample=Weights\(...\) does not go with unique='key'"):
        made(data, sample=Weights("weight"), unique="key")
    with pytest.raises(ValueError, match="has no rows one by one"):
        next(iter(made(data, unique="key").unbatched()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": Balanced("label", {"cat": 1, "cow": 1})}, "'label' has none of 'cow': leave"),
        ({"sample": Balanced("label", {1: 1})}, "classes must be values of the column, which has"),
        ({"sample": Balanced("key", {"a": 1})}, "which has numbers; got 'a'"),
        ({"sample": Balanced("key", {1.5: 1})}, "which has whole numbers; got 1.5"),
        ({"sample": Balanced("items", {1: 1})}, "sampled by lists: 'items' is list<int64>"),
        ({"sample": Balanced("no", {1: 1})}, "'no'"),
        ({"sample": Balanced("label", {"cat": 1, "dog": 2}, 2)}, "a round .*, 3 samples; got leng"),
        ({"sample": Balanced("label", {"cat": 0.123456789, "dog": 1})}, "must be exact in 10,000"),
        ({"sample": Weights("label")}, "needs a column of numbers: 'label' has strings"),
        ({"sample": Weights("half")}, "row group 0, row 0 has 0.0"),
        ({"sample": Weights("half"), "filters": [("x", ">", 1)]}, "row group 0, row 3 has nan"),
        ({"sample": Weights([1.0, 2.0])}, r"each of the files' 600 rows, got the shape \[2\]"),
        ({"sample": Weights("weight", 2**31 - 1)}, "samples or fewer, got length=2147483647"),
        ({"unique": "half"}, "needs a key in every row; .*0.parquet', row group 0, row 1$"),
        ({"unique": Unique("half", across_ranks=True)}, "a key in every row; .*, row 1$"),
        ({"unique": "key", "batch_size": 200}, "one key has .* rows, and there are 3 batches of 2"),
        ({"unique": "key", "batch_size": 601, "drop_last": True}, "one key has"),
        ({"unique": "x", "batch_size": 601, "drop_last": True}, "600 rows make no batch of 601"),
        ({"unique": "items"}, "rows cannot be sampled by lists: 'items'"),
    ],
    ids=str,
)
def test_values_that_cannot_be_sampled_are_named(
    data: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, KeyError), match=message):
        made(data, **options)


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()])
def test_classes_are_numbers_as_the_column_stores_them(dtype: pa.DataType) -> None:
    values = np.array([0.1, 0.2] * 4).astype(dtype.to_pandas_dtype())
    table = pa.table({"x": range(8), "label": pa.array(values, dtype)})
    (rows,) = rows_of(made(table, sample=Balanced("label", {0.1: 1})))
    assert sorted(rows) == [0, 2, 4, 6]


@pytest.mark.parametrize("value", [None, math.nan, 2**64, 0.5])
def test_a_class_of_whole_numbers_is_one(data: Path, value: Any) -> None:
    with pytest.raises(ValueError, match=f"which has whole numbers; got {value!r}"):
        made(data, sample=Balanced("key", {value: 1}))


@pytest.mark.parametrize("weight", [1e-320, 1e308])
def test_weights_may_be_of_any_scale(data: Path, weight: float) -> None:
    assert rows_of(made(data, sample=Weights(np.full(NUM_ROWS, weight)))) == rows_of(
        made(data, sample=Weights(np.ones(NUM_ROWS)))
    )


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_weights_must_be_above_zero_and_finite(data: Path, tmp_path: Path, weight: float) -> None:
    weights = np.ones(NUM_ROWS)
    weights[77] = weight
    message = rf"weights must be above 0 and finite; .*row group 1, row 17 has {weight}"
    with pytest.raises(ValueError, match=message):
        made(data, sample=Weights(weights))
    pq.write_table(pa.table({"weight": weights}), tmp_path / "a.parquet", row_group_size=60)
    with pytest.raises(ValueError, match=message):
        made(tmp_path, sample=Weights("weight"), columns=["weight"])


def test_keys_must_not_be_nan(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, math.nan]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"not NaN; .* row group 0, row 1$"):
        made(tmp_path, unique="x", batch_size=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Balanced(1, {1: 1}), "must be a str"),  # type: ignore[arg-type]
        (lambda: Balanced("x", [1]), "needs a dict of proportions"),  # type: ignore[arg-type]
        (lambda: Balanced("x", {}), "needs a dict of proportions"),
        (lambda: Balanced("x", {1: 0}), "leave out a class .* class 1 has 0"),
        (lambda: Balanced("x", {1: math.nan}), "class 1 has nan"),
        (lambda: Balanced("x", {1: 1}, 0), "length"),
        (lambda: Weights(1), "needs a column or an array"),  # type: ignore[arg-type]
        (lambda: Weights("x", -1), "length"),
    ],
)
def test_options_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_arguments_are_of_their_kinds(data: Path) -> None:
    with pytest.raises(TypeError, match="sample must be a Balanced, a Weights or None"):
        made(data, sample="label")
    with pytest.raises(TypeError, match="unique must be the name of a column, a Unique or None"):
        made(data, unique=3)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--balanced label --proportion cat=1 --proportion dog=2", SAMPLINGS["Balanced"]),
        ("--weights weight --samples 900", {"sample": Weights("weight", 900)}),
        ("--unique key", SAMPLINGS["unique"]),
        (
            "--unique x --across-ranks --drop-last",
            {
                "unique": Unique("x", across_ranks=True),
                "drop_last": True,
                "rank": 0,
                "world_size": 3,
            },
        ),
        ("--window x --window-past 3 --window-stride 7", {"pack": Window("x", past=3, stride=7)}),
    ],
)
def test_commands_plan_and_verify_samples(
    data: Path, capsys: Any, words: str, options: dict[str, Any]
) -> None:
    arguments = f"{data} --world-size 3 --shuffle --batch-size 16 {words}".split()
    assert main(["plan", *arguments]) == 0
    dataset = made(data, **options)
    noun = "batches" if "unique" in options else "samples"
    assert f"{dataset.manifest.num_rows:,} {noun}" in capsys.readouterr().out
    assert main(["verify", "--no-decode", *arguments]) == 0
    count = f"{dataset.manifest.num_rows} of {dataset.manifest.num_rows} {noun} exactly once"
    assert count in capsys.readouterr().out


def test_commands_take_quoted_numbers_for_strings(tmp_path: Path, capsys: Any) -> None:
    labels = ["0", "1", "1", "0"] * 50
    pq.write_table(pa.table({"label": labels}), tmp_path / "labels.parquet")
    told = ["plan", str(tmp_path), "--balanced", "label", "--proportion"]
    assert main([*told, '"0"=1', "--proportion", '"1"=1']) == 0
    assert "200 samples" in capsys.readouterr().out
    assert main([*told, "0=1", "--proportion", "1=1"]) != 0


def test_other_columns_may_be_of_every_kind(data: Path) -> None:
    columns: Any = {"x": "x", "items": "items", "half": Column("half", nulls="mask")}
    for batch in made(data, columns=columns, sample=Weights("weight", 1500), batch_size=100):
        rows = batch["x"].tolist()
        assert batch["items"].to_list() == [[row] * (row % 4) for row in rows]
        assert batch["half.valid"].tolist() == [row % 2 == 0 for row in rows]


def test_repeats_of_long_strings_are_held_within_max_memory(tmp_path: Path) -> None:
    texts = [b"a" * 2_000_000 if row == 7 else b"b" for row in range(200)]
    table = pa.table({"text": texts, "weight": [200.0 if row == 7 else 1.0 for row in range(200)]})
    pq.write_table(table, tmp_path / "texts.parquet", row_group_size=50)
    options: dict[str, Any] = {"columns": ["text"], "batch_size": 1, "sample": Weights("weight")}
    with pytest.raises(MemoryError, match="need more than max_memory"):
        list(ParquetDataset(tmp_path, max_memory="16MiB", **options))
    samples = list(ParquetDataset(tmp_path, max_memory="1GiB", **options))
    assert sum(len(batch["text"].to_list()[0]) > 1 for batch in samples) in (100, 101)
