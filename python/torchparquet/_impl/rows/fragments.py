"""The files of a manifest as fragments of pyarrow's data set engine, with their bytes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.files.filters import typed_key
from torchparquet._impl.files.footers.plain_footer import made_of_any
from torchparquet._impl.files.opening import opened_file, source_of
from torchparquet._impl.rows.pruning.bounds import known_conditions
from torchparquet.errors import one_line, unreadable

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest


class Fragments:
    """The files of a manifest, opened when they are asked for. Thread-safe."""

    def __init__(self, manifest: Manifest, keys: FileKeys | None) -> None:
        """Read the schemas."""
        self._manifest = manifest
        self._keys = keys
        table = manifest.table
        self._stored = self._schemas()
        schemas = list(self._stored.values())
        if table is not None and table.arrow_schema:
            of_table = pa.ipc.read_schema(pa.BufferReader(table.arrow_schema))
            schemas = [pa.schema([f for f in of_table if f.name not in table.keys])]
        try:
            unified = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise ValueError(
                f"rows cannot be selected, the types of columns differ: {one_line(error)}"
            ) from error
        self._path_keys = {
            name: typed_key(texts, as_text=table is not None and name in table.text_keys)
            for name, texts in manifest.partition_keys.items()
            if name not in unified.names
        }
        for name, values in self._path_keys.items():
            unified = unified.append(pa.field(name, values.type))
        self._schema = unified.remove_metadata()
        self._defaults = {
            name: pa.scalar(value, unified.field(name).type)
            for name, value in ({} if table is None else table.defaults).items()
            if name in unified.names
        }

    def _schemas(self) -> dict[int, pa.Schema]:
        """Return the distinct schemas of files with rows, by the manifest's numbers."""
        with_rows = np.flatnonzero(self._manifest.file_num_rows > 0)
        numbers, first = np.unique(self._manifest.file_schema[with_rows], return_index=True)
        files = with_rows[first].tolist()
        made = [self._made(file).physical_schema for file in files]
        return dict(zip(numbers.tolist(), made, strict=True))

    def schema(self) -> pa.Schema:
        """Return the columns of all files, and the partition keys of their paths."""
        return self._schema

    def stored_schema(self, file: int) -> pa.Schema:
        """Return the columns of a file, by its own names."""
        known = self._stored.get(int(self._manifest.file_schema[file]))
        return self._made(file).physical_schema if known is None else known

    def fragment(self, file: int, known: Mapping[str, pa.Scalar]) -> pads.ParquetFileFragment:
        """Return a file, of which these values are known for all of its rows.

        None are to be told of a file whose columns bear other names than its table's.
        """
        return self._made(file, known)

    def known(self, file: int) -> dict[str, pa.Scalar]:
        """Return the values of a file's partition keys, and of columns that are younger."""
        keys = {name: values[file] for name, values in self._path_keys.items()}
        stored = self.stored_names(file)
        return keys | {
            name: value for name, value in self._defaults.items() if stored.get(name) == ""
        }

    def stored_names(self, file: int) -> Mapping[str, str]:
        """Return the paths of leaf columns that a file stores by another, or lacks: then ""."""
        table = self._manifest.table
        if table is None or not table.stored:
            return {}
        stored: Mapping[str, str] = table.stored[self._manifest.file_schema[file]]
        return stored

    def _made(self, file: int, values: Mapping[str, pa.Scalar] | None = None) -> Any:
        import pyarrow.fs as pafs

        known = known_conditions(values or {})
        manifest, path = self._manifest, self._manifest.files[file]
        source = (
            manifest.memory[file].content if manifest.memory else source_of(path, manifest.remote)
        )

        def made_of(taken: Any) -> Any:
            made = self._format(path).make_fragment(
                taken,
                filesystem=pafs.LocalFileSystem() if isinstance(taken, str) else None,
                partition_expression=functools.reduce(operator.and_, known) if known else None,
            )
            made.ensure_complete_metadata()
            return made

        try:
            return made_of_any(made_of, source, lambda: opened_file(manifest, file))
        except (pa.ArrowException, OSError) as error:
            message = f"cannot parse the footer: {path!r}: {one_line(error)}"
            raise unreadable(error, path, message) from error

    def _format(self, path: str) -> pads.ParquetFileFormat:
        import pyarrow.dataset as pads

        properties = None if self._keys is None else self._keys.of_file(path)
        options = pads.ParquetFragmentScanOptions(decryption_properties=properties, pre_buffer=True)
        return pads.ParquetFileFormat(default_fragment_scan_options=options)
