"""Checks of arguments that are alike everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np


def checked_bool(name: str, value: object) -> None:
    """Make sure that `value` is a bool.

    Raises:
        TypeError: It is something else; the message names `name`.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {value!r}")


def plain_number(value: Any) -> Any:
    """Return a number of NumPy as Python's, and anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def checked_int(name: str, value: object, low: int, high: int, others: str = "") -> int:
    """Return `value` as an int in `[low, high)`, or say what `name` must be.

    Args:
        name: Of the argument.
        value: What the user gave.
        low: The least that it may be.
        high: It must be less.
        others: What else the argument may be, for the message: ", None or ...".

    Raises:
        TypeError: `value` is not an integer; a bool does not count as one.
        ValueError: `value` lies outside the range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int{others}, got {value!r}")
    if not low <= value < high:
        raise ValueError(f"{name} must be >= {low} and < {high}, got {value}")
    return int(value)
