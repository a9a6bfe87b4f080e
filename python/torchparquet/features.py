"""Transforms of a column's values on decode threads, by `Column(transform=...)`, and by hand.

    Column("price", transform=[Clip(0, 1000), Log1p(), Scale(mean=2.1, std=0.7)])
    Column("user", transform=Hash(1_000_000))

The same objects transform values where a model serves: ``Hash(1_000_000)(["ann", "bob"])``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from torchparquet._impl import native
from torchparquet._impl.checks import checked_bool, checked_int, plain_number, set_checked, shown

__all__ = ["Bucketize", "Clip", "Hash", "Log1p", "Scale", "Transform", "apply"]


@dataclass(frozen=True)
class Transform:
    """A transform of values: one of the classes below."""

    def __call__(self, values: Any) -> torch.Tensor:
        """Return the values, transformed; see `apply`."""
        return apply(self, values)


@dataclass(frozen=True)
class Clip(Transform):
    """Bounds values: below ``low`` they become ``low``, above ``high`` they become ``high``."""

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        """Check the bounds."""
        set_checked(self, low=_number("low", self.low), high=_number("high", self.high))
        if not self.low <= self.high:
            raise ValueError(f"low must be <= high; got low={self.low}, high={self.high}")


@dataclass(frozen=True)
class Log1p(Transform):
    """The natural logarithm of 1 + x: -inf for -1, NaN below, as by ``torch.log1p``."""


@dataclass(frozen=True)
class Scale(Transform):
    """``(x - mean) / std``. ``std`` is above 0: a column of one value has nothing to learn."""

    mean: float
    std: float

    def __post_init__(self) -> None:
        """Check the numbers."""
        mean, std = (_number(name, getattr(self, name)) for name in ("mean", "std"))
        if not (math.isfinite(mean) and 0 < std < math.inf):
            raise ValueError(f"mean must be finite and std above 0; got mean={mean}, std={std}")
        set_checked(self, mean=mean, std=std)


@dataclass(frozen=True)
class Bucketize(Transform):
    """The number of ``borders``, ascending, that are below x, as by ``torch.bucketize``.

    With ``right``, a border that is equal to x counts too. NaN has the highest number,
    ``len(borders)``.
    """

    borders: Sequence[float]
    right: bool = False

    def __post_init__(self) -> None:
        """Check the borders, and store them as a tuple."""
        given: Any = self.borders
        if isinstance(given, str) or np.ndim(given) != 1:
            raise TypeError(f"borders must be a sequence of numbers; got {shown(given)}")
        borders = tuple(_number("a border", one) for one in np.asarray(given).tolist())
        if not borders or not all(low < high for low, high in pairwise(borders)):
            raise ValueError(f"borders must be one number or more, ascending; got {borders!r:.200}")
        checked_bool("right", self.right)
        set_checked(self, borders=borders)


@dataclass(frozen=True)
class Hash(Transform):
    """A bucket of ``[0, num_buckets)`` for each integer, string or binary value.

    The bucket is XXH64 with ``seed``, modulo ``num_buckets``: of the bytes of a string (UTF-8) or
    binary value, and of the eight bytes of an integer or bool, the lowest first, negative ones as
    in int64. It is the same on every machine and in every release.
    """

    num_buckets: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        num_buckets = checked_int("num_buckets", self.num_buckets, 1, 2**63)
        set_checked(self, num_buckets=num_buckets, seed=checked_int("seed", self.seed, 0, 2**64))


Transforms: TypeAlias = tuple[Transform, ...]

_NAMES = "Clip, Log1p, Scale, Bucketize and Hash"
_STEPS: dict[type[Any], str] = {Clip: "clip", Log1p: "log1p", Scale: "scale"}
_CLASSES = (*_STEPS, Bucketize, Hash)


def checked_transforms(given: Any) -> Transforms:
    """Return one transform or several as a tuple; raise if they cannot follow one another."""
    found: tuple[Any, ...] = tuple(given) if isinstance(given, list | tuple) else (given,)
    for one in found:
        if type(one) not in _CLASSES:
            raise TypeError(
                f"transform takes {_NAMES}, of torchparquet.features; a function of yours goes to "
                f"the data set, as ParquetDataset(transform=...): got {shown(one)}"
            )
    if not found:
        raise ValueError("transform must have one step or more; leave it out for none")
    if len(found) > 1 and any(isinstance(one, Hash) for one in found):
        raise ValueError("Hash takes values as they are stored; it must be the only transform")
    if any(isinstance(one, Bucketize) for one in found[:-1]):
        raise ValueError("Bucketize makes numbers of buckets; it must be the last transform")
    return found


def num_results(transforms: Transforms) -> int | None:
    """Return how many buckets the values are numbered by; None if they stay floats."""
    last = transforms[-1]
    if isinstance(last, Hash):
        return last.num_buckets
    return len(last.borders) + 1 if isinstance(last, Bucketize) else None


def identity_of(transforms: Transforms) -> tuple[object, ...]:
    """Return the facts of transforms that states of a data set depend on."""
    return tuple((type(one).__name__, *astuple(one)) for one in transforms)


def native_transform(transforms: Transforms) -> native.Transform:
    """Return transforms as the native reader applies them."""
    *_, last = transforms
    bucketize = last if isinstance(last, Bucketize) else None
    return native.Transform(
        steps=[
            (_STEPS[type(one)], *(*astuple(one), 0.0, 0.0)[:2])
            for one in transforms
            if type(one) in _STEPS
        ],
        borders=None if bucketize is None else bucketize.borders,
        counts_equal=bucketize is not None and bucketize.right,
        num_buckets=last.num_buckets if isinstance(last, Hash) else 0,
        seed=last.seed if isinstance(last, Hash) else 0,
    )


def apply(transform: Transform | Sequence[Transform], values: Any) -> torch.Tensor:
    """Return values transformed as a `Column` with this ``transform`` reads them.

    Args:
        transform: One transform, or several in order.
        values: Numbers, as a tensor, an array, a number or a sequence of them, of any shape. For
            `Hash`: integers, bools, or a str, bytes or a sequence of them.

    Returns:
        A tensor of the shape and on the device of ``values``: float32, or int64 after `Bucketize`
        and `Hash`. Steps are computed in float64.

    Raises:
        TypeError: The values are of another kind than the transform takes.
        ValueError: The transforms cannot follow one another, or lists differ in length.

    """
    device = values.device if isinstance(values, torch.Tensor) else None
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.double() if values.is_floating_point() else values
    result = applied(checked_transforms(transform), values)
    if result.dtype == np.float64:
        with np.errstate(over="ignore"):
            result = result.astype(np.float32)
    return torch.from_numpy(result).to(device)


def applied(transforms: Transforms, values: Any) -> NDArray[Any]:
    """Return values transformed, as float64, or as int64 if they become buckets."""
    array = _array_of(values)
    made = native_transform(transforms)
    is_hash, kind = isinstance(transforms[0], Hash), array.dtype.kind
    if is_hash and kind == "O":
        buckets = [made.bucket_of(one) for one in _texts(array)]
        return np.array(buckets, np.int64).reshape(array.shape)
    if not array.size:
        kind = "u" if is_hash else "f"
    if kind not in ("bui" if is_hash else "buif"):
        takes = "integers, str or bytes" if is_hash else "numbers"
        raise TypeError(f"{type(transforms[0]).__name__} takes {takes}; got {shown(values)}")
    # The bits of an integer are those of uint64 and of int64.
    taken = np.float64 if not is_hash else np.uint64 if array.dtype == np.uint64 else np.int64
    bits = made.apply(np.ascontiguousarray(array.astype(taken)).reshape(-1).view(np.uint64))
    result_type = np.float64 if num_results(transforms) is None else np.int64
    return bits.view(result_type).reshape(array.shape)


def _array_of(values: Any) -> NDArray[Any]:
    """Return values as an array, of objects if they are texts."""
    if isinstance(values, bytearray | memoryview):
        values = bytes(values)
    if isinstance(values, np.ma.MaskedArray) or hasattr(values, "offsets"):
        raise TypeError("give values without a mask, and lists by their `.values`")
    try:
        array = np.asarray(values)
        if isinstance(values, np.ndarray):
            if array.dtype.kind == "S":
                raise TypeError("arrays of bytes lose zeros at the end; give a list of bytes")
            return array.astype(object) if array.dtype.kind == "U" else array
        if array.dtype.kind in "SUO":
            return np.asarray(values, dtype=object)
        if array.dtype.kind != "f":
            return array
        # NumPy makes floats of integers around 2**63.
        objects = np.asarray(values, dtype=object)
        numbers = objects.reshape(-1).tolist()
        if numbers and all(type(one) is int and -(2**63) <= one < 2**64 for one in numbers):
            array = np.array([one % 2**64 for one in numbers], np.uint64).reshape(objects.shape)
        return array
    except ValueError:
        raise ValueError("lists of values must be of one length; give them one by one") from None


def _texts(array: NDArray[Any]) -> Iterator[bytes]:
    """Yield the strings of an array as bytes."""
    for one in array.reshape(-1).tolist():
        if not isinstance(one, str | bytes):
            raise TypeError(f"Hash takes integers, str or bytes; got {shown(one)}")
        yield one.encode() if isinstance(one, str) else one


def transforms_by_source(
    given: Any, sources: Sequence[str]
) -> tuple[tuple[str, Transforms], ...] | Transforms:
    """Return the checked transforms of a tensor, or of columns of it by name."""
    are_pairs = isinstance(given, tuple) and any(isinstance(one, tuple) for one in given)
    if not (are_pairs or isinstance(given, Mapping)):
        return checked_transforms(given)
    if are_pairs and not all(isinstance(one, tuple) and len(one) == 2 for one in given):
        raise TypeError(f"transform by name takes a mapping; got {shown(given)}")
    by_name = {name: checked_transforms(of) for name, of in dict(given).items()}
    unknown = [name for name in by_name if name not in sources]
    if unknown or not by_name:
        raise ValueError(
            "a transform by name is for the columns of one tensor; not among them: "
            f"{', '.join(map(repr, unknown)) or 'none is named'}"
        )
    return tuple(by_name.items())


def _number(name: str, value: Any) -> float:
    plain = plain_number(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float) or plain != plain:
        raise TypeError(f"{name} must be a number; got {shown(value)}")
    if isinstance(plain, int) and abs(plain) > sys.float_info.max:
        raise ValueError(f"{name} must be a number that float64 holds; got {shown(plain)}")
    return float(plain)
