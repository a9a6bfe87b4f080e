"""Mistakes that new users make: the message says what to write instead."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader, IterableDataset, IterDataPipe

from torchparquet import (
    Ahead,
    Column,
    Order,
    Pack,
    ParquetDataset,
    Ranks,
    mix,
    verify_no_shard_overlap,
)
from torchparquet.cli import main
from torchparquet.errors import (
    CastError,
    CorruptFileError,
    FileChangedError,
    SchemaMismatchError,
    TransformError,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two files of several kinds of columns."""
    (tmp_path / "data").mkdir()
    table = pa.table(
        {
            "label": [0, 1, 0, 1],
            "big": [1, 2, 3, 1000],
            "age": pa.array([1, None, 3, 4], pa.int64()),
            "city": ["a b", None, "c", "d"],
            "text": ["a b", "c", "", "d e f"],
            "ids": [[1], [2, 3], [], [4]],
            "user": [{"points": i} for i in range(4)],
        }
    )
    for name in ("0.parquet", "1.parquet"):
        pq.write_table(table, tmp_path / "data" / name)
    return tmp_path / "data"


MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(
        (
            {"batch_size": size},
            TypeError,
            rf"batch_size must be an int, None for a batch .*, or ByLength\(.*got {size!r}",
        )
        for size in ("32", 32.0, True)
    ),
    (
        {"filters": pc.field("user", "point") > 1},
        ValueError,
        "no such column: 'user.point' in filters; did you mean 'user.points'",
    ),
    ({"order": Order}, TypeError, "order must be an Order or None, got the class Order itself$"),
    ({"ranks": Ranks(mesh=Ranks)}, TypeError, "a DeviceMesh, got the class Ranks itself$"),  # type: ignore[arg-type]
    ({"ranks": object()}, TypeError, "or a Ranks, got an object of type object$"),
    (
        {"pack": Pack},
        TypeError,
        "must be a Pack, a Window or None, got the class Pack itself$",
    ),
    ({"filters": len}, TypeError, "filters must be tuples such as"),
    ({"filters": lambda row: True}, TypeError, "; got an object of type function$"),
    ({"columns": [Column]}, TypeError, r"names \(str\); got the class Column itself$"),
    ({"transform": Ahead}, TypeError, r"transform=Ahead\(function, threads=8\)"),
    ({"manifest_cache": 3}, TypeError, "manifest_cache must be a str or an os.PathLike.*got 3$"),
    ({"rows": np.array([1, 1, 2])}, ValueError, "each row once.* mix .*row 1 is there twice"),
    (
        {"columns": {"x": ["city", "label"]}},
        ValueError,
        "name each of them by itself, outside of the group, or .*vocab=.*: 'x' has 'city'",
    ),
    (
        {"columns": ["city"], "nulls": 0},
        ValueError,
        r'nulls of strings must be "empty", .*Column\(..., nulls="empty"\).*: .city. is str',
    ),
    (
        {"columns": ["age"], "nulls": "empty"},
        ValueError,
        r"give a column of numbers a value, as in Column\(..., nulls=0\).*: 'age' is int64",
    ),
    (
        {"pack": Pack("text", length=4)},
        ValueError,
        "lists of numbers, and with tokenizer= for a column of strings: 'text'",
    ),
    ({"device": 0}, TypeError, "device must be a torch.device, a str or None, got 0"),
    ({"device": "gpu"}, ValueError, "got 'gpu'"),
    ({"device": "meta"}, ValueError, "must hold data"),
    ({"transform": 3}, TypeError, "transform must be callable, got 3"),
    ({"processors": {"text": None}}, TypeError, r"processors\['text'\] must be callable"),
    ({"processors": [len]}, TypeError, "processors must be a dict"),
    ({"columns": ["age"], "processors": {"a": len}}, ValueError, r"\['age'\], got one for 'a'"),
    *(
        ({"max_memory": size}, ValueError, "max_memory must be")
        for size in (0, -1, "", "GiB", "1", "1 XB", "-1GiB", "0GiB", "1e3MB")
    ),
    *(({"max_memory": x}, TypeError, "max_memory must be") for x in (1.5, None, True, b"1GiB")),
    *(({"num_threads": x}, ValueError, "num_threads must be") for x in (0, -1, 1025)),
    *(
        ({"shuffle": True, "shuffle_window": window}, ValueError, "shuffle_window must be")
        for window in ("700", "rows", "-1 rows", "1.5 rows", "0 rows", "7 row groups")
    ),
    ({"shuffle_window": "700 rows"}, ValueError, "shuffle_window needs shuffle=True, got 700 rows"),
    ({"pin_memory": 1}, TypeError, "pin_memory must be a bool or None, got 1"),
]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    MISTAKES,
    ids=[message for _, _, message in MISTAKES],
)
def test_wrong_options_name_the_right_ones(
    data: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ParquetDataset(data, **{"batch_size": 2, **options})


INT32, INT64, CENTS = pa.int32(), pa.int64(), pa.decimal128(5, 2)


@pytest.mark.parametrize(
    ("kinds", "dtype", "way_out"),
    [
        ([INT32, INT64], None, "int64"),
        ([INT64, pa.float32()], None, "float64"),
        ([CENTS, pa.decimal128(5, 3)], "int64", "float64"),
        ([pa.string(), INT64], None, None),
        ([pa.list_(INT64), INT64], "int64", None),
        ([pa.timestamp("ms"), INT64], "int64", None),
    ],
)
def test_files_that_disagree_name_a_dtype_that_reads_both(
    tmp_path: Path, kinds: list[pa.DataType], dtype: str | None, way_out: str | None
) -> None:
    for number, kind in enumerate(kinds):
        table = pa.table({"x": pa.nulls(2, kind)})
        pq.write_table(table, tmp_path / f"{number}.parquet")

    def read(dtype: str | None) -> Any:
        columns = {"x": Column("x", dtype=dtype, nulls=0)}
        return list(ParquetDataset(tmp_path, batch_size=4, columns=columns))

    told = "no dtype reads both: write one" if way_out is None else f'"{way_out}"\\) reads both'
    with pytest.raises(SchemaMismatchError, match=f"about the kind of column 'x' .*{told}"):
        read(dtype)
    if way_out is not None:
        (batch,) = read(way_out)
        assert len(batch["x"]) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_size": 2, "suffle": True},
            "^ParquetDataset has no such argument; did you mean 'shuffle': 'suffle'$",
        ),
        ({"batch_size": 2, "xyzxyz": True}, "^ParquetDataset has no such argument: 'xyzxyz'$"),
        *(
            ({"batch_size": 2, name: 1}, rf"no such argument; did you mean {meant}: '{name}'$")
            for name, meant in {
                "balance": r"order=Order\(balance=\.\.\.\)",
                "canonical_world_size": r"order=Order\(canonical_world_size=\.\.\.\)",
                "mesh": r"ranks=Ranks\(mesh=\.\.\.\)",
                "transform_threads": r"transform=Ahead\(threads=\.\.\.\)",
            }.items()
        ),
        (
            {},
            r"^ParquetDataset needs batch_size, by name: batch_size=N for N rows, None .*ByLength",
        ),
        # An error within the call stays what it is.
        ({"batch_size": 2, "shuffle": 3}, "^shuffle must be a bool, got 3$"),
    ],
)
def test_arguments_that_do_not_exist_or_are_missing(
    data: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        ParquetDataset(data, **options)


def test_arguments_of_other_calls(data: Path) -> None:
    with pytest.raises(TypeError, match="needs batch_size, by name: batch_size=N"):
        ParquetDataset(data, 32)  # type: ignore[call-arg]
    dataset = ParquetDataset(data, batch_size=2)
    with pytest.raises(TypeError, match="mix has no such argument; did you mean 'weights'"):
        mix([dataset], weight=[1])  # type: ignore[call-arg]


def test_cast_that_overflows_names_the_option(data: Path) -> None:
    dataset = ParquetDataset(data, batch_size=4, columns={"b": Column("big", dtype="int8")})
    with pytest.raises(CastError, match=r'Column\(..., dtype="int64"\) reads a .*int8: 1000: '):
        next(iter(dataset))


@pytest.mark.parametrize("on", ["column", "batch"])
def test_function_that_expected_strings_learns_how_to_get_them(data: Path, on: str) -> None:
    functions: dict[str, Any] = {
        "column": {"processors": {"text": lambda text: text.split()}},
        "batch": {"transform": lambda batch: {"t": batch["text"].split()}},
    }
    dataset = ParquetDataset(data, batch_size=4, columns=["text"], **functions[on])
    with pytest.raises(TransformError, match=r"text.to_str\(\).*Jagged.from_lists\(...\)"):
        next(iter(dataset))


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def of_commas(path: Path) -> None:
    path.write_text("x,y\n1,2\n")


@pytest.mark.parametrize("spoil", [shortened, of_commas, lambda path: path.write_bytes(b"")])
def test_file_that_is_no_parquet_may_be_left_out(data: Path, spoil: Callable[[Path], Any]) -> None:
    spoil(data / "1.parquet")
    with pytest.raises(CorruptFileError, match=r"again, or leave it out .*: .*1\.parquet"):
        ParquetDataset(data, batch_size=2)


def test_directory_of_hidden_files_says_so(tmp_path: Path) -> None:
    (tmp_path / "_part.parquet").write_bytes(b"PAR1")
    with pytest.raises(FileNotFoundError, match=r"begin with \. or _, name them or a pattern"):
        ParquetDataset(tmp_path, batch_size=2)


def test_directory_of_other_files_says_what_to_give(tmp_path: Path) -> None:
    of_commas(tmp_path / "0.csv")
    with pytest.raises(FileNotFoundError, match=r"give one that has .parquet files in it or bel"):
        ParquetDataset(tmp_path, batch_size=2)


def test_file_that_changes_between_epochs_asks_for_a_new_data_set(data: Path) -> None:
    dataset = ParquetDataset(data, batch_size=4, columns=["label"])
    assert len(list(dataset)) == 2
    (data / "1.parquet").rename(data / "hidden")
    with pytest.raises(FileNotFoundError, match=r"put it back, or make the data set anew.*1\.par"):
        list(dataset)
    pq.write_table(pa.table({"label": [1, 2]}), data / "1.parquet")
    with pytest.raises(FileChangedError, match=r"make the data set anew to read it.*1\.parquet"):
        list(dataset)
    assert len(list(ParquetDataset(data, batch_size=4, columns=["label"]))) == 2


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("verify", "Verified: every value decodes and every row is read as planned."),
        ("verify --no-audit", "Verified: every value decodes."),
        ("verify --no-decode", "Verified: every row is read as planned."),
        ("inspect", "2 row groups for 1 reader (ranks times workers)"),
        ("plan --pack ids --pack-length 4", "half of the sequences move"),
        ("plan --column label", "half of the rows move"),
        ("bench --column label --repeats 1", "too short to tell settings apart"),
    ],
)
def test_commands_say_what_they_found(
    data: Path, capsys: pytest.CaptureFixture[str], command: str, expected: str
) -> None:
    name, *options = command.split()
    assert main([name, str(data), *options]) == 0
    assert expected in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("option", ["shuffle", "sampler", "batch_sampler"])
@pytest.mark.parametrize("kind", ["data set", "mix", "rows"])
def test_loader_that_would_shuffle_names_the_option_of_the_data_set(
    data: Path, option: str, kind: str
) -> None:
    one = ParquetDataset(data, batch_size=2, columns=["label"])
    dataset: Any = {"data set": one, "mix": mix([one], weights=[1]), "rows": one.unbatched()}[kind]
    value: Any = True if option == "shuffle" else [[0]]
    with pytest.raises(ValueError, match=rf"give shuffle=True, .* to the data set.*{option}="):
        DataLoader(dataset, **{option: value})
    loaded = list(DataLoader(dataset, batch_size=None, shuffle=False))
    assert len(loaded) == (8 if kind == "rows" else 4)


def test_a_data_set_keeps_its_class(data: Path) -> None:
    dataset = ParquetDataset(data, batch_size=2, columns=["label"])
    assert dataset.__class__ is type(dataset) is ParquetDataset
    assert isinstance(dataset, IterableDataset)
    assert not isinstance(dataset, IterDataPipe)
    for made in (pickle.loads(pickle.dumps(dataset)), copy.copy(dataset)):
        assert made.__class__ is ParquetDataset
        assert len(list(made)) == 4


def test_what_takes_data_sets_says_in_which_form(data: Path) -> None:
    read = []

    def note(batch: dict[str, Any]) -> dict[str, Any]:
        read.append(batch)
        return batch

    dataset = ParquetDataset(data, batch_size=2, columns=["label"], transform=note)
    for wrong in (dataset, {"one": dataset}, mix([dataset])):
        with pytest.raises(TypeError, match=r"be a list of data sets, as in mix\(\[one, other"):
            mix(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"be a ParquetDataset or a DataLoader over one, got 3$"):
        verify_no_shard_overlap(3)  # type: ignore[arg-type]
    assert not read
