"""resolve_columns: from the columns argument to checked fields."""

from __future__ import annotations

import math
import pickle
import re

import numpy as np
import pytest

from torchparquet.columns import Column, Field, resolve_columns
from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError
from torchparquet.manifest import Leaf, Manifest

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
    "timestamp[us]": "int64",
}


def leaf(path: str, kind: str, nullable: bool = True) -> Leaf:
    return Leaf(path, kind, DTYPES.get(kind, ""), nullable)


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


def test_none_takes_every_column_in_file_order():
    fields = resolve_columns(None, WIDE)
    paths = [leaf.path for leaf in WIDE.schemas[0]]
    assert [field.name for field in fields] == paths
    assert [field.sources for field in fields] == [(path,) for path in paths]
    assert [field.dtype for field in fields] == [leaf.dtype for leaf in WIDE.schemas[0]]
    assert {field.width for field in fields} == {None}


@pytest.mark.parametrize("as_type", [list, tuple])
def test_sequence_keeps_its_order_and_names(as_type):
    label, inner = resolve_columns(as_type(["label", "s.inner"]), WIDE)
    assert same(label, Field("label", ("label",), ("int64",), "int64", None, "error", 0))
    assert same(
        inner, Field("s.inner", ("s.inner",), ("float64",), "float64", None, "fill", math.nan)
    )


def test_mapping_renames_groups_and_configures():
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
    expected = [
        Field("target", ("label",), ("int64",), "int64", None, "error", 0),
        Field("features", ("y", "x"), ("float32", "float32"), "float32", 2, "fill", math.nan),
        Field("one", ("x",), ("float32",), "float32", 1, "fill", math.nan),
        Field("filled", ("label",), ("int64",), "int64", None, "fill", -1),
        Field("masked", ("x", "y"), ("float32", "float32"), "float32", 2, "mask", 0.0),
    ]
    assert [repr(field) for field in fields] == [repr(field) for field in expected]


def test_group_may_join_kinds_of_one_dtype():
    (field,) = resolve_columns({"t": ["when", "label"]}, WIDE)
    assert (field.dtype, field.width) == ("int64", 2)


def test_group_of_two_dtypes_names_them():
    with pytest.raises(ValueError, match="same dtype; 'f' has 'x' float32, 'label' int64"):
        resolve_columns({"f": ["x", "label"]}, WIDE)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("lable", "did you mean 'label'?"),
        ("LABEL", "did you mean 'label'?"),
        ("zzz", "there are 'label', 'x', 'y'"),
        ("s", "selected by its leaves: 's' has 's.inner', 's.other'"),
    ],
)
def test_unknown_column_says_what_there_is(name, hint):
    for columns in ([name], {"out": name}, {"out": ["x", name]}, {"out": Column(name)}):
        with pytest.raises(ValueError, match=re.escape(hint)) as caught:
            resolve_columns(columns, WIDE)
        assert type(caught.value) is ValueError
        assert repr(name) in str(caught.value)
        assert "/data/0.parquet" in str(caught.value)


def test_unknown_column_of_a_wide_file_lists_a_few():
    wide = manifest([leaf(f"feature_{index}", "float32") for index in range(5000)])
    with pytest.raises(ValueError, match="and 4990 more") as caught:
        resolve_columns(["?"], wide)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("columns", [["x", "y", "x"], {"f": ["x", "y", "x"]}])
def test_column_twice_is_an_error(columns):
    with pytest.raises(ValueError, match="only once; repeated: 'x'"):
        resolve_columns(columns, WIDE)


def test_two_tensors_may_share_a_column():
    fields = resolve_columns({"a": "x", "b": ["x", "y"]}, WIDE)
    assert [field.sources for field in fields] == [("x",), ("x", "y")]


def test_repeated_name_in_the_file_fails_only_when_selected():
    twice = manifest([leaf("a", "int32"), leaf("b", "int32"), leaf("a", "float64")])
    assert resolve_columns(["b"], twice)[0].dtype == "int32"
    for columns in (None, ["a"], {"o": ["b", "a"]}):
        with pytest.raises(ValueError, match=r"'a' stands for several in '/data/0\.parquet'"):
            resolve_columns(columns, twice)


def test_repeated_name_in_a_later_file_is_found():
    files = manifest(
        [leaf("a", "int32")], [leaf("a", "int32"), leaf("a", "int32")], [leaf("a", "int32")]
    )
    with pytest.raises(ValueError, match=r"'a' stands for several in '/data/1\.parquet'"):
        resolve_columns(["a"], files)


# Wrong arguments


@pytest.mark.parametrize(
    "columns", [[], (), {}, {"f": []}, [""], {"f": ""}, {"": "x"}, {"f": [""]}, {"f": ["x", ""]}]
)
def test_empty_selection_or_name_is_a_value_error(columns):
    with pytest.raises(ValueError, match=r"columns|source"):
        resolve_columns(columns, WIDE)


@pytest.mark.parametrize(
    "columns",
    ["x", b"x", {"x"}, 3, [1], [None], [["x"]], {"f": 1}, {"f": None}, {"f": {"x"}}, {3: "x"}],
)
def test_wrong_type_is_a_type_error(columns):
    with pytest.raises(TypeError, match="columns"):
        resolve_columns(columns, WIDE)


@pytest.mark.parametrize("source", ["", [], [""], ["a", "a"]])
def test_column_checks_its_source(source):
    with pytest.raises(ValueError, match="source"):
        Column(source)


@pytest.mark.parametrize("source", [None, 1, b"a", [1], {"a"}])
def test_column_checks_the_type_of_its_source(source):
    with pytest.raises(TypeError, match="source"):
        Column(source)


def test_column_is_a_value():
    column = Column(["a", "b"], nulls=np.float32(0.5))
    assert column == Column(("a", "b"), nulls=0.5)
    assert hash(column) == hash(Column(("a", "b"), nulls=0.5))
    assert type(column.nulls) is float
    assert pickle.loads(pickle.dumps(column)) == column
    assert column.sources == ("a", "b")
    assert Column("a").sources == ("a",)


def test_mapping_errors_name_the_output():
    with pytest.raises(ValueError, match=r"columns\['features'\]: .*repeated: 'x'"):
        resolve_columns({"ok": "y", "features": ["x", "x"]}, WIDE)


# Nulls


def test_default_is_nan_for_floats_and_error_for_the_rest():
    for field in resolve_columns(None, WIDE):
        if field.dtype.startswith("float"):
            assert field.nulls == "fill"
            assert math.isnan(field.fill)
        else:
            assert (field.nulls, field.fill) == ("error", 0)
        assert type(field.fill) is {"b": bool, "f": float}.get(np.dtype(field.dtype).kind, int)


def test_data_set_nulls_stand_in_for_a_column_without_its_own():
    a, b, c = resolve_columns(
        {"a": "x", "b": Column("label"), "c": Column("label", nulls="error")}, WIDE, nulls="mask"
    )
    assert (a.nulls, a.fill, b.nulls, b.fill) == ("mask", 0.0, "mask", 0)
    assert c.nulls == "error"
    (x,) = resolve_columns(["x"], WIDE, nulls="error")
    assert x.nulls == "error"


@pytest.mark.parametrize("name", ["label", "flag", "when"])
def test_nan_needs_a_float(name):
    for columns, nulls in (({"o": Column(name, nulls="nan")}, None), ({"o": name}, "nan")):
        with pytest.raises(ValueError, match=r"needs a float column.*'o' is (int64|bool)"):
            resolve_columns(columns, WIDE, nulls)


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
def test_fill_that_fits(name, value, expected):
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
def test_fill_that_does_not_fit(name, value):
    with pytest.raises(ValueError, match=f"representable.*'{name}' is ") as caught:
        resolve_columns({name: Column(name, nulls=value)}, WIDE)
    assert repr(value) in str(caught.value)


def test_unknown_null_policy():
    for build in (lambda n: Column("x", nulls=n), lambda n: resolve_columns(["x"], WIDE, nulls=n)):
        for wrong in ("zero", "", "NaN"):
            with pytest.raises(ValueError, match="nulls must be"):
                build(wrong)
        for wrong in ([0], np.zeros(2), b"nan", 1j, np.datetime64("2020-01-01")):
            with pytest.raises(TypeError, match="nulls must be"):
                build(wrong)


# Output names


@pytest.mark.parametrize("name", ["row.id", "row.valid"])
def test_reserved_output_names(name):
    with pytest.raises(ValueError, match=f"output name.*'{name}'"):
        resolve_columns({name: "x"}, WIDE)
    files = manifest([leaf(name, "int64")])
    with pytest.raises(ValueError, match=f"output name.*'{name}'"):
        resolve_columns(None, files)
    assert resolve_columns({"other": name}, files)[0].sources == (name,)


def test_mask_name_must_be_free():
    files = manifest([leaf("x", "float32"), leaf("x.valid", "bool")])
    assert len(resolve_columns(None, files)) == 2
    with pytest.raises(ValueError, match=r"adds the tensor.*'x\.valid'"):
        resolve_columns(None, files, nulls="mask")
    assert len(resolve_columns({"x": Column("x", nulls="mask"), "v": "x.valid"}, files)) == 2


# Columns that cannot be read yet


def test_uncovered_column_says_what_to_do():
    files = manifest([leaf("a", "int32"), leaf("t", "string"), leaf("d", "decimal(9, 2)")])
    with pytest.raises(UnsupportedColumnError) as caught:
        resolve_columns(None, files)
    message = str(caught.value)
    assert "'t' (string), 'd' (decimal(9, 2))" in message
    assert "integers" in message
    assert message.endswith("columns=['a']")
    assert resolve_columns(["a"], files)[0].name == "a"
    with pytest.raises(UnsupportedColumnError, match=r"'t' \(string\)") as caught:
        resolve_columns({"o": "t", "p": "a"}, files)
    assert "columns=" not in str(caught.value)


def test_uncovered_column_of_a_wide_file_keeps_the_message_short():
    wide = [leaf(f"feature_{index}", "float32") for index in range(5000)]
    wide += [leaf(f"text_{index}", "string") for index in range(5000)]
    with pytest.raises(UnsupportedColumnError, match="and 4990 more") as caught:
        resolve_columns(None, manifest(wide))
    assert len(str(caught.value)) < 1000


def test_file_of_uncovered_columns_gets_no_empty_suggestion():
    with pytest.raises(UnsupportedColumnError) as caught:
        resolve_columns(None, manifest([leaf("t", "string")]))
    assert "columns=[" not in str(caught.value)


# Files that disagree


def test_order_nullability_and_unselected_columns_may_differ():
    files = manifest(
        [leaf("a", "int32"), leaf("b", "float32"), leaf("c", "int8")],
        [leaf("b", "float32", nullable=False), leaf("a", "int32"), leaf("c", "float64")],
        [leaf("d", "string"), leaf("a", "int32", nullable=False), leaf("b", "float32")],
    )
    assert [field.dtype for field in resolve_columns(["b", "a"], files)] == ["float32", "int32"]
    reordered = manifest(*([leaf(name, "int32") for name in order] for order in ("ab", "ba")))
    assert [field.name for field in resolve_columns(None, reordered)] == ["a", "b"]


def test_different_kind_names_both_files():
    files = manifest(
        [leaf("a", "int64"), leaf("b", "float32")],
        [leaf("b", "float32"), leaf("a", "int64")],
        [leaf("a", "timestamp[us]"), leaf("b", "float32")],
    )
    for columns in (None, ["a"], {"o": Column(["b", "a"])}):
        with pytest.raises(SchemaMismatchError) as caught:
            resolve_columns(columns, files)
        message = str(caught.value)
        assert "'a': int64 in '/data/0.parquet', timestamp[us] in '/data/2.parquet'" in message


def test_kind_that_is_covered_in_one_file_only_is_a_mismatch():
    files = manifest([leaf("a", "string")], [leaf("a", "int64")])
    with pytest.raises(SchemaMismatchError, match="string in"):
        resolve_columns(["a"], files)


@pytest.mark.parametrize("missing_in", [0, 1])
def test_missing_column_names_both_files(missing_in):
    schemas = [[leaf("a", "int64"), leaf("b", "float32")]] * 2
    schemas[missing_in] = [leaf("a", "int64")]
    files = manifest(*schemas)
    expected = f"'b': present in '/data/{1 - missing_in}.parquet', missing in '/data/{missing_in}"
    for columns in (None, ["b"]):
        with pytest.raises(SchemaMismatchError, match=re.escape(expected)):
            resolve_columns(columns, files)
    assert len(resolve_columns(["a"], files)) == 1


def test_files_without_rows_have_no_say():
    full = [leaf("a", "int64"), leaf("b", "float32")]
    files = manifest([leaf("a", "null")], full, [leaf("z", "string")], full, rows=[0, 5, 0, 5])
    assert [field.name for field in resolve_columns(None, files)] == ["a", "b"]
    files = manifest(full[::-1], full, full[::-1], rows=[0, 5, 5])
    assert [field.name for field in resolve_columns(None, files)] == ["a", "b"]
    files = manifest([leaf("a", "null")], full, rows=[1, 5])
    with pytest.raises(SchemaMismatchError):
        resolve_columns(["a"], files)


def test_names_from_a_file_are_shown_printable():
    files = manifest([leaf("a\x1b[31m\nb", "string")])
    for columns in (None, ["c"]):
        with pytest.raises((ValueError, TypeError)) as caught:
            resolve_columns(columns, files)
        assert str(caught.value).isprintable()
