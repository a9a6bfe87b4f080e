"""JollyJack's side: a pass for each line that comes in, by an interpreter that has it and torch.

    PYTHONPATH=bench python -m routes.jollyjack_pass FILE NUM_THREADS ROUTE

All columns of a row group are read into one reused array, which the consumer then reads; by
"prefetch" and "one per thread" into one of several, while others are filled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any

import jollyjack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from passes.consumption import consume
from passes.sides import Work, answer_lines

Batch = dict[str, torch.Tensor]
# Arrays, threads that fill them, and whether JollyJack uses threads for each.
ROUTES = {"one array": (1, 1, True), "prefetch": (2, 1, True), "one per thread": (3, 2, False)}


class Arrays:
    """Reused memory of whole row groups, [rows, columns] each, one column after the other."""

    def __init__(self, path: str, route: str) -> None:
        """Reads the footer of ``path``."""
        self._path = path
        self._footer = pq.read_metadata(path)
        self.num_arrays, self.num_threads, self._use_threads = ROUTES[route]
        physical = self._footer.schema.column(0).physical_type
        dtype = {"FLOAT": np.float32, "DOUBLE": np.float64}[physical]
        self.rows = [self._footer.row_group(i).num_rows for i in range(self._footer.num_row_groups)]
        self._names = self._footer.schema.names
        shape = (max(self.rows), len(self._names))
        self._arrays = [np.zeros(shape, dtype, order="F") for _ in range(self.num_arrays)]

    def read(self, index: Any) -> Batch:
        """Reads row group ``index`` into the array whose turn it is."""
        values = self._arrays[index % self.num_arrays][: self.rows[index]]
        jollyjack.read_into_numpy(
            source=self._path,
            metadata=self._footer,
            np_array=values,
            row_group_indices=[index],
            column_indices=range(len(self._names)),
            pre_buffer=False,
            use_threads=self._use_threads,
        )
        return {name: torch.from_numpy(values[:, i]) for i, name in enumerate(self._names)}

    def batches(self) -> Iterator[Batch]:
        """Yields all row groups; each is overwritten once another has been asked for."""
        indices = iter(range(len(self.rows)))
        if self.num_arrays == 1:
            yield from map(self.read, indices)
            return
        with ThreadPoolExecutor(self.num_threads) as threads:
            pending = [
                threads.submit(self.read, index) for index in islice(indices, self.num_arrays - 1)
            ]
            for index in chain(indices, [None] * len(pending)):
                batch = pending.pop(0).result()
                if index is not None:
                    pending.append(threads.submit(self.read, index))
                yield batch


def make_pass(path: str, num_threads: int, route: str) -> Work:
    """Returns one pass over ``path``."""
    pa.set_cpu_count(num_threads)
    torch.set_num_threads(num_threads)
    arrays = Arrays(path, route)
    return lambda: consume(arrays.batches())


if __name__ == "__main__":
    answer_lines(lambda: make_pass(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
