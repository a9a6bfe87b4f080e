"""One pass over the rows of a data set, whose batches threads reduce to figures of columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

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
)
from torchparquet.jagged import Jagged

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.batches.tensors import Batch

_MOST_ROWS = 2**17  # of a batch
_BATCHES_IN_MEMORY = 8
_MOST_THREADS = 4


def summarize(
    rows: StreamOpener,
    *,
    words: Sequence[str],
    max_words: int,
    sample: int,
    advance: Callable[[int], None] = lambda _: None,
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
    plan = EpochPlan(rows.manifest.row_group_num_rows, plan_options)
    opener = StreamOpener(rows.manifest, tuple(fields.values()), options, keys=rows.keys)
    num_threads = min(_MOST_THREADS, options.threads_per_worker(1))
    pending: deque[Future[list[list[Any]]]] = deque()

    def merge() -> None:
        for column, found in zip(columns, pending.popleft().result(), strict=True):
            for summary, figures in zip(column.summaries, found, strict=True):
                summary.add(figures)

    with ThreadPoolExecutor(num_threads) as pool, closing(opener.read_once(plan)) as batches:
        for batch in batches:
            priorities = cache(priorities_of)  # which columns of as many values share
            values = [column.values_of(batch, priorities) for column in columns]
            pending.append(pool.submit(_reduced, columns, values))
            if len(pending) > num_threads:
                merge()
            advance(len(batch[columns[0].field.name]))
        while pending:
            merge()
        figures = pool.map(_Column.figures, columns)
        return dict(zip(fields, figures, strict=True))


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
        self._num_taken = 0
        self.summaries: list[Summary] = [Counts()]
        self.summaries += [] if field.has_strings else [Numbers(sample)]
        self.summaries += [Words(max_words)] if has_words else []
        self.summaries += [Lengths()] if field.num_offsets and not field.shape else []

    def values_of(self, batch: Batch, priorities: Callable[[int, int], Priorities]) -> Values:
        """Return the values of the next batch, without a copy."""
        value, masks = batch[self.field.name], self.field.mask_names
        valid: NDArray[np.bool_] = batch[masks[-1]].reshape(-1).numpy()
        lists = None
        if isinstance(value, Jagged):
            lists = value.offsets.numpy(), batch[masks[0]].numpy()
        if self.field.has_strings:
            values = strings_in(value, valid)
        else:
            while isinstance(value, Jagged):
                value = value.values
            # NumPy has no bfloat16, and reads bools as no numbers.
            like = {torch.bfloat16: torch.float32, torch.bool: torch.uint8}.get(value.dtype)
            values = (value if like is None else value.to(like)).reshape(-1).numpy()
            if len(valid) != len(values):  # a value of several items has one mark
                valid = np.repeat(valid, len(values) // len(valid))
        first = self._num_taken
        self._num_taken += len(valid)
        return Values(values, valid, partial(priorities, first, len(valid)), lists)

    def figures(self) -> dict[str, Any]:
        """Return the figures of all values."""
        return {name: figure for of in self.summaries for name, figure in of.figures().items()}


def _reduced(columns: Sequence[_Column], values: Sequence[Values]) -> list[list[Any]]:
    """Return the partial figures of each column."""
    pairs = zip(columns, values, strict=True)
    return [[of.reduced(given) for of in column.summaries] for column, given in pairs]
