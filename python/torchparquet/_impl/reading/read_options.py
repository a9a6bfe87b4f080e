"""The reader's options, which do not affect the order of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchparquet._impl.checks import checked_int, optional_int, set_checked
from torchparquet._impl.processors import num_own_processors

# As in Kubernetes and Dask: "1G" is "1GB", "1Gi" is "1GiB".
_UNITS = {"B": 1} | {
    f"{letter}{middle}{end}": base**power
    for power, letter in enumerate("KMGT", 1)
    for middle, base in (("", 10**3), ("I", 2**10))
    for end in ("", "B")
}
_MAX_DEFAULT_THREADS = 16


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading a share, whose order and contents do not depend on them.

    Attributes:
        num_threads: None divides the processors of this process by the ranks of the node, where
            they are known, and the DataLoader workers of the rank; at most 16.
        max_memory: DataLoader workers share it.
    """

    num_threads: int | None = None
    max_memory: int | str = "1GiB"
    pin_memory: bool | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        num_threads = optional_int("num_threads", self.num_threads, 1, 1025)
        max_memory = parse_size("max_memory", self.max_memory)
        set_checked(self, num_threads=num_threads, max_memory=max_memory)
        if self.pin_memory is not None and not isinstance(self.pin_memory, bool):
            raise TypeError(f"pin_memory must be a bool or None, got {self.pin_memory!r}")

    def threads_per_worker(self, num_workers: int) -> int:
        """Return the decode threads of one of `num_workers` workers."""
        if self.num_threads is not None:
            return self.num_threads
        return max(1, min(_MAX_DEFAULT_THREADS, num_own_processors() // num_workers))

    def memory_per_worker(self, num_workers: int) -> int:
        """Return the memory bound of one of `num_workers` workers, in bytes."""
        return parse_size("max_memory", self.max_memory) // num_workers


def parse_size(name: str, size: int | str) -> int:
    """Return `size` in bytes: a number of bytes, or one with a unit such as "2 Gi" or "1kB"."""
    if not isinstance(size, str):
        return checked_int(name, size, 1, 2**62)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", size)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(
            f'{name} must be a number of bytes or a size such as "512MiB" or "1G", got {size!r}'
        )
    return checked_int(name, int(float(match[1]) * _UNITS[match[2].upper()]), 1, 2**62)
