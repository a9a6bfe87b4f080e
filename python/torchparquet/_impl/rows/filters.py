"""The argument `filters=`: as an expression of pyarrow, and the equalities that it needs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias

from torchparquet._impl.checks import shown
from torchparquet._impl.rows.pruning.bloom_filters import ANYTHING, Alternatives, Equality
from torchparquet._impl.rows.sql import parsed_condition, said_parts, sql_expression
from torchparquet.errors import one_line

if TYPE_CHECKING:
    import pyarrow.compute as pc

FiltersArgument: TypeAlias = "pc.Expression | str | list[Any] | None"

_MAX_ALTERNATIVES = 64


def both(filters: Any, other: pc.Expression | list[Any] | None) -> Any:
    """Return an argument `filters=` by which another one holds too."""
    if other is None or filters is None:
        return other if filters is None else filters
    return filters_expression(filters) & filters_expression(other)


def filters_expression(filters: Any) -> pc.Expression:
    """Return a condition on rows from an Expression, from SQL, or from pyarrow's tuples."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if isinstance(filters, pc.Expression):
        return filters
    if isinstance(filters, str):
        return sql_expression(filters)
    if not isinstance(filters, list):
        raise TypeError(
            'filters must be tuples such as [("x", ">", 3), ("y", "in", ["a", "b"])], a list of '
            'such lists of which one must hold, SQL such as "x > 3", or a pyarrow Expression; '
            f"got {shown(filters)}"
        )
    wanted = 'filters must be tuples of a name, one of = == != < <= > >= in "not in", and a value'
    if not _are_terms(filters):
        raise ValueError(f"{wanted}; got {shown(filters)}")
    try:
        made: pc.Expression = pq.filters_to_expression(filters)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"{wanted} ({one_line(error)}); got {filters!r}") from error
    for name, _, value in itertools.chain.from_iterable(_alternatives(filters)):
        if value is None:
            raise ValueError(
                "filters compare with None, which is true of no row; say "
                f'"{name} is null" or "{name} is not null" in SQL, or '
                f'pyarrow.compute.field("{name}").is_null()'
            )
    return made


def _are_terms(filters: list[Any]) -> bool:
    """Return whether these are tuples of three, or lists of such."""

    def is_group(group: Any) -> bool:
        return isinstance(group, list | tuple) and len(group) > 0

    is_nested = bool(filters) and is_group(filters[0]) and is_group(filters[0][0])
    parts = filters if is_nested else [filters]
    return all(is_group(part) and all(map(_is_term, part)) for part in parts)


def _is_term(term: Any) -> bool:
    return isinstance(term, list | tuple) and len(term) == 3 and isinstance(term[1], str)


def _alternatives(filters: list[Any]) -> list[Any]:
    """Return lists of tuples, one of which must hold, as pyarrow reads them."""
    return [filters] if isinstance(filters[0][0], str) else filters


def equalities_of(filters: Any) -> Alternatives:
    """Return what the argument `filters=`, which was found to be sound, needs of columns."""
    if isinstance(filters, str):
        return _of_part(parsed_condition(filters))
    if not isinstance(filters, list):
        return ANYTHING
    return [
        [found for term in part for found in _of_tuple(*term)] for part in _alternatives(filters)
    ]


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
    if not said_parts(part) <= {"this", "expression", "expressions"}:
        return ANYTHING
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
