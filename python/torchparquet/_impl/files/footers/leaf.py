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
    """One leaf column of a schema."""

    path: str  # dotted: "a", "s.x" of a struct or a list of structs, "m.key" of a map
    kind: str
    dtype: str  # torch's name of the usual one; "" if it cannot be read yet
    nullable: bool
    dtypes: tuple[str, ...] = ()
    items: int | None = None  # of a value, as in binary of a fixed size; None if it is one
    num_lists: int = 0  # around a value
    is_bytes: bool = False
    # Average bytes of a row's values, as far as footers tell.
    row_bytes: float = dataclasses.field(default=0.0, compare=False)
    list_length: int | None = None  # if there is one list, and the file declares its length
    list_lengths: tuple[int, ...] = ()  # if there are several, outermost first
    tensor_shape: str = ""  # as Arrow stores that of a tensor of a fixed shape
    field_id: int = dataclasses.field(default=-1, compare=False)
    # "added" if the table got it after these files were written, "dropped" if only they have it.
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
    """The facts that a table's metadata have of its files, `F` of them."""

    identity: str
    keys: Mapping[str, tuple[str, ...]]
    text_keys: frozenset[str] = frozenset()  # those that are text, also if they look like numbers
    leaves: tuple[Leaf, ...] = ()
    # For each schema of the files, other paths by which it stores columns.
    stored: tuple[Mapping[str, str], ...] = ()
    arrow_schema: bytes = b""  # of the table, serialized; empty if it is that of the files
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def stored_path(self, schema: int, path: str) -> str:
        """Return the path by which files of a schema store the column `path`."""
        return self.stored[schema].get(path, path) if self.stored else path
