"""The argument `where=` as an expression of pyarrow."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias

from torchparquet._impl.rows.sql import sql_expression
from torchparquet.errors import one_line

if TYPE_CHECKING:
    import pyarrow.compute as pc

WhereArgument: TypeAlias = "pc.Expression | str | list[Any] | None"


def both(where: Any, other: pc.Expression | None) -> Any:
    """Return an argument `where=` by which another condition holds too."""
    if other is None:
        return where
    return other if where is None else where_expression(where) & other


def where_expression(where: Any) -> pc.Expression:
    """Return a condition on rows.

    Args:
        where: An expression; a SQL condition; pyarrow's tuples, `[("x", ">", 3), ...]`; or a list
            of lists of tuples, one of which must hold.
    """
    import pyarrow.compute as pc

    if isinstance(where, pc.Expression):
        return where
    if isinstance(where, str):
        return sql_expression(where)
    if not isinstance(where, list) or not where:
        raise TypeError(
            "where must be a pyarrow Expression, a SQL condition, a list of tuples or a list of "
            f"such lists; got {where!r}"
        )
    lists = where if all(isinstance(part, list) for part in where) else [where]
    alternatives = [
        functools.reduce(lambda one, other: one & other, map(_of_tuple, part)) for part in lists
    ]
    return functools.reduce(lambda one, other: one | other, alternatives)


def _of_tuple(condition: Any) -> pc.Expression:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        name, sign, _ = condition
        made: pc.Expression = pq.filters_to_expression([condition])
        # A null is neither in a list nor known to be outside of it.
        return made & pc.field(name).is_valid() if sign == "not in" else made
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(
            f"where cannot be understood ({one_line(error)}): {condition!r}"
        ) from error
