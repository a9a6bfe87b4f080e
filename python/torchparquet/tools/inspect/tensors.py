"""What each column becomes as a tensor."""

from __future__ import annotations

from dataclasses import dataclass

from torchparquet.batches.columns import resolve_columns
from torchparquet.batches.fields import Field
from torchparquet.files.manifest import Manifest


@dataclass(frozen=True)
class TensorFacts:
    """What a batch holds for one column.

    Attributes:
        form: "tensor", "jagged", or None where it cannot be read.
        dtype: Of the values, torch's name; None where it cannot be read.
        shape: Such as "[B]" or "[B, 16]"; None for rows of different lengths.
        num_offsets: How often offsets lead from a row to its values; 0 for a tensor.
        reason: Why it cannot be read; else None.
    """

    form: str | None
    dtype: str | None
    shape: str | None
    num_offsets: int
    reason: str | None

    def __str__(self) -> str:
        """Return it in a few words."""
        if self.form is None:
            return "cannot be read"
        if self.form == "tensor":
            return f"{self.dtype} {self.shape}"
        inner = f"{self.dtype}"
        for _ in range(self.num_offsets):
            inner = f"Jagged({inner})"
        return inner


def tensor_of(name: str, manifest: Manifest) -> tuple[TensorFacts, Field | None]:
    """Return what the column becomes, and how it is read with a mask for nulls."""
    try:
        (field,) = resolve_columns({name: name}, manifest, nulls="mask")
    except (ValueError, TypeError) as error:
        return TensorFacts(None, None, None, 0, str(error)), None
    if field.num_offsets:
        return TensorFacts("jagged", field.dtype, None, field.num_offsets, None), field
    trailing = field.trailing
    shape = "[B]" if trailing is None else f"[B, {trailing}]"
    return TensorFacts("tensor", field.dtype, shape, 0, None), field
