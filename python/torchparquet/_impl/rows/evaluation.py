"""Values of expressions for every row of a data set. pyarrow's data set engine finds them."""

from __future__ import annotations

import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.checks import listed
from torchparquet._impl.files.manifest import RowSelection
from torchparquet._impl.files.schemas import no_such_column
from torchparquet._impl.processors import num_processors
from torchparquet._impl.rows.column_bytes import ColumnBytes
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
    from torchparquet._impl.rows.early_rows import EarlyRows

# By name, for the rows of one row group.
Values: TypeAlias = "Mapping[str, pa.ChunkedArray]"
Mask: TypeAlias = NDArray[np.bool_]
# From the number of a row group and its values to the rows that count.
MaskOf: TypeAlias = Callable[[int, Values], Mask]

FILTERS = "filters"
_FILES_AT_ONCE = 8
# Threads that wait for a store.
_FILES_OF_STORE = 64


class Evaluation:
    """The values of expressions for the rows of a manifest, and the rows that count by them."""

    def __init__(
        self,
        manifest: Manifest,
        expressions: Mapping[str, pc.Expression],
        keys: FileKeys | None,
        footers: HeldFooters | None,
        early: EarlyRows | None = None,
    ) -> None:
        """Find the schema, check the expressions against it, and ask partition keys."""
        self.numbers: list[int] = np.unique(manifest.row_group_file).tolist()
        self._manifest, self._early = manifest, early
        self._is_encrypted = keys is not None
        self._fragments = Fragments(manifest, keys, footers)
        schema = self._fragments.schema
        self._conditions = {name: Condition(one, schema) for name, one in expressions.items()}
        self._found = pa.schema(
            [pa.field(name, self._type_of(name, one)) for name, one in expressions.items()]
        )
        names = itertools.chain.from_iterable(one.columns for one in self._conditions.values())
        self.fields = pa.schema([schema.field(name) for name in dict.fromkeys(names)])
        has_rows = manifest.file_num_rows[self.numbers] > 0
        self._known = [
            self._fragments.known(file, self.fields.names) if has_rows[place] else {}
            for place, file in enumerate(self.numbers)
        ]
        # Then threads return soon, with rows that mean nothing.
        self._stopped = threading.Event()
        self._may_hold = self._may_fail = np.ones(len(self.numbers), bool)
        if FILTERS in expressions:
            condition = self._conditions[FILTERS]
            self._filtered = pa.schema([schema.field(name) for name in condition.columns])
            self._may_hold, may_fail = by_known(condition, self._filtered, self._known)
            self._may_fail = may_fail | (len(expressions) > 1)
        self._may_hold = self._may_hold & has_rows
        asked = np.flatnonzero(self._may_hold & self._may_fail)
        self._fragments.read_footers([self.numbers[place] for place in asked.tolist()])
        # Of other files pyarrow reads the values.
        is_asked = manifest.listing.store is not None and footers is not None and keys is None
        self._columns = ColumnBytes(manifest.listing, self.numbers) if is_asked else None

    def selections(self, mask_of: MaskOf) -> Iterator[RowSelection]:
        """Yield the rows of each file with row groups, in order.

        `mask_of` gets no values of row groups that `FILTERS` decides.
        """
        most = _FILES_AT_ONCE if self._columns is None else _FILES_OF_STORE
        # Threads that read a store wait for most of their time.
        is_waiting = self._manifest.listing.store is not None
        pool = ThreadPoolExecutor(most if is_waiting else min(num_processors(), most))
        waiting: deque[Future[RowSelection]] = deque()
        try:
            for place in range(len(self.numbers)):
                waiting.append(pool.submit(self._selection, place, mask_of))
                if len(waiting) > most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            self.stop()
            pool.shutdown(cancel_futures=True)

    def stop(self) -> None:
        """Have all threads end soon."""
        self._stopped.set()
        if self._columns is not None:
            self._columns.stop()

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

    def _selection(self, place: int, mask_of: MaskOf) -> RowSelection:
        """Return the rows of a file's row groups that count."""
        file = self.numbers[place]
        first, end = np.searchsorted(self._manifest.row_group_file, [file, file + 1]).tolist()
        in_file = self._manifest.row_group_in_file[first:end]
        early = None if self._early is None else self._early.of(file)
        # A file that failed is tried again, now that all files are known.
        if early is not None and early.exception() is None:
            fields, selections = early.result()
            if fields.equals(self.fields):
                whole = selections[file]
                return whole.keep(np.isin(np.arange(len(whole.form)), in_file))
        return RowSelection.of_masks(self._masks(place, first, in_file.tolist(), mask_of))

    def _masks(self, place: int, first: int, in_file: list[int], mask_of: MaskOf) -> list[Mask]:
        manifest, file = self._manifest, self.numbers[place]
        path, end = manifest.files[file], first + len(in_file)
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
                for number, values in self._read(place, opened, read):
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
                f"{listed(self.fields.names)}: give all keys in decryption_properties, or leave "
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
        names = _stored_names(self.fields, self._fragments.stored_names(file), in_file)
        told = {names[name]: value for name, value in known.items()}
        footer = self._fragments.footer(file, told)
        return PrunedFile(file, row_groups, self._is_encrypted, footer, in_file, names, known, told)

    def _read(
        self, place: int, file: PrunedFile, numbers: list[int]
    ) -> Iterator[tuple[int, Values]]:
        """Yield the values of row groups, of which only those of one are held at a time."""
        if not numbers:
            return
        manifest = self._manifest
        in_file = manifest.row_group_in_file[numbers].tolist()
        schema = pa.schema([field.with_name(file.names[field.name]) for field in self.fields])
        columns = {key: one.renamed(file.names) for key, one in self._conditions.items()}
        sizes = manifest.row_group_num_rows[numbers].tolist()
        asked = nullcontext() if self._columns is None else self._columns.of(place, file, in_file)
        with asked as read:
            whole = self._fragments.with_values(file.number, file.footer, file.told, read)
            part = whole.subset(row_group_ids=in_file, schema=schema)
            batches = part.scanner(schema=schema, columns=columns).to_batches()
            # After the last one `zip` asks for more, so that rows which are left are noticed.
            values = _regrouped(batches, self._found, sizes)
            for number, of in zip(numbers, values, strict=True):
                if self._stopped.is_set():
                    return
                yield number, of


def fulfilled(num_rows: int, values: Values) -> Mask:
    """Return where a condition is true. A condition that is null is not."""
    if FILTERS not in values:
        return np.ones(num_rows, bool)
    mask: Mask = values[FILTERS].cast(pa.bool_()).fill_null(False).to_numpy()
    return mask


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
