"""Which row groups a filter leaves: by their statistics and the partition keys of their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from torchparquet.errors import EncryptedFileError

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from torchparquet.decryption import FileKeys
    from torchparquet.manifest import Manifest

FiltersArgument: TypeAlias = "pc.Expression | list[Any] | None"


def filter_row_groups(
    manifest: Manifest, filters: FiltersArgument, keys: FileKeys | None = None
) -> Manifest:
    """Leave out the row groups that cannot hold a row for which ``filters`` is true.

    pyarrow's data set engine decides, from the statistics in the footers and from ``key=value``
    directories on the files' paths. Row groups are kept whole: rows for which the filter
    is false stay among the others.

    Args:
        manifest: Of the files.
        filters: pyarrow's tuples, ``[("x", ">", 3), ...]`` or a list of such lists, of which one
            must hold; or a ``pyarrow.compute.Expression``; None keeps all.
        keys: Of files that are encrypted; None: of none.

    Returns:
        The manifest of what is left; its rows keep their global numbers.

    Raises:
        EncryptedFileError: A file has columns that are encrypted and that there is no key for:
            pyarrow ends the process when it looks for their statistics.
        ValueError: The filter names no column of a file, is malformed, or leaves nothing.
        TypeError: ``filters`` has another type.
    """
    if filters is None:
        return manifest
    expression = _expression(filters)
    for file in np.flatnonzero(manifest.file_has_hidden_columns)[:1]:
        raise EncryptedFileError(
            "filters need a key for every column that is encrypted: give decryption_properties, "
            f"or leave filters out: {manifest.files[file]!r}"
        )
    keep = np.zeros(manifest.num_row_groups, dtype=bool)
    first_row_group = np.searchsorted(manifest.row_group_file, np.arange(len(manifest.files)))
    for file, path in enumerate(manifest.files):
        content = manifest.memory[file].content if manifest.memory else None
        kept = _matching_row_groups(path, content, _format(path, keys), expression)
        keep[first_row_group[file] + np.array(kept, dtype=np.int64)] = True
    if not manifest.row_group_num_rows[keep].any():
        raise ValueError(f"filters leave no row group of {manifest.num_row_groups}: {expression}")
    return manifest.keep(keep)


def _expression(filters: Any) -> pc.Expression:
    # Imported here, as all of pyarrow that only filters need.
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, list):
        raise TypeError(
            f"filters must be a list of tuples, a list of such lists, or a pyarrow Expression; got "
            f"{filters!r}"
        )
    try:
        return pq.filters_to_expression(filters)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise ValueError(f"filters cannot be understood ({error}): {filters!r}") from error


def _format(path: str, keys: FileKeys | None) -> pads.ParquetFileFormat:
    import pyarrow.dataset as pads

    if keys is None:
        return pads.ParquetFileFormat()
    options = pads.ParquetFragmentScanOptions(decryption_properties=keys.of_file(path))
    return pads.ParquetFileFormat(default_fragment_scan_options=options)


def _matching_row_groups(
    path: str,
    content: pa.Buffer | None,
    file_format: pads.ParquetFileFormat,
    expression: pc.Expression,
) -> list[int]:
    fragment, schema = (
        _on_disk(path, file_format) if content is None else _in_memory(content, file_format)
    )
    try:
        left = fragment.subset(expression, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ValueError(f"filters do not fit the columns of {path!r}: {error}") from error
    return [row_group.id for row_group in left.row_groups]


def _on_disk(
    path: str, file_format: pads.ParquetFileFormat
) -> tuple[pads.ParquetFileFragment, pa.Schema]:
    import pyarrow.dataset as pads

    partitioning = pads.HivePartitioning.discover(infer_dictionary=False)
    source = pads.FileSystemDatasetFactory(
        pa.fs.LocalFileSystem(),
        [path],
        file_format,
        pads.FileSystemFactoryOptions(partitioning=partitioning, partition_base_dir="/"),
    )
    dataset = source.finish()
    (fragment,) = dataset.get_fragments()
    return fragment, dataset.schema


def _in_memory(
    content: pa.Buffer, file_format: pads.ParquetFileFormat
) -> tuple[pads.ParquetFileFragment, pa.Schema]:
    fragment = file_format.make_fragment(content)
    return fragment, fragment.physical_schema
