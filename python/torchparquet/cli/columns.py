"""The tensor of each column, and the windows of tensors that fit memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.schemas import Schemas
from torchparquet._impl.reading.window_limits import WindowMemory, window_in_effect
from torchparquet.errors import UnsupportedColumnError

# JSON values about a tensor, and the column's field with a mask for nulls if it can be read.
Tensor = tuple[dict[str, Any], Field | None]


def tensor_of(name: str, manifest: Manifest | Schemas) -> Tensor:
    """Return the tensor of a column; the shape is None for rows of different lengths."""
    facts: dict[str, Any] = dict.fromkeys(("form", "dtype", "shape", "num_offsets", "reason"))
    facts["num_offsets"] = 0
    try:
        (field,) = resolve_columns({name: name}, manifest, nulls="mask")
    except (ValueError, TypeError) as error:
        return facts | {"reason": str(error)}, None
    facts |= {"form": "tensor", "dtype": field.dtype}
    if field.num_offsets and not field.shape:
        return facts | {"form": "jagged", "num_offsets": field.num_offsets}, field
    dimensions = [field.shape[at] for at in field.order] or field.shape
    if not dimensions and field.trailing is not None:
        dimensions = (field.trailing,)
    return facts | {"shape": f"[{', '.join(map(str, ['B', *dimensions]))}]"}, field


def tensors_of(names: Iterable[str], manifest: Manifest) -> dict[str, Tensor]:
    """Return `tensor_of` each column."""
    schemas = Schemas(manifest)
    return {name: tensor_of(name, schemas) for name in names}


def readable_columns(manifest: Manifest) -> list[str]:
    """Return the columns that can be read as tensors, in the order of the files."""
    found = tensors_of(Schemas(manifest).names(), manifest)
    names = [name for name, (_, field) in found.items() if field is not None]
    if not names:
        raise UnsupportedColumnError(f"no column can be read as a tensor: {manifest.files[0]!r}")
    return names


def window_of(
    row_group_rows: NDArray[Any], columns: Sequence[Field], batch_size: int, memory: int
) -> tuple[int, int]:
    """Return the row groups and the rows of a shuffle window in that memory."""
    fitting = WindowMemory(columns, batch_size, memory)
    return window_in_effect(
        None, row_group_rows, share_batch_size=batch_size, memory=fitting, num_sharers=1
    )
