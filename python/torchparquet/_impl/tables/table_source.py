"""A table as files, and what its metadata say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.files.footers.leaf import NULL_KEY, Leaf, TableFacts
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import leaves_of
from torchparquet._impl.files.remote.storage import StorageOptions
from torchparquet.errors import CorruptFileError, SchemaMismatchError

# From the leaves of files to the table's path of each; None for one that the table has not.
Names = Callable[[Sequence[Leaf]], Sequence[str | None]]


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table as `F` files, and what its metadata say of them.

    Attributes:
        keys: [F] the values of the partition columns, of which those of all files count.
        schema: The table's columns, partition columns too; None if the files agree about them.
        names: Gives the table's names of files' leaves; None if files store the table's own.
        row_groups: By number of the file, the row groups to read; others are read whole.
        storage_options: Of the store that the files are in, where the table knows them, or a
            function that asks its catalog for them.
    """

    paths: tuple[str, ...]
    identity: str
    keys: Sequence[Mapping[str, Any]] = ()
    schema: pa.Schema | None = None
    names: Names | None = None
    deleted: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    filters: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    row_groups: Mapping[int, Sequence[int]] = field(default_factory=dict)
    storage_options: StorageOptions | None = field(default=None, repr=False)
    filesystem: Any = field(default=None, repr=False)

    def applied(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the files, with the table's columns and keys."""
        if len(manifest.files) != len(self.paths):
            raise CorruptFileError(
                f"the table names {len(self.paths)} files, {len(manifest.files)} were found (no "
                "file of a table can be left out as a whole: restore it, or give the paths of the "
                "others)"
            )
        names_of = self.names or (lambda leaves: [leaf.path for leaf in leaves])
        names = [[name or "" for name in names_of(leaves)] for leaves in manifest.schemas]
        keys = self._keys_that_no_file_stores(manifest, names)
        columns = () if self.schema is None else tuple(self.schema)
        own = [column for column in columns if column.name not in keys]
        of_table = () if self.schema is None else leaves_of(pa.schema(own))
        pairs = zip(manifest.schemas, names, strict=True)
        found = [_named(leaves, of_leaves, of_table) for leaves, of_leaves in pairs]
        stored = tuple(paths for _, paths in found)
        numbers = {column.name for column in columns if _is_number(column.type)}
        facts = TableFacts(
            self.identity,
            keys,
            frozenset(keys) - numbers if columns else frozenset(),
            of_table,
            stored if any(stored) else (),
            b"" if self.schema is None else self.schema.serialize().to_pybytes(),
            dict(self.defaults),
        )
        made = replace(manifest, schemas=tuple(leaves for leaves, _ in found), table=facts)
        return replace(made, fingerprint=made.digest())

    def narrowed(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the row groups to read."""
        if not self.row_groups:
            return manifest
        kept = np.ones(manifest.num_row_groups, bool)
        for file, numbers in self.row_groups.items():
            of_file = manifest.row_group_file == file
            kept &= ~of_file | np.isin(manifest.row_group_in_file, list(numbers))
        if not kept.any():
            raise ValueError("the row groups of the table that are to be read hold no row")
        return manifest.keep(kept)

    def _keys_that_no_file_stores(
        self, manifest: Manifest, all_names: Sequence[Sequence[str]]
    ) -> dict[str, tuple[str, ...]]:
        """Return the values of partition columns; those that all files store are columns."""
        keys = {}
        used = np.unique(manifest.file_schema[manifest.file_num_rows > 0]).tolist()
        for name in self.keys[0] if self.keys else ():
            if not all(name in of_file for of_file in self.keys):
                continue
            stores = [name in all_names[number] for number in used]
            if any(stores) and not all(stores):
                raise SchemaMismatchError(
                    f"only some files of the table store its partition column {name!r}: rewrite "
                    "the others, or give the files themselves"
                )
            if not any(stores):
                keys[name] = tuple(_key_text(of_file[name]) for of_file in self.keys)
        return keys


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_integer(kind))


def _named(
    leaves: Sequence[Leaf], names: Sequence[str], of_table: Sequence[Leaf]
) -> tuple[tuple[Leaf, ...], dict[str, str]]:
    """Return a file's leaves by the table's names, those that it lacks last, and stored paths.

    A file may store a column by another path, or not at all: then its path is "".
    """
    if not of_table:
        return tuple(leaves), {}
    known = {leaf.path: leaf for leaf in of_table}
    found: list[Leaf] = []
    stored = {}
    for leaf, name in zip(leaves, names, strict=True):
        if name not in known:
            found.append(replace(leaf, standing="dropped"))
            continue
        if leaf.shape != known[name].shape:
            raise SchemaMismatchError(
                f"a file has column {name!r} as {leaf.kind}, the table as {known[name].kind}"
            )
        found.append(replace(leaf, path=name))
        if name != leaf.path:
            stored[name] = leaf.path
    for path, leaf in known.items():
        if path not in names:
            found.append(replace(leaf, standing="added", nullable=True))
            stored[path] = ""  # even if the file has a column of that name that was dropped
    return tuple(found), stored


def _key_text(value: object) -> str:
    """Return the value of a partition column as a path would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return NULL_KEY if value is None else str(value)
