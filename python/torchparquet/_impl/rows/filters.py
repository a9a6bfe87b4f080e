"""The argument `filters=`: as an expression of pyarrow, and the equalities that it needs.

sqlglot parses conditions in SQL.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from torchparquet._impl.rows.pruning.bloom_filters import ANYTHING, Alternatives, Equality
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
            f"got {filters!r}"
        )
    try:
        made: pc.Expression = pq.filters_to_expression(filters)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(
            'filters must be tuples of a name, one of = == != < <= > >= in "not in", and a value '
            f"({one_line(error)}); got {filters!r}"
        ) from error
    for name, _, value in itertools.chain.from_iterable(_alternatives(filters)):
        if value is None:
            raise ValueError(
                "filters compare with None, which is true of no row; say "
                f'"{name} is null" or "{name} is not null" in SQL, or '
                f'pyarrow.compute.field("{name}").is_null()'
            )
    return made


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


_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}


def sql_expression(text: str) -> pc.Expression:
    """Return the condition of a `WHERE` clause, without the word itself.

    Nulls are SQL's: a comparison with null is unknown, also for `IN` and `NOT IN`.
    """
    return _Translator(text).expression(parsed_condition(text))


def parsed_condition(text: str) -> Any:
    """Return such a condition as sqlglot's tree."""
    try:
        import sqlglot
    except ImportError as error:
        raise ImportError(
            "filters in SQL need sqlglot: pip install sqlglot; "
            "or give tuples, or a pyarrow Expression"
        ) from error
    try:
        parsed = sqlglot.parse_one(f"SELECT 1 WHERE {text}", read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(
            f"filters must be a SQL condition, as after WHERE ({one_line(error)}): {text!r}"
        ) from error
    parts = {name for name, part in parsed.args.items() if part}
    if not parts <= {"expressions", "where", "kind"} or parsed.args.get("where") is None:
        raise ValueError(f"filters must be one SQL condition, as after WHERE, got {text!r}")
    return parsed.args["where"].this


class _Translator:
    """Makes expressions of the parts of one condition."""

    def __init__(self, text: str) -> None:
        import pyarrow.compute as pc

        self._text = text
        self._pc = pc

    def expression(self, part: Any) -> Any:
        """Return a part as an expression."""
        name = type(part).__name__
        if name in _BINARY:
            return _BINARY[name](self.expression(part.this), self.expression(part.expression))
        if name in _CALLS:
            return getattr(self._pc, _CALLS[name])(self.expression(part.this))
        made = getattr(self, f"_{name.lower()}", None)
        if made is None:
            raise self._unsupported(part)
        return made(part)

    def _unsupported(self, part: Any) -> ValueError:
        return ValueError(f"filters cannot use {part.sql()!r} of {self._text!r}")

    def _column(self, part: Any) -> Any:
        return self._pc.field(*(piece.name for piece in part.parts))

    def _dot(self, part: Any) -> Any:
        names = [piece.name for piece in part.flatten()]
        if not all(names):
            raise self._unsupported(part)
        return self._pc.field(*names)

    def _literal(self, part: Any) -> Any:
        if part.is_string:
            return self._pc.scalar(part.this)
        return self._pc.scalar(int(part.this) if part.is_int else float(part.this))

    def _boolean(self, part: Any) -> Any:
        return self._pc.scalar(bool(part.this))

    def _null(self, _part: Any) -> Any:
        return self._pc.scalar(pa.scalar(None, pa.bool_()))

    def _paren(self, part: Any) -> Any:
        return self.expression(part.this)

    def _not(self, part: Any) -> Any:
        return ~self.expression(part.this)

    def _neg(self, part: Any) -> Any:
        if type(part.this).__name__ == "Literal" and not part.this.is_string:
            number = part.this.this
            return self._pc.scalar(-int(number) if part.this.is_int else -float(number))
        return self._pc.negate(self.expression(part.this))

    def _between(self, part: Any) -> Any:
        value = self.expression(part.this)
        return (value >= self.expression(part.args["low"])) & (
            value <= self.expression(part.args["high"])
        )

    def _is(self, part: Any) -> Any:
        value, kind = self.expression(part.this), type(part.expression).__name__
        if kind == "Null":
            return value.is_null()
        if kind == "Boolean":
            return value.is_valid() & (value if part.expression.this else ~value)
        raise self._unsupported(part)

    def _in(self, part: Any) -> Any:
        items = part.expressions
        if not items or part.args.get("query") is not None:
            raise self._unsupported(part)
        value = self.expression(part.this)
        equal = (
            self._null(item) if type(item).__name__ == "Null" else value == self.expression(item)
            for item in items
        )
        return functools.reduce(operator.or_, equal)

    def _like(self, part: Any) -> Any:
        pattern, ignore_case = self._text_of(part.expression), type(part).__name__ == "ILike"
        return self._pc.match_like(self.expression(part.this), pattern, ignore_case=ignore_case)

    _ilike = _like

    def _startswith(self, part: Any) -> Any:
        prefix = self._text_of(part.expression)
        return self._pc.starts_with(self.expression(part.this), prefix)

    def _text_of(self, part: Any) -> str:
        if type(part).__name__ != "Literal" or not part.is_string:
            raise self._unsupported(part)
        return str(part.this)

    def _cast(self, part: Any) -> Any:
        to = _TYPES.get(part.to.this.name)
        if to is None:
            raise self._unsupported(part)
        return self.expression(part.this).cast(to)


def _remainder(one: Any, other: Any) -> Any:
    quotient = (one / other).cast(pa.int64())
    return one - quotient * other


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{"And": operator.and_, "Or": operator.or_, "EQ": operator.eq, "NEQ": operator.ne},
    **{"LT": operator.lt, "LTE": operator.le, "GT": operator.gt, "GTE": operator.ge},
    **{"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul},
    "Div": lambda one, other: one.cast(pa.float64()) / other.cast(pa.float64()),
    "Mod": _remainder,
}
_CALLS = {"Lower": "utf8_lower", "Upper": "utf8_upper", "Length": "utf8_length", "Abs": "abs"}
