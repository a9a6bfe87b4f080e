"""Leaf columns of a schema, and the dtypes of their tensors."""

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
        path: Dotted path: ``"a"``; ``"s.x"`` for a field of a struct or of a list of structs;
            ``"m.key"`` and ``"m.value"`` for a map.
        kind: Readable type, such as ``"int32"`` or ``"timestamp[us]"``.
        dtype: torch's name of its usual dtype; ``""`` if it cannot be read yet.
        nullable: True if the schema allows nulls.
        dtypes: The names of all dtypes that it can be read as.
        items: n if a value is n items, as in binary of a fixed size; None if it is one.
        num_lists: The number of lists around a value; 0 if a row is one value.
        is_bytes: True if values are strings or other bytes of any length.
        row_bytes: The average bytes of a row's values, as far as footers tell.
        list_length: L if there is one list around a value and the file declares that each has L
            elements; else None.
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
        """The number of offsets between a row and its items: one per list, one for strings."""
        return self.num_lists + self.is_bytes

    @property
    def shape(self) -> tuple[int, bool, int | None]:
        """The properties that files must agree about even if values are cast."""
        return (self.num_lists, self.is_bytes, self.items)
