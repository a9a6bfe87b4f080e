"""The data-parallel rank and DataLoader worker of a process."""

from __future__ import annotations

from dataclasses import dataclass

from torchparquet._impl.checks import checked_int


@dataclass(frozen=True)
class Topology:
    """One DataLoader worker of one data-parallel rank.

    Attributes:
        worker_id: DataLoader worker, in `[0, num_workers)`; 0 without workers.
    """

    rank: int
    world_size: int
    worker_id: int = 0
    num_workers: int = 1

    def __post_init__(self) -> None:
        """Check every field; integers of numpy become plain ones."""
        for place, size in (("rank", "world_size"), ("worker_id", "num_workers")):
            count = checked_int(size, getattr(self, size), 1, 2**31)
            object.__setattr__(self, size, count)
            object.__setattr__(self, place, checked_int(place, getattr(self, place), 0, count))

    @property
    def share_index(self) -> int:
        """The index of the worker's share: `worker_id * world_size + rank`."""
        return self.worker_id * self.world_size + self.rank

    @property
    def num_shares(self) -> int:
        """The number of shares of all workers: `world_size * num_workers`."""
        return self.world_size * self.num_workers
