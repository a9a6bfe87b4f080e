"""The tensor that each column becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.schemas import Schemas

# The properties of a leaf that its tensor follows from.
_ALIKE = [part.name for part in fields(Leaf) if part.compare and part.name != "path"]


@dataclass(frozen=True)
class TensorFacts:
    """The tensor of one column in a batch.

    Attributes:
        dtype: torch's name of the values' dtype; None if the column cannot be read.
        shape: The shape, such as "[B]" or "[B, 16]"; None for rows of different lengths.
        num_offsets: Levels of offsets between a row and its values; 0 for a tensor.
    """

    form: str | None
    dtype: str | None
    shape: str | None
    num_offsets: int
    reason: str | None

    def __str__(self) -> str:
        """Return the tensor in a few words."""
        if self.form is None:
            return "cannot be read"
        if self.form == "tensor":
            return f"{self.dtype} {self.shape}"
        inner = f"{self.dtype}"
        for _ in range(self.num_offsets):
            inner = f"Jagged({inner})"
        return inner


def tensors_of(
    names: Iterable[str], manifest: Manifest
) -> dict[str, tuple[TensorFacts, Field | None]]:
    """Return `tensor_of` each column. Columns that differ in their names alone cost little."""
    schemas = Schemas(manifest)
    if len(manifest.schemas) > 1:
        return {name: tensor_of(name, schemas) for name in names}
    leaves = {leaf.path: leaf for leaf in manifest.schemas[0]}
    repeated = len(leaves) < len(manifest.schemas[0])
    known: dict[tuple[object, ...], tuple[TensorFacts, Field | None]] = {}
    found: dict[str, tuple[TensorFacts, Field | None]] = {}
    for name in names:
        leaf = leaves[name]
        alike = (*(getattr(leaf, part) for part in _ALIKE), leaf.row_bytes)
        facts, field = known.get(alike, (None, None))
        if facts is not None and field is not None and not repeated:
            found[name] = (facts, replace(field, name=name, sources=(name,)))
            continue
        found[name] = tensor_of(name, schemas)
        known.setdefault(alike, found[name])
    return found


def tensor_of(name: str, manifest: Manifest | Schemas) -> tuple[TensorFacts, Field | None]:
    """Return the tensor of a column, and its field with a mask for nulls."""
    try:
        (field,) = resolve_columns({name: name}, manifest, nulls="mask")
    except (ValueError, TypeError) as error:
        return TensorFacts(None, None, None, 0, str(error)), None
    if field.shape:
        dimensions = [field.shape[at] for at in field.order] or field.shape
        shape = f"[B, {', '.join(map(str, dimensions))}]"
        return TensorFacts("tensor", field.dtype, shape, 0, None), field
    if field.num_offsets:
        return TensorFacts("jagged", field.dtype, None, field.num_offsets, None), field
    trailing = field.trailing
    shape = "[B]" if trailing is None else f"[B, {trailing}]"
    return TensorFacts("tensor", field.dtype, shape, 0, None), field
