"""From the ``columns`` argument to the tensors of a batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from torchparquet._impl.batches.fields import Field, make_field, with_file_values, with_pack
from torchparquet._impl.checks import checked_names, shortened
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.schemas import Schemas
from torchparquet.column import Column, Nulls, nulls_by_name
from torchparquet.errors import UnsupportedColumnError, users_level
from torchparquet.options import Pack

if TYPE_CHECKING:
    from torchparquet._impl.files.manifest import Manifest

_RESERVED_NAMES = ("row.id", "row.valid")
_MAX_SUGGESTION_CHARACTERS = 300


ColumnsArgument = Sequence[str | Column] | Mapping[str, str | Sequence[str] | Column] | None
NullsArgument = Nulls | Mapping[str, Nulls]
# In `columns`: all columns that are not named there.
_OTHERS = "*"


def resolve_columns(
    columns: ColumnsArgument,
    manifest: Manifest | Schemas,
    nulls: NullsArgument = None,
    pack: Pack | None = None,
    find_words: Callable[[str, Column], tuple[bytes, ...]] | None = None,
) -> tuple[Field, ...]:
    """Resolve `columns=`, and check that all files that have rows agree about what it selects."""
    policies = nulls_by_name(nulls)
    schemas = manifest if isinstance(manifest, Schemas) else Schemas(manifest)
    if pack is not None and columns is None:
        columns = pack.names
    requests = _requests(columns, schemas)
    _check_policies(policies, requests)
    if pack is not None:
        requests = _packed(requests, pack)
    requests = {
        name: _as_files_have_it(name, column, schemas, find_words)
        for name, column in requests.items()
    }
    found = {
        name: [_agreed_leaves(column, source, schemas) for source in column.sources]
        for name, column in requests.items()
    }
    leaves = [
        leaf
        for name, of_column in found.items()
        for agreed in of_column
        for leaf in agreed
        if not (requests[name].vocab and leaf.is_bytes)
    ]
    _check_covered(leaves, suggest=not isinstance(columns, Mapping))
    fields = tuple(
        _field(name, column, found[name], policies.get(name, policies["*"]), schemas)
        for name, column in requests.items()
    )
    if pack is not None:
        fields = tuple(with_pack(field, pack) for field in fields)
    _check_output_names(fields)
    return fields


def _packed(requests: dict[str, Column], pack: Pack) -> dict[str, Column]:
    """Return the columns in the order of the pack, with lists of any length."""
    others = [name for name in requests if name not in pack.names]
    missing = [name for name in pack.names if name not in requests]
    if others or missing:
        raise ValueError(
            "pack needs exactly the columns that are read, because rows become sequences; "
            f"not packed: {others}, not read: {missing}"
        )
    for name in pack.names:
        if requests[name].stated_length is not None:
            raise ValueError(f"length does not go with pack: {name!r} has {requests[name].length}")
    return {name: replace(requests[name], length="any") for name in pack.names}


def _as_files_have_it(
    name: str,
    column: Column,
    schemas: Schemas,
    find_words: Callable[[str, Column], tuple[bytes, ...]] | None,
) -> Column:
    """Return a column with what files or their table say of it, where its user does not."""
    if column.decode is not None:
        names, inner = schemas.names(), f"{column.source}.bytes"
        if column.source not in names and inner in names:
            column = replace(column, source=inner)  # of the struct that it names
    if column.vocab == "auto":
        assert find_words is not None  # noqa: S101
        column = replace(column, vocab=find_words(name, column))
    return _in_one_unit(_as_table_has_it(column, schemas), schemas)


def _agreed_leaves(column: Column, source: str, schemas: Schemas) -> list[Leaf]:
    """Return the leaves of a source in the files; with a vocabulary those of nulls are strings."""
    dtype = column.dtype_name if column.vocab is None else "uint8"  # before words become numbers
    everywhere = column.default is None
    leaves = schemas.agreed_leaves(source, dtype, everywhere=everywhere, unit=column.unit)
    if column.vocab is None or not leaves[0].holds_nulls:
        return leaves
    return [replace(leaf, is_bytes=True) for leaf in leaves]


def _field(
    name: str, column: Column, found: Sequence[Sequence[Leaf]], nulls: Nulls, schemas: Schemas
) -> Field:
    """Return the field of a column, with what files declare or lack."""
    field = make_field(name, _with_declared_length(column, found, schemas), found, nulls)
    if field.default is None and any(schemas.added_since(one) is not None for one in field.sources):
        field = replace(field, missing_is_null=True)  # in files that are older than its column
    if column.length is None and isinstance(column.source, str) and field.has_lists:
        declared = None if field.words else schemas.declared_tensor(column.source)
        if declared is not None:
            field = replace(field, shape=declared[0], order=declared[1])
    keys = [
        schemas.partition_values(source) if schemas.is_partition_key(source) else ()
        for source in column.sources
    ]
    return with_file_values(field, keys)


def _as_table_has_it(column: Column, schemas: Schemas) -> Column:
    """Return the column with a table's default and dtype, since files may be from before both."""
    if column.default is None:
        defaults = {schemas.default_of_table(source) for source in column.sources}
        if len(defaults) > 1:
            raise UnsupportedColumnError(
                "columns of one tensor need one default in files that are older than they (give "
                f"Column(..., default=...)): {column.sources} have {defaults}"
            )
        column = replace(column, default=defaults.pop())
    if column.dtype_name is not None or column.vocab is not None:
        return column
    for source in column.sources:
        dtype = schemas.dtype_of_table(source)
        if dtype is not None:
            return replace(column, dtype=getattr(torch, dtype))
    return column


def _in_one_unit(column: Column, schemas: Schemas) -> Column:
    """Return a column of a dtype with a unit that holds all times of the files, if these differ."""
    dtype = column.dtype_name or ""
    takes_unit = dtype == "int64" or "float" in dtype
    if column.unit is not None or not takes_unit or not isinstance(column.source, str):
        return column
    unit = schemas.finest_unit(column.source)
    if unit is None or column.vocab is not None:
        return column
    warnings.warn(
        "files store times in several units, which are read in the finest of them (Column(..., "
        f"unit=...) sets one, and ends this warning): {column.source!r} is read in {unit}",
        stacklevel=users_level(),
    )
    return replace(column, unit=unit)  # type: ignore[arg-type]


def _with_declared_length(
    column: Column, found: Sequence[Sequence[Leaf]], schemas: Schemas
) -> Column:
    """Return the column with the length that files declare, if it states none."""
    if column.length is not None or not isinstance(column.source, str):
        return column
    # Lists of strings need offsets, unless a vocabulary makes the strings numbers.
    takes_length = all(
        leaf.num_lists == 1 and not (leaf.is_bytes and column.vocab is None) for leaf in found[0]
    )
    return (
        replace(column, length=schemas.declared_length(column.source)) if takes_length else column
    )


def _requests(columns: ColumnsArgument, schemas: Schemas) -> dict[str, Column]:
    if columns is None:
        columns = [_OTHERS]
    if not isinstance(columns, Mapping):
        columns = _by_name(columns)
    requests = _checked_mapping(columns)
    others = requests.get(_OTHERS)
    if others is None or others.source != _OTHERS:
        return requests
    named = [
        name
        for key, column in requests.items()
        if key != _OTHERS
        for name in (key, *column.sources)
    ]
    within = tuple(f"{name}." for name in named)
    left = [n for n in _default_names(schemas, named) if not n.startswith(within)]
    made: dict[str, Column] = {}
    for key, column in requests.items():
        made |= {n: replace(others, source=n) for n in left} if key == _OTHERS else {key: column}
    return made


def _default_names(schemas: Schemas, named: Sequence[str]) -> list[str]:
    """Return the columns that can be read by their names, without those in `named`."""
    names, others = schemas.default_names()
    others = [text for text in others if not text.startswith(tuple(f"{n!r} (" for n in named))]
    if not (names or named):
        raise UnsupportedColumnError(
            f"no column can be read by its name (columns=... selects some): {shortened(others)}"
        )
    if others:
        warnings.warn(
            "columns are left out (columns=... selects what is read, and ends this warning): "
            f"{shortened(others)}",
            stacklevel=users_level(),
        )
    return [name for name in names if name not in named]


def _by_name(columns: Sequence[str | Column]) -> dict[str, str | Column]:
    """Return a sequence of names and columns as a mapping."""
    named: Sequence[Any] = columns
    if isinstance(columns, list | tuple):
        named = [one.source if isinstance(one, Column) else one for one in columns]
        if any(isinstance(one, Column) and not isinstance(one.source, str) for one in columns):
            raise ValueError(
                "a Column in a list of columns must have one source, which names it; give others a "
                "name: columns={name: Column(...)}"
            )
    return dict(zip(checked_names(named, "columns"), columns, strict=True))


def _check_policies(policies: Mapping[str, Nulls], requests: Mapping[str, Column]) -> None:
    unknown = [name for name in policies if name != _OTHERS and name not in requests]
    if unknown:
        raise ValueError(
            "nulls={name: policy} must name columns of the batch; not among them: "
            f"{shortened([repr(name) for name in unknown])}"
        )


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
            if column is None:
                raise TypeError("a source must be a name, a list of names or a Column; got None")
            made = column if isinstance(column, Column) else Column(column)
            requests[name] = made if made.source is not None else replace(made, source=name)
        except (TypeError, ValueError) as error:
            raise type(error)(f"columns[{name!r}]: {error}") from None
    return requests


def _selection(names: Sequence[str]) -> str:
    selection = f"columns={names!r}"
    return selection if len(selection) < _MAX_SUGGESTION_CHARACTERS else "columns=[...]"


def _check_covered(leaves: Collection[Leaf], suggest: bool) -> None:
    """Raise if a column cannot be read; the message lists those of the selection that can."""
    uncovered = [f"{leaf.path!r} ({leaf.kind})" for leaf in leaves if not leaf.dtype]
    if not uncovered:
        return
    covered = [leaf.path for leaf in leaves if leaf.dtype]
    suggestion = f"; leave them out: {_selection(covered)}" if suggest and covered else ""
    if any(not leaf.dtype and leaf.kind.startswith("partition key") for leaf in leaves):
        suggestion += '; Column(..., vocab="auto") reads keys that are text as numbers'
    raise UnsupportedColumnError(
        f"columns of these kinds cannot be read as tensors: {shortened(uncovered)}{suggestion}"
    )


def _check_output_names(fields: Sequence[Field]) -> None:
    names = {field.name for field in fields}
    for name in _RESERVED_NAMES:
        if name in names:
            raise ValueError(
                "torchparquet reserves this output name (choose another with "
                f"columns={{new name: column}}): {name!r}"
            )
    for name in (mask for field in fields for mask in field.mask_names):
        if name in names:
            raise ValueError(
                f'nulls="mask" adds the tensor "<name>.valid", and another has that name: {name!r}'
            )
