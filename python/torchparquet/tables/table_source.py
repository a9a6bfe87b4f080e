"""A table as files, and what its metadata say of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchparquet.errors import CorruptFileError, SchemaMismatchError
from torchparquet.files.leaf import Leaf, TableFacts
from torchparquet.files.manifest import leaves_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from torchparquet.files.manifest import Manifest

# As directories of Hive spell it.
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
# From a file's leaves to the table's path of each; None for one that the table has not.
Names = Callable[["Manifest", int], Sequence[str | None]]


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table as files, and what its metadata say of them.

    Attributes:
        paths: Of the files, sorted.
        identity: The table's kind and version, to be shown.
        keys: For each file, the values of the partition columns as text.
        schema: The columns that files store; None if the files agree about them.
        names: Gives the table's names of a file's leaves; None if files store the table's own.
        deleted: By path, a mask of the rows to read.
        where: What must be true of a row; None if every row counts.
        defaults: The values of columns in files that are older than they.
        row_groups: By path, the row groups to read; files that are not named are read whole.
        storage_options: Of the store that the files are in, where the table knows them.
        filesystem: The same as a file system.
    """

    paths: tuple[str, ...]
    identity: str
    keys: tuple[Mapping[str, str], ...] = ()
    schema: pa.Schema | None = None
    names: Names | None = None
    deleted: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    where: pc.Expression | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    row_groups: Mapping[str, Sequence[int]] = field(default_factory=dict)
    storage_options: Mapping[str, Any] | None = None
    filesystem: Any = None

    def applied(self, manifest: Manifest) -> Manifest:
        """Return the manifest of the files with what the table says of them.

        Raises:
            CorruptFileError: The table names a row group that a file lacks.
            SchemaMismatchError: A file's column is not of the table's kind.
        """
        if len(manifest.files) != len(self.paths):
            raise CorruptFileError(
                f"the table names {len(self.paths)} files, {len(manifest.files)} were found"
            )
        of_table = () if self.schema is None else leaves_of(self.schema)
        if self.keys:  # which files need not store
            stored_too = {leaf.path for schema in manifest.schemas for leaf in schema}
            of_table = tuple(
                leaf
                for leaf in of_table
                if leaf.path in stored_too or leaf.path not in self.keys[0]
            )
        schemas, stored = [], []
        for number, leaves in enumerate(manifest.schemas):
            names = [leaf.path for leaf in leaves]
            if self.names is not None:
                first = int(np.flatnonzero(manifest.file_schema == number)[0])
                names = [name or "" for name in self.names(manifest, first)]
            schemas.append(_logical(leaves, names, of_table))
            stored.append(_stored(leaves, names, of_table))
        facts = TableFacts(
            self.identity,
            self._keys(),
            of_table,
            tuple(stored) if any(stored) else (),
            b"" if self.schema is None else self.schema.serialize().to_pybytes(),
            dict(self.defaults),
        )
        made = replace(manifest, schemas=tuple(schemas), table=facts)
        made = replace(made, fingerprint=made.digest())
        return self._of_row_groups(made) if self.row_groups else made

    def _keys(self) -> dict[str, tuple[str, ...]]:
        names = self.keys[0] if self.keys else {}
        return {name: tuple(keys[name] for keys in self.keys) for name in names}

    def _of_row_groups(self, manifest: Manifest) -> Manifest:
        kept = np.ones(manifest.num_row_groups, bool)
        for path, numbers in self.row_groups.items():
            of_file = manifest.row_group_file == self.paths.index(path)
            if any(number >= np.count_nonzero(of_file) for number in numbers):
                raise CorruptFileError(f"the table names row groups that {path!r} lacks: {numbers}")
            kept &= ~of_file | np.isin(manifest.row_group_in_file, list(numbers))
        return manifest.keep(kept)


def _logical(
    leaves: Sequence[Leaf], names: Sequence[str], of_table: Sequence[Leaf]
) -> tuple[Leaf, ...]:
    """Return a file's leaves by the table's names, and after them those that it lacks."""
    if not of_table:
        return tuple(leaves)
    known = {leaf.path: leaf for leaf in of_table}
    found = []
    for leaf, name in zip(leaves, names, strict=True):
        if name not in known:
            found.append(replace(leaf, standing="dropped"))
            continue
        if leaf.shape != known[name].shape:
            raise SchemaMismatchError(
                f"a file has column {name!r} as {leaf.kind}, the table as {known[name].kind}"
            )
        found.append(replace(leaf, path=name))
    lacking = [leaf for path, leaf in known.items() if path not in names]
    return (*found, *(replace(leaf, standing="added", nullable=True) for leaf in lacking))


def _stored(
    leaves: Sequence[Leaf], names: Sequence[str], of_table: Sequence[Leaf]
) -> dict[str, str]:
    """Return the paths of columns that a file stores by others, or not at all: then ""."""
    if not of_table:
        return {}
    stored = {
        name: leaf.path for leaf, name in zip(leaves, names, strict=True) if name != leaf.path
    }
    # A dropped column's name may be that of another column now.
    lacking = {leaf.path: "" for leaf in of_table if leaf.path not in names}
    return {name: path for name, path in (stored | lacking).items() if name}
