"""Images, audio and other values that are stored as bytes, decoded row by row."""

from __future__ import annotations

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
    """A function of the user's failed, somewhere. The text says which one, and how."""

    def __init__(self, text: str, row: int | None = None) -> None:
        """Say which function failed, and for which row."""
        super().__init__(text, row)
        self.text = text
        self.row = row

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def of_batch(self, origin: Origin) -> TransformError:
        """Return the error that says which batch was given."""
        return TransformError(f"{self}; given was {origin(self.row)}")


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
        ends = rows.offsets.tolist()
        stored: Tensor = rows.values  # type: ignore[assignment]
        found = stored.numpy()
        values: list[Any] = []
        valid: list[bool] = []
        for row, (begin, end) in enumerate(pairwise(ends)):
            is_null = mask is not None and not mask[row]
            value = None
            try:
                if not is_null:
                    value = self._value(found[begin:end].tobytes())
            except Exception as error:
                if not self.flags:
                    said = f"{type(error).__name__}: {printable(str(error))}"
                    raise _failed(column, f"{end - begin} bytes: {said}", row) from error
            values.append(value)
            valid.append(value is not None)
        made: dict[str, Any] = {}
        if self.has_rates:
            rates = [0 if value is None else value[1] for value in values]
            made[f"{column}.sample_rate"] = torch.tensor(rates)
            values = [None if value is None else value[0] for value in values]
        made[column] = _stacked(column, values) if self.stacks else values
        if self.flags:
            made[f"{column}.valid"] = torch.tensor(valid)
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
        decode: Any = column.decode
        if isinstance(decode, str):
            decode = {"image": image_decoder, "audio": audio_decoder}[decode]()
        found[name] = Decoder(
            decode, column.on_error == "flag", column.stack, has_rates=column.decode == "audio"
        )
    return found


def image_decoder() -> Decode:
    """Return torchvision's decoder of images where that is installed, or else Pillow's."""
    try:
        from torchvision.io import ImageReadMode, decode_image
    except (ImportError, RuntimeError):  # It may not fit the installed torch.
        try:
            from PIL import Image  # noqa: F401
        except ImportError:
            raise ImportError(
                'decode="image" needs torchvision or Pillow: pip install pillow'
            ) from None
        return _decode_by_pillow
    del ImageReadMode, decode_image
    return _decode_by_torchvision


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


def audio_decoder() -> Decode:
    """Return torchcodec's decoder of audio where that is installed, or else that of soundfile."""
    try:
        from torchcodec.decoders import AudioDecoder
    except (ImportError, RuntimeError, OSError):  # It may lack FFmpeg.
        try:
            import soundfile  # noqa: F401
        except (ImportError, OSError):
            raise ImportError(
                'decode="audio" needs torchcodec or soundfile: pip install soundfile'
            ) from None
        return _decode_by_soundfile
    del AudioDecoder
    return _decode_by_torchcodec


def _decode_by_soundfile(data: bytes) -> tuple[Tensor, int]:
    import soundfile

    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T.copy()), int(rate)


def _decode_by_torchcodec(data: bytes) -> tuple[Tensor, int]:
    from torchcodec.decoders import AudioDecoder

    samples = AudioDecoder(data).get_all_samples()
    return samples.data, int(samples.sample_rate)
