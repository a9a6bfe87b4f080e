"""Column: the user's description of one tensor of a batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchparquet._impl.checks import (
    checked_bool,
    checked_int,
    checked_names,
    checked_word,
    listed,
    plain_number,
    set_checked,
    shortened,
)
from torchparquet._impl.files.footers.leaf import DTYPES
from torchparquet._impl.files.schemas import NANOSECONDS
from torchparquet.features import Transform, Transforms, num_results, transforms_by_source

Nulls = Literal["error", "nan", "mask", "empty"] | int | float | bool | None

_NULL_POLICIES = ("error", "nan", "mask", "empty")
_FILL_TYPES = (bool, int, float)


@dataclass(frozen=True)
class Column:
    """The source of one tensor of a batch, and how its values are read.

    Attributes:
        source: Name of a column (dotted path for a field of a struct) for a ``[B]`` tensor, or
            a sequence of F names, stored as a tuple, for one ``[B, F]`` tensor. If some of the F
            columns are lists, they become one `KeyedJagged`, in which a scalar is a list of one
            value. A name that no file has may be a partition key, as ``year`` of ``year=...``
            directories. None: the key of the Column in a dict of columns.
        nulls: The value of a null. ``"error"``: a null raises. ``"nan"``: NaN (floats only). A
            number or bool: that value. ``"mask"``: 0, and a bool tensor ``"<name>.valid"`` of the
            same shape is False there. ``"empty"``: empty, for strings and lists of them. None: the
            data set's ``nulls``, or else ``"nan"`` for floats and ``"error"`` for the rest. In a
            list the policy is about elements; a null list raises under ``"error"`` and becomes
            empty otherwise. The mask of strings and lists is ``[B]``; lists have a second one, of
            their values: ``"<name>.values.valid"``. A tensor of several columns takes a mapping
            too, from column to any of these but ``"mask"``; it is stored as pairs. In a
            `KeyedJagged`, ``"empty"`` gives a list or scalar that is null no value, and raises for
            a null in a list; None does too, but makes it NaN in lists of floats.
        dtype: A torch dtype or its name, stored as the name, that values are cast to. Integers and
            bools become any float, or any integer that holds the value, or else raise `CastError`.
            Floats become any float. Decimals become any float or, with ``"int64"``, their unscaled
            value. Files may then store the column in different kinds. None for the usual dtype.
        length: L: every list has L elements and the tensor is ``[B, L]``; a list of another length
            raises `ListLengthError`, a null list is L nulls, and the mask is ``[B, L]``. ``"any"``:
            lists are a `Jagged`, and several columns a `KeyedJagged`, also if all are scalars.
            None: L if all files declare a ``fixed_size_list`` of L, or else ``"any"``; files that
            declare different lengths raise.
        vocab: Words (str or bytes). Each string is read as the index of its word, int64 unless
            ``dtype`` says otherwise. ``"auto"``: all different strings of the column, or of all
            columns of a group, in ascending order of bytes. They are those of all rows, whatever
            ``filters``, ``rows`` and ``split`` leave, and are read once, when the data set is made;
            its ``fields`` have them as ``words``. None: strings are a `Jagged` of uint8.
        unknown: The number of every string that is not in ``vocab``.
        default: The value of every row of a file that lacks the column, or of a path that lacks the
            partition key: a number, for strings a str or bytes, for lists a list of numbers. Such
            rows are valid. None: such a file raises. At least one file must have the column.
        decode: For strings and binary, on the thread that iterates or on those of `Ahead`.
            ``"image"``: an RGB image, uint8 ``[3, height, width]``, by torchvision or else Pillow.
            ``"audio"``: samples, float32 ``[channels, samples]``, by torchcodec or soundfile, and
            ``"<name>.sample_rate"``, int64 ``[B]``. Or a function from bytes to any value but None.
            A struct with the field ``bytes``, as of Hugging Face, is read by its name. A null
            raises. The batch has a list of B values.
        stack: True to deliver decoded values, of one shape, as one tensor ``[B, ...]``.
        on_error: ``"raise"``: a value that cannot be decoded raises a `TransformError` that names
            file, row group and row. ``"flag"``: it is None, as a null is, or zeros if values are
            stacked, and ``"<name>.valid"``, bool ``[B]``, is False there; a batch without any value
            to take the shape of zeros from raises.
        unit: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``: timestamps, times, dates and durations of any
            unit, with and without UTC, become int64 of this unit. A value that it cannot hold
            exactly raises `CastError`; a float ``dtype`` rounds it. None: the unit that the files
            store, or the finest of several, with a warning, if ``dtype`` is int64 or a float and
            the column is a tensor by itself.
        weights: For a `KeyedJagged`: the F columns of the weights of its values, in step with
            ``source``, read as float32. Each list must be as long as that of values; a scalar is
            a list of one. A list of weights that is null is empty, a null in it raises.
        transform: One of `torchparquet.features` or several in order, applied to each value on
            decode threads: `Clip`, `Log1p`, `Scale` and, last, `Bucketize` take numbers; `Hash`, by
            itself, takes integers, strings and binary. ``dtype`` is that of the result: float32, or
            int64 for buckets, unless it is given. Values of ``default`` and partition keys are
            transformed; what ``nulls`` puts in place of a null is not. A tensor of several columns
            takes a mapping too, from column to its transforms; it is stored as pairs.
    """

    source: str | Sequence[str] | None = None
    nulls: Nulls | Mapping[str, Nulls] | tuple[tuple[str, Nulls], ...] = None
    dtype: str | torch.dtype | None = None
    default: int | float | bool | str | bytes | Sequence[int | float | bool] | None = None
    length: int | Literal["any"] | None = None
    vocab: Sequence[str | bytes] | Literal["auto"] | None = None
    unknown: int = -1
    decode: Literal["image", "audio"] | Callable[[bytes], Any] | None = None
    stack: bool = False
    on_error: Literal["raise", "flag"] = "raise"
    unit: Literal["s", "ms", "us", "ns"] | None = None
    weights: Sequence[str] | None = None
    transform: Transform | Sequence[Transform] | Mapping[str, Any] | tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        """Check the arguments and give them one form."""
        if self.source is not None and not isinstance(self.source, str):
            is_list = isinstance(self.source, list | tuple)
            if is_list and any(isinstance(one, Column) for one in self.source):
                raise TypeError(
                    "a tensor of several columns takes their names; nulls of each are set as in "
                    'Column(["age", "income"], nulls={"age": 0})'
                )
            set_checked(self, source=checked_names(self.source, "source"))
        set_checked(
            self,
            nulls=_checked_policies(self.nulls, self.source),
            dtype=_checked_dtype(self.dtype),
            default=_checked_default(self.default),
            vocab=_checked_vocab(self.vocab),
            unknown=checked_int("unknown", self.unknown, -(2**63), 2**64),
        )
        if self.length is not None and not (isinstance(self.length, str) and self.length == "any"):
            length = checked_int("length", self.length, 1, 2**31, ', "any" or None')
            set_checked(self, length=length)
        if self.weights is not None:
            self._check_weights()
        if self.transform is not None:
            self._check_transform()
        if self.unit is not None:
            self._check_unit()
        if self.decode is not None:
            self._check_decode()
        elif self.stack or self.on_error != "raise":
            raise ValueError("stack and on_error need decode")

    def _check_weights(self) -> None:
        # Weights of several values may be one column.
        is_list = isinstance(self.weights, list | tuple)
        if not is_list or not all(isinstance(one, str) for one in self.weights or ()):
            raise TypeError(f"weights must be a list of names or None; got {self.weights!r}")
        weights = tuple(self.weights or ())
        if not isinstance(self.source, tuple) or len(weights) != len(self.source):
            raise ValueError(
                "weights need a list of columns, one for each of them; got "
                f"{len(weights)} for source={self.source!r}"
            )
        set_checked(self, weights=weights)

    def _check_transform(self) -> None:
        sources = self.source if isinstance(self.source, tuple) else ()
        transforms: Any = transforms_by_source(self.transform, sources)
        set_checked(self, transform=transforms)
        if self.vocab is not None or self.decode is not None:
            raise ValueError("transform goes neither with vocab nor with decode")
        by_name = {"": transforms} if isinstance(transforms[0], Transform) else dict(transforms)
        buckets = [num_results(one) for one in by_name.values()]
        if None in buckets and len(set(buckets)) > 1:
            raise ValueError(
                "transforms of one tensor must all end in buckets, or none of them; read the "
                f"others as a tensor of their own: {shortened(list(map(repr, by_name)))}"
            )
        kind, dtype = "float" if None in buckets else "int", self.dtype_name
        assert dtype is not None  # noqa: S101
        if kind not in dtype:
            raise ValueError(f"what transform makes needs a dtype of {kind}s; got dtype={dtype!r}")
        most = max(one or 0 for one in buckets)
        if most > _num_values(dtype):
            raise ValueError(f"{most} buckets do not fit dtype={dtype!r}; leave it out for int64")

    @property
    def transforms(self) -> dict[str, Transforms]:
        """The transforms of each source; none for those that are read as they are."""
        found: Any = self.transform or ()
        if not found or isinstance(found[0], Transform):
            found = [(source, found) for source in self.sources]
        by_name: dict[str, Transforms] = dict(found)
        return {source: by_name.get(source, ()) for source in self.sources}

    def _check_unit(self) -> None:
        checked_word("unit", self.unit, NANOSECONDS, " or None")
        if self.dtype is None and self.transform is None:
            set_checked(self, dtype="int64")
        elif self.transform is None and self.dtype != "int64" and "float" not in str(self.dtype):
            raise ValueError(f"times of a unit are int64 or floats; got dtype={self.dtype!r}")
        if self.vocab is not None or self.decode is not None:
            raise ValueError("unit goes neither with vocab nor with decode")

    def _check_decode(self) -> None:
        if isinstance(self.decode, str):
            checked_word("decode", self.decode, ("image", "audio"), ", a callable or None")
        elif not callable(self.decode):
            raise TypeError(
                f'decode must be "image", "audio", a callable or None; got {self.decode!r}'
            )
        checked_bool("stack", self.stack)
        checked_word("on_error", self.on_error, ("raise", "flag"))
        # A null has no bytes to decode.
        nulls = "mask" if self.on_error == "flag" else "error"
        if isinstance(self.source, tuple):
            raise ValueError(f"decode needs one source; got {list(self.source)}")
        if self.vocab is not None:
            raise ValueError("decode does not go with vocab; leave one of them out")
        if self.nulls not in (None, nulls):
            raise ValueError(
                f"decode does not go with nulls={self.nulls!r}: a null has nothing to decode; "
                'on_error="flag" marks nulls'
            )
        set_checked(self, nulls=nulls)

    @property
    def dtype_name(self) -> str | None:
        """The name of ``dtype``, such as ``"float32"``; of what `transform` makes without one."""
        assert self.dtype is None or isinstance(self.dtype, str)  # noqa: S101
        if self.dtype is not None or self.transform is None:
            return self.dtype
        last: Any = self.transform
        while isinstance(last, tuple):
            last = last[-1]
        return "float32" if num_results((last,)) is None else "int64"

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the columns, one or more; none if the key in a dict is to name it."""
        if self.source is None:
            return ()
        return (self.source,) if isinstance(self.source, str) else tuple(self.source)

    @property
    def stated_length(self) -> int | None:
        """``length`` if it is a number, or else None."""
        return None if isinstance(self.length, str) else self.length

    @property
    def words(self) -> tuple[bytes, ...] | None:
        """The words of ``vocab``, encoded in UTF-8; None if it states none."""
        if self.vocab is None or self.vocab == "auto":
            return None
        return tuple(word.encode() if isinstance(word, str) else word for word in self.vocab)


def _num_values(dtype: str) -> float:
    """Return the number of values from 0 on that a dtype has."""
    is_signed = dtype.startswith("int")
    return math.inf if "float" in dtype else 2 ** (int(dtype.strip("uint")) - is_signed)


def nulls_by_name(nulls: Nulls | Mapping[str, Nulls]) -> dict[str, Nulls]:
    """Return the checked policy of each column that has one, and of ``"*"``, all others."""
    if not isinstance(nulls, Mapping):
        return {"*": checked_nulls(nulls)}
    try:
        return {"*": None} | {name: checked_nulls(policy) for name, policy in nulls.items()}
    except (TypeError, ValueError) as error:
        raise type(error)(f"nulls holds a policy for each column: {error}") from None


def _checked_policies(nulls: Any, source: Any) -> Nulls | tuple[tuple[str, Nulls], ...]:
    """Return one policy, or pairs of columns of a tensor and their policies."""
    pairs = isinstance(nulls, tuple) and all(isinstance(one, tuple) for one in nulls)
    if not (pairs or isinstance(nulls, Mapping)):
        return checked_nulls(nulls)
    policies = dict(nulls)
    unknown = [name for name in policies if not isinstance(source, tuple) or name not in source]
    if unknown:
        raise ValueError(
            "nulls of a Column by name are for the columns of one tensor; not among them: "
            f"{listed(list(map(str, unknown)))}"
        )
    if "mask" in policies.values():
        raise ValueError('nulls="mask" is for all columns of a tensor, which has one mask')
    return tuple((name, checked_nulls(policy)) for name, policy in policies.items()) or None


def checked_nulls(nulls: Any) -> Nulls:
    """Return the policy with NumPy's numbers as Python's; raise if it is no policy."""
    value = plain_number(nulls)
    known = value in _NULL_POLICIES if isinstance(value, str) else isinstance(value, _FILL_TYPES)
    if known or value is None:
        checked: Nulls = value
        return checked
    error = ValueError if isinstance(value, str) else TypeError
    raise error(
        f'nulls must be "error", "nan", "mask", "empty", a number, a bool or None; got {nulls!r}'
    )


def _checked_dtype(dtype: Any) -> str | None:
    if dtype is None:
        return None
    if not isinstance(dtype, str | torch.dtype):
        raise TypeError(f"dtype must be a torch dtype, its name or None; got {dtype!r}")
    name = str(dtype).removeprefix("torch.")
    return checked_word("dtype", name, DTYPES)


def _checked_default(default: Any) -> Any:
    if isinstance(default, list | tuple):
        value = tuple(map(plain_number, default))
        fits = all(isinstance(one, _FILL_TYPES) for one in value)
    else:
        value = plain_number(default)
        fits = value is None or isinstance(value, (*_FILL_TYPES, str, bytes))
    if fits:
        return value
    raise TypeError(
        "default must be a number, a bool, a str, bytes, a list of numbers or None; got "
        f"{default!r:.200}"
    )


def _checked_vocab(vocab: Any) -> Any:
    if vocab is None or (isinstance(vocab, str) and vocab == "auto"):
        return vocab
    if isinstance(vocab, str | bytes) or not isinstance(vocab, Sequence):
        raise TypeError(f'vocab must be a sequence of str or bytes, "auto" or None; got {vocab!r}')
    words = tuple(vocab)
    if not words:
        raise ValueError("vocab must have at least one word")
    for word in words:
        if not isinstance(word, str | bytes):
            raise TypeError(f"vocab must hold str or bytes; got {word!r}")
    encoded = Counter(word.encode() if isinstance(word, str) else word for word in words)
    repeated = [repr(word) for word, count in encoded.items() if count > 1]
    if repeated:
        raise ValueError(f"vocab must hold a word only once; repeated: {shortened(repeated)}")
    return words
