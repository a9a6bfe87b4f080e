"""Data sets of Hugging Face's `datasets`: the Parquet files that they are made from."""

from __future__ import annotations

from typing import Any

from torchparquet._impl.tables.table_source import TableSource


def hugging_face_source(dataset: Any) -> TableSource:
    """Return the Parquet files that a `datasets.IterableDataset` streams."""
    examples = getattr(dataset, "_ex_iterable", None)
    builder = getattr(getattr(examples, "generate_tables_fn", None), "__self__", None)
    arguments = getattr(examples, "kwargs", {})
    files = arguments.get("files")
    is_whole = (
        not any(arguments.get("row_groups_list") or ())
        and getattr(dataset, "_distributed", None) is None
    )
    if type(builder).__name__ != "Parquet" or not files or not is_whole:
        raise ValueError(
            "a data set of Hugging Face must come from load_dataset(..., streaming=True) of "
            "Parquet files, without map, filter or shards: give the paths of the files "
            "themselves, such as hf://datasets/NAME/**/*.parquet"
        )
    filters = getattr(getattr(builder, "config", None), "filters", None)
    return TableSource(
        tuple(sorted(map(str, files))), "a data set of Hugging Face", filters=filters
    )
