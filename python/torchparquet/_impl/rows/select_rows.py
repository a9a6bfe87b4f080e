"""The rows that `filters=`, `rows=` and `split=` leave together."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.files.cache_file import Codec, found_by_pass
from torchparquet._impl.files.manifest import RowSelection
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.rows.evaluation import FILTERS, Mask, Values, evaluate
from torchparquet._impl.rows.filters import FiltersArgument, equalities_of, filters_expression
from torchparquet._impl.rows.row_numbers import ChosenRows, Deletions, RowsArgument
from torchparquet._impl.rows.splits import (
    SplitArgument,
    bounds_of,
    rows_of_split,
    split_of,
    values_of_split,
)
from torchparquet.options import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.native import Footers

_SPLIT = "split"


@dataclass(frozen=True)
class RowArguments:
    """The arguments of `ParquetDataset` that select rows. All of them must hold for a row."""

    filters: FiltersArgument = None
    rows: RowsArgument = None
    split: SplitArgument = None
    # By number of the file, a mask of the rows that a table has not deleted.
    left: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if every row counts."""
        return self.filters is None and self.rows is None and self.split is None and not self.left


def select_rows(
    manifest: Manifest,
    arguments: RowArguments,
    keys: FileKeys | None = None,
    storage: StorageArguments = NO_STORAGE,
    footers: Footers | None = None,
) -> Manifest:
    """Return the manifest of the rows that the arguments leave."""
    if arguments.is_empty:
        return manifest
    conditions = _Conditions(manifest, arguments, keys, footers)
    if conditions.reads:
        selection = found_by_pass(
            Codec("rows", vars, partial(_selection, manifest)),
            [conditions.digest()],
            conditions.find,
            manifest=manifest,
            storage=storage,
            keys=None,
        )
    else:
        selection = conditions.find()
    if not selection.num_rows.any():
        raise ValueError(
            f"no row of {int(manifest.row_group_num_rows.sum())} is left by {conditions.names}"
        )
    return manifest if selection.is_all else manifest.select(selection)


class _Conditions:
    """The conditions that must hold for a row to be read."""

    def __init__(
        self,
        manifest: Manifest,
        arguments: RowArguments,
        keys: FileKeys | None,
        footers: Footers | None,
    ) -> None:
        self._manifest = manifest
        self._keys = keys
        self._footers = footers
        self._split = split_of(arguments.split)
        filters = arguments.filters
        self._filters = None if filters is None else filters_expression(filters)
        self._needed = equalities_of(filters)
        self._chosen = None if arguments.rows is None else ChosenRows(arguments.rows, manifest)
        self._left = Deletions(arguments.left, manifest) if arguments.left else None
        given = {
            "filters": self._filters,
            "rows": self._chosen,
            "split": self._split,
            "the table's deletions": self._left,
        }
        self.names = " and ".join(name for name, value in given.items() if value is not None)
        by = None if self._split is None else self._split.by
        self._read = {} if self._filters is None else {FILTERS: self._filters}
        if by is not None:
            import pyarrow.compute as pc

            self._read[_SPLIT] = pc.field(by)

    @property
    def reads(self) -> bool:
        return bool(self._read)

    def digest(self) -> str:
        """Return a text that differs for other conditions."""
        digest = hashlib.blake2b(digest_size=16)
        split = self._split
        for part in (
            # An expression as text may leave out the middle of a list.
            pickle.dumps(self._filters, protocol=4),
            b"" if self._chosen is None else self._chosen.numbers.astype("<i8").tobytes(),
            b"" if self._left is None else self._left.numbers.astype("<i8").tobytes(),
            json.dumps(
                None if split is None else [*bounds_of(split), split.seed, split.by]
            ).encode(),
        ):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.hexdigest()

    def find(self) -> RowSelection:
        """Return the rows for which all conditions hold."""
        manifest = self._manifest
        if not self.reads:
            masks = (self._mask(number, {}) for number in range(manifest.num_row_groups))
            return RowSelection.of_masks(masks)
        return RowSelection.of_masks(
            evaluate(manifest, self._read, self._keys, self._mask, self._footers, self._needed)
        )

    def _mask(self, number: int, values: Values) -> Mask:
        """Return the rows of a row group for which all conditions hold."""
        begin = int(self._manifest.row_group_first_row[number])
        num_rows = int(self._manifest.row_group_num_rows[number])
        mask = np.ones(num_rows, bool)
        for part in self._parts(begin, num_rows, values):
            mask &= part
        return mask

    def _parts(self, begin: int, num_rows: int, values: Values) -> Iterator[Mask]:
        if FILTERS in values:
            yield _as_mask(values[FILTERS])
        if self._chosen is not None:
            yield self._chosen.mask(begin, num_rows)
        if self._left is not None:
            yield self._left.mask(begin, num_rows)
        split: Split | None = self._split
        if split is not None:
            by = values.get(_SPLIT)
            yield (
                rows_of_split(split, begin, num_rows) if by is None else values_of_split(split, by)
            )


def _as_mask(values: pa.ChunkedArray) -> Mask:
    """Return where a condition is true. A condition that is null is not."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), bool)
    mask: Mask = values.fill_null(False).to_numpy()
    return mask


def _selection(manifest: Manifest, parts: dict[str, Any]) -> RowSelection:
    selection = RowSelection(**parts)
    if (
        len(selection.num_rows) != manifest.num_row_groups
        or (selection.num_rows > manifest.row_group_num_rows).any()
    ):
        raise ValueError("its parts do not belong together")
    return selection
