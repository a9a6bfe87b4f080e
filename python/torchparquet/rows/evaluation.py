"""Values of expressions for every row of a data set. pyarrow's data set engine finds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from torchparquet.errors import CorruptFileError, EncryptedFileError, one_line
from torchparquet.processors import num_processors
from torchparquet.rows.fragments import Fragments

if TYPE_CHECKING:
    import pyarrow.compute as pc
    import pyarrow.dataset as pads

    from torchparquet.files.decryption import FileKeys
    from torchparquet.files.manifest import Manifest

Values: TypeAlias = "pa.ChunkedArray"
# By name, for the rows of one row group; None if statistics rule the row group out.
RowGroupValues: TypeAlias = "dict[str, Values] | None"

_MAX_FILES_AT_ONCE = 8


def evaluate(
    manifest: Manifest,
    expressions: Mapping[str, pc.Expression],
    condition: pc.Expression | None,
    keys: FileKeys | None = None,
) -> Iterator[RowGroupValues]:
    """Yield the values of expressions for each row group, in order.

    Reads the columns that the expressions name, and nothing of a row group that has no row for
    which `condition` is true, as far as its statistics and partition keys tell.

    Args:
        manifest: The files, without a selection of rows.
        expressions: By a name for their values.
        condition: What must be true of a row; None if every row counts.
        keys: Keys of encrypted files.

    Raises:
        CorruptFileError: A file cannot be read.
        EncryptedFileError: A file has encrypted columns without a key.
        ValueError: An expression names an unknown column, or does not fit the columns.
    """
    for file in np.flatnonzero(manifest.file_has_hidden_columns)[:1]:
        raise EncryptedFileError(
            f"rows are selected with a key for every encrypted column: {manifest.files[file]!r}"
        )
    files = _Files(manifest, expressions, condition, keys)
    numbers = np.unique(manifest.row_group_file).tolist()
    with ThreadPoolExecutor(min(num_processors(), _MAX_FILES_AT_ONCE)) as pool:
        waiting: deque[Future[list[RowGroupValues]]] = deque()
        for file in numbers:
            waiting.append(pool.submit(files.values, file))
            if len(waiting) > _MAX_FILES_AT_ONCE:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


class _Files:
    """The files of a manifest, of which any thread may read."""

    def __init__(
        self,
        manifest: Manifest,
        expressions: Mapping[str, pc.Expression],
        condition: pc.Expression | None,
        keys: FileKeys | None,
    ) -> None:
        """Find the schema, and check the expressions against it."""
        self._manifest = manifest
        self._fragments = Fragments(manifest, keys)
        self._expressions = dict(expressions)
        self._condition = condition
        self._schema = self._fragments.schema()
        self._check()

    def _check(self) -> None:
        import pyarrow.dataset as pads

        empty = pads.dataset(self._schema.empty_table())
        try:
            found = empty.scanner(columns=self._expressions).to_table()
            if self._condition is not None:
                wanted = empty.scanner(columns={"": self._condition}).to_table()[""].type
                if wanted not in (pa.bool_(), pa.null()):
                    raise ValueError(f"where is no condition, its values are {wanted}")
        except (pa.ArrowException, KeyError) as error:
            raise ValueError(f"where does not fit the columns: {one_line(error)}") from error
        del found

    def values(self, file: int) -> list[RowGroupValues]:
        """Return the values for each of a file's row groups."""
        manifest, path = self._manifest, self._manifest.files[file]
        first, end = np.searchsorted(manifest.row_group_file, [file, file + 1]).tolist()
        ids = manifest.row_group_in_file[first:end].tolist()
        counts = manifest.row_group_num_rows[first:end].tolist()
        try:
            fragment = self._fragments.fragment(file)
            kept = self._kept(fragment, ids)
            read = [(number, n) for number, n in zip(ids, counts, strict=True) if number in kept]
            tables = dict(self._read(fragment, read)) if read else {}
        except pa.ArrowInvalid as error:
            raise ValueError(f"where cannot be evaluated in {path!r}: {one_line(error)}") from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptFileError(f"cannot read {path!r}: {one_line(error)}") from error
        return [tables.get(number) for number in ids]

    def _kept(self, fragment: pads.ParquetFileFragment, ids: list[int]) -> set[int]:
        if self._condition is None:
            return set(ids)
        left = fragment.subset(self._condition, schema=self._schema)
        return {row_group.id for row_group in left.row_groups}

    def _read(
        self, fragment: pads.ParquetFileFragment, read: list[tuple[int, int]]
    ) -> Iterator[tuple[int, dict[str, Values]]]:
        part = fragment.subset(row_group_ids=[number for number, _ in read], schema=self._schema)
        scanner = part.scanner(schema=self._schema, columns=self._expressions)
        table = pa.Table.from_batches(scanner.to_batches(), scanner.projected_schema)
        if table.num_rows != sum(count for _, count in read):
            raise OSError(f"{table.num_rows} rows were read, the footer has another number")
        begin = 0
        for number, count in read:
            rows = table.slice(begin, count)
            yield number, {name: rows[name] for name in self._expressions}
            begin += count
