"""Run by torchrun: a loop with Accelerate that gathers what each rank evaluates."""

from __future__ import annotations

import sys
from typing import Any

from accelerate import Accelerator

from tests.frameworks.jobs.recorded import NUM_ROWS, dataset_of
from torchparquet._impl.reading.interpreter_exit import end_rank
from torchparquet.frameworks.accelerate import ParquetLoader


def main() -> None:
    accelerator = Accelerator(cpu=True)
    options: dict[str, Any] = {"shuffle": False, "shuffle_window": None}
    for dataset in (
        dataset_of(sys.argv[1], even="pad", **options),
        dataset_of(sys.argv[1], even="split", **options).marking_repeats(),
    ):
        loader = accelerator.prepare(ParquetLoader(dataset))
        found = []
        for batch in loader:
            ids, valid = accelerator.gather_for_metrics((batch["row.id"], batch["row.valid"]))
            found += ids[valid].tolist()
        assert sorted(found) == list(range(NUM_ROWS)), (len(found), len(set(found)))


if __name__ == "__main__":
    main()
    end_rank()
