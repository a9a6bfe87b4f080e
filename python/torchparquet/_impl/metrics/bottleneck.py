"""Finds the slower side: the training loop, decoding, the source, or a bound on memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchparquet._impl.metrics.read_metrics import Metrics

# A loop that waits for a smaller part of its time gains little from faster data.
_SMALL_FRACTION = 0.1
# Codecs that no other one is much faster than.
_FAST_CODECS = ("uncompressed", "snappy", "lz4")


def describe(metrics: Metrics, processors: int, *, in_worker: bool) -> str:
    """Return one sentence: the slower side, the figures that show it, and one option to change."""
    if metrics.batches == 0:
        return "nothing is known yet: no batch was delivered"
    wait, elapsed = metrics.wait_seconds, metrics.elapsed_seconds
    if metrics.batches > 1:
        # No batch can be ready before the first request.
        wait, elapsed = wait - metrics.first_wait_seconds, elapsed - metrics.first_wait_seconds
    functions, python = metrics.function_seconds, metrics.python_seconds
    if python > max(wait, functions, elapsed - wait - functions - python):
        each = 1000 * python / metrics.batches
        return (
            "torchparquet's own Python is the slower side: it took "
            f"{python:.3g} of {elapsed:.3g} s, {each:.2g} ms for each batch of any size; try "
            "a larger batch_size="
        )
    if functions > max(wait, elapsed - wait - functions):
        change = "transform=Ahead with more processes, which work while the loop does"
        if in_worker:
            change = "a larger num_workers= of the DataLoader"
        return (
            "processors and transform are the slower side: the training loop spent "
            f"{functions:.3g} of {elapsed:.3g} s on them, and waited {wait:.3g} s to read; "
            f"try {change}"
        )
    fraction = wait / elapsed if elapsed > 0 else 0.0
    waited = f"waited {fraction:.0%} of {elapsed:.3g} s for batches"
    if metrics.batches > 1:
        waited += f" after {metrics.first_wait_seconds:.3g} s for the first"
    if fraction < _SMALL_FRACTION:
        change = "no option of the data set makes it faster"
        if python >= _SMALL_FRACTION * elapsed:
            change = (
                "try a larger batch_size=, which saves up to "
                f"{python:.3g} s of torchparquet's own Python within next()"
            )
        return (
            f"the training loop is the slower side: it {waited}, and decode threads waited "
            f"{metrics.threads_waited_for_loop_seconds:.3g} s for it; {change}"
        )
    return _of_reader(metrics, processors, elapsed, f"the training loop {waited}, and")


def _of_reader(metrics: Metrics, processors: int, elapsed: float, begin: str) -> str:
    """Return the slower side if the training loop waits for batches."""
    reading = metrics.open_seconds + metrics.read_seconds
    busy = metrics.decompress_seconds + metrics.decode_seconds
    for_memory = metrics.threads_waited_for_memory_seconds
    for_bytes = metrics.threads_waited_for_bytes_seconds + reading
    if for_memory > max(reading, busy):
        return (
            f"max_memory bounds reading: {begin} decode threads waited "
            f"{for_memory:.3g} s for room; {metrics.ring.max_batches_in_flight} batches fit; "
            "try a larger max_memory="
        )
    if metrics.bytes_received > 0 and for_bytes > busy:
        change = "cache_dir=, a folder on local disk, from which later epochs and runs read"
        if metrics.bytes_from_cache > 0:
            change = "a larger cache_limit=, so that less comes twice"
        rate = metrics.bytes_received / 1e6 / elapsed
        return (
            f"the network is the slower side: {begin} decode threads waited "
            f"{for_bytes:.3g} s for bytes, of which {rate:.3g} MB came per second; try {change}"
        )
    if reading > busy:
        # A thread that waits for a disk leaves its processor to others.
        num_threads, most = metrics.ring.num_threads, 2 * processors
        change = "columns= with fewer of them"
        if num_threads < most:
            change = f"num_threads={most} ({num_threads} now)"
        return (
            f"reading from storage is the slower side: {begin} decode threads spent "
            f"{reading:.3g} s on opening files and reading, {busy:.3g} s on decoding; try {change}"
        )
    return _of_decoding(metrics, processors, begin, reading)


def _of_decoding(metrics: Metrics, processors: int, begin: str, reading: float) -> str:
    """Return what decode threads do, and the change that may save the loop most of its time."""
    num_threads = metrics.ring.num_threads
    codecs = {name: one.decompress_seconds for name, one in metrics.codecs.items()}
    columns = {
        name: one.decompress_seconds + one.decode_seconds for name, one in metrics.columns.items()
    }
    codec, column = _costliest(codecs), _costliest(columns)
    parts = [f"{metrics.decode_seconds:.3g} s on values", f"{reading:.3g} s on reading"]
    if codec is not None and metrics.decompress_seconds > 0:
        parts.insert(0, f"{codecs[codec]:.3g} s in {codec}")
    if column is not None:
        parts.append(f"most of it, {columns[column]:.3g} s, on column {column!r}")
    busy = metrics.decompress_seconds + metrics.decode_seconds
    slow = sum(seconds for name, seconds in codecs.items() if name not in _FAST_CODECS)
    saved = {
        f"num_threads={processors} ({num_threads} now)": (
            metrics.wait_seconds * (1 - num_threads / processors)
        ),
        "a larger batch_size=": metrics.python_seconds,
        # A faster codec takes perhaps half of the time.
        "a faster codec: torchparquet rewrite --codec lz4": (
            metrics.wait_seconds * slow / (2 * busy) if busy else 0.0
        ),
    }
    change = max(saved, key=lambda name: saved[name])
    if saved[change] < _SMALL_FRACTION * metrics.elapsed_seconds:
        what = (
            "fewer of them" if column is None else f"all that you need, perhaps without {column!r}"
        )
        change = f"columns= with {what}"
    threads = "decode thread" if num_threads == 1 else "decode threads"
    return (
        f"decoding is the slower side: {begin} {num_threads} {threads} spent "
        f"{', '.join(parts)}; try {change}"
    )


def _costliest(seconds: Mapping[str, float]) -> str | None:
    return max(seconds, key=lambda name: seconds[name], default=None)
