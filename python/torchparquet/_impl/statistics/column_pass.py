"""One pass over the rows of a data set, whose batches threads reduce to figures of columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from torchparquet._impl.checks import close_names
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import PlanOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.reading.window_limits import WindowMemory
from torchparquet._impl.reading.word_pass import strings_in
from torchparquet._impl.statistics.summaries import (
    Counts,
    Lengths,
    Numbers,
    Priorities,
    Summary,
    Values,
    Words,
    priorities_of,
    priorities_of_items,
)
from torchparquet.jagged import Jagged

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.tensors import Batch

_MOST_ROWS = 2**17  # of a batch
_BATCHES_IN_MEMORY = 8
_MOST_THREADS = 4
_BATCHES_OF_TASK = 16


class Machines(Protocol):
    """Machines that work for this one, such as those of Ray."""

    def put(self, value: Any) -> Any:
        """Return what stands for a value among the arguments of tasks."""

    def each(
        self,
        function: Callable[..., Any],
        given: Iterable[Sequence[Any]],
        sizes: Sequence[int],
        advance: Callable[[int], None],
    ) -> Iterator[Any]:
        """Yield what a function makes of each argument in order; take arguments as tasks begin."""


def summarize(
    rows: StreamOpener,
    *,
    words: Sequence[str],
    max_words: int,
    sample: int,
    advance: Callable[[int], None] = lambda _: None,
    machines: Machines | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the figures of each column of a data set, by the attributes of `ColumnStatistics`."""
    fields = _single_columns(rows.fields)
    for name in words:
        _check_words(name, fields)
    columns = [
        _Column(field, sample, max_words, has_words=field.has_strings or name in words)
        for name, field in fields.items()
    ]
    options = replace(rows.options, pin_memory=False)
    memory = options.memory_per_worker(1)
    row_bytes = WindowMemory([*fields.values()], _MOST_ROWS, memory).bytes_per_row
    fitting = int(memory / _BATCHES_IN_MEMORY / max(row_bytes, 1.0))
    plan_options = PlanOptions(batch_size=max(1, min(_MOST_ROWS, fitting)))
    opener = StreamOpener(rows.manifest, tuple(fields.values()), options, keys=rows.keys)
    column_pass = _ColumnPass(opener, plan_options)
    if machines is None:
        found = column_pass.partials(columns, advance=advance)
    else:
        found = column_pass.partials_of(machines, columns, advance)
    for of_batch in found:
        for column, partials in zip(columns, of_batch, strict=True):
            for summary, partial_figures in zip(column.summaries, partials, strict=True):
                summary.add(partial_figures)
    with ThreadPoolExecutor(column_pass.num_threads) as pool:
        return dict(zip(fields, pool.map(_Column.figures, columns), strict=True))


@dataclass(frozen=True)
class _ColumnPass:
    """The batches of a pass, which are the same ones on any number of machines."""

    opener: StreamOpener
    plan_options: PlanOptions

    @property
    def num_threads(self) -> int:
        """The threads that reduce batches."""
        return min(_MOST_THREADS, self.opener.options.threads_per_worker(1))

    def _plan(self) -> EpochPlan:
        return EpochPlan(self.opener.manifest.row_group_num_rows, self.plan_options)

    def partials(
        self,
        columns: Sequence[_Column],
        begin: int = 0,
        end: int | None = None,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Iterator[list[list[Any]]]:
        """Yield the partial figures of each column, batch after batch of `[begin, end)`."""
        pending: deque[Future[list[list[Any]]]] = deque()
        plan = self._plan()
        first_row = plan.share(0).rows_of_first(begin)
        with (
            ThreadPoolExecutor(self.num_threads) as pool,
            closing(self.opener.read_once(plan, begin, end)) as batches,
        ):
            for batch in batches:
                priorities = cache(partial(priorities_of, first_row))  # which columns share
                values = [column.values_of(batch, first_row, priorities) for column in columns]
                pending.append(pool.submit(_reduced, columns, values))
                if len(pending) > self.num_threads:
                    yield pending.popleft().result()
                num_rows = len(batch[columns[0].field.name])
                first_row += num_rows
                advance(num_rows)
            while pending:
                yield pending.popleft().result()

    def partials_of(
        self, machines: Machines, columns: Sequence[_Column], advance: Callable[[int], None]
    ) -> Iterator[list[list[Any]]]:
        """Yield what `partials` yields; tasks of machines read the batches."""
        share, this = self._plan().share(0), machines.put(self)
        borders = [*range(0, share.num_steps, _BATCHES_OF_TASK), share.num_steps]
        rows = np.diff([share.rows_of_first(step) for step in borders]).tolist()
        given = (
            (this, [column.emptied() for column in columns], begin, end)
            for begin, end in pairwise(borders)
        )
        for found in machines.each(_partials_of_task, given, rows, advance):
            yield from found


def _partials_of_task(
    column_pass: _ColumnPass, columns: Sequence[_Column], begin: int, end: int
) -> list[list[list[Any]]]:
    return list(column_pass.partials(columns, begin, end))


def _single_columns(fields: Sequence[Field]) -> dict[str, Field]:
    """Return each column of the fields by itself, with a mask for nulls; the same ones once."""
    found: dict[str, Field] = {}
    for field in fields:
        for at, source in enumerate(field.sources):
            one = _single(field, at, field.name if field.width is None else source)
            if one.identity != found.setdefault(one.name, one).identity:
                raise ValueError(
                    "the columns of a group are named by their sources, and two that are read in "
                    "different ways have one name; read one of them alone, by another name: "
                    f"{one.name!r}"
                )
    return found


def _single(field: Field, at: int, name: str) -> Field:
    """Return one column of a field."""
    is_list = field.num_offsets > 0 and not (field.keyed and field.scalars[at])
    default = field.default
    if field.keyed and not is_list and isinstance(default, tuple):
        if len(default) > 1:
            raise ValueError(
                "a column of single values cannot be counted where its default has several; give "
                f"the column by itself another one: {name!r} has default={list(default)}"
            )
        default = default[0] if default else None
    return replace(
        field,
        name=name,
        sources=field.sources[at : at + 1],
        kinds=field.kinds[at : at + 1],
        width=None,
        nulls="mask",
        fill=0,
        fills=(),
        default=default,
        missing_is_null=field.missing_is_null or (default is None and field.default is not None),
        file_values=field.file_values[at : at + 1],
        num_offsets=field.num_offsets if is_list else 0,
        has_lists=is_list if field.keyed else field.has_lists,
        row_bytes=field.row_bytes / len(field.sources) if is_list else 0.0,
        keyed=False,
        scalars=(),
        empty_nulls=(),
        weighs=None,
        transforms=field.transforms[at : at + 1],
        hashes_texts=field.hashes_texts[at : at + 1],
    )


def _check_words(name: str, fields: dict[str, Field]) -> None:
    if name not in fields:
        close = close_names(name, fields)
        meant = f"; did you mean {close[0]!r}" if close else ""
        raise ValueError(f"words must name columns of the data set{meant}: {name!r} is none")
    if "float" in fields[name].dtype:
        raise ValueError(f"words are strings or integers: {name!r} is {fields[name].dtype}")


class _Column:
    """One column, and its running figures."""

    def __init__(self, field: Field, sample: int, max_words: int, *, has_words: bool) -> None:
        """Begin without values."""
        self.field = field
        self.summaries: list[Summary] = [Counts()]
        self.summaries += [] if field.has_strings else [Numbers(sample)]
        self.summaries += [Words(max_words)] if has_words else []
        self.summaries += [Lengths()] if field.num_offsets and not field.shape else []

    def emptied(self) -> _Column:
        """Return the column without figures, which reduces a batch as this one does."""
        made = copy(self)
        made.summaries = [of.emptied() for of in self.summaries]
        return made

    def values_of(
        self, batch: Batch, first_row: int, priorities: Callable[[int], Priorities]
    ) -> Values:
        """Return the values of a batch, without a copy."""
        value, masks = batch[self.field.name], self.field.mask_names
        valid: NDArray[np.bool_] = batch[masks[-1]].reshape(-1).numpy()
        lists, ends = None, np.arange(len(value) + 1)  # of the rows, among all values
        if isinstance(value, Jagged):
            lists = value.offsets.numpy(), batch[masks[0]].numpy()
        if self.field.has_strings:
            values = strings_in(value, valid)
        else:
            while isinstance(value, Jagged):
                ends = value.offsets.numpy()[ends]
                value = value.values
            # NumPy has no bfloat16, and reads bools as no numbers.
            like = {torch.bfloat16: torch.float32, torch.bool: torch.uint8}.get(value.dtype)
            values = (value if like is None else value.to(like)).reshape(-1).numpy()
            if len(valid) != len(values):  # a value of several items has one mark
                valid = np.repeat(valid, len(values) // len(valid))

        def of_values() -> Priorities:
            of_rows = priorities(len(ends) - 1)
            if lists is None and len(values) == len(of_rows):
                return of_rows
            return priorities_of_items(of_rows, np.diff(ends) * (len(values) // max(1, ends[-1])))

        return Values(values, valid, of_values, lists)

    def figures(self) -> dict[str, Any]:
        """Return the figures of all values."""
        return {name: figure for of in self.summaries for name, figure in of.figures().items()}


def _reduced(columns: Sequence[_Column], values: Sequence[Values]) -> list[list[Any]]:
    """Return the partial figures of each column."""
    pairs = zip(columns, values, strict=True)
    return [[of.reduced(given) for of in column.summaries] for column, given in pairs]
