"""Values of expressions for every row of a data set. pyarrow's data set engine finds them."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from torchparquet._impl.files.filters import misfit
from torchparquet._impl.processors import num_processors
from torchparquet._impl.rows.fragments import Fragments
from torchparquet._impl.rows.pruning.bloom_filters import ANYTHING, Alternatives
from torchparquet._impl.rows.pruning.condition import Condition, named_columns
from torchparquet._impl.rows.pruning.row_groups import PrunedFile, RowGroupPruning
from torchparquet._impl.rows.renamed_columns import batches_of_renamed, flat_renames
from torchparquet.errors import EncryptedFileError, one_line, unreadable

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest

# By name, for the rows of one row group.
Values: TypeAlias = "Mapping[str, pa.ChunkedArray]"
Mask: TypeAlias = NDArray[np.bool_]
# From the number of a row group and its values to the rows that count.
MaskOf: TypeAlias = Callable[[int, Values], Mask]

_MAX_FILES_AT_ONCE = 8


def evaluate(
    manifest: Manifest,
    expressions: Mapping[str, pc.Expression],
    condition: pc.Expression | None,
    keys: FileKeys | None,
    mask_of: MaskOf,
    needed: Alternatives = ANYTHING,
) -> Iterator[Mask]:
    """Yield a mask for each row group, in order, that follows from values of expressions.

    Reads the columns that the expressions name, and nothing of a row group that has no row for
    which `condition` is true, as far as partition keys, statistics, page indexes and Bloom filters
    tell. Several files are read at once, each row group after row group.
    """
    for file in np.flatnonzero(manifest.file_has_hidden_columns)[:1]:
        raise EncryptedFileError(
            f"rows are selected with a key for every encrypted column: {manifest.files[file]!r}"
        )
    files = _Files(manifest, expressions, condition, keys, needed)
    waiting: deque[Future[list[Mask]]] = deque()
    pool = ThreadPoolExecutor(min(num_processors(), _MAX_FILES_AT_ONCE))
    try:
        for file in np.unique(manifest.row_group_file).tolist():
            waiting.append(pool.submit(files.masks, file, mask_of))
            if len(waiting) > _MAX_FILES_AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        files.stop()
        pool.shutdown(cancel_futures=True)


class _Files:
    """The files of a manifest, of which any thread may read."""

    def __init__(
        self,
        manifest: Manifest,
        expressions: Mapping[str, pc.Expression],
        condition: pc.Expression | None,
        keys: FileKeys | None,
        needed: Alternatives,
    ) -> None:
        """Find the schema, and check the expressions against it."""
        self._manifest = manifest
        self._fragments = Fragments(manifest, keys)
        self._expressions = dict(expressions)
        self._schema = self._fragments.schema()
        self._found = self._check(condition)
        named = {id(one): named_columns(one, self._schema) for one in self._expressions.values()}
        names = dict.fromkeys(itertools.chain.from_iterable(named.values()))
        self._fields = pa.schema([self._schema.field(name) for name in names])
        self._stopped = threading.Event()
        self._pruning = None
        if condition is not None:
            of_condition = named.get(id(condition)) or named_columns(condition, self._schema)
            self._pruning = RowGroupPruning(
                manifest,
                self._schema,
                Condition(condition, self._schema, of_condition),
                needed,
                is_encrypted=keys is not None,
            )

    def _check(self, condition: pc.Expression | None) -> pa.Schema:
        """Return the schema of the expressions' values."""
        import pyarrow.dataset as pads

        empty = pads.dataset(self._schema.empty_table())
        try:
            found: pa.Schema = empty.scanner(columns=self._expressions).to_table().schema
            if condition is not None:
                wanted = empty.scanner(columns={"": condition}).to_table()[""].type
                if wanted not in (pa.bool_(), pa.null()):
                    raise ValueError(f"where is no condition, its values are {wanted}")
        except (pa.ArrowException, KeyError) as error:
            raise misfit(error, self._schema, "where", "where does not fit the columns") from error
        return found

    def stop(self) -> None:
        """Make `masks` return soon in all threads, with masks that mean nothing."""
        self._stopped.set()

    def masks(self, file: int, mask_of: MaskOf) -> list[Mask]:
        """Return the mask of each of a file's row groups."""
        manifest, path = self._manifest, self._manifest.files[file]
        first, end = np.searchsorted(manifest.row_group_file, [file, file + 1]).tolist()
        numbers = range(first, end)
        in_file = manifest.row_group_in_file[first:end].tolist()
        masks = [np.zeros(count, bool) for count in manifest.row_group_num_rows[first:end].tolist()]
        try:
            opened = _OpenFile(self._fragments, file, self._fields)
            kept = set(in_file)
            if self._pruning is not None:
                kept = self._pruning.kept(opened.of_pruning, in_file)
            read = [number for number in numbers if in_file[number - first] in kept]
            for number, values in self._read(opened, read):
                masks[number - first] = mask_of(number, values)
        except pa.ArrowInvalid as error:
            raise ValueError(f"where cannot be evaluated in {path!r}: {one_line(error)}") from error
        except (pa.ArrowException, OSError) as error:
            raise unreadable(error, path, f"cannot read {path!r}: {one_line(error)}") from error
        return masks

    def _read(self, opened: _OpenFile, numbers: list[int]) -> Iterator[tuple[int, Values]]:
        """Yield the values of row groups, of which only those of one are held at a time."""
        if not numbers:
            return
        manifest = self._manifest
        in_file = manifest.row_group_in_file[numbers].tolist()
        rows = _Rows(opened.batches(in_file, self._schema, self._expressions), self._found)
        for number in numbers:
            if self._stopped.is_set():
                return
            yield number, rows.take(int(manifest.row_group_num_rows[number]))
        rows.check_end()


class _OpenFile:
    """A file, by the names that its table has for the columns of interest."""

    def __init__(self, fragments: Fragments, file: int, fields: pa.Schema) -> None:
        stored = fragments.stored_names(file)
        renamed = flat_renames(fields, stored, fragments.stored_schema(file))
        self._fields = fields
        self._renames = {name: stored[name] for name in renamed}
        self._known = fragments.known(file)
        self._fragment = fragments.fragment(file, {} if renamed else self._known)
        self.of_pruning = PrunedFile(file, self._fragment, self._renames, self._known)

    def batches(
        self, row_groups: list[int], schema: pa.Schema, expressions: Mapping[str, pc.Expression]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the values of expressions, which fit the schema, in order."""
        if self._renames:
            part = self._fragment.subset(row_group_ids=row_groups)
            yield from batches_of_renamed(
                part, self._fields, self._renames, self._known, expressions
            )
        else:
            part = self._fragment.subset(row_group_ids=row_groups, schema=schema)
            yield from part.scanner(schema=schema, columns=dict(expressions)).to_batches()


class _Rows:
    """The rows of record batches, taken some at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._schema = schema
        self._rest: pa.RecordBatch | None = None

    def _has_rest(self) -> bool:
        while self._rest is None or len(self._rest) == 0:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return False
        return True

    def take(self, num_rows: int) -> Values:
        """Return the columns of the next rows."""
        parts = []
        while num_rows > 0:
            if not self._has_rest():
                raise OSError(f"{num_rows} rows are missing that the footer counts")
            assert self._rest is not None  # noqa: S101
            parts.append(self._rest.slice(0, num_rows))
            self._rest = self._rest.slice(len(parts[-1]))
            num_rows -= len(parts[-1])
        return {
            field.name: pa.chunked_array([part.column(at) for part in parts], field.type)
            for at, field in enumerate(self._schema)
        }

    def check_end(self) -> None:
        """Raise OSError if rows are left."""
        if self._has_rest():
            raise OSError("there are more rows than the footer counts")
