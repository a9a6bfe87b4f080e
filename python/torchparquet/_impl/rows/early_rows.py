"""Rows of a condition in the first files, found while footers of the next ones are read.

footers of some files ──► their columns, in the background ──┐
footers of the next files ──► ...                            ├──► rows of all files
│
all footers ──► the schema; where it differs: once more ─────┘
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from torchparquet._impl.rows.evaluation import FILTERS, Evaluation, Mask, Values, fulfilled
from torchparquet._impl.rows.filters import content_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from torchparquet._impl.files.manifest import Manifest, RowSelection
    from torchparquet._impl.files.manifest_reading import HeldFooters

# The columns of a condition, and the rows of each file by its number.
_Found: TypeAlias = "Future[tuple[pa.Schema, Mapping[int, RowSelection]]]"

# While columns of one come, footers of the next do.
_PARTS_AT_ONCE = 3


class EarlyRows:
    """The rows that a condition leaves of files, found as soon as their footers are there."""

    def __init__(self, filters: pc.Expression) -> None:
        """Begin nothing yet."""
        self._filters = filters
        self.told = hashlib.blake2b(content_of(filters), digest_size=16).hexdigest()
        # True if ranks have begun with all files, each with some.
        self.is_divided = False
        self._pool = ThreadPoolExecutor(_PARTS_AT_ONCE)
        self._under_way: deque[_Found] = deque()
        self._begun: list[tuple[int, int, _Found]] = []  # first file, end, in order of files
        self._evaluations: list[Evaluation] = []
        self._is_closed = False

    def divide(self) -> None:
        """Know that ranks divide the files."""
        self.is_divided = True

    def begin(self, first: int, part: Manifest, footers: HeldFooters) -> None:
        """Begin with files, of which `first` is the number of the first one.

        Waits if too many are under way: then other ranks do more.
        """
        if len(self._under_way) >= _PARTS_AT_ONCE:
            self._under_way.popleft().exception()
        found = self._pool.submit(self._find, first, part, footers)
        self._under_way.append(found)
        insort(self._begun, (first, first + len(part.files), found), key=itemgetter(0))

    def _find(
        self, first: int, part: Manifest, footers: HeldFooters
    ) -> tuple[pa.Schema, Mapping[int, RowSelection]]:
        def mask_of(number: int, values: Values) -> Mask:
            return fulfilled(int(part.row_group_num_rows[number]), values)

        evaluation = Evaluation(part, {FILTERS: self._filters}, None, footers)
        self._evaluations.append(evaluation)
        if self._is_closed:
            evaluation.stop()
        numbers = [first + number for number in evaluation.numbers]
        found = dict(zip(numbers, evaluation.selections(mask_of), strict=True))
        return evaluation.fields, found

    def of(self, file: int) -> _Found | None:
        """Return the rows of some files, of which this is one, as they will be found."""
        at = bisect_right(self._begun, file, key=itemgetter(0)) - 1
        return self._begun[at][2] if at >= 0 and file < self._begun[at][1] else None

    def close(self) -> None:
        """End what is under way."""
        self._is_closed = True
        for evaluation in self._evaluations:
            evaluation.stop()
        self._pool.shutdown(cancel_futures=True)
