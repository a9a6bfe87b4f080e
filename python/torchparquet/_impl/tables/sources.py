"""The argument `paths`, where it is a table of another library."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torchparquet._impl.tables.table_source import TableSource

# By the package and the class; a table's library is imported by whoever made the table.
_MAKERS = {
    ("deltalake", "DeltaTable"): ("torchparquet._impl.tables.delta", "delta_source"),
    ("pyarrow", "FileSystemDataset"): ("torchparquet._impl.tables.arrow_datasets", "arrow_source"),
    ("datasets", "Dataset"): ("torchparquet._impl.tables.hugging_face", "hugging_face_source"),
    ("datasets", "IterableDataset"): (
        "torchparquet._impl.tables.hugging_face",
        "hugging_face_source",
    ),
    ("pyiceberg", "Table"): ("torchparquet._impl.tables.iceberg", "iceberg_source"),
    ("pyiceberg", "StaticTable"): ("torchparquet._impl.tables.iceberg", "iceberg_source"),
    ("pyiceberg", "DataScan"): ("torchparquet._impl.tables.iceberg", "iceberg_source"),
}


def table_source(source: object) -> TableSource | None:
    """Return the files of a table; None if `source` is none.

    Args:
        source: A `deltalake.DeltaTable`, a table or scan of pyiceberg, a `pyarrow.dataset.Dataset`
            of files, a `datasets.IterableDataset`, or anything else.
    """
    for kind in type(source).__mro__:
        made_by = _MAKERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if made_by is not None:
            module, name = made_by
            maker: Callable[[Any], TableSource] = getattr(import_module(module), name)
            return maker(source)
    return None
