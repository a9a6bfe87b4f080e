"""The rows that `filters=`, `rows=` and `split=` leave together."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet._impl.files.cache_file import Codec, Pass, found_by_pass
from torchparquet._impl.files.manifest import RowSelection
from torchparquet._impl.files.remote.storage import NO_STORAGE, StorageArguments
from torchparquet._impl.rows.early_rows import EarlyRows
from torchparquet._impl.rows.evaluation import (
    FILTERS,
    Evaluation,
    Mask,
    Values,
    fulfilled,
)
from torchparquet._impl.rows.filters import FiltersArgument, content_of, filters_expression
from torchparquet._impl.rows.row_numbers import RowsArgument, chosen_rows, deleted_rows
from torchparquet._impl.rows.splits import (
    SplitArgument,
    bounds_of,
    rows_of_split,
    split_of,
    values_of_split,
)
from torchparquet.options import Split

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from numpy.typing import NDArray

    from torchparquet._impl.files.footers.decryption import FileKeys
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.files.manifest_reading import HeldFooters

_SPLIT = "split"


@dataclass(frozen=True)
class RowArguments:
    """The arguments of `ParquetDataset` that select rows. All of them must hold for a row."""

    filters: FiltersArgument = None
    rows: RowsArgument = None
    split: SplitArgument = None
    # By number of the file, a mask of the rows that a table has not deleted.
    left: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    # A file of exclusions.
    excluding: str | os.PathLike[str] | None = None

    @property
    def is_empty(self) -> bool:
        """True if every row counts that is not excluded."""
        return self.filters is None and self.has_filters_only

    @property
    def has_filters_only(self) -> bool:
        """True if nothing but `filters` selects rows."""
        return self.rows is None and self.split is None and not self.left

    def early(self) -> EarlyRows | None:
        """Return what finds the rows of files while others are opened, if they alone tell."""
        if self.filters is None or not self.has_filters_only:
            return None
        return EarlyRows(filters_expression(self.filters))


def select_rows(
    manifest: Manifest,
    arguments: RowArguments,
    keys: FileKeys | None = None,
    storage: StorageArguments = NO_STORAGE,
    footers: HeldFooters | None = None,
    early: EarlyRows | None = None,
) -> Manifest:
    """Return the manifest of the rows that the arguments leave; `early` is theirs."""
    if arguments.is_empty:
        return manifest
    conditions, expressions = _conditions(manifest, arguments)

    def mask_of(part: Manifest, number: int, values: Values) -> Mask:
        begin = int(part.row_group_first_row[number])
        mask = np.ones(int(part.row_group_num_rows[number]), bool)
        for condition in conditions:
            mask &= condition.mask(begin, len(mask), values)
        return mask

    if expressions:

        def find(row_groups: slice) -> RowSelection:
            if row_groups.start == row_groups.stop:
                return RowSelection.of_masks([])
            part = manifest.between(row_groups)
            evaluation = Evaluation(part, expressions, keys, footers, early)
            return RowSelection.joined([*evaluation.selections(partial(mask_of, part))])

        def codec(row_groups: slice) -> Codec[RowSelection]:
            return Codec(_arrays, partial(_selection, manifest.row_group_num_rows[row_groups]))

        def is_begun(row_groups: slice) -> bool:
            files = np.unique(manifest.row_group_file[row_groups]).tolist()
            return early is not None and all(map(early.of, files))

        selection = found_by_pass(
            Pass(
                [_digest(conditions)],
                codec,
                find,
                RowSelection.joined,
                is_begun=is_begun if early is not None and early.is_divided else None,
            ),
            "rows",
            manifest=manifest,
            storage=storage,
            keys=None,
        )
    else:
        numbers = range(manifest.num_row_groups)
        selection = RowSelection.of_masks(mask_of(manifest, at, {}) for at in numbers)
    if not selection.num_rows.any():
        raise ValueError(
            f"no row of {int(manifest.row_group_num_rows.sum())} is left by "
            f"{' and '.join(condition.name for condition in conditions)}"
        )
    return manifest if selection.is_all else manifest.select(selection)


@dataclass(frozen=True)
class _Condition:
    """A condition that must hold for a row to be read."""

    name: str
    content: bytes  # differs for other conditions of that name
    # From the number of the first row, how many there are, and their values if any were read.
    mask: Callable[[int, int, Values], Mask]


def _conditions(
    manifest: Manifest, arguments: RowArguments
) -> tuple[list[_Condition], dict[str, pc.Expression]]:
    """Return the conditions, and the expressions whose values some of them need."""
    import pyarrow.compute as pc

    found: list[_Condition] = []
    expressions: dict[str, pc.Expression] = {}
    if arguments.filters is not None:
        expressions[FILTERS] = filters_expression(arguments.filters)
        content = content_of(expressions[FILTERS])
        found.append(_Condition(FILTERS, content, lambda _, rows, of: fulfilled(rows, of)))
    if arguments.rows is not None:
        chosen = chosen_rows(arguments.rows, manifest)
        found.append(_Condition("rows", chosen.astype("<i8").tobytes(), partial(_marked, chosen)))
    split = split_of(arguments.split)
    if split is not None:
        if split.by is not None:
            expressions[_SPLIT] = pc.field(split.by)
        content = json.dumps([*bounds_of(split), split.seed, split.by]).encode()
        found.append(_Condition("split", content, partial(_of_split, split)))
    if arguments.left:
        deleted = deleted_rows(arguments.left, manifest)
        found.append(
            _Condition(
                "the table's deletions",
                deleted.astype("<i8").tobytes(),
                lambda begin, count, values: ~_marked(deleted, begin, count, values),
            )
        )
    return found, expressions


def _digest(conditions: Sequence[_Condition]) -> str:
    """Return a text that differs for other conditions."""
    digest = hashlib.blake2b(digest_size=16)
    for condition in conditions:
        for part in (condition.name.encode(), condition.content):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def _marked(numbers: NDArray[np.int64], begin: int, num_rows: int, _values: Values) -> Mask:
    """Return which of the rows from global number `begin` on are among the numbers, in order."""
    first, end = np.searchsorted(numbers, [begin, begin + num_rows])
    mask = np.zeros(num_rows, bool)
    mask[numbers[first:end] - begin] = True
    return mask


def _of_split(split: Split, begin: int, num_rows: int, values: Values) -> Mask:
    by = values.get(_SPLIT)
    return rows_of_split(split, begin, num_rows) if by is None else values_of_split(split, by)


def _arrays(selection: RowSelection) -> dict[str, Any]:
    return {of.name: getattr(selection, of.name) for of in fields(selection)}


def _selection(most_rows: NDArray[np.int64], parts: dict[str, Any]) -> RowSelection:
    selection = RowSelection(**parts)
    num_rows = selection.num_rows
    if len(num_rows) != len(most_rows) or (num_rows > most_rows).any():
        raise ValueError("its parts do not belong together")
    return selection
