"""Filters: leave out row groups by their statistics and the partition keys of their paths."""

from __future__ import annotations

import functools
import operator
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from torchparquet._impl.files.footers.leaf import NULL_KEY
from torchparquet._impl.files.footers.plain_footer import made_of_any
from torchparquet._impl.files.footers.walk import footers_of
from torchparquet._impl.files.schemas import is_whole_number, no_such_column
from torchparquet.errors import CorruptFileError, EncryptedFileError, one_line, users_level

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.native import Footers

FiltersArgument: TypeAlias = "pc.Expression | list[Any] | None"


def filter_row_groups(
    manifest: Manifest,
    filters: FiltersArgument,
    keys: FileKeys | None = None,
    footers: Footers | None = None,
) -> Manifest:
    """Leave out the row groups that cannot hold a row for which ``filters`` is true.

    pyarrow's data set engine decides by the statistics in the footers and by the ``key=value``
    directories on the files' paths. A key counts if no file has a column of that name. It is null
    for paths that lack it. Row groups stay whole, so they may hold rows for which the filter is
    false.
    Statistics do not cover NaN: a row group that could match by a NaN alone may be left out.

    No file is opened if ``footers`` has the content of each. pyarrow parses a footer from its
    bytes as a file without values: it never asks for more.

    Args:
        filters: pyarrow's tuples, ``[("x", ">", 3), ...]``; a list of such lists, one of which
            must hold; or a ``pyarrow.compute.Expression``. None keeps all.

    Raises:
        EncryptedFileError: A file has encrypted columns without a key. pyarrow would end the
            process when it looks for their statistics.
        ValueError: The filter names an unknown column, is malformed, does not fit a column's
            type, or leaves no row.
    """
    if filters is None:
        return manifest
    expression = _expression(filters)
    if manifest.table is not None:
        manifest.table.check_names("filters")
    for file in np.flatnonzero(manifest.file_has_hidden_columns)[:1]:
        raise EncryptedFileError(
            "filters need a key for every encrypted column (give decryption_properties, or leave "
            f"filters out): {manifest.files[file]!r}"
        )
    keep = np.zeros(manifest.num_row_groups, dtype=bool)
    first_row_group = np.searchsorted(manifest.row_group_file, np.arange(len(manifest.files)))
    files = _Fragments(manifest, keys, footers)
    path_keys = _path_keys(manifest, files)

    def matching(file: int, condition: pc.Expression) -> list[int]:
        values = {name: column[file] for name, column in path_keys.items()}
        fragment = files.fragment(file, values)
        return _matching_row_groups(fragment, values, condition, manifest.files[file])

    with_rows = np.flatnonzero(manifest.file_num_rows > 0).tolist()
    for file in with_rows:
        kept = matching(file, expression)
        keep[first_row_group[file] + np.array(kept, dtype=np.int64)] = True
    if not manifest.row_group_num_rows[keep].any():
        raise ValueError(f"filters leave no row group of {manifest.num_row_groups}: {expression}")
    is_whole = bool(keep[manifest.row_group_num_rows > 0].all())
    if is_whole and any(matching(file, ~expression) for file in with_rows):
        warnings.warn(
            "filters leave out whole row groups, and here none: where= "
            f"takes the same tuples and expressions and chooses single rows. Got {expression}",
            stacklevel=users_level(),
        )
    return manifest.keep(keep)


def _expression(filters: Any) -> pc.Expression:
    # Imported here, because only filters need these parts of pyarrow.
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, list):
        raise TypeError(
            "filters must be a list of tuples, a list of such lists, or a pyarrow Expression "
            f"(where= takes SQL too, and chooses single rows); got {filters!r}"
        )
    try:
        return pq.filters_to_expression(filters)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(
            f"filters cannot be understood ({one_line(error)}): {filters!r}"
        ) from error


class _Fragments:
    """The files as pyarrow's fragments, made of their footers alone."""

    def __init__(self, manifest: Manifest, keys: FileKeys | None, footers: Footers | None) -> None:
        """Read the footers of files on disk, unless they are given."""
        if footers is None and not manifest.memory:
            footers = footers_of(
                manifest.files, keys=keys, remote=manifest.remote, with_contents=True
            )
        self._manifest = manifest
        self._keys = keys
        self._footers = footers

    def fragment(self, file: int, values: Mapping[str, pa.Scalar]) -> pads.ParquetFileFragment:
        """Return a file with the given values of its partition keys."""
        import pyarrow.compute as pc

        known = [
            pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            for name, value in values.items()
        ]
        path = self._manifest.files[file]
        content = self._content(file)

        def made_of(source: Any) -> pads.ParquetFileFragment:
            made = self._format(path).make_fragment(
                source,
                partition_expression=functools.reduce(operator.and_, known) if known else None,
            )
            made.ensure_complete_metadata()
            return made

        try:
            return made_of_any(made_of, content, lambda: pa.BufferReader(content))
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(
                f"cannot parse the footer: {path!r}: {one_line(error)}"
            ) from error

    def _content(self, file: int) -> pa.Buffer:
        if self._manifest.memory:
            return self._manifest.memory[file].content
        assert self._footers is not None  # noqa: S101
        return pa.py_buffer(self._footers.content(file))

    def _format(self, path: str) -> pads.ParquetFileFormat:
        import pyarrow.dataset as pads

        if self._keys is None:
            return pads.ParquetFileFormat()
        properties = self._keys.of_file(path)
        options = pads.ParquetFragmentScanOptions(decryption_properties=properties)
        return pads.ParquetFileFormat(default_fragment_scan_options=options)


def _path_keys(manifest: Manifest, files: _Fragments) -> dict[str, pa.Array]:
    """Return the values, by file, of keys that no file's schema has."""
    values = manifest.partition_keys
    if not values:
        return {}
    with_rows = np.flatnonzero(manifest.file_num_rows > 0)
    _, first = np.unique(manifest.file_schema[with_rows], return_index=True)
    names: set[str] = set()
    for file in with_rows[first].tolist():
        names.update(files.fragment(file, {}).physical_schema.names)
    table = manifest.table
    as_text = frozenset[str]() if table is None else table.text_keys
    return {
        key: typed_key(texts, as_text=key in as_text)
        for key, texts in values.items()
        if key not in names
    }


def typed_key(texts: Sequence[str | None], *, as_text: bool = False) -> pa.Array:
    """Return the values of a key, as columns read them: int64 if all are integers, else strings."""
    values = [None if text == NULL_KEY else text for text in texts]
    if not as_text and all(value is None or is_whole_number(value) for value in values):
        return pa.array([None if value is None else int(value) for value in values], pa.int64())
    return pa.array(values, pa.string())


def _matching_row_groups(
    fragment: pads.ParquetFileFragment,
    values: Mapping[str, pa.Scalar],
    expression: pc.Expression,
    path: str,
) -> list[int]:
    schema = fragment.physical_schema
    for name, value in values.items():
        schema = schema.append(pa.field(name, value.type))
    try:
        left = fragment.subset(expression, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise misfit(
            error,
            schema,
            f"{path!r}, which filters name",
            f"filters do not fit the columns of {path!r}",
        ) from error
    return [row_group.id for row_group in left.row_groups]


def misfit(error: Exception, schema: pa.Schema, place: str, message: str) -> ValueError:
    """Return what to raise if an expression does not fit a schema."""
    message_of_name = re.match(r"No match for (FieldRef.*?\)) in ", str(error))
    if message_of_name is None:
        return ValueError(f"{message}: {one_line(error)}")
    name = ".".join(re.findall(r"FieldRef\.Name\((.*?)\)", message_of_name[1]))
    fields = [(field.name, field.type) for field in schema]
    names = [
        f"{of}.{part.name}" for of, kind in fields if pa.types.is_struct(kind) for part in kind
    ]
    return no_such_column(name, place, [*schema.names, *names])
