"""`torchparquet stats`: statistics of columns, for feature transforms and vocabularies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from torchparquet._impl.files.schemas import Schemas
from torchparquet.cli.arguments import (
    Data,
    column_option,
    filter_option,
    max_memory_option,
    num_threads_option,
    number_option,
    parsed_option,
    report_command,
)
from torchparquet.cli.columns import readable_columns, tensors_of
from torchparquet.cli.preparing.cluster import cluster_of, ray_option
from torchparquet.cli.screen import counted, plain, progress, show_table
from torchparquet.dataset import ParquetDataset
from torchparquet.statistics import ColumnStatistics, checked_place, statistics_of

_PERCENTS = (0.1, 1, *range(5, 100, 5), 99, 99.9)
_LENGTHS = ("min", "mean", "max")
_SHOWN_PERCENTS = (1, 50, 99)
_MOST_WORDS = 20
_SHOWN_WORDS = 3
_SHOWN_CHARACTERS = 20


def _show(console: Console, report: dict[str, Any]) -> None:
    columns = report["columns"]
    console.print(f"{counted(report['rows'], 'row')}, {counted(len(columns), 'column')}")
    percents = [f"{percent} %" for percent in _SHOWN_PERCENTS]
    headings = ["column", "values", "nulls", "nan, inf", "mean", "std", "min", *percents, "max"]
    cells = [_number_cells(one) for one in columns if one["percentiles"]]
    _show_filled(console, "Numbers", headings, cells)
    headings = ["column", "values", "nulls", "different", "most frequent"]
    cells = [_word_cells(one) for one in columns if one["distinct"] or one["has_too_many_words"]]
    _show_filled(console, "Words", headings, cells)
    headings = ["column", "null", "least", "mean", "most"]
    cells = [
        [one["name"], one["null_lists"], *(_cell(one[f"{of}_length"]) for of in _LENGTHS)]
        for one in columns
        if one["null_lists"] is not None
    ]
    _show_filled(console, "Lengths of lists, and of strings in bytes", headings, cells)
    without = [one["name"] for one in columns if not one["count"]]
    if without:
        console.print(f"[yellow]without a value[/]  {plain(', '.join(without))}")
    for left in report["left_out"]:
        console.print(f"[yellow]left out[/]  {plain(left['name'])}: {plain(left['reason'])}")
    if report["output"] is not None:
        console.print(f"written to {plain(report['output'])}")


def _show_filled(
    console: Console, title: str, headings: list[str], rows: list[list[object]]
) -> None:
    if rows:
        show_table(console, f"\n{title}", headings, rows)


def _number_cells(column: dict[str, Any]) -> list[object]:
    percents = [column["percentiles"][str(percent)] for percent in _SHOWN_PERCENTS]
    figures = [column["mean"], column["std"], column["min"], *percents, column["max"]]
    counts = [column["count"], column["nulls"], column["nans"] + column["infs"]]
    return [column["name"], *counts, *map(_cell, figures)]


def _word_cells(column: dict[str, Any]) -> list[object]:
    words = [f"{_shown_word(word)} {count:,}" for word, count in column["words"][:_SHOWN_WORDS]]
    distinct = "too many" if column["has_too_many_words"] else column["distinct"]
    return [column["name"], column["count"], column["nulls"], distinct, ", ".join(words)]


def _shown_word(word: str | int | dict[str, str]) -> str:
    if isinstance(word, dict):
        return f"0x{word['hex'][:_SHOWN_CHARACTERS]}"
    return repr(word[:_SHOWN_CHARACTERS]) if isinstance(word, str) else str(word)


def _cell(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.5g}"


def _split(text: str) -> tuple[Any, ...]:
    split = json.loads(text)
    if not isinstance(split, list):
        raise ValueError("it must be a list, as the text of --help shows one")
    return tuple(split)


@report_command(_show)
@click.option("-o", "--output", metavar="FILE", help="Write the statistics to a file of JSON.")
@column_option
@click.option(
    "--words",
    multiple=True,
    metavar="NAME",
    help="Count the values of this column of integers too; may be repeated.",
)
@number_option("--max-words", default=10_000, help="The most words of a column that are kept.")
@number_option(
    "--sample", default=1_000_000, help="The most values of a column that quantiles are of."
)
@filter_option
@parsed_option(
    "--split",
    "JSON",
    "Read one part of a split, as split= has it: "
    '["train", {"train": 0.9, "val": 0.1}, 0, "user_id"].',
    _split,
)
@max_memory_option
@num_threads_option
@ray_option
def command(
    data: Data,
    output: str | None,
    words: Sequence[str],
    max_words: int,
    sample: int,
    ray: str | None,
    **options: Any,
) -> dict[str, Any]:
    """Read all rows once, and show statistics of each column.

    These are counts, nulls, mean, standard deviation and quantiles of numbers, the most frequent
    strings, and lengths of lists. The file that --output names is for Statistics.load.
    """
    if output is not None:
        checked_place(output)
    cluster = cluster_of(ray, options["max_memory"], options["num_threads"])
    if cluster is not None:
        options["num_threads"] = cluster.task_threads
    left_out = []
    columns = list(data.columns)
    if not columns:
        manifest = data.manifest()
        columns = readable_columns(manifest)
        tensors = tensors_of(Schemas(manifest).names(), manifest)
        left_out = [
            {"name": name, "reason": facts["reason"]}
            for name, (facts, field) in tensors.items()
            if field is None
        ]
    dataset = ParquetDataset(
        data.paths,
        batch_size=1,
        columns=columns,
        rank=0,
        world_size=1,
        storage_options=data.storage.named,
        filesystem=data.storage.filesystem,
        **options,
    )
    with progress("rows", dataset.manifest.num_rows) as advance:
        found = statistics_of(dataset, words, max_words, sample, advance, cluster)
    if output is not None:
        found.save(output)
    return {
        "rows": found.num_rows,
        "columns": [_report(name, column) for name, column in found.items()],
        "left_out": left_out,
        "output": output,
    }


def _report(name: str, column: ColumnStatistics) -> dict[str, Any]:
    """Return the figures of a column, with percentiles in place of all quantiles."""
    found = {"name": name} | vars(column)
    del found["quantiles"]
    found["percentiles"] = {
        str(percent): column.quantile(percent / 100) for percent in _PERCENTS if column.quantiles
    }
    found["words"] = [
        (word if isinstance(word, str | int) else {"hex": word.hex()}, count)
        for word, count in column.words[:_MOST_WORDS]
    ]
    return found
