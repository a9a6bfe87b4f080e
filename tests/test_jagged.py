"""Jagged: what users make of it, against rows that are plain Python lists."""

from __future__ import annotations

import io
import math
import pickle
import re
from collections.abc import Iterator
from itertools import accumulate
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


@given(numbers(), st.slices(6))
def test_rows_lengths_lists_and_slices(case: Any, part: slice) -> None:
    rows, jagged = laid_out(case)
    assert len(jagged) == len(rows)
    assert jagged.lengths.dtype == torch.int64
    assert jagged.lengths.tolist() == [len(row) for row in rows]
    assert jagged.to_list() == rows
    assert [row.tolist() for row in reversed(jagged)] == rows[::-1]
    for index, (row, found) in enumerate(zip(rows, jagged, strict=True)):
        assert found.tolist() == jagged[index].tolist() == jagged[index - len(rows)].tolist() == row
        assert found.dtype == case[1]
    some = jagged[part]
    assert some.to_list() == rows[part]
    assert (some.offsets[0], some.offsets[-1]) == (0, len(some.values))


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


def test_rows_and_slices_are_views() -> None:
    jagged = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
    jagged[1][0] = 99
    nested = Jagged(jagged, torch.tensor([1, 2]))
    nested[0][0][1] = 77
    jagged[1:].values[2] = 55
    assert jagged.values.tolist() == [0, 1, 99, 77, 55, 5]  # type: ignore[union-attr]
    tensor = jagged.to_nested()
    assert tensor.values().data_ptr() == jagged.values.data_ptr()  # type: ignore[union-attr]
    assert tensor.to_padded_tensor(-1.0).equal(jagged.to_padded(pad_value=-1))
    moved = nested.to("cpu", torch.int64)
    assert all(a is b for a, b in zip(parts(moved), parts(nested), strict=True))


def test_rows_are_chosen_as_those_of_a_tensor() -> None:
    jagged = strings(["a", "b", "c"])
    mask = np.array([True, False, True])
    for rows in ([0, -1], torch.tensor([0, 2]), torch.tensor(mask), mask, range(0, 3, 2)):
        assert jagged[rows].to_str() == ["a", "c"]
    for index in (np.int64(1), torch.tensor(1)):
        assert jagged[index].tolist() == [98]


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


def test_no_rows() -> None:
    jagged = Jagged(torch.empty(0, dtype=torch.int16), torch.tensor([0]))
    assert len(jagged) == 0
    assert jagged.lengths.shape == (0,)
    assert jagged.to_padded().shape == (0, 0)
    assert jagged.to_padded(4).shape == jagged.mask(4).shape == (0, 4)
    assert jagged.select([]).to_list() == jagged.to_list() == []
    assert jagged.to_nested().size(0) == 0
    assert strings([]).to_str() == strings([]).to_bytes() == lists_of_strings([]).to_str() == []


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


def test_padding_of_rows_of_tensors() -> None:
    """Lists of lists of a fixed size, `[N, L]`."""
    values = torch.arange(12).reshape(6, 2)
    rows = [values[1:3].tolist(), [], values[3:6].tolist()]
    jagged = Jagged(values, torch.tensor([1, 3, 3, 6]))
    for width in (0, 2, 4):
        assert jagged.to_padded(width, pad_value=-1).tolist() == padded(
            rows, width, [-1, -1], "right"
        )
    assert Jagged(values[:0], torch.tensor([0, 0])).to_padded(3).shape == (1, 3, 2)


def test_padding_of_nested_rows_level_by_level() -> None:
    rows = [[[1, 2], []], [], [[3, 4, 5]]]
    jagged = Jagged.from_lists(rows)
    inner = Jagged(jagged.values.to_padded(), jagged.offsets)  # type: ignore[union-attr]
    wide = [padded(row, 3, 0, "right") for row in rows]
    assert inner.to_padded().tolist() == padded(wide, 2, [0, 0, 0], "right")
    assert jagged.mask().tolist() == [[True, True], [False, False], [True, False]]


def test_gradients_go_through_padding_and_selection() -> None:
    uses: Any = (
        (lambda jagged: jagged.to_padded(3), [[1, 1]] * 4 + [[0, 0]]),
        (lambda jagged: jagged.select([1, 1]).values, [[0, 0]] + [[2, 2]] * 4),
    )
    for use, expected in uses:
        weight = torch.ones(5, 2, requires_grad=True)
        use(Jagged(weight * 1, torch.tensor([0, 1, 5]))).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_padding_knows_its_shape_without_the_data(dtype: Any) -> None:
    """A tensor on the meta device has no data that the host could wait for."""
    jagged = Jagged(torch.zeros(6, dtype=dtype), torch.tensor([0, 2, 6])).to("meta")
    for truncate in ("right", "left"):
        result = jagged.to_padded(3, pad_value=1, truncate=truncate)
        assert (result.device.type, result.shape, result.dtype) == ("meta", (2, 3), dtype)
    assert jagged.mask(3).device.type == "meta"


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad_values_that_fit_or_do_not(dtype: Any) -> None:
    """The limits fit, what lies beyond them does not; floats are rounded, integers are not."""
    row = Jagged(torch.ones(1, dtype=dtype), torch.tensor([0, 0, 1]))
    wrong: list[Any] = [2, 0.5, math.nan]
    limits: list[Any] = [False, True]
    if dtype.is_floating_point:
        limits = [torch.finfo(dtype).min, 0.1, torch.finfo(dtype).max, math.inf]
        wrong = [10**400, *([torch.finfo(dtype).max * 2] if dtype != torch.float64 else [])]
    elif dtype != torch.bool:
        info = torch.iinfo(dtype)
        limits = [info.min, info.max // 2, info.max, 7.0, np.int64(7), np.float32(7)]
        wrong = [info.min - 1, info.max + 1, 0.5, math.nan, math.inf]
    for value in limits:
        plain = float(value) if dtype.is_floating_point else int(value)
        expected = torch.tensor(plain, dtype=dtype).item()
        two = row.to_padded(np.int32(2), pad_value=value)  # type: ignore[arg-type]
        assert two.tolist() == [[expected] * 2, [1, expected]]
        empty = Jagged(torch.ones(0, dtype=dtype), torch.tensor([0, 0]))
        none = empty.to_padded(2, pad_value=value)
        assert (none.tolist(), none.dtype) == ([[expected] * 2], dtype)
    if dtype.is_floating_point:
        assert row.to_padded(pad_value=math.nan)[0, 0].isnan()
    assert row.to_padded().tolist() == [[0], [1]]
    for value in wrong:
        message = f"{str(dtype).removeprefix('torch.')}; got {value!r}"
        with pytest.raises(ValueError, match=re.escape(message)):
            row.to_padded(4, pad_value=value)


INT64 = Jagged(torch.arange(6), torch.tensor([0, 2, 6]))
NESTED = Jagged(INT64, torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: INT64.to_padded(-1), ValueError, "pad_to must be >= 0, got -1"),
        (lambda: INT64.to_padded(2.0), TypeError, "pad_to must be an int or None, got 2.0"),  # type: ignore[arg-type]
        (lambda: INT64.to_padded(True), TypeError, "pad_to must be an int or None, got True"),
        (lambda: INT64.to_padded(truncate="x"), ValueError, '"right", "left"; got \'x\''),  # type: ignore[arg-type]
        (lambda: INT64.to_padded(pad_value="x"), TypeError, "must be a number or bool; got 'x'"),  # type: ignore[arg-type]
        (lambda: INT64.to_padded(pad_value=None), TypeError, "must be a number or bool; got None"),  # type: ignore[arg-type]
        (lambda: NESTED.to_padded(), TypeError, "Jagged(j.values.to_padded(), j.offsets)"),
        (lambda: NESTED.to_nested(), TypeError, "to_nested takes one level of rows"),
        (lambda: INT64.to(torch.int8, torch.int16), TypeError, "once; got torch.int8 and"),
        (lambda: INT64[1.0], TypeError, "float"),  # type: ignore[index]
        *(
            (lambda index=index: INT64[index], IndexError, f"range(-2, 2); got {index}")
            for index in (2, -3, 10**9)
        ),
        (lambda: INT64[:0][0], IndexError, "range(0, 0); got 0"),
        (lambda: INT64.select([0, 2]), IndexError, "2"),
        (lambda: INT64.select(torch.tensor([True])), IndexError, "mask"),
        (lambda: INT64.select(torch.tensor([[0]])), ValueError, "one-dimensional"),
        (lambda: Jagged.from_lists([1, 2]), TypeError, "rows must be lists or strings; got 1"),
        (lambda: Jagged.from_lists([[1], "a"]), TypeError, "got [1] and 'a'"),
        (lambda: Jagged.from_lists([["a", 2]]), TypeError, "got 'a' and 2"),
        (lambda: Jagged(3, 4), TypeError, "(Jagged.from_lists(rows) takes lists); got int and int"),  # type: ignore[arg-type]
        (lambda: Jagged.from_lists([[[1], 2]]), TypeError, "got [1] and 2"),
        (lambda: Jagged.from_lists([[1], None]), TypeError, "got [1] and None"),
        (
            lambda: Jagged.from_lists(["a"], dtype=torch.int64),
            TypeError,
            "dtype must be uint8 or None; got torch.int64",
        ),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()


@given(numbers(dtypes=(torch.float32, torch.int64, torch.uint8)))
@example(([[], []], torch.float32, [], []))
def test_nested_tensor(case: Any) -> None:
    rows, jagged = laid_out(case)
    nested = jagged.to_nested()
    assert nested.layout == torch.jagged
    assert nested.dtype == case[1]
    assert [row.tolist() for row in nested.unbind()] == rows


def test_embedding_bag_takes_the_parts() -> None:
    rows = [[3, 1], [], [0, 3, 3]]
    jagged = Jagged.from_lists(rows, dtype=torch.int64)
    weight = torch.arange(8.0).reshape(4, 2)
    options: Any = {"include_last_offset": True, "mode": "sum"}
    bags = functional.embedding_bag(jagged.values, weight, jagged.offsets, **options)  # type: ignore[arg-type]
    assert bags.tolist() == [weight.numpy()[row].sum(axis=0).tolist() for row in rows]


@given(TEXT_ROWS | ASCII_ROWS, st.binary(max_size=3))
@example(["é", "", "日本", "a"], b"")
def test_strings(rows: Any, before: Any) -> None:
    for jagged in (strings(rows, before), *([Jagged.from_lists(rows)] if rows else [])):
        assert jagged.to_str() == rows
        assert jagged.to_bytes() == bytes_of(rows)
        assert jagged.to_list() == [list(row.encode()) for row in rows]


@given(st.lists(st.lists(TEXT_ROWS | ASCII_ROWS, max_size=4), max_size=4), st.integers(0, 2))
def test_lists_of_strings(rows: Any, before: Any) -> None:
    for inner in rows:
        jagged = lists_of_strings(inner, before)
        assert jagged.to_str() == inner
        assert jagged.to_bytes() == bytes_of(inner)
        assert [row.to_str() for row in jagged] == inner
        assert jagged.select(range(len(inner))[::-1]).to_str() == inner[::-1]
    if any(any(inner) for inner in rows):
        assert Jagged.from_lists(rows).to_str() == rows
        assert Jagged.from_lists(bytes_of(rows), torch.uint8).to_bytes() == bytes_of(rows)


def test_text_that_is_no_utf8_names_its_row_and_item() -> None:
    jagged = strings(["fine", "", "", b"a\xc3(", b"\xff"], before=b"xy")
    with pytest.raises(UnicodeDecodeError, match=r"position 1: .*, in row 3$") as caught:
        jagged.to_str()
    assert caught.value.object == b"a\xc3("
    assert jagged.to_str("replace") == ["fine", "", "", "a\ufffd(", "\ufffd"]
    assert jagged.to_bytes() == [b"fine", b"", b"", b"a\xc3(", b"\xff"]
    # A character across two rows is none.
    for wrong, place in (
        (strings(["ü".encode()[:1], "ü".encode()[1:]]), "row 0"),
        (lists_of_strings([["a"], [], [], ["b", "c", b"\xff"], []], before=3), "row 3, item 2"),
        (Jagged.from_lists([[["a"]], [[], [b"\xff"]]]), "row 1, item 1, item 0"),
    ):
        with pytest.raises(UnicodeDecodeError, match=rf", in {place}$"):
            wrong.to_str()


@pytest.mark.parametrize("method", ["to_str", "to_bytes"])
def test_strings_of_other_values(method: str) -> None:
    for values, shape in (
        (torch.ones(3), r"float32 of shape \[3\]"),
        (torch.ones(3, 2, dtype=torch.uint8), r"uint8 of shape \[3, 2\]"),
    ):
        rows = Jagged(values, torch.tensor([0, 3]))
        for jagged in (rows, Jagged(rows, torch.tensor([0, 1]))):
            with pytest.raises(TypeError, match=rf"{method} takes strings.*{shape}"):
                getattr(jagged, method)()


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


def test_to_moves_every_part() -> None:
    jagged, meta = lists_of_strings([["a"], ["b", "c"]]), torch.device("meta")
    for moved in (jagged.to("meta"), jagged.to(meta, non_blocking=True), jagged.to(device="meta")):
        assert isinstance(moved.values, Jagged)
        assert [part.device.type for part in parts(moved)] == ["meta"] * 3
        assert [part.dtype for part in parts(moved)] == [torch.uint8, torch.int64, torch.int64]


def test_to_casts_values_alone() -> None:
    jagged = Jagged.from_lists([[[1], [2, 3]], []])
    half = torch.float16
    for moved in (jagged.to(half), jagged.to(dtype=half), jagged.to("cpu", half)):
        assert [part.dtype for part in parts(moved)] == [half, torch.int64, torch.int64]
        assert moved.to_list() == jagged.to_list()
    for rows, dtype in (([(1, 2), ()], torch.int64), ([[1, 2.5]], torch.float32)):
        assert Jagged.from_lists(iter(rows)).values.dtype == dtype  # type: ignore[union-attr]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_page_locked_rows_go_to_the_device_and_back() -> None:
    jagged = lists_of_strings([["ä"], ["b", ""]]).pin_memory()
    assert all(part.is_pinned() for part in parts(jagged))
    there = jagged.to("cuda")
    assert all(part.is_cuda for part in parts(there))
    assert there.to("cpu").to_str() == there.to_str() == [["ä"], ["b", ""]]


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
        dtypes = [[part.dtype for part in parts(one[name])] for one in (found, batch())]
        assert dtypes[0] == dtypes[1]
    assert found["ids"].to_list() == [[0, 1], [], [2, 3, 4, 5]]
    assert found["tags"].to_str() == [["ä"], [], ["b", ""]]


class Batches(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield batch()
        yield batch()


def through_torch_save(value: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


WAYS: dict[str, Any] = {
    "loader": lambda: list(DataLoader(Batches(), batch_size=None)),
    "worker": lambda: list(DataLoader(Batches(), batch_size=None, num_workers=1)),
    "pytree": lambda: [pytree.tree_unflatten(*pytree.tree_flatten(batch()))],
    "map": lambda: [pytree.tree_map_only(torch.Tensor, torch.clone, batch())],
    "pickle": lambda: [pickle.loads(pickle.dumps(batch()))],
    "torch.save": lambda: [through_torch_save(batch())],
}


def test_its_leaves_are_tensors() -> None:
    leaves = pytree.tree_leaves(batch())
    assert len(leaves) == 1 + 2 + 3
    assert all(isinstance(leaf, torch.Tensor) for leaf in leaves)
    devices = pytree.tree_map(lambda tensor: tensor.device, batch())
    assert set(pytree.tree_leaves(devices)) == {torch.device("cpu")}


@pytest.mark.parametrize("way", WAYS)
def test_it_travels(way: str) -> None:
    found = WAYS[way]()
    assert len(found) == (2 if way in ("loader", "worker") else 1)
    for one in found:
        check_batch(one)


def test_a_compiled_function_takes_it() -> None:
    def lengths_and_sum(jagged: Jagged) -> Any:
        return jagged.lengths + len(jagged), jagged.values.sum()  # type: ignore[union-attr]

    compiled = torch.compile(lengths_and_sum, backend="eager", fullgraph=True)
    lengths, total = compiled(Jagged.from_lists([[1, 2], [3]]))
    assert (lengths.tolist(), total.item()) == ([4, 3], 6)
