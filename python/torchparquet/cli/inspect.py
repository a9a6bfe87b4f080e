"""`torchparquet inspect`: the contents of files, their tensors, and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.plan.plan_options import DEFAULT_WINDOW
from torchparquet.cli import arguments
from torchparquet.cli.arguments import Data
from torchparquet.cli.columns import Tensor, tensors_of, window_of
from torchparquet.cli.preparing.cluster import cluster_of, ray_option
from torchparquet.cli.preparing.footer_facts import ColumnFacts, read_facts, sampled_row_groups
from torchparquet.cli.screen import counted, plain, progress, show_table, size

_MAX_FILES = 20
_MAX_NAMES = 8
_SMALL_ROW_GROUP_BYTES = 1 << 20
_MANY_ROW_GROUPS = 64
_MOST_WORDS = 10_000


def _show(console: Console, report: dict[str, Any]) -> None:
    files, groups, columns = report["files"], report["row_groups"], report["columns"]
    console.print(
        f"{counted(len(files), 'file')}, {size(report['bytes'])}, "
        f"{counted(groups['count'], 'row group')}, {counted(report['rows'], 'row')}"
    )
    for name, count in report["writers"].items():
        console.print(f"written by {plain(name)}" + (f": {count:,}" if count < len(files) else ""))
    spreads: list[list[object]] = [["rows", *groups["rows"].values()]]
    for label in ("compressed", "uncompressed"):
        spreads.append([label, *map(size, groups[f"{label}_bytes"].values())])
    show_table(console, "\nRow groups", ("", "least", "median", "most"), spreads)
    cells = [(of["path"], of["row_groups"], of["rows"], size(of["bytes"])) for of in files]
    show_table(console, "\nFiles", ("file", "row groups", "rows", "size"), cells[:_MAX_FILES])
    if len(files) > _MAX_FILES:
        console.print(f"and {len(files) - _MAX_FILES:,} more, which --json lists")
    headings = ("column", "kind", "becomes", "codec", "encodings", "nulls", "size", "after codec")
    show_table(console, "\nColumns", headings, map(_cells, columns), left=5)
    console.print("\n[bold]Advice[/]")
    if not report["advice"]:
        console.print("  none")
    for advice in report["advice"]:
        names = advice["columns"]
        about = ", ".join(names[:_MAX_NAMES])
        if len(names) > _MAX_NAMES:
            about += f" and {len(names) - _MAX_NAMES:,} more"
        if names:
            about = f"{'all columns' if len(names) == len(columns) else about} "
        console.print(f"  [yellow]{advice['rule']}[/]  {plain(about)}{plain(advice['text'])}")


def _cells(column: dict[str, Any]) -> list[object]:
    tensor, encodings = column["tensor"], ", ".join(column["encodings"]).lower()
    levels = tensor["num_offsets"]
    shown = {
        None: "cannot be read",
        "tensor": f"{tensor['dtype']} {tensor['shape']}",
        "jagged": "Jagged(" * levels + f"{tensor['dtype']}" + ")" * levels,
    }
    return [
        column["name"],
        " / ".join(column["kinds"]),
        shown[tensor["form"]],
        ", ".join(column["codecs"]).lower(),
        encodings + (" (falls back)" if column["dictionary_fallback"] else ""),
        "?" if column["nulls"] is None else column["nulls"],
        size(column["compressed_bytes"]),
        f"{column['compressed_bytes'] / max(1, column['uncompressed_bytes']):.0%}",
    ]


@arguments.report_command(_show)
@arguments.world_size_option
@arguments.num_workers_option
@arguments.batch_size_option
@arguments.size_option("--max-memory", "1GiB", "`max_memory` of the data set; for the advice.")
@click.option("--all-pages", is_flag=True, help="Look at every page instead of a sample.")
@ray_option
def command(data: Data, *, all_pages: bool, ray: str | None, **use: int) -> dict[str, Any]:
    """Show the contents of files, and what could be better.

    The command also shows the tensor of each column. It reads footers and headers of pages, but no
    values.
    """
    cluster = cluster_of(ray, 0)
    manifest = data.manifest()
    wanted = range(manifest.num_row_groups) if all_pages else sampled_row_groups(manifest)
    with progress("footers", len(manifest.files)) as advance:
        footers = read_facts(manifest, wanted, advance, cluster)
    columns = footers.columns
    tensors = tensors_of(columns, manifest)
    groups = np.bincount(manifest.row_group_file, minlength=len(manifest.files)).tolist()
    rows, num_bytes = manifest.file_num_rows.tolist(), manifest.file_num_bytes.tolist()
    return {
        "files": [
            dict(zip(("path", "bytes", "rows", "row_groups"), of_file, strict=True))
            for of_file in zip(manifest.files, num_bytes, rows, groups, strict=True)
        ],
        "writers": dict(footers.writers),
        "rows": manifest.num_rows,
        "bytes": sum(num_bytes),
        "row_groups": {
            "count": manifest.num_row_groups,
            "rows": _spread(manifest.row_group_num_rows),
            "compressed_bytes": _spread(manifest.row_group_num_bytes),
            "uncompressed_bytes": _spread(footers.row_group_bytes),
        },
        "column_chunks_looked_at": sum(facts.num_chunks for facts in columns.values()),
        "columns": [
            {
                "name": name,
                "kinds": facts.kinds,
                "physical_types": sorted(facts.physical_types),
                "tensor": tensors[name][0],
                "values": facts.num_values,
                "nulls": facts.null_count,
                "compressed_bytes": facts.compressed_bytes,
                "uncompressed_bytes": facts.uncompressed_bytes,
                "codecs": sorted(facts.codecs),
                "encodings": sorted(facts.page_encodings or facts.encodings),
                "with_dictionary": facts.with_dictionary > 0,
                "dictionary_fallback": facts.fallbacks > 0,
                "most_words": facts.most_words,
                "page_checksums": 0 < facts.num_pages == facts.num_checksums,
            }
            for name, facts in columns.items()
        ],
        "advice": [
            {"rule": rule, "text": text, "columns": names or []}
            for rule, names, text in _advise(manifest, columns, tensors, use)
            if names is None or names
        ],
    }


def _spread(values: ArrayLike) -> dict[str, int]:
    array = np.asarray(values)
    return {"min": int(array.min()), "median": int(np.median(array)), "max": int(array.max())}


# A rule, the columns with the fault (None if it concerns whole files), and a text.
_Advice = tuple[str, list[str] | None, str]


def _advise(
    manifest: Manifest,
    columns: dict[str, ColumnFacts],
    tensors: dict[str, Tensor],
    use: dict[str, int],
) -> Iterator[_Advice]:
    """Yield advice, the most important first."""
    leaves = [leaf for schema in manifest.schemas for leaf in schema]
    lists = {leaf.path for leaf in leaves if leaf.num_lists}
    words = {leaf.path for leaf in leaves if leaf.is_bytes}

    def those(is_meant: Callable[[str, ColumnFacts], object]) -> list[str]:
        return [name for name, facts in columns.items() if is_meant(name, facts)]

    def holds_nulls(name: str, facts: ColumnFacts) -> bool:
        dtype = tensors[name][0]["dtype"]
        # Footers count an empty list as a null too.
        is_counted = bool(facts.null_count) and name not in lists
        return is_counted and dtype is not None and "float" not in dtype

    yield (
        "column-unreadable",
        those(lambda name, _: tensors[name][1] is None),
        "cannot be read as tensors; name the others in columns=",
    )
    yield (
        "nulls",
        those(holds_nulls),
        'hold nulls, which are an error unless nulls= says what they become ("mask", 0, ...)',
    )
    yield from _advise_row_groups(manifest, tensors, use)
    for codec in ("BROTLI", "GZIP"):
        yield (
            "codec-slow",
            [name for name, facts in columns.items() if codec in facts.codecs],
            f"are compressed by {codec}, which is slow to decode; zstd is as small and faster: "
            "torchparquet rewrite --codec zstd",
        )
    yield (
        "dictionary-fallback",
        those(lambda _, facts: facts.fallbacks),
        "fall back from a dictionary to plain values within column chunks: the dictionary cost "
        "time and saved little; torchparquet rewrite --encoding NAME=plain",
    )
    few_words = those(
        lambda name, facts: (
            name in words and facts.keeps_dictionary and facts.most_words <= _MOST_WORDS
        )
    )
    most = max((columns[name].most_words for name in few_words), default=0)
    yield (
        "strings-without-vocab",
        few_words,
        f"are strings of at most {most:,} different values in a row group: "
        'Column(..., vocab="auto") reads them as codes',
    )


def _advise_row_groups(
    manifest: Manifest, tensors: dict[str, Tensor], use: dict[str, int]
) -> Iterator[_Advice]:
    rows, num_bytes = manifest.row_group_num_rows, manifest.row_group_num_bytes
    num_workers = max(1, use["num_workers"])
    readers = use["world_size"] * num_workers
    if len(rows) < DEFAULT_WINDOW * readers:
        what = (
            "some read parts of one, and decode its pages twice"
            if len(rows) < readers
            else f"a shuffle window of {DEFAULT_WINDOW} is all that a reader has"
        )
        yield (
            "row-groups-few",
            None,
            f"{counted(len(rows), 'row group')} for {counted(readers, 'reader')} (ranks times "
            f"workers): {what}; smaller row groups would divide and mix rows better: torchparquet "
            f"rewrite --row-group-rows {max(1, int(rows.sum()) // (DEFAULT_WINDOW * readers))}",
        )
    columns = [field for _, field in tensors.values() if field is not None]
    memory = use["max_memory"] // num_workers
    window_rows = window_of(rows, columns, use["batch_size"], memory)[1] if columns else 0
    # The window has fewer row groups than wanted, though the data has enough.
    largest = np.sort(rows)[::-1][:DEFAULT_WINDOW]
    if 0 < window_rows < largest.sum():
        fitting = window_rows / max(1.0, float(largest.mean()))
        wanted = max(1, int(window_rows / DEFAULT_WINDOW) // 1024 * 1024)
        yield (
            "row-groups-large",
            None,
            f"a shuffle window holds {window_rows:,} rows, which is {fitting:.1f} row groups and "
            f"not {DEFAULT_WINDOW}: batches have rows of fewer row groups; raise max_memory, or "
            f"torchparquet rewrite --row-group-rows {wanted}",
        )
    if len(rows) >= _MANY_ROW_GROUPS and np.median(num_bytes) < _SMALL_ROW_GROUP_BYTES:
        yield (
            "row-groups-small",
            None,
            f"half of the {len(rows):,} row groups are smaller than "
            f"{int(np.median(num_bytes)):,} bytes: opening each of their column chunks takes "
            "longer than decoding it; larger ones would be faster: torchparquet rewrite "
            "--row-group-bytes 64MiB",
        )
