"""The files of a manifest as fragments of pyarrow's data set engine, and their common schema."""

from __future__ import annotations

import functools
import io
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.files.footers.leaf import NULL_KEY
from torchparquet._impl.files.footers.plain_footer import footer_in, made_of_any, with_footer
from torchparquet._impl.files.remote.store import RangeFile
from torchparquet._impl.files.schemas import is_whole_number
from torchparquet.errors import one_line, unreadable

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.manifest_reading import HeldFooters


class Fragments:
    """The files of a manifest, opened when they are asked for. Thread-safe."""

    def __init__(
        self, manifest: Manifest, keys: FileKeys | None, footers: HeldFooters | None
    ) -> None:
        """Read a file of each schema, or its footer if the content of footers is given."""
        self._manifest = manifest
        self._keys = keys
        self._footers = None if manifest.listing.memory else footers
        table = manifest.table
        self._stored = self._schemas()
        schemas = list(self._stored.values())
        if table is not None and table.arrow_schema:
            of_table = pa.ipc.read_schema(pa.BufferReader(table.arrow_schema))
            schemas = [pa.schema([f for f in of_table if f.name not in table.keys])]
        unified, self.differing = _unified(schemas)
        self._path_keys = {
            name: _typed_key(texts, as_text=table is not None and name in table.text_keys)
            for name, texts in manifest.partition_keys.items()
            if name not in unified.names and name not in self.differing
        }
        # Without those in `differing`, which files store as types without a common one.
        for name, values in self._path_keys.items():
            unified = unified.append(pa.field(name, values.type))
        self.schema = unified.remove_metadata()
        self._defaults = {
            name: pa.scalar(value, unified.field(name).type)
            for name, value in ({} if table is None else table.defaults).items()
            if name in unified.names
        }

    def _schemas(self) -> dict[int, pa.Schema]:
        """Return the distinct schemas of files with rows, by the manifest's numbers."""
        with_rows = np.flatnonzero(self._manifest.file_num_rows > 0)
        numbers, first = np.unique(self._manifest.file_schema[with_rows], return_index=True)
        chosen = dict(zip(numbers.tolist(), with_rows[first].tolist(), strict=True))
        if self._footers is not None:
            # Those that this process has read: others take a request.
            of, num_rows = self._manifest.file_schema, self._manifest.file_num_rows
            held = reversed(self._footers.held)
            chosen |= {int(of[file]): file for file in held if num_rows[file] > 0}
        return {number: self.footer(file, {}).physical_schema for number, file in chosen.items()}

    def stored_schema(self, file: int) -> pa.Schema:
        """Return the columns of a file with rows, by its own names."""
        return self._stored[int(self._manifest.file_schema[file])]

    def known(self, file: int, names: Collection[str]) -> dict[str, pa.Scalar]:
        """Return partition keys of a file's path, and defaults or nulls of columns it lacks."""
        stored, in_file = self.stored_names(file), self.stored_schema(file).names
        found = {}
        for name in names:
            kind = self.schema.field(name).type
            if name in self._path_keys:
                found[name] = self._path_keys[name][file]
            elif stored.get(name, name) not in in_file and not pa.types.is_nested(kind):
                found[name] = self._defaults.get(name, pa.scalar(None, kind))
        return found

    def stored_names(self, file: int) -> Mapping[str, str]:
        """Return the paths of leaf columns that a file stores by another, or lacks: then ""."""
        table = self._manifest.table
        if table is None or not table.stored:
            return {}
        stored: Mapping[str, str] = table.stored[self._manifest.file_schema[file]]
        return stored

    def read_footers(self, files: Sequence[int]) -> None:
        """Read the footers of files at once, if they are read apart from their files."""
        if self._footers is not None:
            self._footers.read(files)

    def footer(self, file: int, known: Mapping[str, pa.Scalar]) -> pads.ParquetFileFragment:
        """Return a file, perhaps without values, of which some values are known for all rows."""
        if self._footers is None:
            return self._whole(file, known)
        # pyarrow reads a footer as a file without values.
        content = pa.py_buffer(self._footers.content(file))
        return self._made(file, content, lambda: pa.BufferReader(content), known)

    def with_values(
        self,
        file: int,
        footer: pads.ParquetFileFragment,
        known: Mapping[str, pa.Scalar],
        read: Callable[[int, int], bytes | memoryview] | None = None,
    ) -> pads.ParquetFileFragment:
        """Return a file with its values, from what `footer` returned for the same arguments.

        A store is not asked for the footer again: of such files `read` reads the rest.
        """
        if self._footers is None:
            return footer
        if read is None:
            return self._whole(file, known)
        footer = footer_in(io.BytesIO(self._footers.content(file)))
        num_bytes = self._manifest.listing.num_bytes[file]

        def opened() -> Any:
            return with_footer(RangeFile(num_bytes, read), footer)

        return self._made(file, opened(), opened, known)

    def _whole(self, file: int, known: Mapping[str, pa.Scalar]) -> pads.ParquetFileFragment:
        listing = self._manifest.listing
        path = listing.paths[file]
        return self._made(file, listing.source(path), lambda: listing.open(path), known)

    def _made(self, file: int, source: Any, opened: Any, known: Mapping[str, pa.Scalar]) -> Any:
        import pyarrow.compute as pc
        import pyarrow.dataset as pads
        import pyarrow.fs as pafs

        path = self._manifest.files[file]
        properties = None if self._keys is None else self._keys.of_file(path)
        options = pads.ParquetFragmentScanOptions(decryption_properties=properties, pre_buffer=True)
        conditions = [
            pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            for name, value in known.items()
        ]

        def made_of(taken: Any) -> Any:
            made = pads.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(
                taken,
                filesystem=pafs.LocalFileSystem() if isinstance(taken, str) else None,
                partition_expression=functools.reduce(operator.and_, conditions, pc.scalar(True)),
            )
            made.ensure_complete_metadata()
            return made

        try:
            return made_of_any(made_of, source, opened)
        except (pa.ArrowException, OSError) as error:
            message = f"cannot parse the footer: {path!r}: {one_line(error)}"
            raise unreadable(error, path, message) from error


def _unified(schemas: Sequence[pa.Schema]) -> tuple[pa.Schema, list[str]]:
    """Return the columns of all schemas, and the names of those that have no common type."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive"), []
    except pa.ArrowException:
        by_name: dict[str, list[pa.Schema]] = {}
        for field in (field for schema in schemas for field in schema):
            by_name.setdefault(field.name, []).append(pa.schema([field]))
    fields, differing = [], []
    for name, alike in by_name.items():
        try:
            fields += list(pa.unify_schemas(alike, promote_options="permissive"))
        except pa.ArrowException:
            differing.append(name)
    return pa.schema(fields), differing


def _typed_key(texts: Sequence[str | None], *, as_text: bool) -> pa.Array:
    """Return the values of a key, as columns read them: int64 if all are integers, else strings."""
    values = [None if text == NULL_KEY else text for text in texts]
    if not as_text and all(value is None or is_whole_number(value) for value in values):
        return pa.array([None if value is None else int(value) for value in values], pa.int64())
    return pa.array(values, pa.string())
