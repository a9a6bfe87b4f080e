"""Rows of different lengths (lists, strings, binary) as tensors."""

from __future__ import annotations

import contextlib
import reprlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchparquet._impl.checks import checked_int, checked_row, checked_word, plain_number

# torch has few kernels for these dtypes, so their bits are moved as signed integers.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_NOT_FINITE = (float("inf"), float("-inf"))
# For repr.
_ROWS_SHOWN = 3
_shortened = reprlib.Repr()


@dataclass(frozen=True, eq=False, repr=False)
class Jagged:
    """B rows of different lengths: row i is ``values[offsets[i]:offsets[i + 1]]``.

    A batch holds one for each column of lists, strings (bytes of UTF-8) or binary. Lists of lists
    and lists of strings have one level of offsets per nesting: ``values`` is then a Jagged too,
    whose rows are the items of this one. B lists with S strings and N bytes in total are:

        Jagged(values=Jagged(values=uint8 [N], offsets=int64 [S + 1]), offsets=int64 [B + 1])

    As in a list, ``len(j)``, ``j[i]`` and ``for row in j`` are about the rows. ``j[2:5]``,
    ``j[mask]`` and ``j[numbers]`` are a Jagged of fewer rows. torch's pin_memory, DataLoader
    workers and pytrees move both tensors. Many operations take them; a sum of embeddings per row:

        F.embedding_bag(j.values, weight, j.offsets, include_last_offset=True, mode="sum")

    Attributes:
        values: ``[N, ...]`` of any dtype, or a Jagged of N rows: all items, row after row.
        offsets: int64 ``[B + 1]`` on the same device, never decreasing. In a batch they start at 0
            and end at N. The methods also accept a slice of them, such as ``offsets[2:6]``.
    """

    values: Tensor | Jagged
    offsets: Tensor

    def __post_init__(self) -> None:
        """Check that the parts are tensors."""
        values: Any = self.values
        offsets: Any = self.offsets
        if not (isinstance(values, (Tensor, Jagged)) and isinstance(offsets, Tensor)):
            raise TypeError(
                "Jagged takes values, a Tensor or a Jagged, and offsets, a Tensor "
                "(Jagged.from_lists(rows) takes lists); got "
                f"{type(values).__name__} and {type(offsets).__name__}"
            )

    @classmethod
    def from_lists(cls, rows: Iterable[Any], dtype: torch.dtype | None = None) -> Jagged:
        """Return a Jagged of Python lists or strings.

        Args:
            rows: Lists or tuples of numbers, of further lists to any depth, or of strings; or
                strings (str, encoded in UTF-8, or bytes). If all lists of a level are empty, the
                result has no further level.
            dtype: The dtype of the numbers. None for the one that :func:`torch.tensor` chooses.

        Returns:
            A Jagged on the CPU with a level of offsets for each nesting.

        Raises:
            TypeError: The items of a level are of different kinds, the rows are numbers, or
                ``dtype`` is not uint8 for strings.
        """
        items, levels = list(rows), []
        kind: str | None = _kind_of(items) or "lists"
        if kind == "numbers":
            raise TypeError(f"rows must be lists or strings; got {items[0]!r}")
        while kind == "lists":
            levels.append(_offsets_of(items))
            items = list(chain.from_iterable(items))
            kind = _kind_of(items)
        if kind == "strings":
            if dtype not in (None, torch.uint8):
                raise TypeError(f"strings are bytes, so dtype must be uint8 or None; got {dtype}")
            strings = [item.encode() if isinstance(item, str) else item for item in items]
            levels.append(_offsets_of(strings))
            values: Tensor | Jagged = torch.tensor(np.frombuffer(b"".join(strings), np.uint8))
        else:
            values = torch.tensor(items, dtype=dtype)
        for offsets in reversed(levels):
            values = cls(values, offsets)
        assert isinstance(values, Jagged)  # noqa: S101
        return values

    def __len__(self) -> int:
        """Return the number of rows, B."""
        return self.offsets.shape[0] - 1

    @property
    def lengths(self) -> Tensor:
        """The number of items in each row, int64 ``[B]``; the items of strings are bytes."""
        return self.offsets.diff()

    def __getitem__(self, rows: SupportsIndex | slice | Tensor | Sequence[int]) -> Any:
        """Return one row, or a Jagged of several; waits for a device that is not the CPU.

        Args:
            rows: A number, which may be negative: the items of this row, a view ``[length, ...]``
                of ``values``, or a Jagged for nested levels. A slice without a step: a Jagged that
                shares ``values``, whose offsets start at 0. Anything else: see :meth:`select`.

        Raises:
            IndexError: There is no such row.
        """
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step != 1:
                return self.select(list(range(begin, end, step)))
            return _stretch(self, begin, max(begin, end))
        if isinstance(rows, Sequence) or (isinstance(rows, Tensor | np.ndarray) and rows.ndim):
            return self.select(rows)  # type: ignore[arg-type]
        index = checked_row(rows, len(self))
        begin, end = self.offsets[index : index + 2].tolist()
        return _stretch(self.values, begin, end)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows, each as ``j[i]`` returns it."""
        for begin, end in pairwise(self.offsets.tolist()):
            yield _stretch(self.values, begin, end)

    def __contains__(self, row: object) -> bool:
        """Raise: rows are tensors, which compare item by item."""
        raise TypeError("to look for a row, take a list: value in j.to_str(), or in j.to_list()")

    def __eq__(self, other: object) -> bool:
        """Raise for what may hold rows, like ``bool(tensor == other)``; see `__contains__`."""
        if self is not other and isinstance(other, Jagged | Tensor | Sequence):
            raise TypeError(
                "to compare rows, take lists: [row == value for row in j.to_str()], or "
                "j.to_list(), or compare the tensors j.values and j.offsets"
            )
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        """Return the number of rows, the kind of the items, and the first rows."""
        level: Tensor | Jagged = self
        num_levels = 0
        while isinstance(level, Jagged):
            level, num_levels = level.values, num_levels + 1
        nested = f" in {num_levels} levels" if num_levels > 1 else ""
        place = "" if level.device.type == "cpu" else f" on {level.device}"
        kind = f"{len(self)} rows of {_name_of(level.dtype)}{nested}{place}"
        return f"Jagged({kind}{_first_rows(self, level)})"

    def select(self, rows: Tensor | Sequence[int]) -> Jagged:
        """Return a copy of chosen rows in the given order, as ``tensor[rows]`` of ``[B]`` tensors.

        Its offsets start at 0. The call waits for a device that is not the CPU.

        Args:
            rows: Row numbers, which may repeat and be negative, or a bool mask ``[B]``.

        Raises:
            IndexError: There is no such row, or a mask does not have B entries.
            ValueError: ``rows`` is not one-dimensional.
        """
        device = self.offsets.device
        numbers = torch.arange(len(self), device=device)[rows]
        if numbers.dim() != 1:
            raise ValueError(f"rows must be one-dimensional; got {rows!r}")
        begins = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - begins
        offsets = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        shifts = begins - offsets[:-1]
        if device.type == "cpu":
            # torch's wakes its threads: milliseconds where others keep the processors busy.
            shifts = torch.from_numpy(np.repeat(shifts.numpy(), lengths.numpy()))
        else:
            shifts = torch.repeat_interleave(shifts, lengths)
        items = shifts + torch.arange(shifts.shape[0], device=device)
        if isinstance(self.values, Jagged):
            return Jagged(self.values.select(items), offsets)
        return Jagged(_viewed(_movable(self.values)[items], self.values.dtype), offsets)

    def to_padded(
        self,
        pad_to: int | None = None,
        *,
        pad_value: int | float | bool = 0,
        truncate: Literal["right", "left"] = "right",
    ) -> Tensor:
        """Return a dense tensor: each row from the left, filled up with ``pad_value``.

        With ``pad_to`` the call does not wait for a device. :meth:`mask` tells items from padding.

        Args:
            pad_to: P, the number of items per row; bytes for strings. None for the longest row.
            pad_value: A number that the dtype of the values holds; floats are rounded.
            truncate: The side on which a longer row loses items.

        Returns:
            ``[B, P]`` with the dtype of the values; ``[B, P, ...]`` for values ``[N, ...]``.

        Raises:
            TypeError: An argument has a wrong type, or there are nested levels. Pad the inner one
                first: ``Jagged(j.values.to_padded(n), j.offsets).to_padded(m)``.
            ValueError: An argument is out of its range.
        """
        values = self._only_level("to_padded", "Jagged(j.values.to_padded(), j.offsets)")
        checked_word("truncate", truncate, ("right", "left"))
        fill = _checked_pad_value(pad_value, values.dtype)
        valid = self.mask(pad_to)
        begins, width = self.offsets[:-1], valid.shape[1]
        if truncate == "left":
            begins = begins.maximum(self.offsets[1:] - width)
        moved = _movable(values)
        if moved is not values and fill > torch.iinfo(moved.dtype).max:
            fill -= 1 << torch.iinfo(moved.dtype).bits
        if moved.shape[0]:
            items = begins[:, None] + torch.arange(width, device=begins.device)
            found = moved[items.clamp_(max=moved.shape[0] - 1)]
            valid = valid.view(*valid.shape, *(1,) * (moved.dim() - 1))
            padded = torch.where(valid, found, fill)
        else:
            padded = moved.new_full((*valid.shape, *moved.shape[1:]), fill)
        return _viewed(padded, values.dtype)

    def mask(self, pad_to: int | None = None) -> Tensor:
        """Return which entries of :meth:`to_padded`, of the same ``pad_to``, are items.

        Bool ``[B, P]``, False for padding. With nested levels it is about the outermost one.

        Raises:
            TypeError: ``pad_to`` is neither an int nor None.
            ValueError: ``pad_to`` is negative.
        """
        lengths = self.lengths
        if pad_to is not None:
            width = checked_int("pad_to", pad_to, 0, 2**63, " or None")
        else:
            width = int(lengths.max()) if len(self) else 0
        return torch.arange(width, device=lengths.device) < lengths[:, None]

    def to_nested(self) -> Tensor:
        """Return the rows as torch's nested tensor ``[B, *]`` of layout ``torch.jagged``.

        It shares the memory of ``values``. The call waits for a device that is not the CPU, and
        needs a torch newer than 2.3.

        Raises:
            TypeError: There are nested levels, for which torch has no layout.
        """
        values = self._only_level("to_nested", "j.values.to_nested()")
        lengths = self.lengths if len(self) else self.offsets.new_zeros(1)
        ends = (self.offsets[0], self.offsets[-1], *lengths.aminmax())
        begin, end, shortest, longest = torch.stack(ends).tolist()
        # Without the longest length torch pads each row to the number of all items.
        nested: Tensor = torch.nested.nested_tensor_from_jagged(
            values[begin:end],
            self.offsets - begin if begin else self.offsets,
            min_seqlen=shortest,
            max_seqlen=longest,
        )
        return nested

    def to_list(self) -> list[Any]:
        """Return the rows as lists of Python numbers; nested levels become nested lists.

        Strings become lists of byte values; see :meth:`to_bytes` and :meth:`to_str`.
        """
        values, cuts = self._flat()
        return _cut(values.tolist(), cuts)

    def to_bytes(self) -> list[Any]:
        """Return the rows as bytes; lists of strings or binary become lists of bytes, and so on.

        Raises:
            TypeError: The innermost values are not uint8 ``[N]``.
        """
        return _cut(*self._raw("to_bytes"))

    def to_str(self, errors: str = "strict") -> list[Any]:
        """Decode the rows as UTF-8; lists of strings become lists of str, and so on.

        Args:
            errors: The treatment of bytes that are not UTF-8, as of :meth:`bytes.decode`.

        Raises:
            TypeError: The innermost values are not uint8 ``[N]``.
            UnicodeDecodeError: The row that the message names is not UTF-8.
        """
        raw, cuts = self._raw("to_str")
        if raw.isascii():
            return _cut(raw.decode("ascii"), cuts)
        *outer, ends = cuts
        strings: list[str] = []
        try:
            for begin, end in pairwise(ends):
                strings.append(raw[begin:end].decode("utf-8", errors))
        except UnicodeDecodeError as error:
            place = f"{error.reason}, in {_place(len(strings), outer)}"
            raise UnicodeDecodeError(
                error.encoding, error.object, error.start, error.end, place
            ) from None
        return _cut(strings, outer)

    def to(
        self,
        device: torch.device | str | int | torch.dtype | None = None,
        dtype: torch.dtype | None = None,
        non_blocking: bool | None = None,
    ) -> Jagged:
        """Return the rows on another device or with another dtype, as :meth:`torch.Tensor.to` does.

        Args:
            device: The device of values and offsets at all levels, or a dtype.
            dtype: The dtype of the innermost values; offsets stay int64.
            non_blocking: True if a copy may continue after the call; the source must not be
                overwritten meanwhile. None to do so from page-locked memory.

        Returns:
            A Jagged that shares every tensor that did not have to change.

        Raises:
            TypeError: A dtype is given twice.
        """
        if isinstance(device, torch.dtype):
            if dtype is not None:
                raise TypeError(f"dtype must be given once; got {device!r} and {dtype!r}")
            device, dtype = None, device
        if isinstance(self.values, Jagged):
            values: Tensor | Jagged = self.values.to(device, dtype, non_blocking)
        else:
            values = _moved(self.values, device, dtype, non_blocking)
        return Jagged(values, _moved(self.offsets, device, None, non_blocking))

    def pin_memory(self) -> Jagged:
        """Return the rows in page-locked memory; tensors that lie there already are not copied."""
        return Jagged(self.values.pin_memory(), self.offsets.pin_memory())

    def _only_level(self, method: str, instead: str) -> Tensor:
        if isinstance(self.values, Jagged):
            raise TypeError(f"{method} takes one level of rows; these are nested: see {instead}")
        return self.values

    def _flat(self) -> tuple[Tensor, list[list[int]]]:
        """Return the innermost values and each level's offsets, outermost first, starting at 0."""
        level, begin, end = self, 0, len(self)
        cuts = []
        while True:
            offsets = level.offsets[begin : end + 1].tolist()
            begin, end = offsets[0], offsets[-1]
            cuts.append([offset - begin for offset in offsets] if begin else offsets)
            if not isinstance(level.values, Jagged):
                return level.values[begin:end], cuts
            level = level.values

    def _raw(self, method: str) -> tuple[bytes, list[list[int]]]:
        values, cuts = self._flat()
        if values.dtype != torch.uint8 or values.dim() != 1:
            raise TypeError(
                f"{method} takes strings or binary, whose values are uint8 [N]; got "
                f"{_name_of(values.dtype)} of shape {list(values.shape)}"
            )
        return values.numpy(force=True).tobytes(), cuts


def _first_rows(rows: Jagged, items: Tensor) -> str:
    """Return the first rows, to be shown, if they are on the CPU; text where they are UTF-8."""
    if items.device.type != "cpu" or not len(rows):
        return ""
    shown = rows[:_ROWS_SHOWN]
    found = shown.to_list()
    if items.dtype == torch.uint8 and items.dim() == 1:
        with contextlib.suppress(UnicodeDecodeError):
            found = shown.to_str()
    more = ", ..." if len(rows) > _ROWS_SHOWN else ""
    return ": " + ", ".join(map(_shortened.repr, found)) + more


def _stretch(values: Tensor | Jagged, begin: int, end: int) -> Tensor | Jagged:
    """Return items `begin` to `end`; the offsets of every level start at 0."""
    if not isinstance(values, Jagged):
        return values[begin:end]
    offsets = values.offsets[begin : end + 1]
    first, last = torch.stack((offsets[0], offsets[-1])).tolist()
    return Jagged(_stretch(values.values, first, last), offsets - first if first else offsets)


def _movable(values: Tensor) -> Tensor:
    return _viewed(values, _SIGNED.get(values.dtype, values.dtype))


def _viewed(values: Tensor, dtype: torch.dtype) -> Tensor:
    # A view cuts off gradients, even if the dtype stays the same.
    return values if values.dtype == dtype else values.view(dtype)


def _moved(
    tensor: Tensor,
    device: torch.device | str | int | None,
    dtype: torch.dtype | None,
    non_blocking: bool | None,
) -> Tensor:
    if non_blocking is None:
        non_blocking = tensor.is_pinned()
    return tensor.to(device=device, dtype=dtype, non_blocking=non_blocking)


def _cut(items: Any, cuts: list[list[int]]) -> list[Any]:
    """Slice `items`, a list, str or bytes, level by level, the innermost first."""
    for offsets in reversed(cuts):
        items = [items[begin:end] for begin, end in pairwise(offsets)]
    cut: list[Any] = items
    return cut


def _place(index: int, cuts: list[list[int]]) -> str:
    """Return the place of item `index` of the innermost level, such as ``"row 3, item 0"``."""
    path = []
    for offsets in reversed(cuts):
        # Equal offsets mean empty rows; the last of them begins the row with the item.
        row = bisect_right(offsets, index) - 1
        path.append(f"item {index - offsets[row]}")
        index = row
    return ", ".join([f"row {index}", *reversed(path)])


def _kind_of(items: list[Any]) -> str | None:
    """Return ``"lists"``, ``"strings"`` or ``"numbers"``; None if there is no item."""
    examples = {
        "lists"
        if isinstance(item, list | tuple)
        else "strings"
        if isinstance(item, str | bytes)
        else "numbers": item
        for item in items
    }
    if len(examples) > 1:
        raise TypeError(
            "the items of a level must be all lists, all strings or all numbers; got "
            + " and ".join(repr(item) for item in examples.values())
        )
    return next(iter(examples), None)


def _offsets_of(rows: list[Any]) -> Tensor:
    return torch.tensor(list(accumulate(map(len, rows), initial=0)), dtype=torch.int64)


def _checked_pad_value(value: Any, dtype: torch.dtype) -> int | float | bool:
    """Return ``value`` as a bool, int or float of Python, as ``dtype`` demands."""
    number = plain_number(value)
    if not isinstance(number, bool | int | float):
        raise TypeError(f"pad_value must be a number or bool; got {value!r}")
    fitting = in_dtype(number, dtype)
    if fitting is None:
        raise ValueError(
            "pad_value must be representable in the dtype of the values, "
            f"{_name_of(dtype)}; got {value!r}"
        )
    return fitting


def in_dtype(value: int | float | bool, dtype: torch.dtype) -> int | float | bool | None:
    """Return a number as the bool, int or float that `dtype` holds; None if it does not fit."""
    if dtype == torch.bool:
        return bool(value) if value in (0, 1) else None
    if dtype.is_floating_point:
        # Rounding is fine; infinity and NaN are values too.
        fits = abs(value) <= torch.finfo(dtype).max or value in _NOT_FINITE or value != value
        return float(value) if fits else None
    limits = torch.iinfo(dtype)
    fits = limits.min <= value <= limits.max and value == int(value)
    return int(value) if fits else None


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _of_leaves(leaves: Iterable[Any], _: Any) -> Jagged:
    """Return a Jagged of the leaves, which a function may have made of its tensors: any objects."""
    made = object.__new__(Jagged)
    for name, leaf in zip(("values", "offsets"), leaves, strict=True):
        object.__setattr__(made, name, leaf)
    return made


pytree.register_pytree_node(
    Jagged,
    lambda rows: ([rows.values, rows.offsets], None),
    _of_leaves,
    serialized_type_name="torchparquet.Jagged",
    flatten_with_keys_fn=lambda rows: (
        [(pytree.GetAttrKey(name), getattr(rows, name)) for name in ("values", "offsets")],
        None,
    ),
)
