"""Finds the slower side: the training loop, decoding, the source, or a bound on memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchparquet.processors import num_processors

# A loop that waits for a smaller part of its time gains little from faster data.
_SMALL_FRACTION = 0.1


@dataclass(frozen=True)
class Sides:
    """The seconds of the loop and of all decode threads together.

    Attributes:
        batches: Delivered batches.
        elapsed: Time since the loop asked for its first batch.
        wait: Part of it in which the loop waited for batches.
        first_wait: Part of `wait` for the first batch.
        functions: Part of `elapsed`, but not of `wait`, for the user's functions.
        python: Part of `elapsed`, beside these, for torchparquet's own Python within `next`.
        num_threads: Decode threads.
        reading: Threads opened files and read them.
        decompressing: Threads decompressed pages.
        decoding: Threads did other decoding.
        for_loop: Threads waited for the loop.
        for_memory: Threads waited for memory while the loop waited too.
        for_bytes: Threads waited for bytes of a store.
        received: Bytes that came from a store.
        max_batches: Batches that fit the memory.
        of_codec: `decompressing` by codec.
        of_column: `decompressing` and `decoding` by column.
    """

    batches: int
    elapsed: float
    wait: float
    first_wait: float
    functions: float
    python: float
    num_threads: int
    reading: float
    decompressing: float
    decoding: float
    for_loop: float
    for_memory: float
    for_bytes: float
    received: int
    max_batches: int
    of_codec: Mapping[str, float]
    of_column: Mapping[str, float]


def describe(sides: Sides) -> str:
    """Return one sentence: the slower side, the figures that show it, and a remedy."""
    if sides.batches == 0:
        return "nothing is known yet: no batch was delivered"
    wait, elapsed = sides.wait, sides.elapsed
    if sides.batches > 1:
        # No batch can be ready before the first request.
        wait, elapsed = wait - sides.first_wait, elapsed - sides.first_wait
    fraction = wait / elapsed if elapsed > 0 else 0.0
    loop = elapsed - wait - sides.functions - sides.python
    if sides.python > max(wait, sides.functions, loop):
        each = 1000 * sides.python / sides.batches
        return (
            "torchparquet's own Python is the slower side: it took "
            f"{sides.python:.3g} of {elapsed:.3g} s, {each:.2g} ms for each batch of any size; a "
            "larger batch_size helps"
        )
    if sides.functions > max(wait, elapsed - wait - sides.functions):
        return (
            "processors and transform are the slower side: the training loop spent "
            f"{sides.functions:.3g} of {elapsed:.3g} s on them, and waited {wait:.3g} s to read; "
            "more transform_threads help functions that release the GIL, more "
            "transform_processes those that hold it"
        )
    waited = f"waited {fraction:.0%} of {elapsed:.3g} s for batches"
    if sides.batches > 1:
        waited += f" after {sides.first_wait:.3g} s for the first"
    if fraction < _SMALL_FRACTION:
        return (
            f"the training loop is the slower side: it {waited}, and decode threads waited "
            f"{sides.for_loop:.3g} s for it; faster reading gains nothing, and fewer num_threads "
            "may be enough" + _python(sides, elapsed)
        )
    beside = f"the training loop {waited}"
    busy = sides.decompressing + sides.decoding
    if sides.for_memory > max(sides.reading, busy):
        return (
            f"max_memory bounds reading: {beside}, and decode threads waited "
            f"{sides.for_memory:.3g} s for room; {sides.max_batches} batches fit; a "
            "larger max_memory, or a smaller batch_size, shuffle_window or num_threads, helps"
        )
    if sides.received > 0 and sides.for_bytes + sides.reading > busy:
        rate = sides.received / 1e6 / elapsed
        return (
            f"the network is the slower side: {beside}, and decode threads waited "
            f"{sides.for_bytes + sides.reading:.3g} s for bytes, of which {rate:.3g} MB came per "
            "second; fewer columns, a denser codec, a larger max_memory, a cache_dir or a machine "
            "closer to the store help"
        )
    if sides.reading > busy:
        return (
            f"reading from storage is the slower side: {beside}, and decode threads spent "
            f"{sides.reading:.3g} s on opening files and reading, {busy:.3g} s on decoding; fewer "
            "columns, larger files, a denser codec, faster storage or more num_threads help"
        )
    return f"decoding is the slower side: {beside}, and {_decoding(sides)}"


def _python(sides: Sides, elapsed: float) -> str:
    if sides.python < _SMALL_FRACTION * elapsed:
        return ""
    return (
        f"; a larger batch_size saves up to {sides.python:.3g} s of torchparquet's own Python "
        "within next()"
    )


def _decoding(sides: Sides) -> str:
    codec = max(sides.of_codec, key=lambda name: sides.of_codec[name], default=None)
    column = max(sides.of_column, key=lambda name: sides.of_column[name], default=None)
    parts = [f"{sides.decoding:.3g} s on values", f"{sides.reading:.3g} s on reading"]
    changes = ["fewer columns"]
    if codec is not None and sides.decompressing > 0:
        parts.insert(0, f"{sides.of_codec[codec]:.3g} s in {codec}")
        if sides.decompressing > sides.decoding:
            changes.insert(0, "a faster codec (lz4, snappy)")
    if column is not None:
        parts.append(f"most of it, {sides.of_column[column]:.3g} s, on column {column!r}")
    processors = num_processors()
    if sides.num_threads < processors:
        changes.insert(0, f"more num_threads (this process has {processors} processors)")
    else:
        changes.append("more processors")
    threads = "decode thread" if sides.num_threads == 1 else "decode threads"
    spent = f"{sides.num_threads} {threads} spent {', '.join(parts)}"
    return f"{spent}; {', '.join(changes)} help"
