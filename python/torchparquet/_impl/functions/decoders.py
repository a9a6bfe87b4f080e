"""Images, audio and other values that are stored as bytes, decoded row by row."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from torchparquet.column import Column
from torchparquet.errors import TransformError, printable
from torchparquet.jagged import Jagged

Decode = Callable[[bytes], Any]
# The provenance of a batch, or of one of its rows.
Origin: TypeAlias = Callable[[int | None], object]


class FunctionFailedError(Exception):
    """A function of the user's failed. The text says which one, and how."""

    def __init__(self, text: str, row: int | None = None) -> None:
        """Say which function failed, and for which row."""
        super().__init__(text, row)
        self.text, self.row = text, row

    def of_batch(self, origin: Origin) -> TransformError:
        """Return the error that says which batch was given."""
        return TransformError(f"{self.text}; given was {origin(self.row)}")


@dataclass(frozen=True)
class Decoder:
    """How the values of one column are decoded; see `Column`."""

    decode: Decode
    flags: bool  # values that cannot be decoded, instead of raising
    stacks: bool
    has_rates: bool = False

    def names(self, column: str) -> tuple[str, ...]:
        """Return the keys that a batch has of the column."""
        rates = (f"{column}.sample_rate",) if self.has_rates else ()
        valid = (f"{column}.valid",) if self.flags else ()
        return (column, *rates, *valid)

    def run(self, column: str, rows: Jagged, mask: Tensor | None) -> dict[str, Any]:
        """Return what becomes of a column."""
        stored: Tensor = rows.values  # type: ignore[assignment]
        found = stored.numpy()
        values: list[Any] = []
        for row, (begin, end) in enumerate(pairwise(rows.offsets.tolist())):
            value = None
            try:
                if mask is None or mask[row]:
                    value = self._value(found[begin:end].tobytes())
            except Exception as error:
                if not self.flags:
                    said = f"{type(error).__name__}: {printable(str(error))}"
                    raise _failed(column, f"{end - begin} bytes: {said}", row) from error
            values.append(value)
        made: dict[str, Any] = {f"{column}.valid": torch.tensor([v is not None for v in values])}
        if self.has_rates:
            rates = [0 if value is None else value[1] for value in values]
            made[f"{column}.sample_rate"] = torch.tensor(rates)
            values = [None if value is None else value[0] for value in values]
        made[column] = _stacked(column, values) if self.stacks else values
        return {name: made[name] for name in self.names(column)}

    def _value(self, data: bytes) -> Any:
        value = self.decode(data)
        if value is None:
            raise ValueError("decode returned None")
        if not self.stacks:
            return value
        return (_tensor(value[0]), value[1]) if self.has_rates else _tensor(value)


def _stacked(column: str, values: list[Tensor | None]) -> Tensor:
    """Return one tensor of all values; zeros stand for those that could not be decoded."""
    first = next((value for value in values if value is not None), None)
    if first is None:
        raise _failed(column, "no value of the batch can be decoded, so none has a shape", 0)
    for row, value in enumerate(values):
        if value is not None and (value.shape, value.dtype) != (first.shape, first.dtype):
            shapes = f"{_shown(first)}, then {_shown(value)}"
            raise _failed(column, f"stack=True needs values of one shape; got {shapes}", row)
    return torch.stack([torch.zeros_like(first) if v is None else v for v in values])


def _failed(column: str, text: str, row: int) -> FunctionFailedError:
    return FunctionFailedError(f"column {column!r} cannot be decoded: {text}", row)


def _tensor(value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))


def _shown(value: Tensor) -> str:
    return f"{list(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def decoders_of(columns: object) -> dict[str, Decoder]:
    """Return the decoders of the columns that have one."""
    if not isinstance(columns, Mapping):
        return {}
    found = {}
    for name, column in columns.items():
        if not isinstance(column, Column) or column.decode is None:
            continue
        decode = column.decode
        flags = column.on_error == "flag"
        function = _installed(decode) if isinstance(decode, str) else decode
        found[name] = Decoder(function, flags, column.stack, has_rates=decode == "audio")
    return found


def _installed(kind: str) -> Decode:
    """Return the first decoder of a kind whose package is there."""
    for module, decode in _DECODERS[kind]:
        try:
            importlib.import_module(module)
        except (ImportError, RuntimeError, OSError):
            # It may not fit the installed torch, or lack FFmpeg.
            continue
        return decode
    first, last = (module.partition(".")[0] for module, _ in _DECODERS[kind])
    package = {"PIL": "pillow"}.get(last, last)
    raise ImportError(f'decode="{kind}" needs {first} or {package}: pip install {package}')


def _decode_by_pillow(data: bytes) -> Tensor:
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        pixels = np.array(image.convert("RGB"))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _decode_by_torchvision(data: bytes) -> Tensor:
    from torchvision.io import ImageReadMode, decode_image

    found: Tensor = decode_image(
        torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB
    )
    return found


def _decode_by_soundfile(data: bytes) -> tuple[Tensor, int]:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T.copy()), int(rate)


def _decode_by_torchcodec(data: bytes) -> tuple[Tensor, int]:
    from torchcodec.decoders import AudioDecoder

    samples = AudioDecoder(data).get_all_samples()
    return samples.data, int(samples.sample_rate)


# A module, and what decodes by it.
_DECODERS: dict[str, tuple[tuple[str, Decode], tuple[str, Decode]]] = {
    "image": (("torchvision.io", _decode_by_torchvision), ("PIL.Image", _decode_by_pillow)),
    "audio": (("torchcodec.decoders", _decode_by_torchcodec), ("soundfile", _decode_by_soundfile)),
}
