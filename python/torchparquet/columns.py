"""From the ``columns`` argument to the tensors of a batch."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError

if TYPE_CHECKING:
    from torchparquet.manifest import Leaf, Manifest

Nulls = Literal["error", "nan", "mask"] | int | float | bool | None

_NULL_POLICIES = ("error", "nan", "mask")
_FILL_TYPES = (bool, int, float)
_RESERVED_NAMES = ("row.id", "row.valid")
_COVERED_KINDS = "booleans, integers, floats, dates, times and timestamps"
_NOT_FINITE = (float("inf"), float("-inf"))
_MAX_SUGGESTION_CHARACTERS = 300


@dataclass(frozen=True)
class Column:
    """What one tensor of a batch is read from, and what stands where the file has a null.

    Attributes:
        source: Name of a column (dotted path for a field of a struct) for a ``[B]`` tensor, or
            a sequence of F names, kept as a tuple, for one ``[B, F]`` tensor.
        nulls: ``"error"``: a null raises. ``"nan"``: it is read as NaN (floats only). A number or
            bool: it is read as that value. ``"mask"``: it is read as 0, and a bool tensor
            ``"<name>.valid"`` of the same shape is False there. None: the data set's ``nulls``,
            and without one ``"nan"`` for floats and ``"error"`` for the rest.

    Raises:
        TypeError: A source is not a str, or ``nulls`` is none of the above.
        ValueError: No source, an empty name, a source twice, or an unknown word for ``nulls``.
    """

    source: str | Sequence[str]
    nulls: Nulls = None

    def __post_init__(self) -> None:
        """Checks the arguments and gives them one form."""
        if not isinstance(self.source, str):
            object.__setattr__(self, "source", _checked_names(self.source, "source"))
        elif not self.source:
            raise ValueError(f"source must not be empty; got {self.source!r}")
        object.__setattr__(self, "nulls", _checked_nulls(self.nulls))

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the columns, one or more."""
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)


@dataclass(frozen=True)
class Field:
    """One tensor of a batch, checked against the files.

    Attributes:
        name: Key in the batch.
        sources: Names of the columns it is read from.
        kinds: What those columns are in the files, such as ``"timestamp[us]"``.
        dtype: numpy name of its dtype, the same for all sources.
        width: None: shape ``[B]``. F: shape ``[B, F]``, one place for each source.
        nulls: ``"error"``, ``"fill"`` with the value ``fill``, or ``"mask"``, which fills too.
        fill: Stands where a null is read; representable in ``dtype``.
    """

    name: str
    sources: tuple[str, ...]
    kinds: tuple[str, ...]
    dtype: str
    width: int | None
    nulls: Literal["error", "fill", "mask"]
    fill: int | float | bool


ColumnsArgument = Sequence[str] | Mapping[str, str | Sequence[str] | Column] | None


def resolve_columns(
    columns: ColumnsArgument, manifest: Manifest, nulls: Nulls = None
) -> tuple[Field, ...]:
    """Check which columns are read, how, and that all files agree about them.

    Files without rows have no say: what their schemas hold is never read.

    Args:
        columns: None: every column. A sequence of names: one tensor each, under the same name. A
            mapping: output name to name, sequence of names or :class:`Column`.
        manifest: Of the files that are to be read.
        nulls: For columns that bring no policy of their own; see :class:`Column`.

    Returns:
        The fields, in the order of ``columns`` or, without it, of the first file.

    Raises:
        SchemaMismatchError: Two files disagree about a selected column: its kind, or its presence.
        UnsupportedColumnError: A selected column cannot be read as a tensor yet.
        ValueError: Empty selection; unknown, repeated or ambiguous name; sources of one tensor
            that differ in dtype; a null policy that does not fit; colliding output names.
        TypeError: An argument of a wrong type.
    """
    default = _checked_nulls(nulls)
    schemas = _Schemas(manifest)
    requests = _requests(columns, schemas)
    leaves = {
        source: schemas.agreed_leaf(source)
        for column in requests.values()
        for source in column.sources
    }
    _check_covered(leaves.values(), suggest=not isinstance(columns, Mapping))
    fields = tuple(_field(name, column, leaves, default) for name, column in requests.items())
    _check_output_names(fields)
    return fields


class _Schemas:
    """The distinct schemas of the files that have rows, each with the first file that has it."""

    def __init__(self, manifest: Manifest) -> None:
        with_rows = np.flatnonzero(manifest.file_num_rows > 0)
        _, first = np.unique(manifest.file_schema[with_rows], return_index=True)
        with_schema: list[int] = with_rows[np.sort(first)].tolist()
        self._files = [manifest.files[index] for index in with_schema]
        schemas = [manifest.schemas[int(manifest.file_schema[index])] for index in with_schema]
        self._leaves = [{leaf.path: leaf for leaf in schema} for schema in schemas]
        self._repeated = [
            {path for path, count in Counter(leaf.path for leaf in schema).items() if count > 1}
            for schema in schemas
        ]

    def names(self) -> list[str]:
        """Every column of every schema, those of the first file first."""
        return list(dict.fromkeys(path for leaves in self._leaves for path in leaves))

    def agreed_leaf(self, name: str) -> Leaf:
        """The leaf ``name`` as the first file has it; raises unless all files have it so."""
        self._check_present(name)
        first = self._leaves[0][name]
        for file, leaves, repeated in zip(self._files, self._leaves, self._repeated, strict=True):
            if name in repeated:
                raise ValueError(
                    f"a selected name must stand for one column of a file; {name!r} stands for "
                    f"several in {file!r}"
                )
            if leaves[name].kind != first.kind:
                raise SchemaMismatchError(
                    f"files disagree about the kind of column {name!r}: {first.kind} in "
                    f"{self._files[0]!r}, {leaves[name].kind} in {file!r}"
                )
        return first

    def _check_present(self, name: str) -> None:
        present = [name in leaves for leaves in self._leaves]
        if all(present):
            return
        if any(present):
            raise SchemaMismatchError(
                f"files disagree about column {name!r}: present in "
                f"{self._files[present.index(True)]!r}, missing in "
                f"{self._files[present.index(False)]!r}"
            )
        names = self.names()
        inner = [path for path in names if path.startswith(f"{name}.")]
        if inner:
            raise ValueError(
                f"a nested column is selected by its leaves: {name!r} has "
                f"{_listed(inner)} (in {self._files[0]!r})"
            )
        folded = [path for path in names if path.casefold() == name.casefold()]
        close = folded or difflib.get_close_matches(name, names)
        hint = f"did you mean {_listed(close)}?" if close else f"there are {_listed(names)}"
        raise ValueError(f"no such column: {name!r} in {self._files[0]!r}; {hint}")


def _requests(columns: ColumnsArgument, schemas: _Schemas) -> dict[str, Column]:
    if columns is None:
        return {name: Column(name) for name in schemas.names()}
    if isinstance(columns, Mapping):
        return _checked_mapping(columns)
    return {name: Column(name) for name in _checked_names(columns, "columns")}


def _checked_mapping(columns: Mapping[str, str | Sequence[str] | Column]) -> dict[str, Column]:
    if not columns:
        raise ValueError(f"columns must select at least one column; got {columns!r}")
    requests = {}
    for name, column in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"an output name in columns must be a str; got {name!r}")
        if not name:
            raise ValueError(f"an output name in columns must not be empty; got {name!r}")
        try:
            requests[name] = column if isinstance(column, Column) else Column(column)
        except (TypeError, ValueError) as error:
            raise type(error)(f"columns[{name!r}]: {error}") from None
    return requests


def _checked_names(names: Any, argument: str) -> tuple[str, ...]:
    if not isinstance(names, Sequence) or isinstance(names, str | bytes):
        raise TypeError(f"{argument} must be a list or tuple of names; got {names!r}")
    if not names:
        raise ValueError(f"{argument} must name at least one column; got {names!r}")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument} must hold names (str); got {name!r}")
        if not name:
            raise ValueError(f"{argument} must not hold an empty name; got {names!r}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"{argument} must name a column only once; repeated: {_listed(repeated)}")
    return tuple(names)


def _checked_nulls(nulls: Any) -> Nulls:
    value = nulls.item() if isinstance(nulls, np.generic) else nulls
    known = value in _NULL_POLICIES if isinstance(value, str) else isinstance(value, _FILL_TYPES)
    if known or value is None:
        checked: Nulls = value
        return checked
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f'nulls must be "error", "nan", "mask", a number, a bool or None; got {nulls!r}')


def _check_covered(leaves: Collection[Leaf], suggest: bool) -> None:
    """Raises for the columns that cannot be read; says which columns of the selection can."""
    uncovered = [f"{leaf.path!r} ({leaf.kind})" for leaf in leaves if not leaf.dtype]
    if not uncovered:
        return
    covered = [leaf.path for leaf in leaves if leaf.dtype]
    suggestion = f"; leave them out: columns={covered!r}" if suggest and covered else ""
    if len(suggestion) > _MAX_SUGGESTION_CHARACTERS:
        suggestion = "; leave them out with columns=[...]"
    raise UnsupportedColumnError(
        f"columns of these kinds cannot be read as tensors yet ({_COVERED_KINDS} can): "
        f"{_shortened(uncovered)}{suggestion}"
    )


def _field(name: str, column: Column, leaves: Mapping[str, Leaf], default: Nulls) -> Field:
    sources = column.sources
    dtype = leaves[sources[0]].dtype
    if any(leaves[source].dtype != dtype for source in sources):
        shown = [f"{source!r} {leaves[source].dtype}" for source in sources]
        raise ValueError(
            f"columns of one tensor must have the same dtype; {name!r} has {_shortened(shown)}"
        )
    policy = default if column.nulls is None else column.nulls
    nulls, fill = _resolve_nulls(policy, name, np.dtype(dtype))
    width = None if isinstance(column.source, str) else len(sources)
    kinds = tuple(leaves[source].kind for source in sources)
    return Field(name, sources, kinds, dtype, width, nulls, fill)


def _resolve_nulls(
    policy: Nulls, name: str, dtype: np.dtype[Any]
) -> tuple[Literal["error", "fill", "mask"], int | float | bool]:
    zero: int | float | bool = dtype.type(0).item()
    if policy is None:
        policy = "nan" if dtype.kind == "f" else "error"
    if policy == "error":
        return "error", zero
    if policy == "mask":
        return "mask", zero
    if policy == "nan":
        if dtype.kind != "f":
            raise ValueError(
                'nulls="nan" needs a float column (take "error", "mask" or a fill value, by '
                f"Column(..., nulls=...)): {name!r} is {dtype.name}"
            )
        return "fill", float("nan")
    return "fill", _checked_fill(policy, name, dtype)


def _checked_fill(value: int | float | bool, name: str, dtype: np.dtype[Any]) -> int | float | bool:
    """``value`` as Python's bool, int or float, whichever ``dtype`` is."""
    if dtype.kind == "b":
        fits = value in (0, 1)
    elif dtype.kind == "f":
        # Rounding is fine; infinity and NaN are values too.
        fits = abs(value) <= float(np.finfo(dtype).max) or value in _NOT_FINITE or value != value
    else:
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max and value == int(value)
    if not fits:
        raise ValueError(
            f"a fill value for nulls must be representable in the column's dtype: {name!r} is "
            f"{dtype.name}, the value {value!r}"
        )
    convert = {"b": bool, "f": float}.get(dtype.kind, int)
    return convert(value)


def _check_output_names(fields: Sequence[Field]) -> None:
    names = {field.name for field in fields}
    for name in _RESERVED_NAMES:
        if name in names:
            raise ValueError(
                "an output name must not be one that torchparquet gives (choose another by "
                f"columns={{new name: column}}): {name!r}"
            )
    for field in fields:
        if field.nulls == "mask" and f"{field.name}.valid" in names:
            raise ValueError(
                'nulls="mask" adds the tensor "<name>.valid", and another has that name: '
                f"{field.name + '.valid'!r}"
            )


def _listed(names: Sequence[str]) -> str:
    return _shortened([repr(name) for name in names])


def _shortened(items: Sequence[str]) -> str:
    """Joins ``items``, the first few of many."""
    shown = ", ".join(items[:10])
    return shown if len(items) <= 10 else f"{shown} and {len(items) - 10} more"
