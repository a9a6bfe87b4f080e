"""From the ``columns`` argument to the tensors of a batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torchparquet._impl.batches.column_in_files import ColumnInFiles
from torchparquet._impl.batches.fields import Field, weights_of, with_pack
from torchparquet._impl.checks import checked_names, listed, shortened
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.schemas import Schemas
from torchparquet.column import Column, Nulls, nulls_by_name
from torchparquet.errors import UnsupportedColumnError, users_level
from torchparquet.options import Pack

_RESERVED_NAMES = ("row.id", "row.valid")
_MAX_SUGGESTION_CHARACTERS = 300

ColumnsArgument = Sequence[str | Column] | Mapping[str, str | Sequence[str] | Column] | None
NullsArgument = Nulls | Mapping[str, Nulls]
# In `columns`: all columns that are not named there.
_OTHERS = "*"
# The texts of a message in a conversation.
MESSAGE = ("role", "content")


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
    known = {_OTHERS, *requests}
    if pack is not None:
        requests = _packed(requests, pack, schemas)
        if pack.chat:
            of_all = policies.get(pack.names[0], policies[_OTHERS])
            policies = {**dict.fromkeys(requests, of_all), **policies}
    unknown = [name for name in policies if name not in known and name not in requests]
    if unknown:
        raise ValueError(
            "nulls={name: policy} must name columns of the batch; not among them: "
            f"{listed(unknown)}"
        )
    found = [ColumnInFiles(*request, schemas, find_words) for request in requests.items()]
    weights = {one.name: one.weights() for one in found if one.column.weights is not None}
    _check_covered([*found, *weights.values()], suggest=not isinstance(columns, Mapping))
    fields = []
    for one in found:
        fields.append(one.field(policies.get(one.name, policies["*"])))
        if one.name in weights:
            fields.append(weights_of(fields[-1], weights[one.name].field(None)))
    if pack is not None and pack.tokenizer is None:
        fields = [with_pack(field, pack) for field in fields]
    _check_output_names(fields)
    return tuple(fields)


def _packed(requests: dict[str, Column], pack: Pack, schemas: Schemas) -> dict[str, Column]:
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
    if pack.chat:
        return _of_messages(requests, schemas)
    if pack.tokenizer is not None:
        return requests
    return {name: replace(requests[name], length="any") for name in pack.names}


# Parts of messages, by the beginnings of their names, that templates write too.
_NOT_RENDERED = ("tool", "function_call", "reasoning", "thinking")


def _of_messages(requests: dict[str, Column], schemas: Schemas) -> dict[str, Column]:
    """Return the columns of the texts of messages."""
    ((name, column),), paths = requests.items(), schemas.names()
    if column.source in paths:
        raise ValueError(
            "chat=True is for a column of lists of messages, structs of role and content; "
            f"{column.source!r} has no such parts"
        )
    lost = [
        path
        for path in paths
        if path.startswith(tuple(f"{column.source}.{part}" for part in _NOT_RENDERED))
    ]
    if lost:
        raise ValueError(
            "chat=True reads the role and the content of messages, and these have more, which it "
            "would lose: render these conversations to a column of texts or tokens first; "
            f"{listed(lost)}"
        )
    return {f"{name}.{part}": replace(column, source=f"{column.source}.{part}") for part in MESSAGE}


def _requests(columns: ColumnsArgument, schemas: Schemas) -> dict[str, Column]:
    """Return a Column for each name of a batch, "*" spelled out."""
    if not isinstance(columns, Mapping):
        columns = _by_name([_OTHERS] if columns is None else columns)
    if not columns:
        raise ValueError(f"columns must select at least one column; got {columns!r}")
    requests = {name: _checked(name, column) for name, column in columns.items()}
    others = requests.get(_OTHERS)
    if others is None or others.source != _OTHERS:
        return requests
    named = [n for key, one in requests.items() if key != _OTHERS for n in _names_in(key, one)]
    within = tuple(f"{name}." for name in named)
    left = [n for n in _default_names(schemas, named) if not n.startswith(within)]
    made: dict[str, Column] = {}
    for key, column in requests.items():
        made |= {n: replace(others, source=n) for n in left} if key == _OTHERS else {key: column}
    return made


def _names_in(key: str, column: Column) -> tuple[str, ...]:
    return (key, *column.sources, *(column.weights or ()))


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


def _checked(name: Any, column: Any) -> Column:
    if not isinstance(name, str):
        raise TypeError(f"an output name in columns must be a str; got {name!r}")
    if not name:
        raise ValueError(f"an output name in columns must not be empty; got {name!r}")
    try:
        if column is None:
            raise TypeError("a source must be a name, a list of names or a Column; got None")
        made = column if isinstance(column, Column) else Column(column)
        return made if made.source is not None else replace(made, source=name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"columns[{name!r}]: {error}") from None


def _check_covered(columns: Sequence[ColumnInFiles], suggest: bool) -> None:
    """Raise if a column cannot be read; the message lists those of the selection that can."""
    leaves = [leaf for column in columns for leaf in column.leaves_as_values]
    uncovered = [f"{leaf.path!r} ({leaf.kind})" for leaf in leaves if not leaf.dtype]
    if not uncovered:
        return
    covered = [leaf.path for leaf in leaves if leaf.dtype]
    way_out = ""
    if suggest and covered:
        is_short = len(repr(covered)) < _MAX_SUGGESTION_CHARACTERS
        way_out = f"; leave them out: columns={covered if is_short else '[...]'}"
    if any(not leaf.dtype and leaf.kind.startswith("partition key") for leaf in leaves):
        way_out += '; Column(..., vocab="auto") reads keys that are text as numbers'
    raise UnsupportedColumnError(
        f"columns of these kinds cannot be read as tensors: {shortened(uncovered)}{way_out}"
    )


def _check_output_names(fields: Sequence[Field]) -> None:
    masks = {mask for field in fields for mask in field.mask_names}
    for name in [field.name for field in fields]:
        if name in _RESERVED_NAMES:
            raise ValueError(
                "torchparquet reserves this output name (choose another with "
                f"columns={{new name: column}}): {name!r}"
            )
        if name in masks:
            raise ValueError(
                f'nulls="mask" adds the tensor "<name>.valid", and another has that name: {name!r}'
            )
