"""What columns cannot be is refused when the data set is made, in words that name it."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.fixtures.parquet_files import write
from torchparquet import Column, Jagged, ParquetDataset, UnsupportedColumnError

INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A row of each kind of column, and one of nulls."""
    table = {
        "k": pa.array([1, None], pa.int64()),
        "f": pa.array([1, None], pa.float32()),
        "b": pa.array([True, None]),
        "u": pa.array([1, None], pa.uint8()),
        "h": pa.array([1, None], pa.float16()),
        "huge": pa.array([1, None], pa.uint64()),
        "when": pa.array([1, None], pa.timestamp("us")),
        "s": ["a", None],
        "t": ["b", None],
        "list": [[1], None],
        "nested": [[[1]], None],
        "texts": [["a"], None],
        "bools": [[True], None],
        "cell": pa.array([b"abc", None], pa.binary(3)),
        "nothing": pa.array([[], None], pa.list_(pa.null())),
        "wide": pa.array([None, None], pa.decimal256(50, 2)),
        "none": pa.nulls(2, pa.string()),
        "x": pa.array([1.0, 2.0]),
        "x.valid": [True, True],
    }
    return write(tmp_path_factory.mktemp("refusals") / "a.parquet", pa.table(table))


BY_ITSELF = "with other columns as one"
COLUMNS = [
    (Column("k", nulls="nan"), "needs a float column.*'o' is int64"),
    (Column("b", nulls="nan"), "needs a float column.*'o' is bool"),
    (Column("f", nulls="nan", dtype="float16"), None),
    (Column("k", nulls="nan", dtype="int32"), "needs a float column.*'o' is int32"),
    (Column("k", nulls="empty"), r"give a column of numbers a value"),
    (Column(["f", "k"]), r"same dtype, .*dtype=.*'o' has 'f' float32, 'k' int64"),
    (Column(["when", "k"], nulls=0), None),
    (Column("k", default="x"), "a default of text is for strings: 'o' has 'x'"),
    (Column("list", default="x"), "a default of text is for strings"),
    (Column("list", default=0), "default of a list is a list"),
    (Column("texts", nulls=0), 'nulls of strings must be "empty"'),
    (Column("texts", nulls="nan"), 'nulls of strings must be "empty"'),
    (Column("list", nulls="empty"), 'nulls="empty" is for strings'),
    (Column("list", nulls="nan"), "needs a float column"),
    (Column("list", nulls=128, dtype="int8"), "representable"),
    (Column("bools", nulls=2), "representable"),
    (Column("s", default=0), "that of a string a str or bytes"),
    (Column(["s", "t"]), BY_ITSELF),
    (Column(["s"]), BY_ITSELF),
    *(
        (Column("s", nulls=nulls), r'nulls of strings must be "empty", .*: .o. is strings')
        for nulls in ("nan", 0, 7, True, 0.5)
    ),
    # Lists of one length.
    (Column("k", length=1), "length is for lists of numbers.*'k', which is int64"),
    (Column("s", length=3), "which is string"),
    (Column("nested", length=1), r"which is list<list<int64>>"),
    (Column("texts", length=1), r"which is list<string>"),
    (Column("list", length=1, nulls="empty"), 'nulls="empty" is for strings'),
    (Column(["list"], length=1), "length is for columns that are named by themselves"),
    (Column("list", length=1, default=0.5), "default must be representable"),
    # Words.
    (Column("k", vocab=["1"]), "vocab is for strings; .*'k', which is int64"),
    (Column("k", vocab="auto"), "vocab is for strings; 'o' reads 'k', which is int64"),
    (Column(["s", "k"], vocab="auto"), "vocab is for strings; 'o' reads 'k'"),
    (Column("none", vocab="auto"), "needs a string that is not null.*'o' are null"),
    (Column("s", vocab="auto", dtype="float32"), "must have an integer dtype"),
    (Column("list", vocab=["1"]), r"vocab is for strings; .*list<int64>"),
    (Column("cell", vocab=["abc"]), r"vocab is for strings; .*fixed_size_binary"),
    (Column(["s", "k"], vocab=["1"]), "vocab is for strings"),
    (Column("s", vocab=["a"], dtype="uint8"), r"representable.*uint8.*-1"),
    (Column("s", vocab=["a"], dtype="float32"), "must have an integer dtype"),
    (Column("s", vocab=["a"], dtype="bool"), "must have an integer dtype"),
    (Column("s", vocab=["a"], nulls="empty"), 'nulls="empty" is for strings'),
    (Column("s", vocab=["a"], nulls="nan"), "needs a float column"),
    (Column("s", vocab=["a"], default=0.5), "default must be representable"),
    (Column("s", vocab=["a"], length=2), "length is for lists"),
    (Column("texts", vocab=["a"], default=0), "default of a list is a list"),
    (Column("s", vocab=[str(i) for i in range(129)], dtype="int8"), "int8, the value 128"),
    # Kinds.
    (Column("list", dtype="bool"), "cannot be read as bool"),
    (Column("list", length=1, dtype="bool"), "cannot be read as bool"),
    (Column("s", dtype="int64"), "cannot be read as int64"),
    (Column("nothing"), r"list<null>"),
    (Column("wide"), r"'wide' \(decimal\(50, 2\)\)"),
    (Column("wide", dtype="float32"), r"'wide' \(decimal\(50, 2\)\)"),
    (Column("k", unit="s"), "unit is for"),
]


@pytest.mark.parametrize(("column", "message"), COLUMNS)
def test_what_a_column_cannot_be(path: str, column: Column, message: str | None) -> None:
    if message is None:
        assert len(list(ParquetDataset(path, batch_size=2, columns={"o": column}))) == 1
        return
    with pytest.raises((ValueError, UnsupportedColumnError), match=message) as caught:
        ParquetDataset(path, batch_size=1, columns={"o": column})
    kinds = ("cannot be read", "list<null>", r"'wide'", "unit is")
    assert isinstance(caught.value, UnsupportedColumnError) == message.startswith(kinds)


FITS: dict[tuple[str, Any], list[Any]] = {
    ("u", None): [255, 7.0],
    ("k", None): [-(2**63), True],
    ("huge", None): [2**64 - 1],
    ("b", None): [True, 0, 1.0],
    ("f", None): [0.1, -0.0, 3, -INF, NAN],
    ("h", None): [65504],
    ("when", None): [np.int64(-1)],
    **{("k", "int8"): [127], ("k", "bfloat16"): [3.3e38], ("u", "int32"): [-1]},
    **{("b", "int8"): [2], ("f", "float64"): [1e300]},
}
MISFITS: dict[tuple[str, Any], list[Any]] = {
    ("u", None): [256, -1, 1.5],
    ("k", None): [2**63, -(2**63) - 1, NAN, INF, float(2**63), 10**400, 0.5],
    ("huge", None): [2**64],
    ("b", None): [2, 0.5, NAN],
    ("h", None): [65505],
    ("f", None): [1e39, 10**400],
    **{("k", "int8"): [128], ("k", "float16"): [65505], ("f", "float16"): [1e5]},
}


def each_value(cases: dict[tuple[str, Any], list[Any]]) -> pytest.MarkDecorator:
    values = [(*key, value) for key, of_key in cases.items() for value in of_key]
    return pytest.mark.parametrize(("name", "dtype", "value"), values)


@each_value(FITS)
def test_a_value_for_nulls_that_fits(path: str, name: str, dtype: Any, value: Any) -> None:
    for nulls, of_all in ((value, None), (None, value)):
        columns = {"o": Column(name, nulls=nulls, dtype=dtype)}
        (batch,) = ParquetDataset(path, batch_size=2, columns=columns, nulls=of_all)
        expected = torch.tensor(value, dtype=batch["o"].dtype)
        assert repr(batch["o"][1].item()) == repr(expected.item())


@each_value(MISFITS)
def test_a_value_for_nulls_that_does_not_fit(path: str, name: str, dtype: Any, value: Any) -> None:
    columns = {"o": Column(name, nulls=value, dtype=dtype)}
    with pytest.raises(ValueError, match=r"representable.*'o' is ") as caught:
        ParquetDataset(path, batch_size=2, columns=columns)
    assert repr(value) in str(caught.value)


POLICY = "nulls must be"
ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(({"source": source}, ValueError, "source") for source in ([], [""], ["a", "a"])),
    *(({"source": source}, TypeError, "source") for source in (1, b"a", [1], {"a"})),
    *(({"nulls": nulls}, ValueError, POLICY) for nulls in ("zero", "", "NaN")),
    *(
        ({"nulls": nulls}, TypeError, POLICY)
        for nulls in ([0], np.zeros(2), b"nan", 1j, np.datetime64("2020-01-01"))
    ),
    *(
        ({"dtype": dtype}, ValueError, r"dtype must be one of .*bfloat16")
        for dtype in ("", "float", "long", "Float32", torch.complex64, torch.float8_e5m2)
    ),
    *(
        ({"dtype": dtype}, TypeError, "dtype must be a torch dtype, its name or None")
        for dtype in (float, np.float32, np.dtype("float32"), 4, b"int8", ["int8"])
    ),
    *(({"length": n}, ValueError, "length must be (>= 1|< 2147483648)") for n in (0, -1, 2**31)),
    *(({"length": n}, TypeError, "length must be an int") for n in (True, 2.0, "2")),
    ({"default": ["a"]}, TypeError, "default must be a number"),
    ({"unit": "day"}, ValueError, "unit must be"),
    ({"unit": "s", "dtype": "int32"}, ValueError, "int64 or floats"),
    ({"vocab": []}, ValueError, "at least one word"),
    ({"vocab": "abc"}, TypeError, 'must be a sequence of str or bytes, "auto" or None'),
    ({"vocab": b"auto"}, TypeError, "must be a sequence of str or bytes"),
    ({"vocab": "auto", "decode": "image"}, ValueError, "does not go with vocab"),
    ({"vocab": "auto", "unit": "s"}, ValueError, "neither with vocab"),
    ({"vocab": {"a"}}, TypeError, "must be a sequence of str or bytes"),
    ({"vocab": ["a", 1]}, TypeError, "must hold str or bytes; got 1"),
    ({"vocab": ["a", "b", b"a"]}, ValueError, "only once; repeated: b'a'"),
    ({"vocab": ["a"], "unknown": True}, TypeError, "unknown must be an int"),
    ({"vocab": ["a"], "unknown": 1.0}, TypeError, "unknown must be an int"),
    ({"source": ["i", "j"], "nulls": {"k": 0}}, ValueError, "not among them: 'k'"),
    ({"source": "i", "nulls": {"i": 0}}, Exception, "for the columns of one tensor"),
    ({"source": ["i", "j"], "nulls": {"i": "mask"}}, Exception, "all columns of a tensor"),
    ({"source": ["i", "j"], "nulls": {"i": "none"}}, ValueError, POLICY),
    ({"source": ["i", "j"], "nulls": (1, 2)}, TypeError, POLICY),
    ({"source": [Column("i", nulls=0), "j"]}, Exception, r"nulls=\{"),
    ({"decode": "video"}, ValueError, "decode must be"),
    ({"decode": 3}, TypeError, "decode must be"),
    *((one, ValueError, "need decode") for one in ({"stack": True}, {"on_error": "flag"})),
    ({"decode": len, "on_error": "skip"}, ValueError, "on_error must be"),
    ({"decode": len, "stack": 1}, TypeError, "stack must be"),
    ({"decode": len, "nulls": "mask"}, ValueError, "decode does not go with nulls"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), ARGUMENTS)
def test_arguments_of_a_column(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Column(**{"source": "x"} | arguments)


def test_a_column_is_a_value() -> None:
    column = Column(["a", "b"], nulls=np.float32(0.5), dtype=torch.float32)  # type: ignore[arg-type]
    assert column == Column(("a", "b"), nulls=0.5, dtype="float32")
    assert column == pickle.loads(pickle.dumps(column)) == Column(["a", "b"], 0.5, "torch.float32")
    assert hash(column) == hash(Column(("a", "b"), nulls=0.5, dtype="float32"))
    assert type(column.nulls) is float


def test_the_names_of_tensors_must_be_free(path: str) -> None:
    for name in ("row.id", "row.valid"):
        with pytest.raises(ValueError, match=f"output name.*'{name}'"):
            ParquetDataset(path, batch_size=1, columns={name: "x"})
        table = pa.table({name: [1]})
        with pytest.raises(ValueError, match=f"output name.*'{name}'"):
            ParquetDataset(table, batch_size=1)
        (batch,) = ParquetDataset(table, batch_size=1, columns={"other": name})
        assert batch["other"].tolist() == [1]
    with pytest.raises(ValueError, match=r"adds the tensor.*'x\.valid'"):
        ParquetDataset(path, batch_size=1, columns=["x", "x.valid"], nulls="mask")
    columns: Any = {"x": Column("x", nulls="mask"), "v": "x.valid"}
    assert len(ParquetDataset(path, batch_size=1, columns=columns)) == 2
    table = pa.table({"x": [[1]], "x.values.valid": [True]})
    with pytest.raises(ValueError, match=r"another has that name: 'x\.values\.valid'"):
        ParquetDataset(table, batch_size=1, nulls="mask")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lable", "did you mean 'label'?"),
        ("LABEL", "did you mean 'label'?"),
        ("zzz", "there are 'label', 'y', 's.inner'"),
        ("s", "select the leaves of a nested column: 's' has 's.inner', 's.other'"),
    ],
)
def test_an_unknown_column_says_what_there_is(tmp_path: Path, name: str, hint: str) -> None:
    table = pa.table({"label": [1], "y": [1], "s": [{"inner": 1.0, "other": 2}]})
    path = write(tmp_path / "a.parquet", table)
    for columns in ([name], {"out": name}, {"out": ["y", name]}, {"out": Column(name)}):
        with pytest.raises(ValueError, match=re.escape(hint)) as caught:
            ParquetDataset(path, batch_size=1, columns=columns)
        assert type(caught.value) is ValueError
        assert repr(name) in str(caught.value)
        assert path in str(caught.value)


def test_messages_about_wide_files_are_short(tmp_path: Path) -> None:
    kinds = {"f": pa.float32(), "wide": pa.decimal256(50, 2)}
    table = pa.table({f"{k} {i}": pa.nulls(1, kinds[k]) for k in kinds for i in range(1000)})
    path = write(tmp_path / "a.parquet", table)
    with pytest.raises(ValueError, match="and 1990 more") as caught:
        ParquetDataset(path, batch_size=1, columns=["?"])
    assert len(str(caught.value)) < 500 + len(path)
    with pytest.raises(UnsupportedColumnError, match="and 990 more") as unread:
        ParquetDataset(path, batch_size=1)
    assert len(str(unread.value)) < 1000 + len(path)


def test_kinds_that_are_not_covered_are_named_with_a_way_out(path: str) -> None:
    table = pa.table({"a": [1], "wide": pa.nulls(1, pa.decimal256(50, 2)), "b": [["x"]]})
    with pytest.raises(UnsupportedColumnError, match=r"'wide' \(decimal\(50, 2\)\)") as caught:
        ParquetDataset(table, batch_size=1)
    assert isinstance(caught.value, TypeError)
    assert str(caught.value).endswith("columns=['a', 'b']")
    with pytest.raises(UnsupportedColumnError, match=r"'wide' \(") as caught:
        ParquetDataset(path, batch_size=1, columns={"o": "wide", "p": "k"})
    assert "columns=" not in str(caught.value)
    with pytest.raises(UnsupportedColumnError) as caught:
        ParquetDataset(table.select(["wide"]), batch_size=1)
    assert "columns=[" not in str(caught.value)
    (batch,) = ParquetDataset(table, batch_size=1, columns=["a", "b"])
    assert isinstance(batch["b"], Jagged)
    evil = pa.table({"a\x1b[31m\nb": pa.nulls(1, pa.decimal256(50, 2))})
    for columns in (None, ["c"]):
        with pytest.raises((ValueError, TypeError)) as shown:
            ParquetDataset(evil, batch_size=1, columns=columns)
        assert str(shown.value).isprintable()
