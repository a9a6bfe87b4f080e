"""A condition: the columns that it names, and what it may be where something is known of rows.

pyarrow pickles an expression as a record batch: its tree as metadata of the schema, each function
before its arguments, and its constants and options as columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.rows.pruning.bounds import Bounds, Mask

if TYPE_CHECKING:
    import pyarrow.compute as pc

# [3, N]: whether a condition may be true, false and null in each of `N` sets of rows.
Outcomes: TypeAlias = NDArray[np.bool_]
# A key and its value; of a field within a column the names from the column on.
_Token: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Knowledge:
    """What is known of `N` sets of rows."""

    num_sets: int
    # Columns that have one value in all rows of each marked set.
    values: Mapping[str, tuple[pa.Array, Mask]] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    # Returns the sets in which a column has none of some values.
    lacks: Callable[[str, pa.Array], Mask] | None = None


@dataclass(frozen=True)
class _Leaf:
    """A part of a condition without and, or and not."""

    tokens: list[_Token]
    columns: list[str]
    sign: str = ""  # how it compares one column with constants
    constants: list[pa.Array] = field(default_factory=list)


@dataclass
class _Call:
    """A function whose end has not come yet, and how many arguments have."""

    name: str
    begin: int
    is_logic: bool  # like all around it
    num_arguments: int = 0


class Condition:
    """An expression taken apart; one part if pyarrow pickles it in a form that is not known."""

    def __init__(self, expression: pc.Expression, schema: pa.Schema) -> None:
        """Find the parts."""
        self._whole = expression
        self._tokens: list[_Token] = []
        try:
            self._make, (content,) = expression.__reduce__()
            self._constants = pa.ipc.open_file(content).get_batch(0)
            self._tokens = _tokens(self._constants.schema)
            self.columns = _columns(self._tokens)
            self._parts = self._taken_apart()
        except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
            self._tokens, self.columns = [], _needed_columns(expression, schema)
            self._parts = [_Leaf([], self.columns)]

    def renamed(self, names: Mapping[str, str]) -> pc.Expression:
        """Return the expression, of columns by other names."""
        if all(name == other for name, other in names.items()):
            return self._whole
        if not self._tokens:
            raise ValueError(
                "rows of this table cannot be filtered or split by columns that its files store by "
                "other names, because torchparquet does not know how this release of pyarrow "
                "pickles conditions: install an earlier pyarrow, or a later torchparquet; pyarrow "
                f"is {pa.__version__}"
            )
        return self._expression(
            [
                (key, names.get(first, first), *others) if key.endswith("field_ref") else token
                for token in self._tokens
                for key, first, *others in [token]
            ]
        )

    def misfit(self, schema: pa.Schema) -> tuple[pa.Field, pa.Scalar] | None:
        """Return the first column that is compared with a value of another type, and the value."""
        for part in self._parts:
            if isinstance(part, _Leaf) and part.constants and part.columns[0] in schema.names:
                column, value = schema.field(part.columns[0]), part.constants[0][0]
                row = pa.table([pa.nulls(1, column.type)], pa.schema([column]))
                # A list of integers makes integers of decimals, as long as none has a fraction.
                rounds = pa.types.is_decimal(column.type) and pa.types.is_integer(value.type)
                if rounds or self._values(part.tokens, row) is None:
                    return column, value
        return None

    def outcomes(self, known: Knowledge) -> Outcomes:
        """Return what the condition may be in each set of rows."""
        made: list[Outcomes] = []
        for part in self._parts:
            if isinstance(part, _Leaf):
                made.append(self._by_values(part, known) & _by_bounds(part, known))
            elif part == "invert":
                made.append(_inverted(made.pop()))
            else:
                made.append((_both if part == "and_kleene" else _either)(made.pop(), made.pop()))
        return made[0]

    def _taken_apart(self) -> list[_Leaf | str]:
        """Return leaves and, after their arguments, functions of logic."""
        parts: list[_Leaf | str] = []
        calls = [_Call("", 0, is_logic=True)]
        for at, (key, name, *_) in enumerate(self._tokens):
            begin, within = at, calls[-1]
            if key == "call":
                calls.append(_Call(name, at, is_logic=within.is_logic and name in _LOGIC))
                continue
            if key == "options" and not within.is_logic:
                continue
            if key == "end":
                done, within = calls.pop(), calls[-1]
                begin = done.begin
                if done.name != name or (done.is_logic and done.num_arguments != _LOGIC[name]):
                    raise ValueError
                if done.is_logic:
                    self._add_logic(parts, name, self._tokens[begin : at + 1])
            elif key not in ("field_ref", "nested_field_ref", "literal"):
                raise ValueError
            within.num_arguments += 1
            if within.is_logic and not (key == "end" and done.is_logic):
                tokens = self._tokens[begin : at + 1]
                parts.append(_Leaf(tokens, _columns(tokens), *self._comparison(tokens)))
        if len(calls) != 1 or calls[0].num_arguments != 1:
            raise ValueError
        return parts

    def _add_logic(self, parts: list[_Leaf | str], name: str, tokens: list[_Token]) -> None:
        """Add a function of logic; make one part of two by which a column equals some values."""
        match parts[-2:]:
            case [_Leaf(sign="equal") as one, _Leaf(sign="equal") as other] if (
                name == "or_kleene"
                and one.columns == other.columns
                and one.constants[0].type == other.constants[0].type
            ):
                one.constants.extend(other.constants)
                parts[-2:] = [_Leaf(tokens, one.columns, "equal", one.constants)]
            case _:
                parts.append(name)

    def _comparison(self, tokens: list[_Token]) -> tuple[str, list[pa.Array]]:
        """Return how a part compares a column, and with what; "" if it does anything else."""
        match tokens:
            case [("call", sign), ("field_ref", _), *constant, _] if sign in _COMPARISONS:
                return self._with_constant(sign, constant)
            case [("call", sign), *constant, ("field_ref", _), _] if sign in _COMPARISONS:
                return self._with_constant(_COMPARISONS[sign], constant)
            case [("call", "is_in"), ("field_ref", _), ("options", at), _]:
                return "is_in", [self._options(at, "value_set", "null_matching_behavior").values]
            case [("call", "is_null"), ("field_ref", _), ("options", at), _]:
                return "" if self._options(at, "nan_is_null").as_py() else "is_null", []
            case [("call", "is_valid"), ("field_ref", _), _]:
                return "is_valid", []
        return "", []

    def _with_constant(self, sign: str, tokens: list[_Token]) -> tuple[str, list[pa.Array]]:
        if _columns(tokens):
            return "", []
        if [key for key, *_ in tokens] == ["literal"]:
            value = self._constants[int(tokens[0][1])]
        elif (tokens[0][0], tokens[-1][0]) == ("call", "end"):
            value = self._values(tokens, pa.table({"": [None]}))
        else:
            raise ValueError
        return ("", []) if value is None or value.null_count else (sign, [value])

    def _options(self, at: str, *names: str) -> Any:
        """Return the first of a function's options, which must have no others."""
        options = self._constants[int(at)]
        if {one.name for one in options.type} != {*names, "_type_name"}:
            raise ValueError
        return options[0][names[0]]

    def _by_values(self, leaf: _Leaf, known: Knowledge) -> Outcomes:
        marked = np.ones(known.num_sets, bool)
        for name in leaf.columns:
            marked &= known.values[name][1] if name in known.values else False
        if not marked.any():
            return _anything(known)
        columns = {name: known.values[name][0] for name in leaf.columns}
        values = self._values(leaf.tokens, pa.table(columns or {"": pa.nulls(known.num_sets)}))
        if values is None:
            return _anything(known)
        is_null, is_true = (
            _numpy(values.is_null()),
            _numpy(values.cast(pa.bool_()).fill_null(False)),
        )
        return np.stack([is_true, ~is_true & ~is_null, is_null]) | ~marked

    def _values(self, tokens: list[_Token], table: pa.Table) -> pa.Array | None:
        """Return the values of a part; None where it has none, which an evaluation will tell."""
        import pyarrow.dataset as pads

        try:
            scanner = pads.dataset(table).scanner(columns={"": self._expression(tokens)})
            return scanner.to_table().column(0).combine_chunks()
        except pa.ArrowException:
            return None

    def _expression(self, tokens: list[_Token]) -> pc.Expression:
        if not tokens:
            return self._whole
        pairs: list[tuple[str, ...]] = []
        for key, *names in tokens:
            if key == "nested_field_ref":
                pairs += [(key, str(len(names))), *(("field_ref", name) for name in names)]
            else:
                pairs.append((key, *names))
        batch = self._constants.replace_schema_metadata(pa.KeyValueMetadata(pairs))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        made: pc.Expression = self._make(sink.getvalue())
        return made


def _tokens(schema: pa.Schema) -> list[_Token]:
    """Return the metadata of a schema in their order; pyarrow's dict has each key only once."""
    if not schema.metadata:
        raise ValueError
    prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer_of = prototype(("PyCapsule_GetPointer", ctypes.pythonapi))
    capsule = schema.__arrow_c_schema__()
    # The third pointer of the struct. Numbers of texts and of their bytes are int32.
    place = pointer_of(capsule, b"arrow_schema") + 2 * ctypes.sizeof(ctypes.c_void_p)
    at = ctypes.c_size_t.from_address(place).value

    def number() -> int:
        nonlocal at
        at += 4
        return ctypes.c_int32.from_address(at - 4).value

    def text() -> str:
        nonlocal at
        num_bytes = number()
        at += num_bytes
        return ctypes.string_at(at - num_bytes, num_bytes).decode()

    pairs = iter([(text(), text()) for _ in range(number())])
    return [
        (key, *(next(pairs)[1] for _ in range(int(value)))) if key == "nested_field_ref" else pair
        for pair in pairs
        for key, value in [pair]
    ]


def _needed_columns(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns without which pyarrow finds no values of an expression."""
    import pyarrow.dataset as pads

    def has_values(without: str | None) -> bool:
        left = pa.schema([field for field in schema if field.name != without])
        try:
            pads.Scanner.from_batches([], schema=left, columns={"": expression})
        except (pa.ArrowException, KeyError):
            return False
        return True

    return [name for name in schema.names if not has_values(name)] if has_values(None) else []


def _columns(tokens: list[_Token]) -> list[str]:
    return list(dict.fromkeys(token[1] for token in tokens if token[0].endswith("field_ref")))


def _anything(known: Knowledge) -> Outcomes:
    return np.ones((3, known.num_sets), bool)


def _by_bounds(leaf: _Leaf, known: Knowledge) -> Outcomes:
    """Return what a part may be by the bounds of its column, and by the values that this lacks."""
    found = _anything(known)
    if not leaf.sign:
        return found
    bounds = known.bounds.get(leaf.columns[0])
    if leaf.sign in ("is_null", "is_valid"):
        if bounds is not None:
            found = np.stack([bounds.may_be_null, ~bounds.is_null, np.zeros_like(bounds.is_null)])
        return found if leaf.sign == "is_null" else _inverted(found)
    values = pa.concat_arrays(leaf.constants)
    if bounds is not None:
        never, always = _compared(leaf.sign, bounds, values.drop_null())
        found = np.stack([~bounds.is_null & ~never, ~bounds.is_null & ~always, bounds.may_be_null])
    if known.lacks is not None and leaf.sign in ("equal", "is_in"):
        found[0] &= ~known.lacks(leaf.columns[0], values.drop_null())
    if leaf.sign == "is_in":
        # Null is in a list with null, and else not in it, or null, as the options say.
        found[0] |= found[2] & (values.null_count > 0)
        found[1] |= found[2]
    return found


def _compared(sign: str, bounds: Bounds, values: pa.Array) -> tuple[Mask, Mask]:
    """Return where a comparison is true of no value, and where of all; nulls are left aside."""
    if sign == "not_equal":
        return _compared("equal", bounds, values)[::-1]
    try:
        if sign in ("equal", "is_in"):
            never, always = _equal(bounds, values, finds_nan=sign == "is_in")
        else:
            # The value that most likely fulfils it does not, or the one that least likely does.
            most, least = bounds.low, bounds.high
            if sign.startswith("greater"):
                most, least = least, most
            never = ~_holds(sign, most, values[0], default=True)
            always = _holds(sign, least, values[0], default=False)
    except (pa.ArrowException, TypeError):
        return (np.zeros_like(bounds.is_null),) * 2
    # NaN is outside of all bounds.
    return never, always & (not pa.types.is_floating(bounds.low.type))


def _holds(sign: str, bounds: pa.Array, value: pa.Scalar, *, default: bool) -> Mask:
    import pyarrow.compute as pc

    return _numpy(pc.call_function(sign, [bounds, value]).fill_null(default))


def _equal(bounds: Bounds, values: pa.Array, *, finds_nan: bool) -> tuple[Mask, Mask]:
    """Return where none of the values is within the bounds, and where one of them is both."""
    never, always = np.zeros_like(bounds.is_null), np.zeros_like(bounds.is_null)
    kind = bounds.low.type
    if pa.types.is_temporal(kind) and values.type != kind:
        if not (pa.types.is_timestamp(kind) and pa.types.is_timestamp(values.type)):
            return never, always
        # NumPy does not notice if it is too large for the other unit.
        values = values.cast(kind)
    is_known = _numpy(bounds.low.is_valid()) & _numpy(bounds.high.is_valid())
    low, high = _numpy(bounds.low.filter(is_known)), _numpy(bounds.high.filter(is_known))
    wanted = np.sort(_numpy(values))
    is_within = np.searchsorted(wanted, low) < np.searchsorted(wanted, high, side="right")
    if finds_nan and wanted.dtype.kind == "f":
        is_within |= np.isnan(wanted).any()
    never[is_known] = ~is_within
    if np.result_type(wanted, low).kind != "f":
        always[is_known] = is_within & (low == high)
    return never, always


def _numpy(values: pa.Array) -> NDArray[Any]:
    made: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return made


def _inverted(of: Outcomes) -> Outcomes:
    return of[[1, 0, 2]]


def _both(one: Outcomes, other: Outcomes) -> Outcomes:
    null = (one[2] & (other[0] | other[2])) | (other[2] & (one[0] | one[2]))
    return np.stack([one[0] & other[0], one[1] | other[1], null])


def _either(one: Outcomes, other: Outcomes) -> Outcomes:
    return _inverted(_both(_inverted(one), _inverted(other)))


# With the number of arguments.
_LOGIC = {"and_kleene": 2, "or_kleene": 2, "invert": 1}
# To the sign that means the same with both sides exchanged.
_COMPARISONS = {
    **{"less": "greater", "greater": "less", "equal": "equal", "not_equal": "not_equal"},
    **{"less_equal": "greater_equal", "greater_equal": "less_equal"},
}
