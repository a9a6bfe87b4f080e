"""The error for a null where none may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchparquet.errors import NullValueError
from torchparquet.files.footers.plain_footer import footer_in, metadata_of
from torchparquet.files.opening import opened_file

if TYPE_CHECKING:
    from torchparquet.batches.fields import Field
    from torchparquet.files.manifest import Manifest

# Footers that are read again to find other columns with nulls.
_MOST_FILES = 32


def with_way_out(
    error: NullValueError, fields: Sequence[Field], manifest: Manifest, *, may_look: bool
) -> NullValueError:
    """Return the error with its column first, and a way out for all columns that have nulls.

    Args:
        error: Of the native reader, which names the column among the places.
        fields: The tensors that are read.
        manifest: Of the files.
        may_look: True if statistics of footers may be looked at.
    """
    text = str(error)
    sources = {source: field for field in fields for source in field.sources}
    found = [source for source in sources if f", column '{source}'" in text]
    if not found:
        return error
    source = max(found, key=len)
    refusing = {sources[source].name: sources[source]}
    if may_look:
        with_nulls = set(_sources_with_nulls(manifest, [s for s in sources if s != source]))
        refusing |= {sources[s].name: sources[s] for s in sources if s in with_nulls}
    place = text.removeprefix("null value, ").replace(f", column '{source}'", "", 1)
    column = sources[source]
    where = (
        f"column {source!r}" if column.name == source else f"column {source!r} of {column.name!r}"
    )
    return NullValueError(f"{where} has a null ({_way_out(column, refusing)}): {place}")


def _way_out(column: Field, refusing: dict[str, Field]) -> str:
    if column.decoded:
        return 'Column(..., on_error="flag") flags the rows without a value'
    others = [field for field in refusing.values() if field.refuses_nulls and not field.decoded]
    values = ", ".join(f'"{field.name}": {_value_for(field)}' for field in others)
    mask = "" if column.pack is not None else ', nulls="mask" adds masks'
    return f"nulls={{{values}}} gives each null a value{mask}"


def _value_for(field: Field) -> str:
    if field.num_offsets and not field.has_lists:
        return '"empty"'
    dtype = getattr(torch, field.dtype)
    if dtype.is_floating_point:
        return '"nan"'
    if field.words is not None:
        return str(field.unknown)
    return "False" if dtype == torch.bool else "0"


def _sources_with_nulls(manifest: Manifest, sources: Sequence[str]) -> Iterator[str]:
    """Find columns that hold nulls by the statistics of files, of the first ones if many."""
    for number in range(min(len(manifest.files), _MOST_FILES)):
        leaves = manifest.schemas[int(manifest.file_schema[number])]
        places = {leaf.path: place for place, leaf in enumerate(leaves)}
        wanted = [(source, places[source]) for source in sources if source in places]
        try:
            with opened_file(manifest, number) as file:
                metadata = metadata_of(footer_in(file))
        except Exception:  # the null is the error to tell
            return
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            yield from (source for source, place in wanted if _has_nulls(group.column(place)))


def _has_nulls(chunk: Any) -> bool:
    statistics = chunk.statistics if chunk.is_stats_set else None
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count)
