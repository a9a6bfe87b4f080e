"""Leaf columns of a schema, and the dtypes that they are read as."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")),
    *("float16", "bfloat16", "float32", "float64"),
)


@dataclass(frozen=True)
class Leaf:
    """One leaf column of a schema.

    Attributes:
        path: Dotted path, such as ``"a"``, or ``"s.x"`` for a field of a struct, also where structs
            are in a list; ``"m.key"`` and ``"m.value"`` for a map.
        kind: Readable type, such as ``"int32"`` or ``"timestamp[us]"``.
        dtype: torch's name of the dtype that it is usually read as; ``""`` where it cannot be read
            yet.
        nullable: Whether the schema lets it hold nulls.
        dtypes: The names of all the dtypes that it can be read as.
        items: n where a value is n items, as binary of a fixed size is; None where it is one.
        num_lists: How many lists are around a value; 0 where a row is one.
        is_bytes: Whether values are strings or other bytes of any length.
        row_bytes: That the values of a row take on average, as far as footers tell.
        list_length: L where the file declares that each of its lists, of which there is one around
            a value, has L elements; else None.
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

    @property
    def num_offsets(self) -> int:
        """How often offsets lead from a row to its items: for each list, and for strings."""
        return self.num_lists + self.is_bytes

    @property
    def shape(self) -> tuple[int, bool, int | None]:
        """What files must agree about even where values are cast."""
        return (self.num_lists, self.is_bytes, self.items)
