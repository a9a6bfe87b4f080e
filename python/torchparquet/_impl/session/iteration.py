"""One iteration over a data set: its epochs, batch by batch."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from torchparquet._impl.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.metrics.read_totals import ReadTotals
from torchparquet._impl.metrics.wait_ranges import in_wait_range
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.reading.function_stages import Surroundings
from torchparquet._impl.session.course import Course, ExactIterator
from torchparquet._impl.session.planner import Place
from torchparquet._impl.session.provenance import batch_origin
from torchparquet._impl.session.state import OtherData
from torchparquet.errors import users_level

if TYPE_CHECKING:
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.plan.topology import Topology
    from torchparquet._impl.reading.stream import Stream
    from torchparquet._impl.session.feed import Feed

_Fetched = TypeVar("_Fetched")

# An iteration without end ends after so many epochs that have no batch for it: by chance one may
# have none, with all rows on other ranks.
_MAX_EMPTY_EPOCHS = 100
# A device may be some steps behind its rank, so that ranks in step differ by as many.
_STEPS_TO_COMPARE = 8


class Iteration(ExactIterator[Batch, Place]):
    """The batches of one iteration over a `ParquetDataset`.

    The first `next` begins the epoch, and the second one takes it: an iterator that is dropped
    before is a look, which leaves epochs and other ranks alone.
    Threads end with the iterator, with `close`, and at interpreter exit.

    `next` raises:
        StopIteration: After the last batch of the last epoch.
        CorruptFileError: A file is damaged, or changed since it was planned.
        NullValueError: A null stands where none may.
        TransformError: A function of the user's failed. The iterator stays before the batch.
        RuntimeError: The iterator was closed, or was begun in another process.
    """

    def __init__(self, feed: Feed) -> None:
        """Prepare to iterate; reads nothing yet."""
        super().__init__(Course())
        self._feed = feed
        self.totals = ReadTotals(feed.totals)
        self._owner_pid = os.getpid()
        self._stream: Stream | None = None
        self._opened_at: Place | None = None
        self._num_rows_read: int | None = None
        self._closed = False
        self._topology: Topology | None = None
        self._begun: Place | None = None  # where it began, until it takes the epoch
        self._looks = False
        self._middle = -1
        self.is_held = False
        self._asked_at = 0.0
        feed.follow(self)

    def _next_item(self) -> tuple[Batch, Place]:
        if self._looks and not self.is_held:
            self.take_epoch()
        return self._timed(super()._next_item)

    def _timed(self, fetch: Callable[[], _Fetched]) -> _Fetched:
        """Return what `fetch` does; count its time, and show it in traces."""
        self._asked_at = time.perf_counter()
        fetched = in_wait_range(fetch)
        self.totals.add_seconds("next_seconds", time.perf_counter() - self._asked_at)
        return fetched

    def _take(self, position: Place) -> tuple[Batch, Place]:
        place = position if position.steps < position.end else self._go_to(position)
        if place.steps == self._middle:
            self._feed.rank_check.check_epoch(place.epoch)
        stream = self._stream
        assert stream is not None  # noqa: S101
        batch = next(stream, None)
        if batch is None:
            raise RuntimeError(
                f"the epoch ended after {place.steps} batches of {place.end} that were planned"
            )
        reader = stream.reader
        if reader.wants_next:
            reader.announce(self._feed.streams.shares_to_read(self._next_shares(place)))
        self._num_rows_read = stream.num_rows_given
        if place.num_rows:
            if self._num_rows_read is not None:
                # Rows of it were delivered before, so it must still have them.
                check_rows(batch, self._num_rows_read)
                self._num_rows_read = num_rows_of(batch) - place.num_rows
            batch = sliced(batch, place.num_rows, num_rows_of(batch))
        return batch, place.after_batch()

    def _next_shares(self, place: Place) -> Sequence[Share]:
        """Return what the next epoch reads, as far as one is to be expected; else nothing."""
        feed = self._feed
        num_epochs = feed.num_epochs
        follows = num_epochs is None or (place.epoch + 1) % num_epochs != 0
        # Who iterates once may not do so again. Who has done so twice goes on.
        if not follows and place.epoch < (num_epochs or 0):
            return ()
        topology = self.topology
        try:
            following = feed.planner.begin(place.epoch + 1, topology)
        except ValueError:
            return ()  # the next epoch says so
        return feed.planner.shares(following, topology) if following.end else ()

    def begin(self) -> Place:
        """Begin the iteration where it has not begun, and return where it stands."""
        place = self.course.position
        if place is None:
            feed = self._feed
            feed.take_epochs_of_looks()
            place = self._begun = feed.rank_check.begin(self._start)
            self.course.position = place
            if not self.is_held:
                feed.count_look(place)
        self._feed.progress.follow_begun(self.course)
        return place

    @property
    def topology(self) -> Topology:
        """This process's rank and worker when the iteration began: later changes do not count."""
        return self._topology or self._feed.membership.topology()

    @property
    def is_look(self) -> bool:
        """True if it began, here or in a worker's parent, and has not taken its epoch."""
        is_inherited = self._owner_pid != os.getpid()
        return self._looks and not self.closed and (not is_inherited or in_worker())

    def take_epoch(self) -> None:
        """Take the epoch, which all ranks begin or none; not again."""
        self.begin()
        begun = self._begun
        if begun is not None:
            feed = self._feed
            feed.rank_check.agree(partial(feed.standing, place=begun))
            feed.progress.commit(self.course)
            feed.count_look(None)
            self._note_epoch(begun)
            self._begun = None
        self._looks = False

    def _start(self, is_awaited: bool) -> Place:
        """Start the next epoch, or resume one."""
        feed = self._feed
        self._topology = topology = feed.membership.topology()
        place = feed.progress.begin(self.course, topology)
        if place.end == 0:
            self._warn_of_no_steps(place)
        feed.warn_of_cut_row_groups(topology, place)
        if is_awaited and place.steps < place.end:
            # Other ranks are to hear of batches that do not fit the memory.
            self._stream_at(place).close()
        return place

    def _warn_of_no_steps(self, place: Place) -> None:
        feed = self._feed
        options, manifest = feed.planner.options, feed.streams.manifest
        if options.steps_may_differ or place.steps_before:
            return
        topology = self.topology
        warnings.warn(
            "this epoch has no step: the rows do not make one batch for each of "
            f"{topology.world_size * topology.num_workers} shares (even={options.even!r}, "
            f"batch_size={options.batch_size}, drop_last={options.drop_last}, "
            f"{manifest.num_rows} rows in {manifest.num_row_groups} row groups)",
            stacklevel=users_level(),
        )

    def _go_to(self, position: Place | None) -> Place:
        self._check_usable()
        if not self._stream_stands_at(position):
            # A later stream goes on with the memory of this one.
            self._close_stream()
            self._stream = None
        place = self._with_steps(self.begin())
        self._looks = self._begun is not None
        if self._looks and not self.is_held and self._may_end_apart(place):
            self.take_epoch()
        if self._stream is None:
            self._open(place)
        return place

    def _may_end_apart(self, place: Place) -> bool:
        """True if other ranks may ask for no second batch, or this one for no more."""
        return self._feed.planner.options.steps_may_differ or place.end - place.steps == 1

    def _stream_stands_at(self, position: Place | None) -> bool:
        """True if the next batch of the stream is the one at `position`.

        It is where an exception came before a batch did: an error of the data, or a wait that was
        cut short.
        """
        stream, place = self._stream, self._opened_at
        if stream is None or place is None or position is None or stream.closed:
            return False
        num_taken = stream.num_taken
        if num_taken:
            place = replace(place, steps=place.steps + num_taken, num_rows=0)
        return place == position and place.steps < place.end

    def _with_steps(self, place: Place) -> Place:
        """Return the place, or the start of the next epoch of this iteration that has a batch."""
        num_epochs, num_empty = self._feed.num_epochs, 0
        if place.steps >= place.end:
            self.take_epoch()
        while place.steps >= place.end:
            self._feed.end_epoch(place)
            num_empty = num_empty + 1 if place.end == 0 else 0
            is_last = num_epochs is not None and (place.epoch + 1) % num_epochs == 0
            if is_last or (num_epochs is None and num_empty > _MAX_EMPTY_EPOCHS):
                self.course.has_ended = True
                self._feed.rank_check.note_epoch(None)
                raise StopIteration
            place = self._feed.progress.begin_after(self.course, place, self.topology)
            self._note_epoch(place)
            self.course.position = place
        return place

    def _note_epoch(self, place: Place) -> None:
        """Tell other ranks of an epoch that begins here, to look for theirs in its middle."""
        feed = self._feed
        feed.rank_check.note_epoch(place.epoch)
        num_steps = place.end - place.steps
        in_step = num_steps >= _STEPS_TO_COMPARE and not feed.planner.options.steps_may_differ
        self._middle = place.steps + num_steps // 2 if in_step else -1

    def _open(self, place: Place) -> None:
        self._opened_at = place
        stream = self._stream_at(place)
        self.totals.add(stream, self._asked_at)
        feed, topology = self._feed, self.topology
        # Methods of this iterator would form a cycle with it, and keep its threads.
        around = Surroundings(
            partial(feed.seed_at, topology, place),
            partial(_origin_after, feed, topology, place),
            partial(self.totals.add_seconds, "function_seconds"),
        )
        self._stream = feed.staged(stream, around)
        if self._closed:
            # Another thread closed the iterator meanwhile.
            self._close_stream()

    def _stream_at(self, place: Place) -> Stream:
        """Open a stream of the rest of the epoch that stands at `place`."""
        feed, topology = self._feed, self.topology
        return feed.streams.open(feed.planner.shares(place, topology), topology.num_workers)

    def _check_usable(self) -> None:
        if os.getpid() != self._owner_pid:
            raise RuntimeError(
                "this iterator was made in another process; begin a new iteration in this process"
            )
        if self.course.has_ended:
            raise StopIteration
        if self._closed:
            raise RuntimeError("the reader was closed")

    @property
    def num_rows_read(self) -> int | None:
        """Rows of the latest batch for the user's functions to keep; None without functions."""
        return self._num_rows_read

    @property
    def closed(self) -> bool:
        """True if the iterator was closed or has ended."""
        return self._closed or self.course.has_ended

    def state_dict(self) -> dict[str, Any]:
        """Return where this iterator stands; see `ParquetDataset.state_dict`."""
        return self._feed.state_at(self.course.position)

    def load_state_dict(self, state: dict[str, Any], other_data: OtherData = "error") -> None:
        """Go on from `state`; see `ParquetDataset.load_state_dict`."""
        self._feed.load_state_dict(state, other_data)
        self.course.move(None)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one; batches in between are not read."""
        feed = self._feed
        place = feed.planner.sought(self.begin(), self.topology, step)
        feed.progress.follow(self.course)
        self.course.move(place)

    def origin(self, row: int | None = None) -> object:
        """Return where the latest batch is from, or row `row` of it, to be shown."""
        place = self.begin()
        return _origin_after(self._feed, self.topology, place, -1, row)

    def go_back(self, mark: Place) -> None:
        """Deliver again what was delivered since `mark`, which serves any number of times."""
        place = self.begin()
        if place is not mark:
            if place.epoch != mark.epoch:
                self._feed.progress.return_to(self.course, mark.epoch)
            self.course.move(mark)

    def __reduce__(self) -> NoReturn:
        """Refuse: threads and their memory have no copy; a state has."""
        raise TypeError(
            "cannot pickle an iterator of a ParquetDataset; its state_dict() can travel"
        )

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._closed = True
        self._close_stream()

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()


def _origin_after(
    feed: Feed, topology: Topology, place: Place, num_after: int, row: int | None = None
) -> object:
    """Return where the batch is from that comes so many after the one at a place."""
    place = replace(place, steps=place.steps + num_after)
    return batch_origin(feed.streams.manifest, feed.planner, place, topology, row)


class SkippingIteration(Iteration):
    """An iteration for a loader that drops its first batches: these are empty, and not read."""

    def __init__(self, feed: Feed, num_dropped: int) -> None:
        """Prepare to iterate; the loader drops so many batches."""
        super().__init__(feed)
        self._num_dropped = self._num_to_skip = num_dropped

    def __next__(self) -> Batch:
        """Return the next batch; `{}` for one that is dropped."""
        if self._num_dropped:
            self._num_dropped -= 1
            return {}
        if self._num_to_skip:
            place, num_to_skip = self.begin(), self._num_to_skip
            self._num_to_skip = 0
            self.seek(place.steps_before + place.steps + num_to_skip)
        return super().__next__()
