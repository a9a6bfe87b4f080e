"""Peak memory over the baseline, against `max_memory`, and over many epochs."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path

from generated.generated_files import click_logs
from report.verdicts import Outcome, Row, Setting, Target, Verdict

EPOCHS = 50
# The part of max_memory that may be added after the first fifth of the epochs.
GROWTH = 0.01
_MEMORY = Path(__file__).resolve().parents[1] / "memory.py"
_MIB = 1 << 20


def measure(setting: Setting) -> Outcome:
    """Each case in a fresh process: file order, and windows of 8 row groups."""
    epochs = 10 if setting.quick else EPOCHS
    limits = (256,) if setting.quick else (256, 1024)
    outcome = Outcome()
    paths = click_logs(setting, ("zstd",) if setting.quick else ("none", "zstd"))
    for (codec, path), limit, shuffle in product(paths.items(), limits, (False, True)):
        command = [sys.executable, str(_MEMORY), str(path), "--max-memory", f"{limit}MiB"]
        command += ["--batch-size", str(setting.batch_size), "--epochs", str(epochs)]
        command += ["--num-threads", str(setting.num_threads), *["--shuffle"] * shuffle]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout)
        case = f"{codec}, {'windows' if shuffle else 'file order'}, max_memory {limit} MiB"
        over = (found["peak_bytes"] - found["baseline_bytes"]) / _MIB
        bound = Target(limit, " MiB", at_most=True)
        flat = Target(round(GROWTH * limit, 1), " MiB", at_most=True)
        outcome.verdicts.append(
            Verdict(f"{case}: peak", f"{over:.0f} MiB", "max_memory", over, None, bound, " MiB")
        )
        fifth = epochs // 5
        ends = found["epoch_bytes"]
        growth = {
            f"growth of the peak, epoch {fifth} to {epochs}": (
                found["epoch_peak_bytes"][-1] - found["epoch_peak_bytes"][fifth - 1]
            ),
            # Medians: the end of an epoch finds now more, now fewer column readers' buffers.
            f"growth at the ends of epochs, from the second {fifth} to the last": (
                statistics.median(ends[-fifth:]) - statistics.median(ends[fifth : 2 * fifth])
            ),
        }
        for name, num_bytes in growth.items():
            outcome.verdicts.append(
                Verdict(
                    f"{case}: {name}",
                    f"{num_bytes / _MIB:.1f} MiB",
                    "1 % of max_memory",
                    num_bytes / _MIB,
                    None,
                    flat,
                    " MiB",
                )
            )
    return outcome


ROWS = (
    Row("memory", "click log, peak memory over the baseline", "max_memory, 50 epochs", measure),
)
