"""The argument `paths`, where it is a table of another library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchparquet._impl.tables.table_source import TableSource, key_text

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
    keys = [pads.get_partition_keys(fragment.partition_expression) for fragment in fragments]
    common = [name for name in keys[0] if all(name in others for others in keys)]
    chosen = {
        file: sorted(row_group.id for row_group in fragment.row_groups)
        for file, fragment in enumerate(fragments)
        if _is_part(fragment)
    }
    return TableSource(
        paths,
        "a data set of pyarrow",
        tuple({name: key_text(of_file[name]) for name in common} for of_file in keys),
        dataset.schema.remove_metadata(),
        row_groups=chosen,
        filesystem=dataset.filesystem,
    )


def _is_part(fragment: Any) -> bool:
    """True if the fragment has been narrowed to some row groups."""
    return bool(len(fragment.row_groups) < fragment.metadata.num_row_groups)


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


def _delta_source(table: Any) -> TableSource:
    from torchparquet._impl.tables.delta import delta_source

    return delta_source(table)


def _iceberg_source(table: Any) -> TableSource:
    from torchparquet._impl.tables.iceberg import iceberg_source

    return iceberg_source(table)


# By the package and the class; a table's library is imported by whoever made the table.
_MAKERS: dict[tuple[str, str], Callable[[Any], TableSource]] = {
    ("deltalake", "DeltaTable"): _delta_source,
    ("pyarrow", "FileSystemDataset"): arrow_source,
    ("datasets", "Dataset"): hugging_face_source,
    ("datasets", "IterableDataset"): hugging_face_source,
    ("pyiceberg", "Table"): _iceberg_source,
    ("pyiceberg", "StaticTable"): _iceberg_source,
    ("pyiceberg", "DataScan"): _iceberg_source,
}


def table_source(source: object) -> TableSource | None:
    """Return the files of a table; None if `source` is not a table."""
    for kind in type(source).__mro__:
        made_by = _MAKERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if made_by is not None:
            return made_by(source)
    return None
