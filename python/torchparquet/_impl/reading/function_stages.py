"""The stages that apply the user's functions: on the loop's thread, or ahead of it."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torchparquet._impl.batches.batch_rows import num_rows_of
from torchparquet._impl.functions.batch_seed import with_seed
from torchparquet._impl.functions.decoders import FunctionFailedError
from torchparquet._impl.reading.stream import Stream
from torchparquet.errors import TransformError, printable, users_level

if TYPE_CHECKING:
    from torchparquet._impl.batches.tensors import Batch
    from torchparquet._impl.functions.function_pools import FunctionPool
    from torchparquet._impl.functions.transforms import Transforms

# Between two looks for a batch that was decoded, while the loop waits for one that is worked on.
_POLL_SECONDS = 0.002


@dataclass
class _Given:
    """A batch that is worked on, kept while another process may fail to return it."""

    number: int
    num_rows: int
    result: Future[dict[str, Any]]
    batch: Batch | None


class Surroundings(NamedTuple):
    """The facts of an iteration that the functions of its streams need.

    Attributes:
        seed_at: The seed of a batch, by its number in the stream.
        origin_at: The provenance of a batch, or of one of its rows, to be shown.
        add_seconds: Takes the seconds that the loop spent on functions, or waited for them.
    """

    seed_at: Callable[[int], int]
    origin_at: Callable[[int, int | None], object]
    add_seconds: Callable[[float], None]

    def told(self, error: FunctionFailedError, number: int) -> TransformError:
        """Return the error that says which batch functions failed with."""
        return error.of_batch(partial(self.origin_at, number))


class FunctionStage(Stream):
    """Applies the user's functions on the thread that asks for batches."""

    def __init__(self, source: Stream, transforms: Transforms, around: Surroundings) -> None:
        """Prepare to apply the functions."""
        super().__init__(source)
        self._transforms = transforms
        self._around = around

    def __next__(self) -> Batch:
        """Return the next batch."""
        given = next(self._source)
        number, around = self._source.num_taken - 1, self._around
        begin = time.perf_counter()
        try:
            made: Batch = with_seed(around.seed_at(number), self._transforms.run, given)
        except FunctionFailedError as error:
            raise around.told(error, number) from error.__cause__
        finally:
            around.add_seconds(time.perf_counter() - begin)
        self.num_rows_given = num_rows_of(given)
        return made


def _is_of(result: Future[Any], error: Exception) -> bool:
    return result.done() and not result.cancelled() and result.exception() is error


class AheadStage(Stream):
    """Delivers what threads or processes make of batches; `next` gives them all that are ready."""

    def __init__(self, source: Stream, pool: FunctionPool, around: Surroundings) -> None:
        """Read nothing yet."""
        super().__init__(source)
        self._pool = pool
        self._around = around
        self._given: deque[_Given] = deque()
        self._may_have_more = True

    def __next__(self) -> Batch:
        """Return the next batch."""
        if not self._given:
            self._give(next(self._source))
        front = self._given[0]
        waited = self._give_until_done(front.result)
        begin = time.perf_counter()
        try:
            try:
                made = front.result.result()
            except BrokenExecutor as error:
                made = self._made_alone(front, error)
        except FunctionFailedError as error:
            self._given.popleft()
            raise self._around.told(error, front.number) from error.__cause__
        except Exception as error:
            # Others are of a signal handler, or say that functions were not found.
            if isinstance(error, TypeError) or not _is_of(front.result, error):
                raise
            self._given.popleft()
            failed = FunctionFailedError(
                f"a process of Ahead cannot return what functions made: {printable(str(error))}"
            )
            raise self._around.told(failed, front.number) from error
        finally:
            self._around.add_seconds(waited + time.perf_counter() - begin)
        self.num_rows_given = front.num_rows
        self._given.popleft()
        return made

    def _give_until_done(self, front: Future[dict[str, Any]]) -> float:
        """Give batches to the pool until it is full or `front` is made; return seconds waited."""
        waited = 0.0
        while len(self._given) < self._pool.max_batches and self._may_have_more:
            if self._source.next_is_ready:
                self._give_ready()
            elif front.done():
                break
            else:
                begin = time.perf_counter()
                wait([front], timeout=_POLL_SECONDS)
                waited += time.perf_counter() - begin
        return waited

    def _give_ready(self) -> None:
        try:
            batch = next(self._source)
        except Exception:
            # It comes again when all batches before it were delivered.
            self._may_have_more = False
            return
        self._give(batch)

    def _give(self, batch: Batch) -> None:
        number = self._source.num_taken - 1
        self._may_have_more = number + 1 < self._source.num_batches
        try:
            result = self._pool.submit(batch, self._around.seed_at(number))
        except BrokenExecutor as error:
            result = Future()
            result.set_exception(error)
        kept = batch if self._pool.has_processes else None
        self._given.append(_Given(number, num_rows_of(batch), result, kept))

    def _made_alone(self, front: _Given, error: BrokenExecutor) -> dict[str, Any]:
        """Give a batch to new processes, alone: if one ends again, it is by this batch."""
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
        front.result = self._pool.submit(front.batch, self._around.seed_at(front.number))
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
            given.result = self._pool.submit(given.batch, self._around.seed_at(given.number))
        return made

    @property
    def num_taken(self) -> int:
        """Also those that a signal lost between the source and the pool."""
        return self._source.num_taken - len(self._given)

    @property
    def next_is_ready(self) -> bool:
        """True if the pool is done with the next batch."""
        return bool(self._given) and self._given[0].result.done()

    @property
    def closed(self) -> bool:
        """True if no batch is left, or the stream was closed before its end."""
        return self._source.closed and not self._given

    def close(self) -> None:
        """Give up the batches in flight, and close the source. Idempotent."""
        for given in self._given:
            given.result.cancel()
        self._given.clear()
        self._source.close()
