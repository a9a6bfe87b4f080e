"""The equalities that a condition needs, as far as its form tells."""

from __future__ import annotations

import itertools
from typing import Any

from torchparquet._impl.rows.pruning.bloom_filters import ANYTHING, Alternatives, Equality
from torchparquet._impl.rows.sql import parsed_condition

_MAX_ALTERNATIVES = 64


def equalities_of(where: Any) -> Alternatives:
    """Return what the argument `where=`, which was found to be sound, needs of columns."""
    if isinstance(where, str):
        return _of_part(parsed_condition(where))
    if not isinstance(where, list):
        return ANYTHING
    lists = where if all(isinstance(part, list) for part in where) else [where]
    return [[found for term in part for found in _of_tuple(*term)] for part in lists]


def _of_tuple(name: Any, sign: str, value: Any) -> list[Equality]:
    if not isinstance(name, str):
        return []
    if sign in ("=", "=="):
        return [Equality(name, (value,))]
    # An iterator was read when the condition was made.
    is_known = sign == "in" and isinstance(value, (list, tuple, set, frozenset))
    return [Equality(name, tuple(value))] if is_known else []


def _of_part(part: Any) -> Alternatives:
    kind = type(part).__name__
    if kind == "Paren":
        return _of_part(part.this)
    if kind in ("And", "Or"):
        one, other = _of_part(part.this), _of_part(part.expression)
        pairs = itertools.product(one, other)
        both = one + other if kind == "Or" else [a + b for a, b in pairs]
        return both if len(both) <= _MAX_ALTERNATIVES else ANYTHING
    found = _of_comparison(part, kind)
    return ANYTHING if found is None else [[found]]


def _of_comparison(part: Any, kind: str) -> Equality | None:
    if kind == "EQ":
        one, other = part.this, part.expression
        return _equality(one, [other]) or _equality(other, [one])
    if kind == "In" and part.args.get("query") is None:
        # A comparison with null is never true.
        items = [item for item in part.expressions if type(item).__name__ != "Null"]
        return _equality(part.this, items)
    return None


def _equality(column: Any, items: list[Any]) -> Equality | None:
    if type(column).__name__ != "Column" or len(column.parts) != 1:
        return None
    values: list[Any] = []
    for item in items:
        is_negative = type(item).__name__ == "Neg"
        literal = item.this if is_negative else item
        if type(literal).__name__ != "Literal":
            return None
        if literal.is_string and not is_negative:
            values.append(str(literal.this))
        elif literal.is_int:
            values.append(-int(literal.this) if is_negative else int(literal.this))
        else:
            return None
    return Equality(column.name, tuple(values))
