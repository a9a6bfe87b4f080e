"""Finds the slower side: the training loop, decoding, the source, or a bound on memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# A loop that waits for a smaller part of its time gains little from faster data.
_SMALL_FRACTION = 0.1
# Codecs that no other one is much faster than.
_FAST_CODECS = ("uncompressed", "snappy", "lz4")


@dataclass(frozen=True)
class Sides:
    """The seconds of the loop and of all decode threads together.

    Attributes:
        functions: Part of `elapsed`, but not of `wait`, for the user's functions.
        python: Part of `elapsed`, beside these, for torchparquet's own Python within `next`.
    """

    batches: int
    elapsed: float
    wait: float
    first_wait: float
    functions: float
    python: float
    num_threads: int
    processors: int
    in_worker: bool
    reading: float
    decompressing: float
    decoding: float
    for_loop: float
    for_memory: float
    for_bytes: float
    received: int
    from_cache: int
    max_batches: int
    of_codec: Mapping[str, float]
    of_column: Mapping[str, float]


def describe(sides: Sides) -> str:
    """Return one sentence: the slower side, the figures that show it, and one option to change."""
    if sides.batches == 0:
        return "nothing is known yet: no batch was delivered"
    wait, elapsed = sides.wait, sides.elapsed
    if sides.batches > 1:
        # No batch can be ready before the first request.
        wait, elapsed = wait - sides.first_wait, elapsed - sides.first_wait
    loop = elapsed - wait - sides.functions - sides.python
    if sides.python > max(wait, sides.functions, loop):
        each = 1000 * sides.python / sides.batches
        return (
            "torchparquet's own Python is the slower side: it took "
            f"{sides.python:.3g} of {elapsed:.3g} s, {each:.2g} ms for each batch of any size; try "
            "a larger batch_size="
        )
    if sides.functions > max(wait, elapsed - wait - sides.functions):
        return (
            "processors and transform are the slower side: the training loop spent "
            f"{sides.functions:.3g} of {elapsed:.3g} s on them, and waited {wait:.3g} s to read; "
            f"{_for_functions(sides)}"
        )
    fraction = wait / elapsed if elapsed > 0 else 0.0
    waited = f"waited {fraction:.0%} of {elapsed:.3g} s for batches"
    if sides.batches > 1:
        waited += f" after {sides.first_wait:.3g} s for the first"
    if fraction < _SMALL_FRACTION:
        return (
            f"the training loop is the slower side: it {waited}, and decode threads waited "
            f"{sides.for_loop:.3g} s for it; {_for_loop(sides, elapsed)}"
        )
    beside = f"the training loop {waited}"
    busy = sides.decompressing + sides.decoding
    if sides.for_memory > max(sides.reading, busy):
        return (
            f"max_memory bounds reading: {beside}, and decode threads waited "
            f"{sides.for_memory:.3g} s for room; {sides.max_batches} batches fit; try a larger "
            "max_memory="
        )
    if sides.received > 0 and sides.for_bytes + sides.reading > busy:
        rate = sides.received / 1e6 / elapsed
        return (
            f"the network is the slower side: {beside}, and decode threads waited "
            f"{sides.for_bytes + sides.reading:.3g} s for bytes, of which {rate:.3g} MB came per "
            f"second; {_for_network(sides)}"
        )
    if sides.reading > busy:
        return (
            f"reading from storage is the slower side: {beside}, and decode threads spent "
            f"{sides.reading:.3g} s on opening files and reading, {busy:.3g} s on decoding; "
            f"{_for_storage(sides)}"
        )
    return f"decoding is the slower side: {beside}, and {_decoding(sides)}; {_for_decoding(sides)}"


def _for_functions(sides: Sides) -> str:
    if sides.in_worker:
        return "try a larger num_workers= of the DataLoader"
    return "try transform=Ahead with more processes, which work while the loop does"


def _for_loop(sides: Sides, elapsed: float) -> str:
    if sides.python < _SMALL_FRACTION * elapsed:
        return "no option of the data set makes it faster"
    return (
        "try a larger batch_size=, which saves up to "
        f"{sides.python:.3g} s of torchparquet's own Python within next()"
    )


def _for_network(sides: Sides) -> str:
    if sides.from_cache > 0:
        return "try a larger cache_limit=, so that less comes twice"
    return "try cache_dir=, a folder on local disk, from which later epochs and runs read"


def _for_storage(sides: Sides) -> str:
    # A thread that waits for a disk leaves its processor to others.
    if sides.num_threads < 2 * sides.processors:
        return f"try num_threads={2 * sides.processors} ({sides.num_threads} now)"
    return "try columns= with fewer of them"


def _for_decoding(sides: Sides) -> str:
    """Return the change that may save the loop most of its time."""
    busy = sides.decompressing + sides.decoding
    slow = {name: s for name, s in sides.of_codec.items() if name not in _FAST_CODECS}
    threads = f"try num_threads={sides.processors} ({sides.num_threads} now)"
    saved = {
        threads: sides.wait * (1 - sides.num_threads / max(sides.processors, 1)),
        "try a larger batch_size=": sides.python,
        # A faster codec takes perhaps half of the time.
        "try a faster codec: torchparquet rewrite --codec lz4": (
            sides.wait * sum(slow.values()) / (2 * busy) if busy else 0.0
        ),
    }
    change = max(saved, key=lambda name: saved[name])
    if saved[change] >= _SMALL_FRACTION * sides.elapsed:
        return change
    column = _costliest(sides.of_column)
    without = (
        "fewer of them" if column is None else f"all that you need, perhaps without {column!r}"
    )
    return f"try columns= with {without}"


def _costliest(seconds: Mapping[str, float]) -> str | None:
    return max(seconds, key=lambda name: seconds[name], default=None)


def _decoding(sides: Sides) -> str:
    codec, column = _costliest(sides.of_codec), _costliest(sides.of_column)
    parts = [f"{sides.decoding:.3g} s on values", f"{sides.reading:.3g} s on reading"]
    if codec is not None and sides.decompressing > 0:
        parts.insert(0, f"{sides.of_codec[codec]:.3g} s in {codec}")
    if column is not None:
        parts.append(f"most of it, {sides.of_column[column]:.3g} s, on column {column!r}")
    threads = "decode thread" if sides.num_threads == 1 else "decode threads"
    return f"{sides.num_threads} {threads} spent {', '.join(parts)}"
