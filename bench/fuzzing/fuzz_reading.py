"""Reads one damaged file and says whether what came of it is what the package promises."""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fuzzing.fuzz_mutations import Mutation, Target, mutate
from tests.fixtures.thrift_bytes import FILE_NUM_ROWS, footer
from torchparquet import (
    CastError,
    CorruptFileError,
    EncryptedFileError,
    ListLengthError,
    NullValueError,
    ParquetDataset,
    SchemaMismatchError,
    UnsupportedColumnError,
)
from torchparquet._impl.files.manifest_reading import read_manifest

# Errors that a file may raise, and whether the message must then name it. A plain ValueError is
# about the selection or the options: a schema may have become one that these do not fit.
_DOCUMENTED = {
    CorruptFileError: True,
    NullValueError: True,
    CastError: True,
    ListLengthError: True,
    NotImplementedError: True,
    EncryptedFileError: True,  # A changed last byte makes the footer that of an encrypted file.
    SchemaMismatchError: True,
    UnsupportedColumnError: False,
    ValueError: False,
}
# How other libraries' failed allocations show in messages.
_OUT_OF_MEMORY = re.compile("bad_alloc|out of memory|malloc of size", re.IGNORECASE)
_MAX_MEMORY = "32MiB"
# More than that of batches, and what several threads need for the pages of so small files.
_MAX_GROWTH_BYTES = 64 << 20
_RESET_PEAK = "5"


class Outcome(NamedTuple):
    """The outcome of reading a file; `is_finding` is True if the package broke a promise."""

    label: str
    detail: str
    is_finding: bool


class Case(NamedTuple):
    """A damaged file and how to read it, all drawn from the seed and the case's number."""

    target: Target
    mutation: Mutation
    options: dict[str, Any]

    @staticmethod
    def make(
        targets: list[Target],
        seed: int,
        number: int,
        mutated: Callable[[Target, random.Random], Mutation] = mutate,
    ) -> Case:
        """Draw a case."""
        rng = random.Random(f"{seed} {number}")
        target = rng.choice(targets)
        options = {
            "batch_size": rng.choice((7, 100, 100, 1000, None)),
            "num_threads": rng.choice((1, 1, 3)),
            "nulls": rng.choice(("mask", "mask", "mask", 0, None)),
            "shuffle": rng.random() < 0.2,
        }
        return Case(target, mutated(target, rng), options)


def judge(case: Case, path: Path) -> Outcome:
    """Read the file, which is written to `path`."""
    path.write_bytes(case.mutation.content)
    before = _reset_peak_bytes()
    outcome = _judge_reading(case, path)
    growth = _status_bytes("VmHWM") - before
    if growth > _MAX_GROWTH_BYTES and not outcome.is_finding:
        detail = f"{growth >> 20} MiB more at the peak; {outcome.detail}"
        return Outcome("memory growth", detail, is_finding=True)
    return outcome


def _reset_peak_bytes() -> int:
    """Count the peak anew, from what is resident now, and return it."""
    # If the kernel refuses, only memory above all earlier peaks is seen.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    (line,) = re.findall(rf"^{name}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return int(line) * 1024


def _judge_reading(case: Case, path: Path) -> Outcome:
    try:
        read = _read(path, case.options)
    except Exception as error:
        return _judge_error(error, path)
    if read is None:
        return Outcome("nothing to read", "", is_finding=False)
    counts, row_ids, digests = read
    if len(set(counts.values())) > 1:
        return Outcome("unequal columns", f"rows of each: {counts}", is_finding=True)
    wanted = _footer_rows(case.mutation.content)
    num_rows = max(counts.values(), default=0)
    if wanted is not None and num_rows != wanted:
        return Outcome("short", f"{num_rows} rows of {wanted}", is_finding=True)
    if sorted(row_ids) != list(range(num_rows)):
        return Outcome("wrong row ids", f"{row_ids[:20]} ...", is_finding=True)
    if case.target.differs_in_checked_bytes_only(case.mutation.content):
        path.write_bytes(case.target.content)
        undamaged = _read(path, case.options)
        if undamaged is None or undamaged[2] != digests:
            return Outcome("wrong values", "in spite of checksums", is_finding=True)
    return Outcome("read", "", is_finding=False)


def _judge_error(error: Exception, path: Path) -> Outcome:
    kind, message = type(error), str(error)
    label = kind.__name__
    detail = f"{label}: {message!r}"
    if issubclass(kind, MemoryError) or _OUT_OF_MEMORY.search(message):
        return Outcome("out of memory", detail, is_finding=True)
    if kind not in _DOCUMENTED:
        return Outcome("undocumented error", detail, is_finding=True)
    if not _is_printable(message):
        return Outcome("unprintable message", detail, is_finding=True)
    if _DOCUMENTED[kind] and str(path) not in message:
        return Outcome("message without path", detail, is_finding=True)
    return Outcome(label, detail, is_finding=False)


def _is_printable(message: str) -> bool:
    """True if nothing in it is invisible or moves the cursor; what Unicode lacks may pass."""
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") for c in message)


def _read(
    path: Path, options: dict[str, Any]
) -> tuple[dict[str, int], list[int], dict[str, str]] | None:
    """Read all columns that can be: the rows of each, the row ids, and a digest of each."""
    schemas = read_manifest(str(path)).schemas
    columns = [leaf.path for schema in schemas for leaf in schema if leaf.dtype]
    if not columns:
        return None
    dataset = ParquetDataset(
        str(path),
        columns=list(dict.fromkeys(columns)),
        row_ids=True,
        rank=0,
        world_size=1,
        max_memory=_MAX_MEMORY,
        **options,
    )
    counts: dict[str, int] = {}
    digests: dict[str, Any] = {}
    row_ids: list[int] = []
    try:
        for batch in dataset:
            row_ids += batch["row.id"].tolist()
            for name, value in batch.items():
                # The mask of values in lists has no rows, but is as long as they are.
                if name.endswith(".values.valid"):
                    _check_mask(value, batch[name.removesuffix(".values.valid")])
                else:
                    counts[name] = counts.get(name, 0) + _num_rows(value)
                digest = digests.setdefault(name, hashlib.blake2b(digest_size=16))
                for tensor in _tensors(value):
                    digest.update(tensor.contiguous().numpy())
    finally:
        dataset.close()
    return counts, row_ids, {name: d.hexdigest() for name, d in digests.items()}


def _check_mask(mask: Tensor, values: Any) -> None:
    num_values = _num_rows(_innermost_values(values))
    if len(mask) != num_values:
        raise AssertionError(f"{num_values} values have a mask of {len(mask)}")


def _innermost_values(value: Any) -> Any:
    """The items of the innermost lists: numbers or, with offsets of their own, strings."""
    inner = value.values
    while not isinstance(inner, Tensor):
        below = inner.values
        if isinstance(below, Tensor) and below.dtype == torch.uint8:
            break
        inner = below
    return inner


def _num_rows(value: Any) -> int:
    """Rows of a tensor, or of values of which each row has several."""
    return len(value) if isinstance(value, Tensor) else len(value.offsets) - 1


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensor, or the values and offsets of rows of different lengths, which must fit."""
    if isinstance(value, Tensor):
        yield value
        return
    offsets, num_values = value.offsets, _num_rows(value.values)
    if offsets[0] != 0 or offsets[-1] != num_values or (offsets.diff() < 0).any():
        raise AssertionError(f"{num_values} values have the offsets {offsets.tolist()}")
    yield offsets
    yield from _tensors(value.values)


def _footer_rows(content: bytes) -> int | None:
    """The rows that the footer claims; None where our own parser makes nothing of it."""
    try:
        rows: int = footer(content)[FILE_NUM_ROWS].value
    except (IndexError, KeyError, ValueError, AttributeError, RecursionError):
        return None
    return rows
