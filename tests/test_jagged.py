"""Jagged: what users make of it, against rows that are plain Python lists."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given
from torch.nn import functional
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, IterableDataset

from torchparquet import Jagged

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
DTYPES = (torch.bool, *SIGNED, *UNSIGNED, *FLOATS)


# The reference: rows as lists, and two tensors laid out by hand.


def elements(dtype: torch.dtype) -> st.SearchStrategy:
    """Python values that the dtype holds exactly, its limits too."""
    if dtype == torch.bool:
        return st.booleans()
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        extremes = (limits.min, limits.max, math.inf, -math.inf)
        return st.integers(-128, 128).map(lambda n: n / 4) | st.sampled_from(extremes)
    limits = torch.iinfo(dtype)  # type: ignore[assignment]
    return st.integers(limits.min, limits.max)  # type: ignore[arg-type]


@st.composite
def numbers(draw: Any, dtypes: Any = DTYPES, levels: int = 1) -> Any:
    """Rows and the same as a Jagged, which may be a stretch amid other rows at every level."""
    dtype = draw(st.sampled_from(dtypes))
    rows_of = elements(dtype)
    for _ in range(levels + 1):
        rows_of = st.lists(rows_of, max_size=5)
    return draw(rows_of), dtype, draw(rows_of), draw(rows_of)


def laid_out(case: Any) -> tuple[list[Any], Jagged]:
    rows, dtype, before, after = case
    return rows, stretch(rows, before, after, dtype)


def stretch(rows: list[Any], before: list[Any], after: list[Any], dtype: torch.dtype) -> Jagged:
    """The rows, after and before others that do not count."""
    ends = list(accumulate(map(len, before + rows + after), initial=0))
    offsets = torch.tensor(ends[len(before) : len(before) + len(rows) + 1])
    items = [item for row in before + rows + after for item in row]
    if any(isinstance(item, list) for item in items):
        return Jagged(stretch(items, [], [], dtype), offsets)
    return Jagged(torch.tensor(items, dtype=dtype), offsets)


def parts(jagged: Any) -> list[torch.Tensor]:
    """Values and offsets of all levels, the innermost first."""
    inner = parts(jagged.values) if isinstance(jagged.values, Jagged) else [jagged.values]
    return [*inner, jagged.offsets]


def padded(rows: list[Any], width: int, value: Any, truncate: str) -> list[Any]:
    result = []
    for row in rows:
        kept = row[:width] if truncate == "right" else row[max(len(row) - width, 0) :]
        result.append(kept + [value] * (width - len(kept)))
    return result


def bytes_of(texts: list[Any]) -> list[Any]:
    return [bytes_of(item) if isinstance(item, list) else item.encode() for item in texts]


def strings(rows: Any, before: bytes = b"") -> Jagged:
    raw = [row.encode() if isinstance(row, str) else row for row in rows]
    ends = list(accumulate(map(len, raw), initial=len(before)))
    values = np.frombuffer(before + b"".join(raw) + b"\xffafter", np.uint8)
    return Jagged(torch.tensor(values), torch.tensor(ends))


def lists_of_strings(rows: Any, before: int = 0) -> Jagged:
    """Before them `before` strings that belong to no row."""
    items = [b"\xff"] * before + [item for row in rows for item in row] + [b"\xfe"]
    ends = list(accumulate(map(len, rows), initial=before))
    return Jagged(strings(items), torch.tensor(ends))


TEXT_ROWS = st.lists(st.text(max_size=4), max_size=6)
ASCII_ROWS = st.lists(st.text(st.characters(max_codepoint=127), max_size=4), max_size=6)


# Rows


@given(numbers())
def test_rows_lengths_and_lists(case: Any) -> None:
    rows, jagged = laid_out(case)
    assert len(jagged) == len(rows)
    assert jagged.lengths.dtype == torch.int64
    assert jagged.lengths.tolist() == [len(row) for row in rows]
    assert jagged.to_list() == rows
    for index, row in enumerate(rows):
        assert jagged[index].tolist() == row
        assert jagged[index - len(rows)].tolist() == row
        assert jagged[index].dtype == case[1]


@given(numbers(dtypes=(torch.int64, torch.float32), levels=3))
def test_nested_rows(case: Any) -> None:
    rows, jagged = laid_out(case)
    assert jagged.to_list() == rows
    for index, row in enumerate(rows):
        found = jagged[index]
        assert (found.to_list() if isinstance(found, Jagged) else found.tolist()) == row
        while isinstance(found, Jagged):
            assert (found.offsets[0], found.offsets[-1]) == (0, len(found.values))  # type: ignore[comparison-overlap]
            found = found.values


def test_a_row_is_a_view() -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
    jagged[1][0] = 99
    assert jagged.values.tolist() == [0, 1, 99, 3, 4, 5]  # type: ignore[union-attr]
    nested = Jagged(jagged, torch.tensor([1, 2]))
    nested[0][0][1] = 77
    assert jagged.values.tolist() == [0, 1, 99, 77, 4, 5]  # type: ignore[union-attr]


@given(numbers(levels=2))
def test_it_is_used_as_a_list_of_rows(case: Any) -> None:
    rows, jagged = laid_out(case)
    for found, row in zip(jagged, rows, strict=True):
        assert (found.to_list() if isinstance(found, Jagged) else found.tolist()) == row
    assert [len(row) for row in reversed(jagged)] == [len(row) for row in reversed(rows)]


@given(numbers(), st.slices(6))
def test_slices_are_those_of_a_list(case: Any, part: slice) -> None:
    rows, jagged = laid_out(case)
    found = jagged[part]
    assert found.to_list() == rows[part]
    assert found.offsets[0] == 0
    assert found.offsets[-1] == len(found.values)


def test_a_slice_shares_memory() -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6, 6]))
    jagged[1:].values[0] = 99
    assert jagged.to_list() == [[0, 1], [99, 3, 4, 5], []]


def test_rows_are_chosen_as_those_of_a_tensor() -> None:
    jagged = strings(["a", "b", "c"])
    mask = np.array([True, False, True])
    for rows in ([0, -1], torch.tensor([0, 2]), torch.tensor(mask), mask, range(0, 3, 2)):
        assert jagged[rows].to_str() == ["a", "c"]


def test_strings_are_not_compared_with_a_tensor_of_bytes() -> None:
    """In silence, `==` would be False, and so would `in`."""
    jagged = strings(["a", "b"])
    with pytest.raises(TypeError, match=r"value in j\.to_str\(\)"):
        assert "a" in jagged
    for other in ("a", ["a", "b"], strings(["a", "b"]), torch.arange(2)):
        with pytest.raises(TypeError, match=r"for row in j\.to_str\(\)"):
            assert jagged == other
    assert jagged == jagged
    assert jagged != None  # noqa: E711
    assert len({jagged, jagged}) == 1


def test_it_is_shown_on_a_line() -> None:
    texts = [f"text {i}" for i in range(100_000)]
    assert repr(strings(texts)) == (
        "Jagged(100000 rows of uint8: 'text 0', 'text 1', 'text 2', ...)"
    )
    assert repr(Jagged.from_lists([[1, 2], []])) == "Jagged(2 rows of int64: [1, 2], [])"
    assert repr(Jagged.from_lists([["ä"]])) == "Jagged(1 rows of uint8 in 2 levels: ['ä'])"
    assert repr(strings([b"\xff"])) == "Jagged(1 rows of uint8: [255])"
    assert len(repr(Jagged(torch.arange(10**6), torch.tensor([0, 10**6])))) < 100
    assert repr(strings(["a"]).to("meta")) == "Jagged(1 rows of uint8 on meta)"


@pytest.mark.parametrize("index", [3, -4, 10**9])
def test_rows_that_are_not_there(index: int) -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6, 6]))
    with pytest.raises(IndexError, match=re.escape(f"range(-3, 3); got {index}")):
        jagged[index]


def test_rows_are_numbered_by_any_integer() -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
    for index in (np.int64(1), torch.tensor(1)):
        assert jagged[index].tolist() == [2, 3, 4, 5]
    with pytest.raises(TypeError, match="float"):
        jagged[1.0]  # type: ignore[index]


def test_no_rows() -> None:
    jagged = Jagged(torch.empty(0, dtype=torch.int16), torch.tensor([0]))
    assert len(jagged) == 0
    assert jagged.lengths.shape == (0,)
    assert jagged.to_list() == []
    assert jagged.to_padded().shape == (0, 0)
    assert jagged.to_padded(4).shape == (0, 4)
    assert jagged.mask(4).shape == (0, 4)
    assert jagged.select([]).to_list() == []
    assert jagged.to_nested().size(0) == 0
    assert strings([]).to_str() == strings([]).to_bytes() == []
    assert lists_of_strings([]).to_str() == []
    with pytest.raises(IndexError, match=re.escape("range(0, 0); got 0")):
        jagged[0]


# Chosen rows


@given(numbers(), st.data())
def test_select(case: Any, data: st.DataObject) -> None:
    rows, jagged = laid_out(case)
    some = st.integers(-len(rows), len(rows) - 1)
    chosen = data.draw(st.lists(some, max_size=8)) if rows else []
    for argument in (chosen, torch.tensor(chosen, dtype=torch.int64)):
        selected = jagged.select(argument)
        assert selected.to_list() == [rows[index] for index in chosen]
        assert selected.values.dtype == case[1]  # type: ignore[union-attr]
        assert selected.offsets[0] == 0
        assert selected.offsets[-1] == selected.values.shape[0]  # type: ignore[union-attr]
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
    assert jagged.select(torch.tensor(mask, dtype=torch.bool)).to_list() == kept


def test_select_of_nested_rows() -> None:
    rows = [["ä", "b"], [], ["", "cde"], ["f"]]
    jagged = lists_of_strings(rows, before=2)
    assert jagged.select([3, 0, 0, 1]).to_str() == [rows[3], rows[0], rows[0], rows[1]]
    assert jagged.select(torch.tensor([False, True, True, False])).to_str() == rows[1:3]


def test_select_refuses() -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
    with pytest.raises(IndexError, match="2"):
        jagged.select([0, 2])
    with pytest.raises(IndexError, match="mask"):
        jagged.select(torch.tensor([True]))
    with pytest.raises(ValueError, match="one-dimensional"):
        jagged.select(torch.tensor([[0]]))


# Padding


@given(numbers(), st.none() | st.integers(0, 7), st.sampled_from(["right", "left"]), st.data())
def test_padding(case: Any, pad_to: Any, truncate: Any, data: st.DataObject) -> None:
    rows, jagged = laid_out(case)
    value = data.draw(elements(case[1]))
    width = max(map(len, rows), default=0) if pad_to is None else pad_to
    result = jagged.to_padded(pad_to, pad_value=value, truncate=truncate)
    assert result.dtype == case[1]
    assert result.shape == (len(rows), width)
    assert result.tolist() == padded(rows, width, value, truncate)
    mask = jagged.mask(pad_to)
    assert mask.dtype == torch.bool
    kinds = [[True] * len(row) for row in rows]
    assert mask.tolist() == padded(kinds, width, False, truncate)


def test_padding_is_zero_unless_told() -> None:
    jagged = Jagged(torch.tensor([1.5, 2.5, 3.5]), torch.tensor([0, 1, 3]))
    assert jagged.to_padded().tolist() == [[1.5, 0.0], [2.5, 3.5]]
    flags = Jagged(torch.tensor([True]), torch.tensor([0, 0, 1]))
    assert flags.to_padded().tolist() == [[False], [True]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_with_the_limits_of_the_dtype(dtype: Any) -> None:
    one = torch.ones(1, dtype=dtype)
    if dtype == torch.bool:
        limits = (False, True)
    else:
        known = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        half = known.max / 2 if dtype.is_floating_point else known.max // 2
        limits = (known.min, half, known.max)  # type: ignore[assignment]
    for limit in limits:
        some = Jagged(one, torch.tensor([0, 0, 1])).to_padded(2, pad_value=limit)
        assert some.tolist() == [[limit, limit], [1, limit]]
        none = Jagged(one[:0], torch.tensor([0, 0])).to_padded(2, pad_value=limit)
        assert none.tolist() == [[limit, limit]]
        assert none.dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_padding_with_nan_and_rounded(dtype: Any) -> None:
    jagged = Jagged(torch.ones(1, dtype=dtype), torch.tensor([0, 1]))
    assert jagged.to_padded(2, pad_value=math.nan)[0, 1].isnan()
    rounded = jagged.to_padded(2, pad_value=0.1)[0, 1]
    assert rounded.equal(torch.tensor(0.1, dtype=dtype))


def test_padding_of_rows_of_tensors() -> None:
    """Lists of lists of a fixed size, `[N, L]`."""
    values = torch.arange(12).reshape(6, 2)
    rows = [values[1:3].tolist(), [], values[3:6].tolist()]
    jagged = Jagged(values, torch.tensor([1, 3, 3, 6]))
    for width in (0, 2, 4):
        result = jagged.to_padded(width, pad_value=-1)
        assert result.shape == (3, width, 2)
        assert result.tolist() == padded(rows, width, [-1, -1], "right")
    assert Jagged(values[:0], torch.tensor([0, 0])).to_padded(3).shape == (1, 3, 2)


def test_padding_of_nested_rows_level_by_level() -> None:
    rows = [[[1, 2], []], [], [[3, 4, 5]]]
    jagged = Jagged.from_lists(rows)
    with pytest.raises(TypeError, match=re.escape("Jagged(j.values.to_padded(), j.offsets)")):
        jagged.to_padded()
    inner = Jagged(jagged.values.to_padded(), jagged.offsets)  # type: ignore[union-attr]
    wide = [padded(row, 3, 0, "right") for row in rows]
    assert inner.to_padded().tolist() == padded(wide, 2, [0, 0, 0], "right")
    assert jagged.mask().tolist() == [[True, True], [False, False], [True, False]]


def test_padding_of_strings_is_of_bytes() -> None:
    assert strings(["a", "üx"]).to_padded(2).tolist() == [[97, 0], list("ü".encode())]


def test_gradients_go_through_padding_and_selection() -> None:
    weight = torch.ones(5, 2, requires_grad=True)
    jagged = Jagged(weight * 1, torch.tensor([0, 1, 5]))
    jagged.to_padded(3).sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad.tolist() == [[1, 1]] * 4 + [[0, 0]]  # type: ignore[union-attr]
    weight.grad = None
    jagged = Jagged(weight * 1, torch.tensor([0, 1, 5]))
    jagged.select([1, 1]).values.sum().backward()  # type: ignore[union-attr]
    assert weight.grad.tolist() == [[0, 0]] + [[2, 2]] * 4  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_knows_its_shape_without_the_data(dtype: Any) -> None:
    """A tensor on the meta device has no data that the host could wait for."""
    jagged = Jagged(torch.zeros(6, dtype=dtype), torch.tensor([0, 2, 6])).to("meta")
    for truncate in ("right", "left"):
        result = jagged.to_padded(3, pad_value=1, truncate=truncate)
        assert (result.device.type, result.shape, result.dtype) == ("meta", (2, 3), dtype)
    assert jagged.mask(3).device.type == "meta"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.bool, 2),
        (torch.int8, 128),
        (torch.int8, -129),
        (torch.uint8, -1),
        (torch.uint16, 1 << 16),
        (torch.uint64, 1 << 64),
        (torch.int64, 1 << 63),
        (torch.int32, 0.5),
        (torch.int32, math.nan),
        (torch.int32, math.inf),
        (torch.float16, 1e5),
        (torch.float32, 1e39),
        (torch.float64, 10**400),
    ],
)
def test_pad_values_that_do_not_fit(dtype: Any, value: Any) -> None:
    jagged = Jagged(torch.zeros(2, dtype=dtype), torch.tensor([0, 2]))
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=re.escape(f"{name}; got {value!r}")):
        jagged.to_padded(4, pad_value=value)


def test_pad_values_of_other_types_that_fit() -> None:
    jagged = Jagged(torch.ones(1, dtype=torch.int16), torch.tensor([0, 1]))
    for value in (7, 7.0, np.int64(7), np.float32(7)):
        assert jagged.to_padded(np.int32(2), pad_value=value).tolist() == [[1, 7]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pad_to": -1}, ValueError, "pad_to must be >= 0, got -1"),
        ({"pad_to": 2.0}, TypeError, "pad_to must be an int or None, got 2.0"),
        ({"pad_to": True}, TypeError, "pad_to must be an int or None, got True"),
        ({"truncate": "centre"}, ValueError, '"right" or "left"; got \'centre\''),
        ({"pad_value": "x"}, TypeError, "pad_value must be a number or bool; got 'x'"),
        ({"pad_value": None}, TypeError, "pad_value must be a number or bool; got None"),
    ],
)
def test_padding_refuses(arguments: dict[str, Any], error: Any, message: str) -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
    with pytest.raises(error, match=re.escape(message)):
        jagged.to_padded(**arguments)


# torch's own operations


@given(numbers(dtypes=(torch.float32, torch.int64, torch.uint8)))
@example(([[], []], torch.float32, [], []))
def test_nested_tensor(case: Any) -> None:
    rows, jagged = laid_out(case)
    nested = jagged.to_nested()
    assert nested.layout == torch.jagged
    assert nested.dtype == case[1]
    assert [row.tolist() for row in nested.unbind()] == rows


def test_nested_tensor_shares_memory_and_knows_its_longest_row() -> None:
    jagged = Jagged(torch.arange(8.0), torch.tensor([2, 4, 4, 7]))
    nested = jagged.to_nested()
    assert nested.values().data_ptr() == jagged.values[2:].data_ptr()
    assert nested.to_padded_tensor(-1.0).equal(jagged.to_padded(pad_value=-1))
    with pytest.raises(TypeError, match="to_nested takes one level of rows"):
        Jagged(jagged, torch.tensor([0, 3])).to_nested()


def test_embedding_bag_takes_the_parts() -> None:
    rows = [[3, 1], [], [0, 3, 3]]
    jagged = Jagged.from_lists(rows, dtype=torch.int64)
    weight = torch.arange(8.0).reshape(4, 2)
    bags = functional.embedding_bag(
        jagged.values,  # type: ignore[arg-type]
        weight,
        jagged.offsets,
        include_last_offset=True,
        mode="sum",
    )
    expected = [weight.numpy()[row].sum(axis=0).tolist() for row in rows]
    assert bags.tolist() == expected


# Strings


@given(TEXT_ROWS | ASCII_ROWS, st.binary(max_size=3))
@example(["é", "", "日本", "a"], b"")
def test_strings(rows: Any, before: Any) -> None:
    jagged = strings(rows, before)
    assert jagged.to_str() == rows
    assert jagged.to_bytes() == bytes_of(rows)
    assert jagged.to_list() == [list(row.encode()) for row in rows]


@given(st.lists(TEXT_ROWS | ASCII_ROWS, max_size=5), st.integers(0, 2))
def test_lists_of_strings(rows: Any, before: Any) -> None:
    jagged = lists_of_strings(rows, before)
    assert jagged.to_str() == rows
    assert jagged.to_bytes() == bytes_of(rows)
    for index, row in enumerate(rows):
        assert jagged[index].to_str() == row


def test_lists_of_lists_of_strings() -> None:
    rows = [[["ä"], []], [], [[], ["bc", "", "d"]]]
    jagged = Jagged.from_lists(rows)
    assert jagged.to_str() == rows
    assert jagged.to_bytes() == bytes_of(rows)
    assert jagged[2][1].to_str() == ["bc", "", "d"]


def test_bytes_may_be_anything() -> None:
    rows = [b"\xff\x00", b"", b"plain"]
    assert strings(rows).to_bytes() == rows


def test_text_that_is_no_utf8_names_its_row() -> None:
    jagged = strings(["fine", "", "", b"a\xc3(", b"\xff"], before=b"xy")
    with pytest.raises(UnicodeDecodeError, match=r"position 1: .*, in row 3$") as caught:
        jagged.to_str()
    assert caught.value.object == b"a\xc3("
    assert jagged.to_str("replace") == ["fine", "", "", "a\ufffd(", "\ufffd"]


def test_text_that_is_no_utf8_names_row_and_item() -> None:
    rows = [["a"], [], [], ["b", "c", b"\xff"], []]
    with pytest.raises(UnicodeDecodeError, match=r", in row 3, item 2$"):
        lists_of_strings(rows, before=3).to_str()
    with pytest.raises(UnicodeDecodeError, match=r", in row 1, item 1, item 0$"):
        Jagged.from_lists([[["a"]], [[], [b"\xff"]]]).to_str()


def test_a_character_across_two_rows_is_none() -> None:
    first, second = "ü".encode()[:1], "ü".encode()[1:]
    with pytest.raises(UnicodeDecodeError, match=r"in row 0$"):
        strings([first, second]).to_str()


@pytest.mark.parametrize("method", ["to_str", "to_bytes"])
def test_strings_of_other_values(method: str) -> None:
    floats = Jagged(torch.ones(3), torch.tensor([0, 3]))
    for jagged in (floats, Jagged(floats, torch.tensor([0, 1]))):
        with pytest.raises(TypeError, match=rf"{method} takes strings.*float32 of shape \[3\]"):
            getattr(jagged, method)()
    blocks = Jagged(torch.ones(3, 2, dtype=torch.uint8), torch.tensor([0, 3]))
    with pytest.raises(TypeError, match=rf"{method} takes strings.*uint8 of shape \[3, 2\]"):
        getattr(blocks, method)()


# From Python objects


@given(numbers(levels=2))
def test_from_lists_and_back(case: Any) -> None:
    rows, dtype, *_ = case
    jagged = Jagged.from_lists(rows, dtype=dtype)
    assert jagged.to_list() == rows
    assert jagged.offsets.dtype == torch.int64
    assert jagged.offsets[0] == 0
    innermost: Jagged | torch.Tensor = jagged
    while isinstance(innermost, Jagged):
        innermost = innermost.values
    assert innermost.dtype == dtype


@given(st.lists(TEXT_ROWS, max_size=4))
def test_from_strings_and_back(rows: Any) -> None:
    for row in rows:
        assert Jagged.from_lists(row).to_list() == [list(text.encode()) for text in row]
        assert not row or Jagged.from_lists(row).to_str() == row
    if any(rows):
        assert Jagged.from_lists(rows).to_str() == rows
        assert Jagged.from_lists(bytes_of(rows), torch.uint8).to_bytes() == bytes_of(rows)


def test_from_lists_takes_what_torch_makes_of_numbers() -> None:
    assert Jagged.from_lists([(1, 2), ()]).values.dtype == torch.int64  # type: ignore[union-attr]
    assert Jagged.from_lists([[1, 2.5]]).values.dtype == torch.float32  # type: ignore[union-attr]
    assert Jagged.from_lists(iter([[True]])).values.dtype == torch.bool  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 2], "rows must be lists or strings; got 1"),
        ([[1], "a"], "got [1] and 'a'"),
        ([["a", 2]], "got 'a' and 2"),
        ([[[1], 2]], "got [1] and 2"),
        ([[1], None], "got [1] and None"),
    ],
)
def test_from_lists_refuses(rows: list[Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        Jagged.from_lists(rows)


def test_from_strings_refuses_another_dtype() -> None:
    with pytest.raises(TypeError, match=re.escape("dtype must be uint8 or None; got torch.int64")):
        Jagged.from_lists(["a"], dtype=torch.int64)


# Moving


def test_to_moves_every_part() -> None:
    jagged = lists_of_strings([["a"], ["b", "c"]])
    for moved in (
        jagged.to("meta"),
        jagged.to(torch.device("meta"), non_blocking=True),
        jagged.to(device="meta"),
    ):
        assert isinstance(moved.values, Jagged)
        assert [part.device.type for part in parts(moved)] == ["meta"] * 3
        assert [part.dtype for part in parts(moved)] == [torch.uint8, torch.int64, torch.int64]


def test_to_casts_values_alone() -> None:
    jagged = Jagged.from_lists([[[1], [2, 3]], []])
    for moved in (
        jagged.to(torch.float16),
        jagged.to(dtype=torch.float16),
        jagged.to("cpu", torch.float16),
    ):
        assert [part.dtype for part in parts(moved)] == [torch.float16, torch.int64, torch.int64]
        assert moved.to_list() == jagged.to_list()
    with pytest.raises(TypeError, match=r"once; got torch\.float16 and torch\.float32"):
        jagged.to(torch.float16, torch.float32)


def test_to_where_it_is_copies_nothing() -> None:
    jagged = Jagged.from_lists([[1], [2, 3]])
    moved = jagged.to("cpu", torch.int64)
    assert all(a is b for a, b in zip(parts(moved), parts(jagged), strict=True))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_page_locked_rows_go_to_the_device_and_back() -> None:
    jagged = lists_of_strings([["ä"], ["b", ""]]).pin_memory()
    assert all(part.is_pinned() for part in parts(jagged))
    there = jagged.to("cuda")
    assert all(part.is_cuda for part in parts(there))
    assert there.to("cpu").to_str() == there.to_str() == [["ä"], ["b", ""]]


# Wherever torch moves batches


def batch() -> dict[str, object]:
    return {
        "x": torch.arange(3),
        "ids": Jagged(torch.arange(6), torch.tensor([0, 2, 2, 6])),
        "tags": lists_of_strings([["ä"], [], ["b", ""]]),
    }


def check_batch(found: Any) -> None:
    assert list(found) == ["x", "ids", "tags"]
    assert found["x"].tolist() == [0, 1, 2]
    for name in ("ids", "tags"):
        assert type(found[name]) is Jagged
        assert [part.dtype for part in parts(found[name])] == [
            part.dtype for part in parts(batch()[name])
        ]
    assert found["ids"].to_list() == [[0, 1], [], [2, 3, 4, 5]]
    assert found["tags"].to_str() == [["ä"], [], ["b", ""]]


class Batches(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield batch()
        yield batch()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_dataloader_delivers_it(num_workers: int) -> None:
    loader = DataLoader(Batches(), batch_size=None, num_workers=num_workers)
    found = list(loader)
    assert len(found) == 2
    for one in found:
        check_batch(one)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_dataloader_pins_it() -> None:
    for found in DataLoader(Batches(), batch_size=None, pin_memory=True):
        check_batch(found)
        assert all(part.is_pinned() for part in parts(found["tags"]))


def test_pytree_round_trip() -> None:
    leaves, structure = pytree.tree_flatten(batch())
    assert len(leaves) == 1 + 2 + 3
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    check_batch(pytree.tree_unflatten(leaves, structure))
    check_batch(pytree.tree_map(torch.clone, batch()))


def test_pickle_and_torch_save(tmp_path: Path) -> None:
    check_batch(pickle.loads(pickle.dumps(batch())))
    torch.save(batch(), tmp_path / "batch.pt")
    check_batch(torch.load(tmp_path / "batch.pt", weights_only=False))


def test_a_compiled_function_takes_it() -> None:
    def lengths_and_sum(jagged: Jagged) -> Any:
        return jagged.lengths + len(jagged), jagged.values.sum()  # type: ignore[union-attr]

    compiled = torch.compile(lengths_and_sum, backend="eager", fullgraph=True)
    lengths, total = compiled(Jagged.from_lists([[1, 2], [3]]))
    assert (lengths.tolist(), total.item()) == ([4, 3], 6)
