"""Leaf columns of a schema, the dtypes of their tensors, and what a table says of them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# How directories of Hive spell that a key is null.
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
    *("float16", "bfloat16", "float32", "float64"),
)


@dataclass(frozen=True)
class Leaf:
    """One leaf column of a schema.

    Attributes:
        path: Dotted path: ``"a"``; ``"s.x"`` for a field of a struct or of a list of structs;
            ``"m.key"`` and ``"m.value"`` for a map.
        dtype: torch's name of its usual dtype; ``""`` if it cannot be read yet.
        items: n if a value is n items, as in binary of a fixed size; None if it is one.
        num_lists: The number of lists around a value; 0 if a row is one value.
        row_bytes: The average bytes of a row's values, as far as footers tell.
        list_length: L if there is one list around a value and the file declares that each has L
            elements; else None.
        list_lengths: The lengths of its lists, outermost first, if it is in several and the file
            declares all; else empty.
        tensor_shape: The shape of a row, if the file declares it as a tensor of a fixed shape, as
            Arrow stores it; else "".
        standing: "added" if files with this schema lack the column, which their table has got
            since; "dropped" if only they have it; else "".
    """

    path: str
    kind: str
    dtype: str
    nullable: bool
    dtypes: tuple[str, ...] = ()
    items: int | None = None
    num_lists: int = 0
    is_bytes: bool = False
    row_bytes: float = dataclasses.field(default=0.0, compare=False)
    list_length: int | None = None
    list_lengths: tuple[int, ...] = ()
    tensor_shape: str = ""
    field_id: int = dataclasses.field(default=-1, compare=False)
    standing: Literal["", "added", "dropped"] = ""

    @property
    def num_offsets(self) -> int:
        """The number of offsets between a row and its items: one per list, one for strings."""
        return self.num_lists + self.is_bytes

    @property
    def element_kind(self) -> str:
        """The kind without the lists around it."""
        return self.kind[len("list<") * self.num_lists : len(self.kind) - self.num_lists]

    @property
    def tensor(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The shape in which a row is stored and the order of its dimensions, if it has one."""
        if self.is_bytes:
            return None
        if self.num_lists > 1:
            return (self.list_lengths, ()) if self.list_lengths else None
        try:
            said = json.loads(self.tensor_shape)
            shape = tuple(map(int, said["shape"]))
            order = tuple(map(int, said.get("permutation") or ()))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        fits = math.prod(shape) == self.list_length and min(shape, default=0) > 0
        return (shape, order) if fits and sorted(order) in ([], list(range(len(shape)))) else None

    @property
    def holds_nulls(self) -> bool:
        """True if the schema says that every value is null, in lists too."""
        return self.element_kind == "null"

    @property
    def shape(self) -> tuple[int, bool, int | None]:
        """The properties that files must agree about even if values are cast."""
        return (self.num_lists, self.is_bytes, self.items)


@dataclass(frozen=True, eq=False)
class TableFacts:
    """The facts that a table's metadata have of its files, `F` of them.

    Attributes:
        text_keys: The partition columns that are text, also if all values look like numbers.
        stored: For each schema of the files, the path by which it stores a column that it stores
            by another one.
        arrow_schema: The table's schema, serialized; empty if it is that of the files.
    """

    identity: str
    keys: Mapping[str, tuple[str, ...]]
    text_keys: frozenset[str] = frozenset()
    leaves: tuple[Leaf, ...] = ()
    stored: tuple[Mapping[str, str], ...] = ()
    arrow_schema: bytes = b""
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def stored_path(self, schema: int, path: str) -> str:
        """Return the path by which files of a schema store the column `path`."""
        return self.stored[schema].get(path, path) if self.stored else path
