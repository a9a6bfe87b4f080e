"""The tensor that each column becomes."""

from __future__ import annotations

from dataclasses import dataclass

from torchparquet.batches.columns import resolve_columns
from torchparquet.batches.fields import Field
from torchparquet.files.manifest import Manifest


@dataclass(frozen=True)
class TensorFacts:
    """The tensor of one column in a batch.

    Attributes:
        form: "tensor", "jagged", or None if the column cannot be read.
        dtype: torch's name of the values' dtype; None if the column cannot be read.
        shape: The shape, such as "[B]" or "[B, 16]"; None for rows of different lengths.
        num_offsets: Levels of offsets between a row and its values; 0 for a tensor.
        reason: The reason why the column cannot be read; else None.
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


def tensor_of(name: str, manifest: Manifest) -> tuple[TensorFacts, Field | None]:
    """Return the tensor of a column, and its field with a mask for nulls."""
    try:
        (field,) = resolve_columns({name: name}, manifest, nulls="mask")
    except (ValueError, TypeError) as error:
        return TensorFacts(None, None, None, 0, str(error)), None
    if field.num_offsets:
        return TensorFacts("jagged", field.dtype, None, field.num_offsets, None), field
    trailing = field.trailing
    shape = "[B]" if trailing is None else f"[B, {trailing}]"
    return TensorFacts("tensor", field.dtype, shape, 0, None), field
