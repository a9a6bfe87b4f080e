"""The one pass over strings that finds the words of `Column(vocab="auto")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.batches.columns import resolve_columns
from torchparquet._impl.files.cache_file import Codec, Pass, found_by_pass
from torchparquet._impl.files.footers.leaf import NULL_KEY
from torchparquet._impl.files.schemas import Schemas
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet.column import Column
from torchparquet.jagged import Jagged

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.remote.storage import StorageArguments
    from torchparquet._impl.reading.read_options import ReadOptions

# More are identifiers, and no model has an embedding for each.
MOST_WORDS = 2**24
_MOST_ROWS = 65536  # of a batch
_LEAST_BYTES = 256  # of max_memory for each row of a batch


@dataclass(frozen=True)
class WordPass:
    """Finds the different strings of columns."""

    open_manifest: Callable[[], Manifest]
    options: ReadOptions
    keys: FileKeys | None
    storage: StorageArguments

    @cached_property
    def _manifest(self) -> Manifest:
        return self.open_manifest()

    def find(self, name: str, column: Column) -> tuple[bytes, ...]:
        """Return all different strings of the sources of a column, in ascending order."""
        manifest = self._manifest

        def make(row_groups: slice) -> tuple[bytes, ...]:
            return tuple(sorted(self._found(name, column, manifest.between(row_groups))))

        found = found_by_pass(
            Pass(column.sources, lambda _: Codec(_parts, _words), make, partial(_joined, name)),
            "words",
            manifest=manifest,
            storage=self.storage,
            keys=self.keys,
        )
        if not found:
            raise ValueError(
                'vocab="auto" needs a string that is not null (vocab=[...] states the words): all '
                f"values of {name!r} are null"
            )
        return found

    def _found(self, name: str, column: Column, manifest: Manifest) -> set[bytes]:
        """Return the strings of all sources."""
        found: set[bytes] = set()
        schemas = Schemas(manifest)
        for source in column.sources:
            # The words of a vocabulary do not matter: the field tells where strings are.
            one = replace(column, source=source, vocab=(b"",), unknown=0, dtype=None, nulls="mask")
            (field,) = resolve_columns({name: one}, schemas)
            default = schemas.default_of_table(source) if column.default is None else None
            if isinstance(default, str):
                found.add(default.encode())
            if schemas.is_partition_key(source):
                values = set(schemas.partition_values(source)) - {None, NULL_KEY}
                parts = iter([{value.encode() for value in values if value is not None}])
            else:
                parts = self._read(manifest, _strings_of(field))
            for part in parts:
                found |= part
                _check_number(name, found)
        return found

    def _read(self, manifest: Manifest, field: Field) -> Iterator[set[bytes]]:
        """Return the different strings of each batch of all rows."""
        bytes_of_batch = self.options.memory_per_worker(1)
        batch_size = max(1, min(_MOST_ROWS, bytes_of_batch // _LEAST_BYTES))
        options = replace(self.options, pin_memory=False)
        opener = StreamOpener(manifest, (field,), options, keys=self.keys)
        plan = EpochPlan(manifest.row_group_num_rows, PlanOptions(batch_size=batch_size))
        with closing(opener.read_once(plan)) as batches:
            for batch in batches:
                yield _different(batch, field)


def _joined(name: str, parts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
    found: set[bytes] = set().union(*parts)
    _check_number(name, found)
    return tuple(sorted(found))


def _check_number(name: str, words: set[bytes]) -> None:
    if len(words) > MOST_WORDS:
        raise ValueError(
            'vocab="auto" is for columns of few different strings, and this one looks like an '
            "identifier (hash it by Column(..., transform=Hash(...)), or state the words that "
            f"matter by vocab=[...]): {name!r} has more than {MOST_WORDS:,} words"
        )


def _strings_of(field: Field) -> Field:
    """Return the field of the strings that a field has the numbers of; what files lack is null."""
    num_offsets = 2 if field.length else field.num_offsets + 1
    return replace(
        field,
        dtype="uint8",
        words=None,
        num_offsets=num_offsets,
        length=None,
        default=None,
        missing_is_null=True,
    )


def _different(batch: Batch, field: Field) -> set[bytes]:
    """Return the different strings of a batch that are not null."""
    strings = strings_in(batch[field.name], batch[field.mask_names[-1]].numpy())
    return set(strings.unique().to_pylist()) - {None}


def strings_in(strings: Jagged, valid: NDArray[np.bool_]) -> pa.Array:
    """Return the innermost strings of a batch as an array of Arrow, null where not `valid`."""
    while isinstance(strings.values, Jagged):
        strings = strings.values
    buffers = (
        np.packbits(valid, bitorder="little"),
        strings.offsets.numpy(),
        strings.values.numpy(),
    )
    return pa.Array.from_buffers(
        pa.large_binary(), len(valid), [pa.py_buffer(buffer) for buffer in buffers]
    )


def _parts(words: tuple[bytes, ...]) -> dict[str, Any]:
    lengths = np.array([len(word) for word in words], np.int64)
    return {"lengths": lengths, "letters": np.frombuffer(b"".join(words), np.uint8)}


def _words(parts: dict[str, Any]) -> tuple[bytes, ...]:
    letters = parts["letters"].tobytes()
    ends = np.cumsum([0, *parts["lengths"]]).tolist()
    if ends[-1] != len(letters):
        raise ValueError("it has another length")
    return tuple(letters[begin:end] for begin, end in pairwise(ends))
