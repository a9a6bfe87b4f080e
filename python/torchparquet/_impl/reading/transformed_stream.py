"""A stream of batches that the user's functions have worked on, ahead of the loop."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchparquet._impl.batches.batch_rows import num_rows_of
from torchparquet._impl.functions.transforms import FunctionFailedError
from torchparquet.errors import users_level

if TYPE_CHECKING:
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.functions.function_pools import FunctionPool
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.reading.batch_stream import Batches

# Between two looks for a batch that was decoded, while the loop waits for one that is worked on.
_POLL_SECONDS = 0.002


@dataclass
class _Given:
    """A batch that is worked on.

    Attributes:
        batch: The batch itself, while another process may fail to return what it makes of it.
    """

    number: int
    num_rows: int
    result: Future[dict[str, Any]]
    batch: Batch | None


class TransformedStream(Iterator["Batch"]):
    """Delivers what functions make of the batches of a stream, in order.

    Batches that are decoded are given to the pool in each `next`, up to a bound. While the loop
    works on one, the pool works on the ones after it.
    """

    def __init__(self, stream: Batches, pool: FunctionPool, seed_of: Callable[[int], int]) -> None:
        """Read nothing yet."""
        self.stream = stream
        self.num_rows_given = 0
        self.wait_seconds = 0.0
        self._pool = pool
        self._seed_of = seed_of
        self._given: deque[_Given] = deque()
        self._may_have_more = True

    def __next__(self) -> Batch:
        """Return the next batch."""
        if not self._given:
            self._give(next(self.stream))
        front = self._given[0]
        self.wait_seconds = 0.0
        self._give_until_done(front.result)
        begin = time.perf_counter()
        try:
            made = front.result.result()
        except BrokenExecutor as error:
            made = self._made_alone(front, error)
        except FunctionFailedError:
            self._given.popleft()
            raise
        self.wait_seconds += time.perf_counter() - begin
        self.num_rows_given = front.num_rows
        self._given.popleft()
        return made

    def _give_until_done(self, front: Future[dict[str, Any]]) -> None:
        """Give batches to the pool as they are decoded, until it is full or `front` is made."""
        while len(self._given) < self._pool.max_batches and self._may_have_more:
            if self.stream.next_is_ready:
                self._give_ready()
            elif front.done():
                return
            else:
                begin = time.perf_counter()
                wait([front], timeout=_POLL_SECONDS)
                self.wait_seconds += time.perf_counter() - begin

    def _give_ready(self) -> None:
        try:
            batch = next(self.stream)
        except Exception:
            # It comes again when all batches before it were delivered.
            self._may_have_more = False
            return
        self._give(batch)

    def _give(self, batch: Batch) -> None:
        number = self.stream.num_taken - 1
        self._may_have_more = number + 1 < self.stream.num_batches
        try:
            result = self._pool.submit(batch, self._seed_of(number))
        except BrokenExecutor as error:
            result = Future()
            result.set_exception(error)
        kept = batch if self._pool.has_processes else None
        self._given.append(_Given(number, num_rows_of(batch), result, kept))

    def _made_alone(self, front: _Given, error: BrokenExecutor) -> dict[str, Any]:
        """Return what becomes of a batch after a process has ended, with which the others end.

        The batch is given to new processes, alone: if one ends again, it is by this batch.
        """
        if not self._pool.has_begun:
            self._pool.close()
            raise RuntimeError(
                "the processes of Ahead end as they begin. They import the program "
                'again: a script must start its work below `if __name__ == "__main__":`, and '
                "functions of a notebook or of a program from stdin must be in a module, which "
                "processes can find. What they have printed on stderr tells more"
            ) from error
        self._pool.close()
        assert front.batch is not None  # noqa: S101
        front.result = self._pool.submit(front.batch, self._seed_of(front.number))
        try:
            made = front.result.result()
        except BrokenExecutor:
            self._pool.close()
            raise FunctionFailedError(
                "a process of Ahead ended abruptly, twice with this batch"
            ) from error
        warnings.warn(
            "a process of Ahead ended abruptly, so batches are worked on again",
            RuntimeWarning,
            stacklevel=users_level(),
        )
        for given in list(self._given)[1:]:
            assert given.batch is not None  # noqa: S101
            given.result = self._pool.submit(given.batch, self._seed_of(given.number))
        return made

    @property
    def num_taken(self) -> int:
        """Batches that `next` has taken: more than it returned if an exception lost one.

        A signal handler may raise between taking a batch of the stream and giving it to the pool.
        """
        return self.stream.num_taken - len(self._given)

    @property
    def wants_next(self) -> bool:
        """As of the stream."""
        return self.stream.wants_next

    def announce(self, shares: Sequence[Share]) -> None:
        """As of the stream."""
        self.stream.announce(shares)

    @property
    def closed(self) -> bool:
        """True if no batch is left, or the stream was closed before its end."""
        return self.stream.closed and not self._given

    def close(self) -> None:
        """Give up the batches in flight, and close the stream. Idempotent."""
        for given in self._given:
            given.result.cancel()
        self._given.clear()
        self.stream.close()
