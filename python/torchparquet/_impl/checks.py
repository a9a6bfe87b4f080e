"""Checks of arguments that are alike everywhere."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ParamSpec, SupportsIndex, TypeVar

import numpy as np

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def checked_bool(name: str, value: object) -> None:
    """Make sure that `value` is a bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {shown(value)}")


def plain_number(value: Any) -> Any:
    """Return a number of NumPy as Python's, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def checked_int(name: str, value: object, low: int, high: int, others: str = "") -> int:
    """Return `value` as an int in `[low, high)`, or say what `name` must be."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int{others}, got {shown(value)}")
    if value < low:
        raise ValueError(f"{name} must be >= {low}, got {value}")
    if value >= high:
        raise ValueError(f"{name} must be < {high}, got {value}")
    return int(value)


def checked_row(row: SupportsIndex, num_rows: int) -> int:
    """Return the number of a row, counted from the first; below 0 it counts from the end."""
    index = operator.index(row)
    if not -num_rows <= index < num_rows:
        raise IndexError(f"row must be in range({-num_rows}, {num_rows}); got {index}")
    return index % num_rows


def optional_int(name: str, value: object, low: int, high: int) -> int | None:
    """Return None as it is, and anything else as `checked_int` does."""
    return None if value is None else checked_int(name, value, low, high, " or None")


def checked_word(name: str, value: Any, words: Iterable[str], others: str = "") -> str:
    """Return `value`, which must be one of some words."""
    known = tuple(words)
    if value not in known:
        listed_words = ", ".join(f'"{word}"' for word in known)
        raise ValueError(f"{name} must be one of {listed_words}{others}; got {value!r}")
    return str(value)


def set_checked(options: object, **values: Any) -> None:
    """Replace attributes of a frozen dataclass by what their checks have returned."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


def shown(value: object) -> str:
    """Return a wrong argument for a message: classes and functions in words, no address."""
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    text = f"{' '.join(repr(value).split()):.200}"
    return f"an object of type {type(value).__name__}" if " at 0x" in text else text


def close_names(name: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return the known names that the user may mean: in other case, or else of like spelling."""
    names = list(known)
    folded = [one for one in names if one.casefold() == name.casefold()]
    return folded or difflib.get_close_matches(name, names, cutoff=cutoff)


def checked_names(names: Any, argument: str) -> tuple[str, ...]:
    """Return ``names`` as a tuple; raise unless it is a sequence of different names."""
    if not isinstance(names, Sequence) or isinstance(names, str | bytes):
        raise TypeError(f"{argument} must be a list or tuple of names; got {shown(names)}")
    if not names:
        raise ValueError(f"{argument} must hold at least one name; got {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must hold names (str); got {shown(name)}")
        if not name:
            raise ValueError(f"{argument} must not hold an empty name; got {names!r}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{argument} must hold each name only once; repeated: {listed(repeated)}")
    return tuple(names)


def listed(names: Sequence[str]) -> str:
    """Join the names in quotes, at most the first ten."""
    return shortened([repr(name) for name in names])


def shortened(items: Sequence[str]) -> str:
    """Join ``items``, at most the first ten."""
    shown = ", ".join(items[:10])
    return shown if len(items) <= 10 else f"{shown} and {len(items) - 10} more"


def explaining_arguments(
    groups: Mapping[str, type] | None = None, **required: str
) -> Callable[[Callable[_Given, _Result]], Callable[_Given, _Result]]:
    """Return a decorator by which a call says which arguments to give, also those of `groups`."""

    def decorate(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        @functools.wraps(function)
        def explained(*given: _Given.args, **named: _Given.kwargs) -> _Result:
            try:
                return function(*given, **named)
            except TypeError as error:
                # One that the function itself has raised has a further frame.
                if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                    raise
                text = _wrong_arguments(function, named, groups or {}, required)
                raise TypeError(text or str(error)) from None

        return explained

    return decorate


def _wrong_arguments(
    function: Callable[..., Any],
    named: dict[str, Any],
    groups: Mapping[str, type],
    required: dict[str, str],
) -> str:
    """Return what is wrong with the arguments of a call; empty if that is not known."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    of = function.__qualname__.removesuffix(".__init__")
    grouped = {
        given: f"{argument}={group.__name__}({field.name}=...)"
        for argument, group in groups.items()
        for field in fields(group)
        for given in (field.name, f"{argument}_{field.name}")
    }
    for name in named:
        if name not in known:
            close = [grouped[name]] if name in grouped else [*map(repr, close_names(name, known))]
            meant = f"; did you mean {close[0]}" if close else ""
            return f"{of} has no such argument{meant}: {name!r}"
    missing = [name for name in required if name not in named]
    if missing:
        return f"{of} needs {missing[0]}, by name: {required[missing[0]]}"
    return ""
