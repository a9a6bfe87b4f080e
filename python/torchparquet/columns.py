"""From the ``columns`` argument to the tensors of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from torchparquet.errors import UnsupportedColumnError
from torchparquet.schemas import DTYPES, Leaf, Schemas, listed, shortened

if TYPE_CHECKING:
    from torchparquet.manifest import Manifest

Nulls = Literal["error", "nan", "mask"] | int | float | bool | None

_NULL_POLICIES = ("error", "nan", "mask")
_FILL_TYPES = (bool, int, float)
_RESERVED_NAMES = ("row.id", "row.valid")
_COVERED_KINDS = (
    "booleans, integers, floats, decimals, dates, times, timestamps and binary of a fixed size"
)
_NOT_FINITE = (float("inf"), float("-inf"))
_MAX_SUGGESTION_CHARACTERS = 300


@dataclass(frozen=True)
class Column:
    """What one tensor of a batch is read from, and what stands where the file has a null.

    Attributes:
        source: Name of a column (dotted path for a field of a struct) for a ``[B]`` tensor, or
            a sequence of F names, kept as a tuple, for one ``[B, F]`` tensor. A name that no file
            has may be a partition key: ``year`` where all files are below ``year=...`` directories.
        nulls: ``"error"``: a null raises. ``"nan"``: it is read as NaN (floats only). A number or
            bool: it is read as that value. ``"mask"``: it is read as 0, and a bool tensor
            ``"<name>.valid"`` of the same shape is False there. None: the data set's ``nulls``,
            and without one ``"nan"`` for floats and ``"error"`` for the rest.
        dtype: A torch dtype or its name, kept as the name: values are cast to it while they are
            decoded. Integers and bools become any integer that holds them (one that does not is a
            :class:`~torchparquet.errors.CastError` when it is met) or float, floats any float,
            decimals any float or, as ``"int64"``, their unscaled value. Files may then hold the
            column in different kinds. None: the usual dtype of the column's kind.
        default: Read in every row of a file that lacks the column; such rows are valid, not null.
            None: a file that lacks it is an error. At least one file must have it.

    Raises:
        TypeError: A source is not a str, or ``nulls`` or ``dtype`` is none of the above.
        ValueError: No source, an empty name, a source twice, an unknown word for ``nulls`` or
            ``dtype``.
    """

    source: str | Sequence[str]
    nulls: Nulls = None
    dtype: str | torch.dtype | None = None
    default: int | float | bool | None = None

    def __post_init__(self) -> None:
        """Checks the arguments and gives them one form."""
        if not isinstance(self.source, str):
            object.__setattr__(self, "source", _checked_names(self.source, "source"))
        elif not self.source:
            raise ValueError(f"source must not be empty; got {self.source!r}")
        object.__setattr__(self, "nulls", _checked_nulls(self.nulls))
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype))
        object.__setattr__(self, "default", _checked_default(self.default))

    @property
    def dtype_name(self) -> str | None:
        """The name of ``dtype``, such as ``"float32"``."""
        assert self.dtype is None or isinstance(self.dtype, str)  # noqa: S101
        return self.dtype

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
        kinds: For each of those columns what it is in the files, such as ``"timestamp[us]"``.
        dtype: torch's name of its dtype, the same for all sources.
        width: None: shape ``[B]``. F: shape ``[B, F]``, one place for each source.
        items: None, or n for a shape of ``[B, n]`` from one source; its mask is ``[B]``.
        default: None, or what stands for rows of files that lack a column; representable in
            ``dtype``.
        file_values: For each source () or, where it is a partition key, the value of each file.
        nulls: ``"error"``, ``"fill"`` with the value ``fill``, or ``"mask"``, which fills too.
        fill: Stands where a null is read; representable in ``dtype``.
    """

    name: str
    sources: tuple[str, ...]
    kinds: tuple[tuple[str, ...], ...]
    dtype: str
    width: int | None
    nulls: Literal["error", "fill", "mask"]
    fill: int | float | bool
    items: int | None = None
    default: int | float | bool | None = None
    file_values: tuple[tuple[int, ...], ...] = ()


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
        SchemaMismatchError: Two files disagree about a selected column: its presence or, where no
            dtype is given, its kind.
        UnsupportedColumnError: A selected column cannot be read as a tensor yet, or not as the
            dtype that was given.
        ValueError: Empty selection; unknown, repeated or ambiguous name; sources of one tensor
            that differ in dtype; a null policy that does not fit; colliding output names.
        TypeError: An argument of a wrong type.
    """
    default = _checked_nulls(nulls)
    schemas = Schemas(manifest)
    requests = _requests(columns, schemas)
    leaves = {
        (source, column.dtype_name): schemas.agreed_leaves(
            source, column.dtype_name, everywhere=column.default is None
        )
        for column in requests.values()
        for source in column.sources
    }
    all_leaves = [leaf for agreed in leaves.values() for leaf in agreed]
    _check_covered(all_leaves, suggest=not isinstance(columns, Mapping))
    values = {
        source: schemas.partition_values(source)
        for (source, _), (leaf, *_) in leaves.items()
        if leaf.kind == "partition key"
    }
    fields = tuple(
        _with_file_values(_field(name, column, leaves, default), values)
        for name, column in requests.items()
    )
    _check_output_names(fields)
    return fields


def _requests(columns: ColumnsArgument, schemas: Schemas) -> dict[str, Column]:
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
        raise ValueError(f"{argument} must name a column only once; repeated: {listed(repeated)}")
    return tuple(names)


def _checked_nulls(nulls: Any) -> Nulls:
    value = nulls.item() if isinstance(nulls, np.generic) else nulls
    known = value in _NULL_POLICIES if isinstance(value, str) else isinstance(value, _FILL_TYPES)
    if known or value is None:
        checked: Nulls = value
        return checked
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f'nulls must be "error", "nan", "mask", a number, a bool or None; got {nulls!r}')


def _checked_dtype(dtype: Any) -> str | None:
    if dtype is None:
        return None
    if not isinstance(dtype, str | torch.dtype):
        raise TypeError(f"dtype must be a torch dtype, its name or None; got {dtype!r}")
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    return name


def _checked_default(default: Any) -> int | float | bool | None:
    value = default.item() if isinstance(default, np.generic) else default
    if value is None or isinstance(value, _FILL_TYPES):
        checked: int | float | bool | None = value
        return checked
    raise TypeError(f"default must be a number, a bool or None; got {default!r}")


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
        f"{shortened(uncovered)}{suggestion}"
    )


def _field(
    name: str,
    column: Column,
    leaves: Mapping[tuple[str, str | None], Sequence[Leaf]],
    default: Nulls,
) -> Field:
    sources = [leaves[source, column.dtype_name] for source in column.sources]
    dtypes = [column.dtype_name or leaf_of_source[0].dtype for leaf_of_source in sources]
    if len(set(dtypes)) > 1:
        shown = [f"{s!r} {dtype}" for s, dtype in zip(column.sources, dtypes, strict=True)]
        raise ValueError(
            "columns of one tensor must have the same dtype, or be given one by Column(..., "
            f"dtype=...); {name!r} has {shortened(shown)}"
        )
    policy = default if column.nulls is None else column.nulls
    nulls, fill = _resolve_nulls(policy, name, dtypes[0])
    width = None if isinstance(column.source, str) else len(column.sources)
    items = {leaf.items for found in sources for leaf in found}
    if len(items) > 1 or (width is not None and items != {None}):
        shown = [f"{s!r} {found[0].kind}" for s, found in zip(column.sources, sources, strict=True)]
        raise ValueError(
            f"binary of a fixed size is a tensor of its own; {name!r} has {shortened(shown)}"
        )
    kinds = tuple(tuple(leaf.kind for leaf in found) for found in sources)
    default_value = column.default
    if default_value is not None:
        default_value = _checked_value(default_value, "default", name, dtypes[0])
    return Field(
        name, column.sources, kinds, dtypes[0], width, nulls, fill, items.pop(), default_value
    )


def _with_file_values(field: Field, values: Mapping[str, tuple[int, ...]]) -> Field:
    for source in field.sources:
        for value in set(values.get(source, ())):
            _checked_value(value, f"partition key ({source})", field.name, field.dtype)
    of_sources = tuple(values.get(source, ()) for source in field.sources)
    return replace(field, file_values=of_sources) if any(of_sources) else field


def _resolve_nulls(
    policy: Nulls, name: str, dtype: str
) -> tuple[Literal["error", "fill", "mask"], int | float | bool]:
    is_float = getattr(torch, dtype).is_floating_point
    zero = _kind_of(dtype)(0)
    if policy is None:
        policy = "nan" if is_float else "error"
    if policy == "error":
        return "error", zero
    if policy == "mask":
        return "mask", zero
    if policy == "nan":
        if not is_float:
            raise ValueError(
                'nulls="nan" needs a float column (take "error", "mask" or a fill value, by '
                f"Column(..., nulls=...)): {name!r} is {dtype}"
            )
        return "fill", float("nan")
    return "fill", _checked_value(policy, "fill value for nulls", name, dtype)


def _kind_of(dtype: str) -> type[bool | int | float]:
    if dtype == "bool":
        return bool
    return float if getattr(torch, dtype).is_floating_point else int


def _checked_value(
    value: int | float | bool, what: str, name: str, dtype: str
) -> int | float | bool:
    """``value`` as Python's bool, int or float, whichever ``dtype`` is."""
    convert = _kind_of(dtype)
    if convert is bool:
        fits = value in (0, 1)
    elif convert is float:
        # Rounding is fine; infinity and NaN are values too.
        largest = torch.finfo(getattr(torch, dtype)).max
        fits = abs(value) <= largest or value in _NOT_FINITE or value != value
    else:
        limits = torch.iinfo(getattr(torch, dtype))
        fits = limits.min <= value <= limits.max and value == int(value)
    if not fits:
        raise ValueError(
            f"a {what} must be representable in the column's dtype: {name!r} is {dtype}, the "
            f"value {value!r}"
        )
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
