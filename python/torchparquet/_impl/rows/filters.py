"""The argument `filters=`, which may be tuples or SQL, as an expression of pyarrow."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import itertools
import operator
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from torchparquet._impl.checks import shown
from torchparquet.errors import one_line

if TYPE_CHECKING:
    import pyarrow.compute as pc

FiltersArgument: TypeAlias = "pc.Expression | str | list[Any] | None"


def both(filters: Any, other: pc.Expression | list[Any] | None) -> Any:
    """Return an argument `filters=` by which another one holds too."""
    if other is None or filters is None:
        return other if filters is None else filters
    return filters_expression(filters) & filters_expression(other)


def content_of(expression: pc.Expression) -> bytes:
    """Return an expression whole; as text it may leave out the middle of a list."""
    return pickle.dumps(expression, protocol=4)


def filters_expression(filters: Any) -> pc.Expression:
    """Return a condition on rows from an Expression, from SQL, or from pyarrow's tuples."""
    import pyarrow.compute as pc

    if isinstance(filters, pc.Expression):
        return filters
    if isinstance(filters, str):
        return _Translator(filters).expression(_parsed(filters))
    if not isinstance(filters, list):
        raise TypeError(
            'filters must be tuples such as [("x", ">", 3), ("y", "in", ["a", "b"])], a list of '
            'such lists of which one must hold, SQL such as "x > 3", or a pyarrow Expression; '
            f"got {shown(filters)}"
        )
    try:
        is_nested = not isinstance(filters[0][0], str)
        alternatives = [
            functools.reduce(operator.and_, itertools.starmap(_of_tuple, part))
            for part in (filters if is_nested else [filters])
        ]
        made: pc.Expression = functools.reduce(operator.or_, alternatives)
    except (TypeError, KeyError, IndexError, OverflowError, pa.ArrowException) as error:
        is_told = isinstance(error, pa.ArrowException | OverflowError)
        reason = f" ({one_line(error)})" if is_told else ""
        reason = f" ({error} is none of these)" if isinstance(error, KeyError) else reason
        raise ValueError(
            'filters must be tuples of a name, one of = == != < <= > >= in "not in", and a value'
            f"{reason}; got {shown(filters)}"
        ) from error
    return made


def _of_tuple(name: Any, sign: Any, value: Any) -> pc.Expression:
    import pyarrow.compute as pc

    if not isinstance(name, str | tuple):
        raise TypeError
    if value is None:
        raise ValueError(
            "filters compare with None, which is true of no row; say "
            f'"{name} is null" or "{name} is not null" in SQL, or '
            f'pyarrow.compute.field("{name}").is_null()'
        )
    return _SIGNS[sign](pc.field(name), value)


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    **{"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt},
    **{"<=": operator.le, ">": operator.gt, ">=": operator.ge},
    "in": lambda column, values: column.isin(values),
    "not in": lambda column, values: ~column.isin(values),
}
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


def fitting_value(column: pa.Field, value: pa.Scalar) -> str:
    """Return what to write in place of a value that a column cannot be compared with."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    fitting = _cast_somehow(value, kind)
    to_write = f"a value of type {kind}"
    if isinstance(fitting, decimal.Decimal):
        sql = f"cast('{fitting}' as decimal({kind.precision}, {kind.scale}))"
        to_write = f'decimal.Decimal("{fitting}"), in SQL {sql}'
    elif isinstance(fitting, dt.date):
        text, sql = fitting.isoformat(), "date" if pa.types.is_date(kind) else "timestamp"
        sql += "tz" if getattr(kind, "tz", None) else ""
        python = f'datetime.{type(fitting).__name__}.fromisoformat("{text}")'
        to_write = f"{python}, in SQL cast('{text}' as {sql})"
    elif fitting is not None:
        to_write = repr(fitting)
    return f"write {to_write}; column {column.name!r} cannot be compared with {value.as_py()!r}"


def _cast_somehow(value: pa.Scalar, kind: pa.DataType) -> Any:
    """Return a value as Python's number, text, decimal or date of another type, if it has one."""
    if pa.types.is_temporal(kind) and pa.types.is_integer(value.type):
        return None
    # Integers become decimals by way of texts, and texts become moments in UTC.
    for between in (value.type, pa.string(), pa.timestamp("us")):
        try:
            found = value.cast(between).cast(kind).as_py()
        except pa.ArrowException:
            continue
        return found if isinstance(found, _WRITTEN) else None
    return None


_WRITTEN = (bool, int, float, str, decimal.Decimal, dt.date)


def _parsed(text: str) -> Any:
    """Return the condition of a `WHERE` clause, without the word itself, as sqlglot's tree."""
    failure: Exception | None = None
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
        parsed, failure = None, error
    where = None if parsed is None else parsed.args.get("where")
    if where is None or not _said_parts(parsed) <= {"expressions", "where", "kind"}:
        raise ValueError(
            f"filters must be one SQL condition, as after WHERE, got {text!r}"
        ) from failure
    return where.this


def _said_parts(part: Any) -> set[str]:
    """Return the names of what a part of a tree consists of: each changes what it means."""
    return {name for name, value in part.args.items() if value}


class _Translator:
    """Makes expressions of the parts of one condition; comparisons with null are unknown."""

    def __init__(self, text: str) -> None:
        import pyarrow.compute as pc

        self._text = text
        self._pc = pc

    def expression(self, part: Any) -> Any:
        """Return a part as an expression."""
        if not _said_parts(part) <= _KNOWN_PARTS:
            raise self._unsupported(part)
        made = self._made(part, type(part).__name__)
        return ~made if part.args.get("negate") else made

    def _made(self, part: Any, name: str) -> Any:
        if name in _BINARY:
            return _BINARY[name](self.expression(part.this), self.expression(part.expression))
        if name in _UNARY:
            return _UNARY[name](self.expression(part.this))
        if name in _CALLS:
            return getattr(self._pc, _CALLS[name])(self.expression(part.this))
        made = getattr(self, f"_{name.lower()}", None)
        if made is None:
            raise self._unsupported(part)
        return made(part)

    def _unsupported(self, part: Any) -> ValueError:
        return ValueError(f"filters cannot use {part.sql()!r} of {self._text!r}")

    def _column(self, part: Any) -> Any:
        names = [
            piece.name for piece in (part.flatten() if type(part).__name__ == "Dot" else part.parts)
        ]
        if not all(names):
            raise self._unsupported(part)
        return self._pc.field(*names)

    _dot = _column

    def _literal(self, part: Any, sign: str = "") -> Any:
        if part.is_string:
            return self._pc.scalar(part.this)
        value = int(sign + part.this) if part.is_int else float(sign + part.this)
        try:
            is_large = part.is_int and value >= 2**63
            return self._pc.scalar(pa.scalar(value, pa.uint64() if is_large else None))
        except (pa.ArrowException, OverflowError) as error:
            raise self._unsupported(part) from error

    def _boolean(self, part: Any) -> Any:
        return self._pc.scalar(bool(part.this))

    def _null(self, _part: Any) -> Any:
        return self._pc.scalar(pa.scalar(None, pa.bool_()))

    def _neg(self, part: Any) -> Any:
        if type(part.this).__name__ == "Literal" and not part.this.is_string:
            return self._literal(part.this, "-")
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
        name, sizes = part.to.this.name, [int(one.name) for one in part.to.expressions]
        to = _TYPES.get(name)
        if name == "DECIMAL" and len(sizes) == 2 and sizes[0] <= 76:
            to = pa.decimal128(*sizes) if sizes[0] <= 38 else pa.decimal256(*sizes)
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
_UNARY: dict[str, Callable[[Any], Any]] = {"Paren": lambda one: one, "Not": operator.invert}
_CALLS = {"Lower": "utf8_lower", "Upper": "utf8_upper", "Length": "utf8_length", "Abs": "abs"}
