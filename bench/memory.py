"""Peak memory of epochs by torchparquet; to be run in a fresh process.

Prints a JSON object with ``baseline_bytes``, ``peak_bytes``, ``num_rows`` of an epoch, and
``epoch_peak_bytes`` and ``epoch_bytes``: the peak up to the end of each epoch, and what is resident
then.
"""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path

import torch

from passes.consumption import consume
from torchparquet import ParquetDataset

_RESET_PEAK = "5"


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no field {field}")


def main() -> None:
    """Runs the epochs; the baseline is the RSS after imports and opening the data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--num-threads", type=int, required=True)
    parser.add_argument("--max-memory", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--shuffle", action="store_true", help="rows within windows")
    arguments = parser.parse_args()
    dataset = ParquetDataset(
        arguments.path,
        batch_size=arguments.batch_size,
        num_threads=arguments.num_threads,
        max_memory=arguments.max_memory,
        shuffle=arguments.shuffle,
    )
    # The consumer's own code and buffers belong to the baseline.
    consume([{"column": torch.zeros(arguments.batch_size)}])
    # If the kernel refuses, the peak also covers imports: an over-estimate at worst.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    baseline_bytes = _status_bytes("VmRSS")
    epoch_peak_bytes, epoch_bytes = [], []
    for _ in range(arguments.epochs):
        totals = consume(dataset)
        # VmHWM, not ru_maxrss: the latter is inherited from the parent process.
        epoch_peak_bytes.append(_status_bytes("VmHWM"))
        epoch_bytes.append(_status_bytes("VmRSS"))
    print(
        json.dumps(
            {
                "baseline_bytes": baseline_bytes,
                "peak_bytes": epoch_peak_bytes[-1],
                "epoch_peak_bytes": epoch_peak_bytes,
                "epoch_bytes": epoch_bytes,
                "num_rows": totals.num_rows,
            }
        )
    )


if __name__ == "__main__":
    main()
