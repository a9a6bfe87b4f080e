"""SQL conditions as expressions of pyarrow. sqlglot parses them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.compute as pc

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
    "TIMESTAMPNTZ": pa.timestamp("us"),
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
            f"filters must be one SQL condition, as after WHERE, got {text!r}"
        ) from error
    parts = {name for name, part in parsed.args.items() if part}
    if not parts <= {"expressions", "where", "kind"} or parsed.args.get("where") is None:
        raise ValueError(f"filters must be one SQL condition, as after WHERE, got {text!r}")
    return parsed.args["where"].this


def said_parts(part: Any) -> set[str]:
    """Return the names of what a part of a tree consists of: each changes what it means."""
    return {name for name, value in part.args.items() if value}


class _Translator:
    """Makes expressions of the parts of one condition."""

    def __init__(self, text: str) -> None:
        import pyarrow.compute as pc

        self._text = text
        self._pc = pc

    def expression(self, part: Any) -> Any:
        """Return a part as an expression."""
        if not said_parts(part) <= _KNOWN_PARTS:
            raise self._unsupported(part)
        made = self._made(part, type(part).__name__)
        return ~made if part.args.get("negate") else made

    def _made(self, part: Any, name: str) -> Any:
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
        return self._number(part, int(part.this) if part.is_int else float(part.this))

    def _number(self, part: Any, value: float) -> Any:
        if not isinstance(value, int) or -(2**63) <= value < 2**63:
            return self._pc.scalar(value)
        if not 0 <= value < 2**64:
            raise self._unsupported(part)
        return self._pc.scalar(pa.scalar(value, pa.uint64()))

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
            return self._number(part, -int(number) if part.this.is_int else -float(number))
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


# Of sqlglot's nodes; "negate" is of those that say NOT themselves, as LIKE does in some releases.
_KNOWN_PARTS = {
    *("this", "expression", "expressions", "low", "high", "to", "is_string", "quoted", "negate"),
    *("table", "db", "catalog", "typed", "safe"),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{"And": operator.and_, "Or": operator.or_, "EQ": operator.eq, "NEQ": operator.ne},
    **{"LT": operator.lt, "LTE": operator.le, "GT": operator.gt, "GTE": operator.ge},
    **{"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul},
    "Div": lambda one, other: one.cast(pa.float64()) / other.cast(pa.float64()),
    "Mod": _remainder,
}
_CALLS = {"Lower": "utf8_lower", "Upper": "utf8_upper", "Length": "utf8_length", "Abs": "abs"}
