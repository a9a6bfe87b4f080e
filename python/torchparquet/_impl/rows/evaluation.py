"""Values of expressions for every row of a data set. pyarrow's data set engine finds them."""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.checks import listed
from torchparquet._impl.files.schemas import no_such_column
from torchparquet._impl.processors import num_processors
from torchparquet._impl.rows.filters import fitting_value
from torchparquet._impl.rows.fragments import Fragments
from torchparquet._impl.rows.pruning.condition import Condition
from torchparquet._impl.rows.pruning.row_groups import PrunedFile, by_known, undecided
from torchparquet.errors import EncryptedFileError, one_line, unreadable

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.manifest_reading import HeldFooters

# By name, for the rows of one row group.
Values: TypeAlias = "Mapping[str, pa.ChunkedArray]"
Mask: TypeAlias = NDArray[np.bool_]
# From the number of a row group and its values to the rows that count.
MaskOf: TypeAlias = Callable[[int, Values], Mask]

FILTERS = "filters"
_MAX_FILES_AT_ONCE = 8


def evaluate(
    manifest: Manifest,
    expressions: Mapping[str, pc.Expression],
    keys: FileKeys | None,
    mask_of: MaskOf,
    footers: HeldFooters | None = None,
) -> Iterator[Mask]:
    """Yield a mask for each row group, in order; those that `FILTERS` decides get no values."""
    files = _Files(manifest, expressions, keys, footers)
    waiting: deque[Future[list[Mask]]] = deque()
    # Threads that read a store wait for most of their time.
    is_waiting = manifest.listing.store is not None
    num_threads = _MAX_FILES_AT_ONCE if is_waiting else num_processors()
    pool = ThreadPoolExecutor(min(num_threads, _MAX_FILES_AT_ONCE))
    try:
        for place in range(len(files.numbers)):
            waiting.append(pool.submit(files.masks, place, mask_of))
            if len(waiting) > _MAX_FILES_AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        files.stopped.set()
        pool.shutdown(cancel_futures=True)


class _Files:
    """The files of a manifest that have row groups, of which any thread may read."""

    def __init__(
        self,
        manifest: Manifest,
        expressions: Mapping[str, pc.Expression],
        keys: FileKeys | None,
        footers: HeldFooters | None,
    ) -> None:
        """Find the schema, check the expressions against it, and ask partition keys."""
        self.numbers: list[int] = np.unique(manifest.row_group_file).tolist()
        self._manifest = manifest
        self._is_encrypted = keys is not None
        self._fragments = Fragments(manifest, keys, footers)
        schema = self._fragments.schema
        self._conditions = {name: Condition(one, schema) for name, one in expressions.items()}
        self._found = pa.schema(
            [pa.field(name, self._type_of(name, one)) for name, one in expressions.items()]
        )
        names = itertools.chain.from_iterable(one.columns for one in self._conditions.values())
        self._fields = pa.schema([schema.field(name) for name in dict.fromkeys(names)])
        has_rows = manifest.file_num_rows[self.numbers] > 0
        self._known = [
            self._fragments.known(file, self._fields.names) if has_rows[place] else {}
            for place, file in enumerate(self.numbers)
        ]
        # Then `masks` returns soon in all threads, with masks that mean nothing.
        self.stopped = threading.Event()
        self._may_hold = self._may_fail = np.ones(len(self.numbers), bool)
        if FILTERS in expressions:
            condition = self._conditions[FILTERS]
            self._filtered = pa.schema([schema.field(name) for name in condition.columns])
            self._may_hold, may_fail = by_known(condition, self._filtered, self._known)
            self._may_fail = may_fail | (len(expressions) > 1)
        self._may_hold = self._may_hold & has_rows
        asked = np.flatnonzero(self._may_hold & self._may_fail)
        self._fragments.read_footers([self.numbers[place] for place in asked.tolist()])

    def _type_of(self, name: str, expression: pc.Expression) -> pa.DataType:
        """Return the type of an expression's values."""
        import pyarrow.dataset as pads

        schema = self._fragments.schema
        try:
            scanner = pads.Scanner.from_batches([], schema=schema, columns={name: expression})
            found = scanner.to_table().schema.field(name).type
        except (pa.ArrowException, KeyError) as error:
            raise self._misfit(error, name) from error
        if name == FILTERS and found not in (pa.bool_(), pa.null()):
            raise ValueError(
                f"filters must be true or false for each row, their values are {found}"
            )
        return found

    def _misfit(self, error: Exception, argument: str) -> ValueError:
        """Return what to raise if an expression does not fit the columns."""
        schema = self._fragments.schema
        message_of_name = re.match(r"No match for (FieldRef.*?\)) in ", str(error))
        if message_of_name is None:
            misfit = self._conditions[argument].misfit(schema)
            hint = one_line(error) if misfit is None else fitting_value(*misfit)
            return ValueError(f"{argument} does not fit the types of columns: {hint}")
        parts = re.findall(r"FieldRef\.Name\((.*?)\)", message_of_name[1])
        if parts[0] in self._fragments.differing:
            return ValueError(
                f"{argument} cannot use a column that files store as types without a common one; "
                f"rewrite some of them: {parts[0]!r}"
            )
        names = [
            f"{field.name}.{part.name}"
            for field in schema
            if pa.types.is_struct(field.type)
            for part in field.type
        ]
        return no_such_column(".".join(parts), argument, [*schema.names, *names])

    def masks(self, place: int, mask_of: MaskOf) -> list[Mask]:
        """Return the mask of each of a file's row groups."""
        manifest, file = self._manifest, self.numbers[place]
        path = manifest.files[file]
        first, end = np.searchsorted(manifest.row_group_file, [file, file + 1]).tolist()
        in_file = manifest.row_group_in_file[first:end].tolist()
        masks = [np.zeros(count, bool) for count in manifest.row_group_num_rows[first:end].tolist()]
        if not self._may_hold[place]:
            return masks
        whole = set(in_file)
        if self._may_fail[place]:
            self._check_keys(file)
        try:
            if self._may_fail[place]:
                opened = self._opened(place, in_file)
                left, whole = self._undecided(opened)
                read = [first + at for at, number in enumerate(in_file) if number in left]
                for number, values in self._read(opened, read):
                    masks[number - first] = mask_of(number, values)
        except pa.ArrowInvalid as error:
            if any(one.misfit(self._fragments.schema) for one in self._conditions.values()):
                raise self._misfit(error, FILTERS) from error
            message = f"filters cannot be evaluated in {path!r}: {one_line(error)}"
            raise ValueError(message) from error
        except (pa.ArrowException, OSError) as error:
            raise unreadable(error, path, f"cannot read {path!r}: {one_line(error)}") from error
        for at, number in enumerate(in_file):
            if number in whole:
                masks[at] = mask_of(first + at, {})
        return masks

    def _check_keys(self, file: int) -> None:
        """Raise if pyarrow would end the process, looking for statistics that it cannot decrypt."""
        if self._manifest.file_has_hidden_columns[file]:
            names = " and ".join(self._conditions)
            raise EncryptedFileError(
                f"{names} must have the key of every encrypted column to read "
                f"{listed(self._fields.names)}: give all keys in decryption_properties, or leave "
                f"{names} out: {self._manifest.files[file]!r}"
            )

    def _undecided(self, file: PrunedFile) -> tuple[set[int], set[int]]:
        """Return the row groups whose values must be read, and those whose rows all count."""
        condition = self._conditions.get(FILTERS)
        if condition is None:
            return set(file.row_groups), set()
        left, whole = undecided(self._manifest, condition, self._filtered, file)
        return (left, whole) if len(self._conditions) == 1 else (left | whole, set())

    def _opened(self, place: int, row_groups: Sequence[int]) -> PrunedFile:
        file, known = self.numbers[place], self._known[place]
        in_file = self._fragments.stored_schema(file)
        names = _stored_names(self._fields, self._fragments.stored_names(file), in_file)
        told = {names[name]: value for name, value in known.items()}
        footer = self._fragments.footer(file, told)
        return PrunedFile(file, row_groups, self._is_encrypted, footer, in_file, names, known, told)

    def _read(self, file: PrunedFile, numbers: list[int]) -> Iterator[tuple[int, Values]]:
        """Yield the values of row groups, of which only those of one are held at a time."""
        if not numbers:
            return
        manifest = self._manifest
        in_file = manifest.row_group_in_file[numbers].tolist()
        whole = self._fragments.with_values(file.number, file.footer, file.told)
        schema = pa.schema([field.with_name(file.names[field.name]) for field in self._fields])
        columns = {key: one.renamed(file.names) for key, one in self._conditions.items()}
        part = whole.subset(row_group_ids=in_file, schema=schema)
        batches = part.scanner(schema=schema, columns=columns).to_batches()
        sizes = manifest.row_group_num_rows[numbers].tolist()
        # After the last one `zip` asks for more, so that rows which are left are noticed.
        for number, values in zip(numbers, _regrouped(batches, self._found, sizes), strict=True):
            if self.stopped.is_set():
                return
            yield number, values


def _stored_names(
    fields: pa.Schema, renames: Mapping[str, str], stored: pa.Schema
) -> dict[str, str]:
    """Return a file's names of columns; of one that it lacks, a name that no column has."""
    for field in fields:
        if not pa.types.is_nested(field.type):
            continue
        for path, other in renames.items():
            is_within = path.startswith(f"{field.name}.")
            if is_within and (other or field.name in stored.names):
                raise ValueError(
                    f"rows cannot be filtered by column {field.name!r}: a file of the table stores "
                    f"{path!r} by another name, or is older than it"
                )
    none = "\0".join(["", *stored.names, *fields.names])
    return {name: renames.get(name, name) or f"{none}{name}" for name in fields.names}


def _regrouped(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, sizes: Sequence[int]
) -> Iterator[Values]:
    """Yield the columns of each so many next rows; raise OSError if there are fewer or more."""
    rest: pa.RecordBatch | None = None
    for size in sizes:
        parts: list[pa.RecordBatch] = []
        missing = size
        while missing > 0:
            while rest is None or not len(rest):
                rest = next(batches, None)
                if rest is None:
                    raise OSError(f"{missing} rows are missing that the footer counts")
            parts.append(rest.slice(0, missing))
            rest = rest.slice(len(parts[-1]))
            missing -= len(parts[-1])
        yield {
            field.name: pa.chunked_array([part.column(at) for part in parts], field.type)
            for at, field in enumerate(schema)
        }
    if (rest is not None and len(rest)) or any(map(len, batches)):
        raise OSError("there are more rows than the footer counts")
