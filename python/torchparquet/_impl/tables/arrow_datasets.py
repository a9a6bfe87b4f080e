"""Data sets of pyarrow: the files and row groups of their fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchparquet._impl.files.footers.leaf import NULL_KEY
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
        tuple({name: _key_text(of_file[name]) for name in common} for of_file in keys),
        dataset.schema.remove_metadata(),
        row_groups=chosen,
        filesystem=dataset.filesystem,
    )


def _is_part(fragment: Any) -> bool:
    """True if the fragment has been narrowed to some row groups."""
    return bool(len(fragment.row_groups) < fragment.metadata.num_row_groups)


def _key_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return NULL_KEY if value is None else str(value)
