"""The columns of the files, and whether files agree about them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError
from torchparquet.files.footers.leaf import DTYPES, Leaf

if TYPE_CHECKING:
    from torchparquet.files.manifest import Manifest

_NUMBER_DTYPES = DTYPES[1:]


class Schemas:
    """The distinct schemas of the files that have rows, each with the first file that has it."""

    def __init__(self, manifest: Manifest) -> None:
        """Collect the schemas of the files of ``manifest`` that have rows."""
        with_rows = np.flatnonzero(manifest.file_num_rows > 0)
        _, first = np.unique(manifest.file_schema[with_rows], return_index=True)
        with_schema: list[int] = with_rows[np.sort(first)].tolist()
        self._files = [manifest.files[index] for index in with_schema]
        schemas: list[Sequence[Leaf]] = [
            manifest.schemas[int(manifest.file_schema[index])] for index in with_schema
        ]
        self._manifest = manifest
        schemas = [[leaf for leaf in s if leaf.standing != "dropped"] for s in schemas]
        self._leaves = [{leaf.path: leaf for leaf in schema} for schema in schemas]
        self._repeated = [
            {path for path, count in Counter(leaf.path for leaf in schema).items() if count > 1}
            for schema in schemas
        ]
        table = manifest.table
        self._of_table = {} if table is None else {leaf.path: leaf for leaf in table.leaves}

    def names(self) -> list[str]:
        """Return the columns of all schemas, those of the table or of the first file first."""
        everywhere = [self._of_table, *self._leaves]
        found = dict.fromkeys(path for leaves in everywhere for path in leaves)
        return [path for path in found if any(path in leaves for leaves in self._leaves)]

    def added_since(self, name: str) -> str | None:
        """Return a file that lacks a column which its table has got since; None if none does."""
        for file, leaves in zip(self._files, self._leaves, strict=True):
            if name in leaves and leaves[name].standing == "added":
                return file
        return None

    def default_of_table(self, name: str) -> Any:
        """Return the value of a table's column in files that are older than it; None for null."""
        table = self._manifest.table
        lacks = table is not None and self.added_since(name) is not None
        return table.defaults.get(name) if table is not None and lacks else None

    def dtype_of_table(self, name: str) -> str | None:
        """Return the usual dtype of a table's column that files hold as other kinds; or None.

        Raises:
            SchemaMismatchError: Values of both kinds mean different things in that dtype.
        """
        leaf = self._of_table.get(name)
        if leaf is None or not leaf.dtype or leaf.is_bytes:
            return None
        found = None
        for file, leaves in zip(self._files, self._leaves, strict=True):
            if name not in leaves or leaves[name].kind == leaf.kind:
                continue
            if not _means_the_same(leaves[name], leaf, leaf.dtype):
                raise SchemaMismatchError(
                    f"the table has column {name!r} as {leaf.kind}, {file!r} as "
                    f"{leaves[name].kind}: Column(..., dtype=...) reads what the files hold"
                )
            found = leaf.dtype
        return found

    def agreed_leaves(self, name: str, dtype: str | None, *, everywhere: bool) -> list[Leaf]:
        """Return the leaf ``name`` of the files, each kind once.

        Args:
            name: A column or a partition key.
            dtype: All kinds must be castable to it. None: there must be only one kind.
            everywhere: True if every file must have the leaf.

        Raises:
            SchemaMismatchError: Files disagree about its presence or kind.
            UnsupportedColumnError: A kind cannot be cast to ``dtype``.
            ValueError: No file has it, or one file has it twice.
        """
        if self.is_partition_key(name):
            return [self._partition_leaf(name, dtype)]
        self._check_present(name, everywhere=everywhere)
        found: dict[str, Leaf] = {}
        for file, leaves, repeated in zip(self._files, self._leaves, self._repeated, strict=True):
            if name in repeated:
                raise ValueError(
                    f"a selected name must name one column of a file; {name!r} stands for "
                    f"several in {file!r}"
                )
            if name not in leaves:
                continue
            leaf = leaves[name]
            found.setdefault(leaf.kind, leaf)
            if dtype is not None:
                _check_castable(leaf, dtype, file)
            first = next(iter(found))
            if leaf.kind == first or (dtype and _means_the_same(leaf, found[first], dtype)):
                continue
            hint = "in what its values mean" if dtype else "(Column(..., dtype=...) may read both)"
            raise SchemaMismatchError(
                f"files disagree about the kind of column {name!r} {hint}: {first} in "
                f"{self.first_with(name)!r}, {leaf.kind} in {file!r}"
            )
        return list(found.values())

    def declared_length(self, name: str) -> int | None:
        """Return the length that the files declare for each list of ``name``, or None.

        Raises:
            SchemaMismatchError: Files declare different lengths.
        """
        found = [
            (leaves[name].list_length, file)
            for file, leaves in zip(self._files, self._leaves, strict=True)
            if name in leaves
        ]
        for length, file in found:
            if length != found[0][0]:
                raise SchemaMismatchError(
                    f"files disagree about the length of the lists of column {name!r} "
                    '(Column(..., length=...) states one, length="any" reads all): '
                    f"{found[0][0] or 'any'} in {found[0][1]!r}, {length or 'any'} in {file!r}"
                )
        return found[0][0] if found else None

    @cached_property
    def _partition_keys(self) -> dict[str, tuple[str, ...]]:
        # This parses every path, so it happens only for a name that no file has.
        return self._manifest.partition_keys

    def is_partition_key(self, name: str) -> bool:
        """True if the paths of the files have ``name`` and the files do not."""
        return not any(name in leaves for leaves in self._leaves) and name in self._partition_keys

    def partition_values(self, name: str) -> tuple[str, ...]:
        """Return the value of the partition key ``name`` of each file."""
        return self._partition_keys[name]

    def _partition_leaf(self, name: str, dtype: str | None) -> Leaf:
        # If one value is not a number, the key is text, which a vocabulary may number.
        table = self._manifest.table
        is_text = table is not None and name in table.text_keys
        for value in self._partition_keys[name]:
            if is_text or not is_whole_number(value):
                return Leaf(name, f"partition key {value!r}", "", nullable=False, is_bytes=True)
        leaf = Leaf(name, "partition key", "int64", nullable=False, dtypes=_NUMBER_DTYPES)
        if dtype is not None:
            _check_castable(leaf, dtype, self._files[0])
        return leaf

    def first_with(self, name: str) -> str:
        """Return the first file that has the column ``name``."""
        return next(
            f for f, leaves in zip(self._files, self._leaves, strict=True) if name in leaves
        )

    def _check_present(self, name: str, *, everywhere: bool) -> None:
        present = [name in leaves for leaves in self._leaves]
        if all(present) or (any(present) and not everywhere):
            return
        if any(present):
            raise SchemaMismatchError(
                "files disagree about the presence of a column (Column(..., default=...) reads a "
                f"value in files without it), {name!r}: present in "
                f"{self._files[present.index(True)]!r}, missing in "
                f"{self._files[present.index(False)]!r}"
            )
        names = self.names()
        inner = [path for path in names if path.startswith(f"{name}.")]
        if inner:
            raise ValueError(
                f"select the leaves of a nested column: {name!r} has "
                f"{listed(inner)} (in {self._files[0]!r})"
            )
        raise no_such_column(name, repr(self._files[0]), names)


def no_such_column(name: str, place: str, names: Sequence[str]) -> ValueError:
    """Return the error that says which names there are, or which of them the user may mean.

    Args:
        name: That nothing has.
        place: Where the name was looked up, or stands.
        names: All that there are.
    """
    folded = [path for path in names if path.casefold() == name.casefold()]
    close = folded or difflib.get_close_matches(name, names)
    hint = f"did you mean {listed(close)}?" if close else f"there are {listed(names)}"
    return ValueError(f"no such column: {name!r} in {place}; {hint}")


def _check_castable(leaf: Leaf, dtype: str, file: str) -> None:
    if leaf.dtype and dtype not in leaf.dtypes:
        raise UnsupportedColumnError(
            f"column {leaf.path!r} of kind {leaf.kind} cannot be read as {dtype}, but as "
            f"{', '.join(leaf.dtypes)} (in {file!r})"
        )


def _means_the_same(leaf: Leaf, other: Leaf, dtype: str) -> bool:
    """True if values of both, cast to ``dtype``, mean the same in one tensor."""
    return leaf.shape == other.shape and _unit(leaf.kind, dtype) == _unit(other.kind, dtype)


def _unit(kind: str, dtype: str) -> str:
    """Return the meaning of a 1 in the tensor, as far as it differs between kinds.

    Timestamps and times have units. An unscaled decimal, read as int64, has its scale.
    """
    while kind.startswith("list<"):
        kind = kind[len("list<") : -len(">")]
    if kind == "timestamp[int96]":
        return "timestamp[ns]"
    if kind.startswith(("timestamp[", "time[", "date")):
        return kind.replace(", UTC", "")
    scale = re.fullmatch(r"decimal\(\d+, (-?\d+)\)", kind)
    return f"1e-{scale[1]}" if scale and scale[1] != "0" and dtype == "int64" else ""


def is_whole_number(text: str) -> bool:
    """True if the value of a partition key is an integer that int64 holds."""
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def listed(names: Sequence[str]) -> str:
    """Join the names in quotes, at most the first ten."""
    return shortened([repr(name) for name in names])


def shortened(items: Sequence[str]) -> str:
    """Join ``items``, at most the first ten."""
    shown = ", ".join(items[:10])
    return shown if len(items) <= 10 else f"{shown} and {len(items) - 10} more"
