"""JollyJack's side of formats.py: a pass for each line that comes in, in an interpreter of its own.

python jollyjack_pass.py FILE NUM_THREADS
"""

from __future__ import annotations

import sys
import time

import jollyjack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main() -> None:
    """Answer each line with the seconds and the bytes of a pass."""
    path, num_threads = sys.argv[1], int(sys.argv[2])
    pa.set_cpu_count(num_threads)
    footer = pq.read_metadata(path)
    dtype = {"FLOAT": np.float32, "DOUBLE": np.float64}[footer.schema.column(0).physical_type]
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    out = np.zeros((max(rows), 1), dtype, order="F")
    for _ in sys.stdin:
        begin = time.perf_counter()
        for index, count in enumerate(rows):
            values = out[:count]
            jollyjack.read_into_numpy(
                source=path,
                metadata=footer,
                np_array=values,
                row_group_indices=[index],
                column_indices=[0],
                pre_buffer=False,
                use_threads=True,
            )
            words = values.reshape(-1).view(np.uint8)
            whole = len(words) // 8 * 8
            np.add.reduce(words[:whole].view(np.uint64))
        seconds = time.perf_counter() - begin
        print(seconds, sum(rows) * out.itemsize, flush=True)


if __name__ == "__main__":
    main()
