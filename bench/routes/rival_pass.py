"""A rival's side: a pass for each line that comes in, by an interpreter that has it.

    python -m routes.rival_pass NAME FILE BATCH_SIZE NUM_THREADS FOLDER MOST_SECONDS

A pass ends after MOST_SECONDS, with the rows that it has delivered until then. Its start counts.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def _limited(batches: Iterable[object], most_seconds: float) -> Iterator[object]:
    end = time.perf_counter() + most_seconds
    for batch in batches:
        yield batch
        if time.perf_counter() > end:
            return


def main() -> None:
    """Prepares, and answers lines with passes."""
    name, path, batch_size, num_threads, folder, most_seconds = sys.argv[1:]
    for variable in ("POLARS_MAX_THREADS", "LANCE_CPU_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = num_threads
    # Nothing is to be looked for elsewhere, and nothing reported.
    for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ[variable] = "1"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)

    import pyarrow as pa
    import torch

    from passes.consumption import PassTotals, consume
    from passes.sides import answer_lines
    from routes.rival_routes import RIVALS, Work

    pa.set_cpu_count(int(num_threads))
    torch.set_num_threads(int(num_threads))
    rival = next(rival for rival in RIVALS if rival.name == name)
    work = Work(Path(path), int(batch_size), int(num_threads), Path(folder))
    consume([])  # compiles

    def make() -> Callable[[], PassTotals]:
        batches = rival.prepare(work)
        return lambda: consume(_limited(batches(), float(most_seconds)))

    answer_lines(make)


if __name__ == "__main__":
    main()
