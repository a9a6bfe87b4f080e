"""The error for a null where none may be."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchparquet._impl.files.footers.plain_footer import footer_in, metadata_of
from torchparquet.errors import NullValueError

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.files.manifest import Manifest

# Footers that are read again to find other columns with nulls.
_MOST_FILES, _MOST_REMOTE_FILES = 32, 4


def with_way_out(
    error: NullValueError, fields: Sequence[Field], manifest: Manifest, *, may_look: bool
) -> NullValueError:
    """Return the error with its column first, and a way out for all columns that have nulls."""
    text = str(error)
    refusing = [field for field in fields if None in field.source_fills]
    sources = {source for field in refusing for source in field.sources}
    found = [source for source in sources if f", column '{source}'" in text]
    if not found:
        return error
    source = max(found, key=len)
    with_nulls = {source}
    if may_look:
        with_nulls.update(_sources_with_nulls(manifest, sources - {source}))
    refusing = [field for field in refusing if with_nulls.intersection(field.sources)]
    column = next(field for field in refusing if source in field.sources)
    place = text.removeprefix("null value, ").replace(f", column '{source}'", "", 1)
    of = "" if column.name == source else f" of {column.name!r}"
    return NullValueError(
        f"column {source!r}{of} has a null ({_way_out(source, column, refusing)}): {place}"
    )


def _way_out(source: str, column: Field, refusing: Sequence[Field]) -> str:
    if column.weighs is not None:
        return "weights have no nulls: fill them where the files are written"
    if column.decoded:
        return 'Column(..., on_error="flag") flags the rows without a value'
    by_policy = [f for f in refusing if not (f.decoded or f.has_own_nulls or f.weighs is not None)]
    values = {_quoted(f.name): _value_for(f) for f in by_policy}
    ways = [f"nulls={{{', '.join(f'{name}: {value}' for name, value in values.items())}}}"]
    if column.has_own_nulls:
        value = _value_for(column)
        own = f"Column({_quoted(source)}, nulls={value})"
        if column.width is not None:
            own = f"Column([...], nulls={{{_quoted(source)}: {value}}})"
        ways = [own, *ways] if values else [own]
    mask = ', nulls="mask" adds masks' if column.takes_mask else ""
    return f"{' and '.join(ways)} gives each null a value{mask}"


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _value_for(field: Field) -> str:
    if field.has_strings:
        return '"empty"'
    dtype = getattr(torch, field.dtype)
    if dtype.is_floating_point:
        return '"nan"'
    if field.words is not None:
        return str(field.unknown)
    return "False" if dtype == torch.bool else "0"


def _sources_with_nulls(manifest: Manifest, sources: Collection[str]) -> set[str]:
    """Return the columns that hold nulls, or empty lists, by the statistics of the first files."""
    found = set[str]()
    most_files = _MOST_FILES if manifest.listing.store is None else _MOST_REMOTE_FILES
    for number in range(min(len(manifest.files), most_files)):
        leaves = manifest.schemas[int(manifest.file_schema[number])]
        places = {leaf.path: place for place, leaf in enumerate(leaves)}
        wanted = [(source, places[source]) for source in sources if source in places]
        try:
            with manifest.listing.open(manifest.files[number]) as file:
                metadata = metadata_of(footer_in(file))
            for group in map(metadata.row_group, range(metadata.num_row_groups)):
                found |= {source for source, place in wanted if _has_nulls(group.column(place))}
        except Exception:  # the null is the error to tell
            break
    return found


def _has_nulls(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk.is_stats_set else None
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count)
