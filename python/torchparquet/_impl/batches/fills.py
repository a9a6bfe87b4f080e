"""The values that stand where a column has none: for nulls, and in files that lack it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet.column import Column, Nulls
from torchparquet.jagged import in_dtype


def checked_default(
    column: Column, name: str, dtype: str, num_offsets: int, leaves: Sequence[Leaf]
) -> int | float | bool | bytes | tuple[int | float | bool, ...] | None:
    """Return the value of rows of files that lack a column, as its dtype and lists demand."""
    default = column.default
    if default is None:
        return None
    if not isinstance(default, (str, bytes)):
        if num_offsets:
            return _checked_list(default, name, dtype, leaves)
        if isinstance(default, Sequence):
            raise ValueError(
                "a default of several values is for lists of any length; lists of one length take a"
                f" number for all elements: {name!r} has {default!r}"
            )
        return checked_value(default, "default", name, dtype)
    if not all(leaf.is_bytes and leaf.num_lists == 0 for leaf in leaves):
        raise ValueError(f"a default of text is for strings: {name!r} has {default!r}")
    text = default.encode() if isinstance(default, str) else default
    if column.words is None:
        return text
    code = column.words.index(text) if text in column.words else column.unknown
    return checked_value(code, "default", name, dtype)


def _checked_list(
    default: Any, name: str, dtype: str, leaves: Sequence[Leaf]
) -> tuple[int | float | bool, ...]:
    if not isinstance(default, Sequence) or not leaves[0].num_lists:
        raise ValueError(
            "the default of a list is a list, such as default=[], that of a string a str or bytes: "
            f"{name!r} is {leaves[0].kind}, default={default!r}"
        )
    if default and (leaves[0].num_offsets > 1 or leaves[0].items):
        raise ValueError(
            "the default of nested lists and of lists of strings is default=[]: "
            f"{name!r} is {leaves[0].kind}, default={default!r}"
        )
    return tuple(checked_value(value, "default", name, dtype) for value in default)


def resolved_nulls(
    column: Column, default: Nulls, name: str, dtype: str, has_strings: bool
) -> tuple[
    Literal["error", "fill", "mask"], int | float | bool, tuple[int | float | bool | None, ...]
]:
    """Return the policy and the fill of all sources, or a fill of each."""
    policy = default if column.nulls is None else column.nulls
    if not isinstance(policy, Mapping | tuple):
        return *_resolve_nulls(policy, name, dtype, has_strings), ()
    policies = dict(policy)
    found = [
        _resolve_nulls(policies.get(source, default), name, dtype, has_strings)
        for source in column.sources
    ]
    if any(how == "mask" for how, _ in found):
        raise ValueError(
            'nulls="mask" is for all columns of a tensor; give each of them another policy: '
            f"{name!r} has nulls={policies}"
        )
    fills = tuple(None if how == "error" else fill for how, fill in found)
    return "fill", kind_of(dtype)(0), fills


def _resolve_nulls(
    policy: Nulls, name: str, dtype: str, has_strings: bool
) -> tuple[Literal["error", "fill", "mask"], int | float | bool]:
    is_float = getattr(torch, dtype).is_floating_point
    zero = kind_of(dtype)(0)
    if policy == "empty" and has_strings:
        return "fill", zero
    if policy == "empty":
        raise ValueError(
            'nulls="empty" is for strings; give a column of numbers a value, as in Column(..., '
            f"nulls=0), which makes null lists empty too: {name!r} is {dtype}"
        )
    if has_strings and policy not in (None, "error", "mask"):
        raise ValueError(
            'nulls of strings must be "empty", "mask" or "error", which Column(..., '
            f'nulls="empty") sets for one column: {name!r} is strings, nulls={policy!r}'
        )
    if policy is None:
        policy = "nan" if is_float else "error"
    if policy == "error":
        return "error", zero
    if policy == "mask":
        return "mask", zero
    if policy == "nan":
        if not is_float:
            raise ValueError(
                'nulls="nan" needs a float column (set "error", "mask" or a fill value with '
                f"Column(..., nulls=...)): {name!r} is {dtype}"
            )
        return "fill", float("nan")
    return "fill", checked_value(policy, "fill value for nulls", name, dtype)


def kind_of(dtype: str) -> type[bool | int | float]:
    """Return the type of Python's values of a dtype."""
    if dtype == "bool":
        return bool
    return float if getattr(torch, dtype).is_floating_point else int


def checked_value(
    value: int | float | bool, what: str, name: str, dtype: str
) -> int | float | bool:
    """Return ``value`` as a bool, int or float of Python, as ``dtype`` demands."""
    fitting = in_dtype(value, getattr(torch, dtype))
    if fitting is None:
        raise ValueError(
            f"a {what} must be representable in the column's dtype: {name!r} is {dtype}, the "
            f"value {value!r}"
        )
    return fitting
