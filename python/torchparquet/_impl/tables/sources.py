"""The argument `paths`, where it is a table of another library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchparquet._impl.tables.table_source import TableSource

if TYPE_CHECKING:
    import pyarrow.dataset as pads


def arrow_source(dataset: pads.FileSystemDataset) -> TableSource:
    """Return the files of a `pyarrow.dataset.Dataset` over Parquet files."""
    import pyarrow.dataset as pads

    if getattr(dataset, "_scan_options", None):
        raise ValueError(
            "pyarrow does not give the files of a filtered data set: give the data set without its "
            "filter, and the filter as filters="
        )
    fragments = list(dataset.get_fragments())
    if not fragments or not all(isinstance(one, pads.ParquetFileFragment) for one in fragments):
        raise ValueError("a data set of pyarrow must have fragments, all of them Parquet files")
    fragments.sort(key=lambda fragment: fragment.path)
    paths = tuple(fragment.path for fragment in fragments)
    chosen = {
        file: sorted(row_group.id for row_group in fragment.row_groups)
        for file, fragment in enumerate(fragments)
        if len(fragment.row_groups) < fragment.metadata.num_row_groups
    }
    return TableSource(
        paths,
        "a data set of pyarrow",
        [pads.get_partition_keys(fragment.partition_expression) for fragment in fragments],
        dataset.schema.remove_metadata(),
        row_groups=chosen,
        filesystem=dataset.filesystem,
    )


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


def table_source(source: Any) -> TableSource | None:
    """Return the files of a table; None if `source` is not a table."""
    # By package and class; a table's library is imported by whoever made the table.
    for kind in type(source).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "deltalake", "DeltaTable":
                from torchparquet._impl.tables.delta import delta_source

                return delta_source(source)
            case "pyiceberg", "Table" | "StaticTable" | "DataScan":
                from torchparquet._impl.tables.iceberg import iceberg_source

                return iceberg_source(source)
            case "pyarrow", "FileSystemDataset":
                return arrow_source(source)
            case "datasets", "Dataset" | "IterableDataset":
                return hugging_face_source(source)
    return None
