"""Advice on files that a model is to be trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.reading.window_limits import DEFAULT_WINDOW, window_in_effect, window_memory
from torchparquet.tools.inspect.column_chunks import ColumnFacts, FooterFacts
from torchparquet.tools.inspect.pages import PageFacts
from torchparquet.tools.inspect.tensors import TensorFacts
from torchparquet.tools.screen import counted

_SMALL_ROW_GROUP_BYTES = 1 << 20
_MANY_ROW_GROUPS = 64
_MOST_WORDS = 10_000
_SLOW_CODECS = {"GZIP", "BROTLI"}


@dataclass(frozen=True)
class Advice:
    """One thing that could be better.

    Attributes:
        rule: A name that stays the same over releases, such as "codec-slow".
        columns: The columns with the fault; empty if it concerns the whole files.
    """

    rule: str
    text: str
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Use:
    """The training that the files are for."""

    world_size: int = 1
    num_workers: int = 1
    batch_size: int = 1024
    max_memory_bytes: int = 1 << 30


@dataclass(frozen=True)
class Findings:
    """The facts that advice is based on.

    Attributes:
        pages: For each column, facts from the column chunks that were looked at.
    """

    manifest: Manifest
    footers: FooterFacts
    pages: dict[str, PageFacts]
    tensors: dict[str, TensorFacts]
    fields: Sequence[Field] = field(default_factory=tuple)
    use: Use = field(default_factory=Use)

    def named(self, wanted: Callable[[ColumnFacts], bool]) -> tuple[str, ...]:
        """Return the names of the columns that `wanted` is true of."""
        return tuple(name for name, facts in self.footers.columns.items() if wanted(facts))


def advise(findings: Findings) -> list[Advice]:
    """Return the advice, the most important first."""
    return [
        *_unreadable(findings),
        *_nulls(findings),
        *_row_groups(findings),
        *_codecs(findings),
        *_encodings(findings),
        *_strings(findings),
    ]


def _unreadable(findings: Findings) -> Iterator[Advice]:
    columns = tuple(name for name, of in findings.tensors.items() if of.form is None)
    if columns:
        text = "cannot be read as tensors; name the others in columns="
        yield Advice("column-unreadable", text, columns)


def _nulls(findings: Findings) -> Iterator[Advice]:
    def holds_nulls(facts: ColumnFacts) -> bool:
        dtype = findings.tensors[facts.name].dtype
        # Footers count an empty list as a null too.
        return bool(facts.null_count) and dtype is not None and "float" not in dtype

    lists = {leaf.path for schema in findings.manifest.schemas for leaf in schema if leaf.num_lists}
    columns = tuple(name for name in findings.named(holds_nulls) if name not in lists)
    if columns:
        text = 'hold nulls, which are an error unless nulls= says what they become ("mask", 0, ...)'
        yield Advice("nulls", text, columns)


def _row_groups(findings: Findings) -> Iterator[Advice]:
    manifest, use = findings.manifest, findings.use
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
        )
    if findings.fields:
        yield from _large_row_groups(findings)
    if len(rows) >= _MANY_ROW_GROUPS and np.median(num_bytes) < _SMALL_ROW_GROUP_BYTES:
        yield Advice(
            "row-groups-small",
            f"half of the {len(rows):,} row groups are smaller than "
            f"{int(np.median(num_bytes)):,} bytes: opening each of their column chunks takes "
            "longer than decoding it; larger ones would be faster: torchparquet rewrite "
            "--row-group-bytes 64MiB",
        )


def _large_row_groups(findings: Findings) -> Iterator[Advice]:
    use, rows = findings.use, findings.manifest.row_group_num_rows
    _, window_rows = window_in_effect(
        None,
        rows,
        share_batch_size=use.batch_size,
        memory=window_memory(
            findings.fields,
            use.batch_size,
            use.max_memory_bytes // use.num_workers,
            row_ids=False,
            row_valid=False,
        ),
        num_sharers=1,
    )
    # The window has fewer row groups than wanted, though the data has enough.
    largest = np.sort(rows)[::-1][:DEFAULT_WINDOW]
    if not window_rows or window_rows >= largest.sum():
        return
    fitting = window_rows / max(1.0, float(largest.mean()))
    wanted = max(1, int(window_rows / DEFAULT_WINDOW) // 1024 * 1024)
    yield Advice(
        "row-groups-large",
        f"a shuffle window holds {window_rows:,} rows, which is {fitting:.1f} row groups and not "
        f"{DEFAULT_WINDOW}: batches have rows of fewer row groups; raise max_memory, or "
        f"torchparquet rewrite --row-group-rows {wanted}",
    )


def _codecs(findings: Findings) -> Iterator[Advice]:
    for codec in sorted(_SLOW_CODECS):
        columns = findings.named(lambda facts, codec=codec: codec in facts.codecs)  # type: ignore[misc]
        if columns:
            text = (
                f"are compressed by {codec}, which is slow to decode; zstd is as small and faster: "
                "torchparquet rewrite --codec zstd"
            )
            yield Advice("codec-slow", text, columns)


def _encodings(findings: Findings) -> Iterator[Advice]:
    columns = tuple(name for name, pages in findings.pages.items() if pages.fallbacks)
    if columns:
        text = (
            "fall back from a dictionary to plain values within column chunks: the dictionary cost "
            "time and saved little; torchparquet rewrite --encoding NAME=plain"
        )
        yield Advice("dictionary-fallback", text, columns)


def _strings(findings: Findings) -> Iterator[Advice]:
    words = {leaf.path for schema in findings.manifest.schemas for leaf in schema if leaf.is_bytes}
    columns = tuple(
        name
        for name, pages in findings.pages.items()
        if name in words
        and pages.num_chunks
        and pages.with_dictionary == pages.num_chunks
        and not pages.fallbacks
        and pages.most_words <= _MOST_WORDS
    )
    if columns:
        most = max(findings.pages[name].most_words for name in columns)
        text = (
            f"are strings of at most {most:,} different values in a row group: "
            'Column(..., vocab="auto") reads them as codes'
        )
        yield Advice("strings-without-vocab", text, columns)
