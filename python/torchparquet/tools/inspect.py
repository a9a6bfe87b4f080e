"""`torchparquet inspect`: the contents of files, their tensors, and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.reading.window_limits import DEFAULT_WINDOW
from torchparquet.tools.footers import ColumnFacts, read_facts, sampled_row_groups
from torchparquet.tools.screen import counted
from torchparquet.tools.tensors import Tensor, tensors_of, window_of

_SMALL_ROW_GROUP_BYTES = 1 << 20
_MANY_ROW_GROUPS = 64
_MOST_WORDS = 10_000


def inspect_files(
    manifest: Manifest, use: Use, *, all_pages: bool, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Return a report on the files as JSON values."""
    every = range(manifest.num_row_groups)
    footers = read_facts(manifest, every if all_pages else sampled_row_groups(manifest), advance)
    columns = footers.columns
    tensors = tensors_of(columns, manifest)
    return {
        "files": [
            {"path": path, "bytes": int(num_bytes), "rows": int(rows), "row_groups": int(groups)}
            for path, num_bytes, rows, groups in zip(
                manifest.files,
                manifest.file_num_bytes,
                manifest.file_num_rows,
                np.bincount(manifest.row_group_file, minlength=len(manifest.files)),
                strict=True,
            )
        ],
        "writers": dict(footers.writers),
        "rows": manifest.num_rows,
        "bytes": int(manifest.file_num_bytes.sum()),
        "row_groups": {
            "count": manifest.num_row_groups,
            "rows": _spread(manifest.row_group_num_rows),
            "compressed_bytes": _spread(manifest.row_group_num_bytes),
            "uncompressed_bytes": _spread(footers.row_group_bytes),
        },
        "column_chunks_looked_at": sum(facts.pages.num_chunks for facts in columns.values()),
        "columns": [_column(facts, tensors[name][0]) for name, facts in columns.items()],
        "advice": [advice._asdict() for advice in advise(manifest, columns, tensors, use)],
    }


def _spread(values: ArrayLike) -> dict[str, int]:
    array = np.asarray(values)
    return {"min": int(array.min()), "median": int(np.median(array)), "max": int(array.max())}


def _column(facts: ColumnFacts, tensor: dict[str, Any]) -> dict[str, Any]:
    pages = facts.pages
    return {
        "name": facts.name,
        "kinds": facts.kinds,
        "physical_types": sorted(facts.physical_types),
        "tensor": tensor,
        "values": facts.num_values,
        "nulls": facts.null_count,
        "compressed_bytes": facts.compressed_bytes,
        "uncompressed_bytes": facts.uncompressed_bytes,
        "codecs": sorted(facts.codecs),
        "encodings": sorted(pages.encodings or facts.encodings),
        "with_dictionary": pages.with_dictionary > 0,
        "dictionary_fallback": pages.fallbacks > 0,
        "most_words": pages.most_words,
        "page_checksums": 0 < pages.num_pages == pages.num_checksums,
    }


class Advice(NamedTuple):
    """One thing that could be better.

    Attributes:
        rule: A name that stays the same over releases, such as "codec-slow".
        columns: The columns with the fault; empty if it concerns the whole files.
    """

    rule: str
    text: str
    columns: list[str]


@dataclass(frozen=True)
class Use:
    """The training that the files are for."""

    world_size: int
    num_workers: int
    batch_size: int
    max_memory_bytes: int


def advise(
    manifest: Manifest, columns: dict[str, ColumnFacts], tensors: dict[str, Tensor], use: Use
) -> list[Advice]:
    """Return the advice, the most important first."""
    leaves = [leaf for schema in manifest.schemas for leaf in schema]
    lists = {leaf.path for leaf in leaves if leaf.num_lists}
    words = {leaf.path for leaf in leaves if leaf.is_bytes}

    def holds_nulls(facts: ColumnFacts) -> bool:
        dtype = tensors[facts.name][0]["dtype"]
        # Footers count an empty list as a null too.
        is_counted = bool(facts.null_count) and facts.name not in lists
        return is_counted and dtype is not None and "float" not in dtype

    def is_few_words(facts: ColumnFacts) -> bool:
        pages = facts.pages
        return facts.name in words and pages.keeps_dictionary and pages.most_words <= _MOST_WORDS

    most = max(
        (facts.pages.most_words for facts in columns.values() if is_few_words(facts)), default=0
    )
    slow = "are compressed by {}, which is slow to decode; zstd is as small and faster: "
    of_columns: list[tuple[str, Callable[[ColumnFacts], bool], str]] = [
        (
            "column-unreadable",
            lambda facts: tensors[facts.name][1] is None,
            "cannot be read as tensors; name the others in columns=",
        ),
        (
            "nulls",
            holds_nulls,
            'hold nulls, which are an error unless nulls= says what they become ("mask", 0, ...)',
        ),
        *(
            (
                "codec-slow",
                lambda facts, codec=codec: codec in facts.codecs,
                slow.format(codec) + "torchparquet rewrite --codec zstd",
            )
            for codec in ("BROTLI", "GZIP")
        ),
        (
            "dictionary-fallback",
            lambda facts: facts.pages.fallbacks > 0,
            "fall back from a dictionary to plain values within column chunks: the dictionary cost "
            "time and saved little; torchparquet rewrite --encoding NAME=plain",
        ),
        (
            "strings-without-vocab",
            is_few_words,
            f"are strings of at most {most:,} different values in a row group: "
            'Column(..., vocab="auto") reads them as codes',
        ),
    ]
    found = [
        Advice(rule, text, names)
        for rule, is_meant, text in of_columns
        if (names := [name for name, facts in columns.items() if is_meant(facts)])
    ]
    is_grave = [advice.rule in ("column-unreadable", "nulls") for advice in found]
    return [
        *found[: sum(is_grave)],
        *_row_groups(manifest, tensors, use),
        *found[sum(is_grave) :],
    ]


def _row_groups(manifest: Manifest, tensors: dict[str, Tensor], use: Use) -> Iterator[Advice]:
    rows, num_bytes = manifest.row_group_num_rows, manifest.row_group_num_bytes
    readers = use.world_size * use.num_workers
    if len(rows) < DEFAULT_WINDOW * readers:
        what = (
            "some read parts of one, and decode its pages twice"
            if len(rows) < readers
            else f"a shuffle window of {DEFAULT_WINDOW} is all that a reader has"
        )
        yield Advice(
            "row-groups-few",
            f"{counted(len(rows), 'row group')} for {counted(readers, 'reader')} (ranks times "
            f"workers): {what}; smaller row groups would divide and mix rows better: torchparquet "
            f"rewrite --row-group-rows {max(1, int(rows.sum()) // (DEFAULT_WINDOW * readers))}",
            [],
        )
    columns = [field for _, field in tensors.values() if field is not None]
    memory = use.max_memory_bytes // use.num_workers
    window_rows = window_of(rows, columns, use.batch_size, memory)[1] if columns else 0
    # The window has fewer row groups than wanted, though the data has enough.
    largest = np.sort(rows)[::-1][:DEFAULT_WINDOW]
    if 0 < window_rows < largest.sum():
        fitting = window_rows / max(1.0, float(largest.mean()))
        wanted = max(1, int(window_rows / DEFAULT_WINDOW) // 1024 * 1024)
        yield Advice(
            "row-groups-large",
            f"a shuffle window holds {window_rows:,} rows, which is {fitting:.1f} row groups and "
            f"not {DEFAULT_WINDOW}: batches have rows of fewer row groups; raise max_memory, or "
            f"torchparquet rewrite --row-group-rows {wanted}",
            [],
        )
    if len(rows) >= _MANY_ROW_GROUPS and np.median(num_bytes) < _SMALL_ROW_GROUP_BYTES:
        yield Advice(
            "row-groups-small",
            f"half of the {len(rows):,} row groups are smaller than "
            f"{int(np.median(num_bytes)):,} bytes: opening each of their column chunks takes "
            "longer than decoding it; larger ones would be faster: torchparquet rewrite "
            "--row-group-bytes 64MiB",
            [],
        )
