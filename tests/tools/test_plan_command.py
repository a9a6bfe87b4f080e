"""`torchparquet plan`: what ranks get, and how well rows are mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.texts import END, hugging_face, write_texts
from torchparquet import ByLength, Order, Pack, ParquetDataset, Shuffle
from torchparquet.cli import main


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("plan")
    for file in range(3):
        table = pa.table({"x": np.arange(1000 * file, 1000 * file + 1000)})
        pq.write_table(table, root / f"{file}.parquet", row_group_size=250)
    return root


def test_ranks_are_those_of_the_data_set(report_of: Any, data: Any) -> None:
    words = "--world-size 5 --batch-size 64 --num-workers 2 --epoch 3 --shuffle"
    report = report_of("plan", data, *words.split())
    assert report["rows"] == 3000
    for rank in range(5):
        dataset = ParquetDataset(data, batch_size=64, shuffle=True, rank=rank, world_size=5)
        dataset.set_epoch(3)
        assert report["ranks"][rank]["steps"] == dataset.num_steps(2)
        assert report["ranks"][rank]["rows"] == 600


@pytest.mark.parametrize("separator", [None, 0])
def test_packed_steps_are_those_of_training(report_of: Any, tmp_path: Path, separator: Any) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 900).tolist()
    table = pa.table({"t": [list(range(length)) for length in lengths]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    arguments = ["--pack", "t", "--pack-length", 64, "--world-size", 2, "--batch-size", 8]
    arguments += [] if separator is None else ["--pack-separator", separator]
    report = report_of("plan", tmp_path, *arguments)
    pack = Pack("t", length=64, separator=separator)
    dataset = ParquetDataset(tmp_path, batch_size=8, pack=pack, rank=0, world_size=2)
    assert report["ranks"][0]["steps"] == len(list(dataset))
    each = 1 if separator is not None else 0
    places = [sum(part) + each * len(part) for part in np.split(np.array(lengths), 3)]
    assert report["rows"] == sum(-(-one // 64) for one in places)


def test_tokens_of_texts_are_those_of_training(
    report_of: Any, error_of: Any, tmp_path: Path
) -> None:
    write_texts(tmp_path / "data")
    hugging_face().save(str(tmp_path / "tokenizer.json"))
    arguments: list[Any] = ["--pack", "text", "--pack-length", 16, "--batch-size", 2]
    arguments += ["--tokenizer", tmp_path / "tokenizer.json", "--pack-separator", END]
    arguments += ["--token-cache", tmp_path / "tokens"]
    report = report_of("plan", tmp_path / "data", *arguments)
    pack = Pack("text", 16, separator=END, tokenizer=hugging_face())
    dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    assert report["ranks"][0]["steps"] == len(list(dataset))
    assert len(list((tmp_path / "tokens").iterdir())) == 2
    arguments[7] = tmp_path / "none"
    assert "hf download" in error_of("plan", tmp_path / "data", *arguments, code=1)


BY_LENGTH: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 200}, "--max-tokens 200"),
    (
        {"max_tokens": 200, "max_rows": 5, "multiple_of": 8},
        "--max-tokens 200 --max-rows 5 --multiple-of 8",
    ),
    (
        {"bucket_boundaries": [10, 30], "bucket_batch_sizes": [20, 10, 5]},
        "--bucket-boundaries 10,30 --bucket-batch-sizes 20,10,5",
    ),
]


@pytest.mark.parametrize(("rules", "arguments"), BY_LENGTH, ids=str)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_by_length_are_those_of_training(
    report_of: Any,
    capsys: Any,
    tmp_path: Path,
    rules: dict[str, Any],
    arguments: str,
    shuffle: bool,
) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 900).tolist()
    table = pa.table({"t": [list(range(n)) for n in lengths], "x": range(900)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=200)
    words = f"--by-length t --world-size 3 --epoch 2 {arguments} {'--shuffle' * shuffle}".split()
    report = report_of("plan", tmp_path, *words)
    seen, num_batches, places = [], 0, 0
    for rank in range(3):
        options: Any = {"batch_size": ByLength("t", **rules), "shuffle": shuffle}
        options |= {"rank": rank, "world_size": 3}
        dataset = ParquetDataset(tmp_path, even="none", **options)
        dataset.set_epoch(2)
        batches = list(dataset)
        seen += [row for batch in batches for row in batch["x"].tolist()]
        num_batches += len(batches)
        places += sum(batch["t"].numel() for batch in batches)
        even = ParquetDataset(tmp_path, **options)
        even.set_epoch(2)
        assert report["ranks"][rank]["steps"] == len(even) == len(list(even))
    assert sorted(seen) == list(range(900))
    assert report["rows"] == num_batches
    assert report["batch_size"] is None
    counts = {"documents": 900, "tokens": sum(lengths), "places": places}
    assert report["packed"] == {**counts, "unit": "batch"}
    assert main(["plan", str(tmp_path), *words]) == 0
    text = capsys.readouterr().out
    assert f"{num_batches:,} batches" in text
    assert f"by length: 900 rows, {sum(lengths):,} tokens" in text
    assert main(["verify", str(tmp_path), "--no-decode", *words]) == 0
    assert f"{num_batches} of {num_batches} batches exactly once" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--by-length t", 1, "either max_tokens or bucket_boundaries"),
        ("--by-length t --max-tokens 9 --bucket-boundaries 5", 1, "either max_tokens or"),
        ("--by-length t --bucket-boundaries 5 --bucket-batch-sizes 2", 1, "one size more"),
        ("--by-length t --bucket-boundaries 5;6", 2, "numbers such as 64,256, got '5;6'"),
        ("--by-length t --batch-size 8", 2, "does not go with --batch-size: give --max-tokens"),
        ("--by-length t --max-tokens 99 --pack t", 1, "does not go with pack"),
        ("--by-length t --max-tokens 99 --even pad", 1, 'does not go with even="pad"'),
        ("--by-length t --max-tokens 99 --canonical-world-size 2", 1, "canonical_world_size"),
        ("--by-length x --max-tokens 99", 1, "'x'"),
        ("--by-length t --max-tokens 9", 1, "max_tokens must hold every list of 't', and is 9"),
        ("--max-tokens 9", 2, "--max-tokens needs --by-length NAME"),
        ("--pack-length 9", 2, "--pack-length needs --pack NAME"),
        ("--tokenizer x", 2, "--tokenizer needs --pack NAME"),
        ("--pack t --pack-separator end", 1, "needs a tokenizer"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "verify"])
def test_options_that_do_not_go_together_are_named(
    error_of: Any, tmp_path: Path, command: str, arguments: str, code: int, message: str
) -> None:
    table = pa.table({"t": [list(range(10))] * 4, "x": range(4)})
    pq.write_table(table, tmp_path / "a.parquet")
    assert message in error_of(command, tmp_path, *arguments.split(), code=code)


def test_the_defaults_are_those_of_the_data_set(report_of: Any, data: Any) -> None:
    arguments = ("--world-size", 2, "--batch-size", 50, "--canonical-world-size", 4)
    report = report_of("plan", data, *arguments)
    assert report["mixing"]["rows_travelled"] == 0
    options: Any = {"batch_size": 50, "order": Order(canonical_world_size=4), "world_size": 2}
    steps = [len(list(ParquetDataset(data, rank=rank, **options))) for rank in range(2)]
    assert [rank["steps"] for rank in report["ranks"]] == steps


def test_mixing_is_what_batches_show(report_of: Any, data: Any) -> None:
    dataset = ParquetDataset(
        data, batch_size=50, shuffle=True, shuffle_window=4, rank=0, world_size=1
    )
    rows = np.concatenate([batch["x"].numpy() for batch in dataset])
    met = [len(np.unique(batch // 250)) for batch in np.split(rows, 60)]
    report = report_of("plan", data, "--batch-size", 50, "--shuffle", "--shuffle-window", 4)
    assert report["mixing"]["row_groups_per_batch"] == pytest.approx(np.mean(met))
    assert report["mixing"]["rows_looked_at"] == 3000
    of_random = np.arange(3000).std() / np.sqrt(50)
    drift = np.std([batch.mean() for batch in np.split(rows, 60)]) / of_random
    assert report["mixing"]["batch_drift"] == pytest.approx(drift, rel=1e-3)
    unshuffled = report_of("plan", data, "--batch-size", 50)
    assert unshuffled["mixing"]["row_groups_per_batch"] == 1
    assert unshuffled["mixing"]["rows_travelled"] == 0
    assert report["mixing"]["rows_travelled"] > 100


def test_a_global_shuffle_has_the_bytes_of_its_rows(report_of: Any, data: Any) -> None:
    dataset = ParquetDataset(data, batch_size=50, shuffle="global")
    report = report_of("plan", data, "--global")
    assert report["decoded_bytes"] == dataset.decoded_bytes
    values = sum(of.nbytes for of in next(iter(dataset)).values())
    assert report["decoded_bytes"] == 3000 * values // 50
    assert ParquetDataset(data, batch_size=50).decoded_bytes is None
    of_batches = [
        batch["x"].numpy() for batch in ParquetDataset(data, batch_size=50, shuffle="global")
    ]
    drift = np.std([of.mean() for of in of_batches]) / (np.arange(3000).std() / np.sqrt(50))
    report = report_of("plan", data, "--global", "--batch-size", 50)
    assert report["mixing"]["batch_drift"] == pytest.approx(drift, rel=1e-3)
    met = [len(np.unique(of // 250)) for of in of_batches]
    assert report["mixing"]["row_groups_per_batch"] == pytest.approx(np.mean(met))
    assert report["mixing"]["rows_looked_at"] == 3000


@pytest.mark.parametrize("first", ["global", "windows"])
def test_the_first_epoch_of_a_global_shuffle_is_planned(
    report_of: Any, data: Any, first: Any
) -> None:
    words = f"--global --global-first {first} --even drop --world-size 2 --batch-size 10"
    report = report_of("plan", data, *words.split())
    shuffle = Shuffle("global", first)
    dataset = ParquetDataset(
        data, batch_size=10, shuffle=shuffle, even="drop", rank=0, world_size=2
    )
    assert report["first"] == first
    assert report["ranks"][0]["steps"] == len(dataset)
    # Blocks as large as a window of 8 row groups are dealt whole: 2,000 rows and 1,000.
    assert (len(dataset) == 100) == (first == "windows")


def test_the_first_epoch_needs_a_global_shuffle(error_of: Any, data: Any) -> None:
    assert "needs --global" in error_of("plan", data, "--global-first", "windows", code=2)


def test_workers_add_up_to_their_rank(report_of: Any, data: Any) -> None:
    report = report_of("plan", data, "--world-size", 2, "--num-workers", 3, "--batch-size", 64)
    for rank in report["ranks"]:
        assert [worker["worker"] for worker in rank["workers"]] == [0, 1, 2]
        for name in ("rows", "bytes", "steps"):
            assert sum(worker[name] for worker in rank["workers"]) == pytest.approx(
                rank[name], abs=3
            )
    assert sum(rank["bytes"] for rank in report["ranks"]) == pytest.approx(report["bytes"], abs=9)


@pytest.mark.long
@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_plots(report_of: Any, data: Any, tmp_path: Path, name: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    assert report_of("plan", data, "--world-size", 40, "--plot", tmp_path / name)["rows"] == 3000
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_plots_without_their_library_say_what_to_install(
    error_of: Any, data: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("torchparquet.cli.screen.find_spec", lambda name: None)
    error = error_of("plan", data, "--plot", tmp_path / "a.png")
    assert "needs matplotlib, which is not installed: pip install" in error


def test_columns_that_cannot_be_read_are_left_out(
    report_of: Any, error_of: Any, tmp_path: Path
) -> None:
    table = pa.table({"x": range(10), "big": pa.array(range(10), pa.decimal256(50, 2))})
    pq.write_table(table, tmp_path / "a.parquet")
    assert report_of("plan", tmp_path)["rows"] == 10
    assert "decimal" in error_of("plan", tmp_path, "--column", "big")


def test_text_for_people(capsys: Any, data: Any) -> None:
    assert main(["plan", str(data), "--world-size", "2", "--num-workers", "2"]) == 0
    text = capsys.readouterr().out
    assert "3,000 rows" in text
    assert "1, worker 1" in text
    assert "mixing: a batch has rows of" in text
