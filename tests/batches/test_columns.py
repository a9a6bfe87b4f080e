"""resolve_columns: from the columns argument to checked fields."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

from torchparquet._impl.batches.columns import Column, Field, resolve_columns  # type: ignore[attr-defined]
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError

DTYPES = {
    "bool": "bool",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "uint64": "uint64",
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "decimal(9, 2)": "float64",
    "timestamp[us]": "int64",
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def dtypes_of(kind: str) -> tuple[str, ...]:
    """The dtypes that a kind can be read as."""
    if kind not in DTYPES:
        return ()
    if kind == "bool":
        return ("bool", *INTEGERS, *FLOATS)
    if kind.startswith("float"):
        return FLOATS
    return ("int64", *FLOATS) if kind.startswith("decimal") else (*INTEGERS, *FLOATS)


def leaf(path: str, kind: str, nullable: bool = True) -> Leaf:
    return Leaf(path, kind, DTYPES.get(kind, ""), nullable, dtypes_of(kind))


def manifest(*schemas: list[Leaf], rows: list[int] | None = None) -> Manifest:
    """One file of one row group for each schema, 10 rows each unless told."""
    counts = np.array([10] * len(schemas) if rows is None else rows)
    numbers = np.arange(len(schemas))
    distinct = list(dict.fromkeys(tuple(schema) for schema in schemas))
    return Manifest(
        files=tuple(f"/data/{index}.parquet" for index in numbers),
        root="/data",
        file_num_bytes=np.full(len(schemas), 100),
        file_mtime_ns=np.zeros(len(schemas), dtype=np.int64),
        file_inode=numbers,
        file_digest=numbers,
        file_has_hidden_columns=np.zeros(len(schemas), dtype=np.int64),
        file_num_rows=counts,
        file_schema=np.array([distinct.index(tuple(schema)) for schema in schemas]),
        schemas=tuple(distinct),
        row_group_file=numbers,
        row_group_in_file=np.zeros(len(schemas), dtype=np.int64),
        row_group_num_rows=counts,
        row_group_num_bytes=np.full(len(schemas), 90),
        row_group_first_row=np.cumsum(counts) - counts,
        fingerprint="0" * 32,
    )


WIDE = manifest(
    [
        leaf("label", "int64"),
        leaf("x", "float32"),
        leaf("y", "float32"),
        leaf("flag", "bool"),
        leaf("when", "timestamp[us]"),
        leaf("s.inner", "float64"),
        leaf("s.other", "int32", nullable=False),
        leaf("byte", "uint8"),
        leaf("half", "float16"),
        leaf("huge", "uint64"),
    ]
)


def same(field: Field, expected: Field) -> bool:
    """Equality that takes NaN for NaN and tells True from 1."""
    return repr(field) == repr(expected)


# Selection


def test_none_takes_every_column_in_file_order() -> None:
    fields = resolve_columns(None, WIDE)
    paths = [leaf.path for leaf in WIDE.schemas[0]]
    assert [field.name for field in fields] == paths
    assert [field.sources for field in fields] == [(path,) for path in paths]
    assert [field.dtype for field in fields] == [leaf.dtype for leaf in WIDE.schemas[0]]
    assert {field.width for field in fields} == {None}


@pytest.mark.parametrize("as_type", [list, tuple])
def test_sequence_keeps_its_order_and_names(as_type: Any) -> None:
    label, inner = resolve_columns(as_type(["label", "s.inner"]), WIDE)
    assert same(label, Field("label", ("label",), (("int64",),), "int64", None, "error", 0))
    assert same(
        inner, Field("s.inner", ("s.inner",), (("float64",),), "float64", None, "fill", math.nan)
    )


def test_mapping_renames_groups_and_configures() -> None:
    fields = resolve_columns(
        {
            "target": "label",
            "features": ["y", "x"],
            "one": ["x"],
            "filled": Column("label", nulls=-1),
            "masked": Column(("x", "y"), nulls="mask"),
        },
        WIDE,
    )
    two_floats = (("float32",), ("float32",))
    expected = [
        Field("target", ("label",), (("int64",),), "int64", None, "error", 0),
        Field("features", ("y", "x"), two_floats, "float32", 2, "fill", math.nan),
        Field("one", ("x",), (("float32",),), "float32", 1, "fill", math.nan),
        Field("filled", ("label",), (("int64",),), "int64", None, "fill", -1),
        Field("masked", ("x", "y"), two_floats, "float32", 2, "mask", 0.0),
    ]
    assert [repr(field) for field in fields] == [repr(field) for field in expected]


def test_group_may_join_kinds_of_one_dtype() -> None:
    (field,) = resolve_columns({"t": ["when", "label"]}, WIDE)
    assert (field.dtype, field.width) == ("int64", 2)


def test_group_of_two_dtypes_names_them() -> None:
    with pytest.raises(
        ValueError, match=r"same dtype, .*dtype=.*'f' has 'x' float32, 'label' int64"
    ):
        resolve_columns({"f": ["x", "label"]}, WIDE)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lable", "did you mean 'label'?"),
        ("LABEL", "did you mean 'label'?"),
        ("zzz", "there are 'label', 'x', 'y'"),
        ("s", "select the leaves of a nested column: 's' has 's.inner', 's.other'"),
    ],
)
def test_unknown_column_says_what_there_is(name: str, hint: str) -> None:
    for columns in ([name], {"out": name}, {"out": ["x", name]}, {"out": Column(name)}):
        with pytest.raises(ValueError, match=re.escape(hint)) as caught:
            resolve_columns(columns, WIDE)
        assert type(caught.value) is ValueError
        assert repr(name) in str(caught.value)
        assert "/data/0.parquet" in str(caught.value)


def test_unknown_column_of_a_wide_file_lists_a_few() -> None:
    wide = manifest([leaf(f"feature_{index}", "float32") for index in range(5000)])
    with pytest.raises(ValueError, match="and 4990 more") as caught:
        resolve_columns(["?"], wide)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("columns", [["x", "y", "x"], {"f": ["x", "y", "x"]}])
def test_column_twice_is_an_error(columns: dict[str, Any] | list[str]) -> None:
    with pytest.raises(ValueError, match="only once; repeated: 'x'"):
        resolve_columns(columns, WIDE)


def test_two_tensors_may_share_a_column() -> None:
    fields = resolve_columns({"a": "x", "b": ["x", "y"]}, WIDE)
    assert [field.sources for field in fields] == [("x",), ("x", "y")]


def test_repeated_name_in_the_file_fails_only_when_selected() -> None:
    twice = manifest([leaf("a", "int32"), leaf("b", "int32"), leaf("a", "float64")])
    assert resolve_columns(["b"], twice)[0].dtype == "int32"
    with pytest.warns(UserWarning, match="'a'"):
        assert [field.name for field in resolve_columns(None, twice)] == ["b"]
    for columns in (["a"], {"o": ["b", "a"]}):
        with pytest.raises(ValueError, match=r"'a' stands for several in '/data/0\.parquet'"):
            resolve_columns(columns, twice)


def test_repeated_name_in_a_later_file_is_found() -> None:
    files = manifest(
        [leaf("a", "int32")], [leaf("a", "int32"), leaf("a", "int32")], [leaf("a", "int32")]
    )
    with pytest.raises(ValueError, match=r"'a' stands for several in '/data/1\.parquet'"):
        resolve_columns(["a"], files)


# Wrong arguments


@pytest.mark.parametrize(
    "columns", [[], (), {}, {"f": []}, [""], {"": "x"}, {"f": [""]}, {"f": ["x", ""]}]
)
def test_empty_selection_or_name_is_a_value_error(columns: Any) -> None:
    with pytest.raises(ValueError, match=r"columns|source"):
        resolve_columns(columns, WIDE)


@pytest.mark.parametrize(
    "columns",
    ["x", b"x", {"x"}, 3, [1], [None], [["x"]], {"f": 1}, {"f": None}, {"f": {"x"}}, {3: "x"}],
)
def test_wrong_type_is_a_type_error(columns: Any) -> None:
    with pytest.raises(TypeError, match="columns"):
        resolve_columns(columns, WIDE)


@pytest.mark.parametrize("source", [[], [""], ["a", "a"]])
def test_column_checks_its_source(source: list[Any]) -> None:
    with pytest.raises(ValueError, match="source"):
        Column(source)


@pytest.mark.parametrize("source", [1, b"a", [1], {"a"}])
def test_column_checks_the_type_of_its_source(source: Any) -> None:
    with pytest.raises(TypeError, match="source"):
        Column(source)


def test_column_is_a_value() -> None:
    column = Column(["a", "b"], nulls=np.float32(0.5))  # type: ignore[arg-type]
    assert column == Column(("a", "b"), nulls=0.5)
    assert hash(column) == hash(Column(("a", "b"), nulls=0.5))
    assert type(column.nulls) is float
    assert pickle.loads(pickle.dumps(column)) == column
    assert column.sources == ("a", "b")
    assert Column("a").sources == ("a",)


def test_mapping_errors_name_the_output() -> None:
    with pytest.raises(ValueError, match=r"columns\['features'\]: .*repeated: 'x'"):
        resolve_columns({"ok": "y", "features": ["x", "x"]}, WIDE)


# Nulls


def test_default_is_nan_for_floats_and_error_for_the_rest() -> None:
    for field in resolve_columns(None, WIDE):
        if field.dtype.startswith("float"):
            assert field.nulls == "fill"
            assert math.isnan(field.fill)
        else:
            assert (field.nulls, field.fill) == ("error", 0)
        assert type(field.fill) is {"b": bool, "f": float}.get(np.dtype(field.dtype).kind, int)


def test_data_set_nulls_stand_in_for_a_column_without_its_own() -> None:
    a, b, c = resolve_columns(
        {"a": "x", "b": Column("label"), "c": Column("label", nulls="error")}, WIDE, nulls="mask"
    )
    assert (a.nulls, a.fill, b.nulls, b.fill) == ("mask", 0.0, "mask", 0)
    assert c.nulls == "error"
    (x,) = resolve_columns(["x"], WIDE, nulls="error")
    assert x.nulls == "error"


@pytest.mark.parametrize("name", ["label", "flag", "when"])
def test_nan_needs_a_float(name: str) -> None:
    for columns, nulls in (({"o": Column(name, nulls="nan")}, None), ({"o": name}, "nan")):
        with pytest.raises(ValueError, match=r"needs a float column.*'o' is (int64|bool)"):
            resolve_columns(columns, WIDE, nulls)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("byte", 255, 255),
        ("byte", 7.0, 7),
        ("label", -(2**63), -(2**63)),
        ("label", True, 1),
        ("huge", 2**64 - 1, 2**64 - 1),
        ("flag", True, True),
        ("flag", 0, False),
        ("flag", 1.0, True),
        ("x", 0.1, 0.1),
        ("x", 3, 3.0),
        ("x", -math.inf, -math.inf),
        ("x", math.nan, math.nan),
        ("half", 65504, 65504.0),
        ("when", np.int64(-1), -1),
    ],
)
def test_fill_that_fits(name: str, value: Any, expected: Any) -> None:
    for columns, nulls in (({name: Column(name, nulls=value)}, None), ([name], value)):
        (field,) = resolve_columns(columns, WIDE, nulls)
        assert field.nulls == "fill"
        assert repr(field.fill) == repr(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("byte", 256),
        ("byte", -1),
        ("byte", 1.5),
        ("label", 2**63),
        ("label", -(2**63) - 1),
        ("label", math.nan),
        ("label", math.inf),
        ("label", float(2**63)),
        ("huge", 2**64),
        ("flag", 2),
        ("flag", 0.5),
        ("flag", math.nan),
        ("half", 65505),
        ("x", 1e39),
        ("x", 10**400),
        ("label", 10**400),
    ],
)
def test_fill_that_does_not_fit(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"representable.*'{name}' is ") as caught:
        resolve_columns({name: Column(name, nulls=value)}, WIDE)
    assert repr(value) in str(caught.value)


def test_unknown_null_policy() -> None:
    for build in (lambda n: Column("x", nulls=n), lambda n: resolve_columns(["x"], WIDE, nulls=n)):
        for wrong in ("zero", "", "NaN"):
            with pytest.raises(ValueError, match="nulls must be"):
                build(wrong)
        for wrong in ([0], np.zeros(2), b"nan", 1j, np.datetime64("2020-01-01")):  # type: ignore[assignment]
            with pytest.raises(TypeError, match="nulls must be"):
                build(wrong)


# Output names


@pytest.mark.parametrize("name", ["row.id", "row.valid"])
def test_reserved_output_names(name: str) -> None:
    with pytest.raises(ValueError, match=f"output name.*'{name}'"):
        resolve_columns({name: "x"}, WIDE)
    files = manifest([leaf(name, "int64")])
    with pytest.raises(ValueError, match=f"output name.*'{name}'"):
        resolve_columns(None, files)
    assert resolve_columns({"other": name}, files)[0].sources == (name,)


def test_mask_name_must_be_free() -> None:
    files = manifest([leaf("x", "float32"), leaf("x.valid", "bool")])
    assert len(resolve_columns(None, files)) == 2
    with pytest.raises(ValueError, match=r"adds the tensor.*'x\.valid'"):
        resolve_columns(None, files, nulls="mask")
    assert len(resolve_columns({"x": Column("x", nulls="mask"), "v": "x.valid"}, files)) == 2


# Dtypes


@pytest.mark.parametrize("dtype", [torch.float32, "float32", "torch.float32"])
def test_dtype_is_kept_as_its_name(dtype: Any) -> None:
    column = Column("label", dtype=dtype)
    assert column.dtype == "float32"
    assert column == Column("label", dtype="float32")
    assert pickle.loads(pickle.dumps(column)) == column


@pytest.mark.parametrize(
    "dtype",
    ["", "float", "int", "long", "Float32", "float8_e5m2", torch.complex64, torch.float8_e5m2],
)
def test_unknown_dtype(dtype: Any) -> None:
    with pytest.raises(ValueError, match=r"dtype must be one of .*bfloat16"):
        Column("x", dtype=dtype)


@pytest.mark.parametrize("dtype", [float, np.float32, np.dtype("float32"), 4, b"int8", ["int8"]])
def test_dtype_of_a_wrong_type(dtype: Any) -> None:
    with pytest.raises(TypeError, match="dtype must be a torch dtype, its name or None"):
        Column("x", dtype=dtype)


def test_dtype_decides_the_null_policy() -> None:
    columns = {
        "f": Column("label", dtype=torch.bfloat16),
        "i": Column("flag", dtype=torch.uint8),
        "x": Column("x", dtype="float16"),
        "m": Column("flag", nulls="mask", dtype="int64"),
        "n": Column("label", nulls="nan", dtype="float64"),
    }
    expected = [
        Field("f", ("label",), (("int64",),), "bfloat16", None, "fill", math.nan),
        Field("i", ("flag",), (("bool",),), "uint8", None, "error", 0),
        Field("x", ("x",), (("float32",),), "float16", None, "fill", math.nan),
        Field("m", ("flag",), (("bool",),), "int64", None, "mask", 0),
        Field("n", ("label",), (("int64",),), "float64", None, "fill", math.nan),
    ]
    fields = resolve_columns(columns, WIDE)
    assert [repr(field) for field in fields] == [repr(field) for field in expected]


@pytest.mark.parametrize(
    ("name", "dtype", "value", "fits"),
    [
        ("label", "int8", 127, True),
        ("label", "int8", 128, False),
        ("label", "bfloat16", 3.3e38, True),
        ("label", "float16", 65505, False),
        ("byte", "int32", -1, True),
        ("flag", "int8", 2, True),
        ("x", "float16", 1e5, False),
        ("x", "float64", 1e300, True),
    ],
)
def test_fill_is_checked_against_the_dtype(name: str, dtype: str, value: float, fits: bool) -> None:
    column = Column(name, nulls=value, dtype=dtype)
    if fits:
        (field,) = resolve_columns({"o": column}, WIDE)
        assert (field.fill, field.dtype) == (value, dtype)
    else:
        with pytest.raises(ValueError, match=f"representable.*'o' is {dtype}"):
            resolve_columns({"o": column}, WIDE)


def test_nan_for_a_float_read_as_a_float_only() -> None:
    with pytest.raises(ValueError, match=r"needs a float column.*'o' is int32"):
        resolve_columns({"o": Column("label", nulls="nan", dtype="int32")}, WIDE)


def test_group_of_several_kinds_by_one_dtype() -> None:
    column = Column(["x", "label", "flag", "half"], dtype="float32")
    (field,) = resolve_columns({"f": column}, WIDE)
    assert (field.dtype, field.width, field.nulls) == ("float32", 4, "fill")
    assert field.kinds == (("float32",), ("int64",), ("bool",), ("float16",))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("x", "int64"), ("half", "uint8"), ("x", "bool"), ("label", "bool"), ("when", "bool")],
)
def test_dtype_that_a_kind_cannot_become(name: str, dtype: str) -> None:
    for source in (name, [name], ["flag", name]):
        with pytest.raises(UnsupportedColumnError) as caught:
            resolve_columns({"o": Column(source, dtype=dtype)}, WIDE)
        for part in (repr(name), f"cannot be read as {dtype}, but as", "/data/0.parquet"):
            assert part in str(caught.value)


def test_uncovered_column_stays_so_whatever_its_dtype() -> None:
    files = manifest([leaf("t", "string")])
    with pytest.raises(UnsupportedColumnError, match=r"'t' \(string\)"):
        resolve_columns({"o": Column("t", dtype="float32")}, files)


# Columns that cannot be read yet


def test_uncovered_column_says_what_to_do() -> None:
    files = manifest([leaf("a", "int32"), leaf("t", "string"), leaf("d", "decimal(40, 2)")])
    with pytest.raises(UnsupportedColumnError) as caught:
        resolve_columns(None, files)
    message = str(caught.value)
    assert "'t' (string), 'd' (decimal(40, 2))" in message
    assert message.endswith("columns=['a']")
    assert resolve_columns(["a"], files)[0].name == "a"
    with pytest.raises(UnsupportedColumnError, match=r"'t' \(string\)") as caught:
        resolve_columns({"o": "t", "p": "a"}, files)
    assert "columns=" not in str(caught.value)


def test_uncovered_column_of_a_wide_file_keeps_the_message_short() -> None:
    wide = [leaf(f"feature_{index}", "float32") for index in range(5000)]
    wide += [leaf(f"text_{index}", "string") for index in range(5000)]
    with pytest.raises(UnsupportedColumnError, match="and 4990 more") as caught:
        resolve_columns(None, manifest(wide))
    assert len(str(caught.value)) < 1000


def test_file_of_uncovered_columns_gets_no_empty_suggestion() -> None:
    with pytest.raises(UnsupportedColumnError) as caught:
        resolve_columns(None, manifest([leaf("t", "string")]))
    assert "columns=[" not in str(caught.value)


# Files that disagree


def test_order_nullability_and_unselected_columns_may_differ() -> None:
    files = manifest(
        [leaf("a", "int32"), leaf("b", "float32"), leaf("c", "int8")],
        [leaf("b", "float32", nullable=False), leaf("a", "int32"), leaf("c", "float64")],
        [leaf("d", "string"), leaf("a", "int32", nullable=False), leaf("b", "float32")],
    )
    assert [field.dtype for field in resolve_columns(["b", "a"], files)] == ["float32", "int32"]
    reordered = manifest(*([leaf(name, "int32") for name in order] for order in ("ab", "ba")))
    assert [field.name for field in resolve_columns(None, reordered)] == ["a", "b"]


def test_different_kind_names_both_files() -> None:
    files = manifest(
        [leaf("a", "int64"), leaf("b", "float32")],
        [leaf("b", "float32"), leaf("a", "int64")],
        [leaf("a", "timestamp[us]"), leaf("b", "float32")],
    )
    for columns in (None, ["a"], {"o": Column(["b", "a"])}):
        with pytest.raises(SchemaMismatchError) as caught:
            resolve_columns(columns, files)
        message = str(caught.value)
        assert "column 'a' (no dtype reads both" in message
        assert "int64 in '/data/0.parquet', timestamp[us] in '/data/2.parquet'" in message


def test_kind_that_is_covered_in_one_file_only_is_a_mismatch() -> None:
    files = manifest([leaf("a", "string")], [leaf("a", "int64")])
    with pytest.raises(SchemaMismatchError, match="string in"):
        resolve_columns(["a"], files)


def test_kinds_may_differ_where_a_dtype_is_given() -> None:
    kinds = ["int32", "int64", "float32", "int32", "bool", "decimal(9, 2)"]
    files = manifest(*([leaf("a", kind), leaf("b", "int8")] for kind in kinds))
    columns = {"o": Column(["a", "b"], dtype="float32"), "p": Column("b", dtype=torch.int8)}
    both, single = resolve_columns(columns, files)
    distinct = ("int32", "int64", "float32", "bool", "decimal(9, 2)")
    assert both.kinds == (distinct, ("int8",))
    assert (both.dtype, single.dtype) == ("float32", "int8")
    assert single.kinds == (("int8",),)
    # Without a dtype of its own a tensor of the same column still disagrees.
    with pytest.raises(SchemaMismatchError, match=r"int32 in '/data/0\.parquet', int64 in"):
        resolve_columns({**columns, "q": "a"}, files)


def test_kind_of_one_file_that_cannot_become_the_dtype_names_the_file() -> None:
    files = manifest([leaf("a", "int32")], [leaf("a", "int64")], [leaf("a", "float32")])
    with pytest.raises((SchemaMismatchError, UnsupportedColumnError)) as caught:
        resolve_columns({"o": Column("a", dtype="int64")}, files)
    for part in ("'a'", "float32", "int64", "/data/2.parquet"):
        assert part in str(caught.value)


@pytest.mark.parametrize("order", [1, -1])
def test_kind_that_is_uncovered_in_one_file_only_fails_whatever_the_dtype(order: int) -> None:
    files = manifest(*[[leaf("a", "int64")], [leaf("a", "string")]][::order])
    with pytest.raises((SchemaMismatchError, UnsupportedColumnError), match="string"):
        resolve_columns({"o": Column("a", dtype="float32")}, files)


@pytest.mark.parametrize("missing_in", [0, 1])
def test_missing_column_names_both_files(missing_in: int) -> None:
    schemas = [[leaf("a", "int64"), leaf("b", "float32")]] * 2
    schemas[missing_in] = [leaf("a", "int64")]
    files = manifest(*schemas)
    expected = f"'b': present in '/data/{1 - missing_in}.parquet', missing in '/data/{missing_in}"
    for columns in (None, ["b"]):
        with pytest.raises(SchemaMismatchError, match=re.escape(expected)):
            resolve_columns(columns, files)
    assert len(resolve_columns(["a"], files)) == 1


def test_files_without_rows_have_no_say() -> None:
    full = [leaf("a", "int64"), leaf("b", "float32")]
    files = manifest([leaf("a", "null")], full, [leaf("z", "string")], full, rows=[0, 5, 0, 5])
    assert [field.name for field in resolve_columns(None, files)] == ["a", "b"]
    files = manifest(full[::-1], full, full[::-1], rows=[0, 5, 5])
    assert [field.name for field in resolve_columns(None, files)] == ["a", "b"]
    files = manifest([leaf("a", "string")], full, rows=[1, 5])
    with pytest.raises(SchemaMismatchError):
        resolve_columns(["a"], files)


def test_names_from_a_file_are_shown_printable() -> None:
    files = manifest([leaf("a\x1b[31m\nb", "string")])
    for columns in (None, ["c"]):
        with pytest.raises((ValueError, TypeError)) as caught:
            resolve_columns(columns, files)
        assert str(caught.value).isprintable()
