"""The columns of the files, and whether files agree about them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from torchparquet._impl.checks import close_names, listed
from torchparquet._impl.files.footers.leaf import DTYPES, NULL_KEY, Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet.errors import SchemaMismatchError, UnsupportedColumnError

_Declared = TypeVar("_Declared")

_NUMBER_DTYPES = DTYPES[1:]

# The units of points in time and durations.
NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}

# The names of a list's element that some writers leave in its path.
_ELEMENTS = ("element", "item", "array", "array_element", "list.element", "list.item")
_TIME = re.compile(r"(timestamp|time|duration)\[(\w+)|(date)")


class Schemas:
    """The distinct schemas of the files that have rows, each with the first file that has it."""

    def __init__(self, manifest: Manifest) -> None:
        """Collect the schemas of the files of ``manifest`` that have rows."""
        with_rows = np.flatnonzero(manifest.file_num_rows > 0)
        _, first = np.unique(manifest.file_schema[with_rows], return_index=True)
        self._manifest = manifest
        self._files: list[str] = []
        self._leaves: list[dict[str, Leaf]] = []
        self._repeated: list[set[str]] = []
        for file in with_rows[np.sort(first)].tolist():
            schema = manifest.schemas[int(manifest.file_schema[file])]
            leaves = [leaf for leaf in schema if leaf.standing != "dropped"]
            counts = Counter(leaf.path for leaf in leaves)
            self._files.append(manifest.files[file])
            self._leaves.append({leaf.path: leaf for leaf in leaves})
            self._repeated.append({path for path, count in counts.items() if count > 1})
        table = manifest.table
        self._of_table = {} if table is None else {leaf.path: leaf for leaf in table.leaves}

    def names(self) -> list[str]:
        """Return the columns of all schemas, each once, the table's or the first file's first."""
        everywhere = [self._of_table, *self._leaves]
        found = dict.fromkeys(path for leaves in everywhere for path in leaves)
        if len(self._leaves) == 1:
            return [path for path in found if path in self._leaves[0]]
        stored = {path for leaves in self._leaves for path in leaves}
        names: dict[str, None] = {}
        for path in found:
            others = _element_paths(path) & names.keys()
            # Each file that lacks one of the paths stores its column by the other.
            is_there = any(
                all(stored_path(leaves, path) == stored_path(leaves, o) for leaves in self._leaves)
                for o in others
            )
            if path in stored and not is_there:
                names[path] = None
        nested = {path[:at] for path in names for at, letter in enumerate(path) if letter == "."}
        return [name for name in names if name not in nested or not self._is_null(name)]

    def _is_null(self, name: str) -> bool:
        return all(leaves[name].holds_nulls for leaves in self._leaves if name in leaves)

    def default_names(self) -> tuple[list[str], list[str]]:
        """Return the columns that can be read by their names, and the others with the reasons."""
        names, others = [], []
        repeated = set[str]().union(*self._repeated)
        for name in self.names():
            if not name:
                others.append("'' (it has no name)")
            elif name in repeated:
                others.append(f"{name!r} (several columns have this name)")
            elif self._is_null(name):
                others.append(f"{name!r} (its type is null: it has no values)")
            else:
                names.append(name)
        return names, others

    def _stored(self, name: str) -> list[tuple[Leaf, str]]:
        """Return the leaf of a column in each schema that has it, and a file of that schema."""
        pairs = zip(self._leaves, self._files, strict=True)
        leaves = [(leaves.get(stored_path(leaves, name) or name), file) for leaves, file in pairs]
        return [(leaf, file) for leaf, file in leaves if leaf is not None]

    def _with_values(self, name: str) -> list[tuple[Leaf, str]]:
        return [(leaf, file) for leaf, file in self._stored(name) if not leaf.holds_nulls]

    def first_leaf(self, name: str) -> Leaf | None:
        """Return the leaf of a column or partition key in the first file that has values of it."""
        if self.is_partition_key(name):
            return self._partition_leaf(name, None)
        return next((leaf for leaf, _ in self._with_values(name)), None)

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
        """Return the usual dtype of a table's column that files hold as other kinds; or None."""
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

    def agreed_leaves(
        self, name: str, dtype: str | None, *, everywhere: bool, unit: str | None = None
    ) -> list[Leaf]:
        """Return the leaf ``name`` of the files, each kind once; those of nulls as the others."""
        if self.is_partition_key(name):
            values = self._partition_keys[name]
            has_rows = (self._manifest.file_num_rows > 0).tolist()
            lacking = [i for i, value in enumerate(values) if value is None and has_rows[i]]
            if everywhere and lacking:
                files = self._manifest.files
                having = next(i for i, value in enumerate(values) if value is not None)
                raise SchemaMismatchError(
                    "only some paths have the partition key (Column(..., default=...) reads a "
                    f"value where it is missing), {name!r}: present in {files[having]!r}, missing "
                    f"in {files[lacking[0]]!r}"
                )
            return [self._partition_leaf(name, dtype)]
        self._check_present(name, everywhere=everywhere)
        for repeated, file in zip(self._repeated, self._files, strict=True):
            if name in repeated:
                raise ValueError(
                    f"a selected name must name one column of a file; {name!r} stands for "
                    f"several in {file!r}"
                )
        found: dict[str, tuple[Leaf, str]] = {}
        for leaf, file in self._with_values(name):
            if dtype is not None:
                _check_castable(leaf, dtype, file)
            if unit is not None and time_of(leaf.kind) is None:
                raise UnsupportedColumnError(
                    "unit is for timestamps, times, dates and durations; column "
                    f"{name!r} is {leaf.kind} in {file!r}"
                )
            for other, first in found.values():
                if leaf.kind != other.kind and not _agree(leaf, other, dtype, unit):
                    raise SchemaMismatchError(
                        f"files disagree about the kind of column {name!r} "
                        f"{_way_out(leaf, other, dtype)}: {other.kind} in {first!r}, {leaf.kind} "
                        f"in {file!r}"
                    )
            found.setdefault(leaf.kind, (leaf, file))
        nulls = [(leaf, file) for leaf, file in self._stored(name) if leaf.holds_nulls]
        return _with_nulls(name, [leaf for leaf, _ in found.values()], nulls, dtype)

    def finest_unit(self, name: str) -> str | None:
        """Return the finest unit of a column's times, or None if files do not store several."""
        kinds = [leaf.kind for leaf, _ in self._with_values(name)]
        found = [_TIME.match(kind.replace("list<", "")) for kind in kinds]
        units = {"ns" if one[2] == "int96" else one[2] for one in found if one is not None}
        named = [unit for unit in NANOSECONDS if unit in units]
        several = len(units) > 1 and None not in found and len(set(map(time_of, kinds))) == 1
        return named[-1] if several else None

    def declared_length(self, name: str) -> int | None:
        """Return the length that the files declare for each list of ``name``, or None."""
        return self._declared(
            name,
            lambda leaf: leaf.list_length,
            f"files disagree about the length of the lists of column {name!r} "
            '(Column(..., length=...) states one, length="any" reads all)',
            "any",
        )

    def declared_tensor(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the shape and the order of dimensions that files declare for a row, or None."""
        return self._declared(
            name,
            lambda leaf: leaf.tensor,
            f"files disagree about the shape of the tensors of column {name!r} "
            '(Column(..., length="any") reads all as lists)',
            "none",
        )

    def _declared(
        self, name: str, of: Callable[[Leaf], _Declared | None], disagreement: str, nothing: str
    ) -> _Declared | None:
        """Return what all files with values declare of a column alike; raise if they differ."""
        found = [(of(leaf), file) for leaf, file in self._with_values(name)]
        for value, file in found:
            if value != found[0][0]:
                raise SchemaMismatchError(
                    f"{disagreement}: {found[0][0] or nothing} in {found[0][1]!r}, "
                    f"{value or nothing} in {file!r}"
                )
        return found[0][0] if found else None

    @cached_property
    def _partition_keys(self) -> dict[str, tuple[str | None, ...]]:
        # This parses every path, so it happens only for a name that no file has.
        return self._manifest.partition_keys

    def is_partition_key(self, name: str) -> bool:
        """True if the paths of the files have ``name`` and the files do not."""
        return not self._stored(name) and name in self._partition_keys

    def partition_values(self, name: str) -> tuple[str | None, ...]:
        """Return the value of the partition key ``name`` of each file, as the manifest has it."""
        return self._partition_keys[name]

    def _partition_leaf(self, name: str, dtype: str | None) -> Leaf:
        # If one value is not a number, the key is text, which a vocabulary may number.
        table = self._manifest.table
        is_text = table is not None and name in table.text_keys
        for value in self._partition_keys[name]:
            if value is None or value == NULL_KEY:
                continue
            if is_text or not is_whole_number(value):
                return Leaf(name, f"partition key {value!r}", "", nullable=False, is_bytes=True)
        leaf = Leaf(name, "partition key", "int64", nullable=False, dtypes=_NUMBER_DTYPES)
        if dtype is not None:
            _check_castable(leaf, dtype, self._files[0])
        return leaf

    def _check_present(self, name: str, *, everywhere: bool) -> None:
        present = [file for _, file in self._stored(name)]
        if len(present) == len(self._files) or (present and not everywhere):
            return
        if present:
            missing = next(file for file in self._files if file not in present)
            raise SchemaMismatchError(
                "files disagree about the presence of a column (Column(..., default=...) reads a "
                f"value in files without it), {name!r}: present in {present[0]!r}, missing in "
                f"{missing!r}"
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
    """Return the error that says which names there are, or which of them the user may mean."""
    close = close_names(name, names)
    hint = f"did you mean {listed(close)}?" if close else f"there are {listed(names)}"
    return ValueError(f"no such column: {name!r} in {place}; {hint}")


def _check_castable(leaf: Leaf, dtype: str, file: str) -> None:
    if leaf.dtype and dtype not in leaf.dtypes:
        raise UnsupportedColumnError(
            f"column {leaf.path!r} of kind {leaf.kind} cannot be read as {dtype}, but as "
            f"{', '.join(leaf.dtypes)} (in {file!r})"
        )


def stored_path(leaves: Mapping[str, Leaf], name: str) -> str:
    """Return the path by which a file stores the column ``name``; "" if it lacks it."""
    if name in leaves:
        return name
    for path in _element_paths(name):
        if path in leaves and leaves[path].num_lists:
            return path
    # A struct or a list of structs without any value may be one leaf of nulls.
    for at, letter in enumerate(name):
        if letter == "." and name[:at] in leaves and leaves[name[:at]].holds_nulls:
            return name[:at]
    return ""


def _element_paths(path: str) -> set[str]:
    """Return the other paths by which writers may name the elements of a list."""
    bare = next((path.removesuffix(f".{e}") for e in _ELEMENTS if path.endswith(f".{e}")), path)
    return {bare, *(f"{bare}.{element}" for element in _ELEMENTS)} - {path}


def _with_nulls(
    name: str, found: list[Leaf], nulls: Sequence[tuple[Leaf, str]], dtype: str | None
) -> list[Leaf]:
    """Return the leaves, and after them those of nulls as if they had values."""
    if not nulls:
        return found
    if not found:
        leaf = nulls[0][0]
        if dtype is None:
            raise UnsupportedColumnError(
                "a column whose type is null in all files needs a dtype (Column(..., dtype=...)): "
                f"{name!r} ({leaf.kind}) in {nulls[0][1]!r}"
            )
        return [replace(leaf, dtype=dtype, dtypes=DTYPES)]
    first = found[0]
    for leaf, file in nulls:
        if leaf.num_lists not in (0, first.num_lists):
            raise SchemaMismatchError(
                f"files disagree about the lists of column {name!r}: it is {leaf.kind} in {file!r},"
                f" {first.kind} in others; rewrite one of them"
            )
    kinds = dict.fromkeys(leaf.kind for leaf, _ in nulls)
    return found + [replace(first, kind=kind, row_bytes=0.0, nullable=True) for kind in kinds]


def _agree(leaf: Leaf, other: Leaf, dtype: str | None, unit: str | None) -> bool:
    if unit is not None:
        return leaf.shape == other.shape and time_of(leaf.kind) == time_of(other.kind)
    return dtype is not None and _means_the_same(leaf, other, dtype)


def _way_out(leaf: Leaf, other: Leaf, dtype: str | None) -> str:
    if time_of(leaf.kind) and time_of(leaf.kind) == time_of(other.kind):
        return '(Column(..., unit="us") reads both in one unit)'
    of_both = set(leaf.dtypes) & set(other.dtypes)
    how = "in what its values mean " if dtype in of_both else ""
    for name in ("int64", "float64"):
        if name in of_both and _means_the_same(leaf, other, name):
            return f'{how}(Column(..., dtype="{name}") reads both)'
    return f"{how}(no dtype reads both: write one of the files again, or leave it out of the paths)"


def time_of(kind: str) -> str | None:
    """Return what a kind measures if it has a unit of time: points in time, times, durations."""
    found = _TIME.match(kind.replace("list<", ""))
    return None if found is None else "timestamp" if found[3] else found[1]


def _means_the_same(leaf: Leaf, other: Leaf, dtype: str) -> bool:
    """True if values of both, cast to ``dtype``, mean the same in one tensor."""
    if leaf.shape != other.shape:
        return False
    kinds = {leaf.element_kind, other.element_kind}
    # A duration is an int64 in files without an Arrow schema.
    if "int64" in kinds and any(kind.startswith("duration[") for kind in kinds):
        return True
    return _unit(leaf.element_kind, dtype) == _unit(other.element_kind, dtype)


def _unit(kind: str, dtype: str) -> str:
    """Return the meaning of a 1 in the tensor, as far as it differs: a unit, or a scale."""
    if kind == "timestamp[int96]":
        return "timestamp[ns]"
    if kind.startswith(("timestamp[", "time[", "date", "duration[")):
        return kind.replace(", UTC", "")
    scale = re.fullmatch(r"decimal\(\d+, (-?\d+)\)", kind)
    return f"1e-{scale[1]}" if scale and scale[1] != "0" and dtype == "int64" else ""


def is_whole_number(text: str) -> bool:
    """True if the value of a partition key is an integer that int64 holds."""
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None
