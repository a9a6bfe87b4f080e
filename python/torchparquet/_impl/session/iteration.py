"""One iteration over a data set: its epochs, batch by batch."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torchparquet._impl.batches.batch_rows import check_rows, num_rows_of, sliced
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.metrics.read_totals import ReadTotals
from torchparquet._impl.metrics.wait_ranges import shows_in_nvtx, wait_range
from torchparquet._impl.reading.function_stages import Surroundings
from torchparquet._impl.sampling.streams import SampledOpener
from torchparquet._impl.sequences.delivered_rows import first_rows
from torchparquet._impl.session.planner import Place
from torchparquet._impl.session.provenance import batch_origin
from torchparquet._impl.session.session_iterator import SessionIterator, Skipping
from torchparquet._impl.session.state import OtherData
from torchparquet.errors import ListLengthError, users_level

if TYPE_CHECKING:
    from torchparquet._impl.plan.plan_options import Topology
    from torchparquet._impl.plan.share import Share
    from torchparquet._impl.reading.stream import Stream
    from torchparquet._impl.session.dataset_session import DatasetSession

# An iteration without end ends after so many epochs that have no batch for it: by chance one may
# have none, with all rows on other ranks.
_MAX_EMPTY_EPOCHS = 100
# As the reader names a row of which it knows no more.
_ROW_OF_BATCH = re.compile(r"row (\d+) of the batch")
# A device may be some steps behind its rank, so that ranks in step differ by as many.
_STEPS_TO_COMPARE = 8


class Iteration(SessionIterator[Batch, Place]):
    """The batches of one iteration over a `ParquetDataset`.

    Threads end with the iterator, with `close`, and at interpreter exit.

    `next` raises:
        StopIteration: After the last batch of the last epoch.
        CorruptFileError: A file is damaged, or changed since it was planned.
        NullValueError: A null stands where none may.
        TransformError: A function of the user's failed. The iterator stays before the batch.
        RuntimeError: The iterator was closed, or was begun in another process.
    """

    _session: DatasetSession
    totals: ReadTotals

    def __init__(self, session: DatasetSession, led_at: tuple[Any, int] | None = None) -> None:
        """Prepare to iterate; reads nothing yet."""
        super().__init__(session, led_at)
        self.totals = ReadTotals(session.totals, session.streams.manifest.excluded)
        self._stream: Stream | None = None
        self._opened_at: Place | None = None
        self._num_rows_read: int | None = None
        self._topology: Topology | None = None
        self._noted = self._middle = -1
        self._num_empty = 0  # epochs in a row
        self._asked_at = 0.0
        session.follow(self)

    def _next_item(self) -> tuple[Batch, Place]:
        if self._looks and not self.is_held and not self._closed:
            self.take_epoch()
        seconds, self._seconds_at_hand = self._seconds_at_hand, 0.0
        self.totals.add_seconds("next_seconds", seconds)
        self._asked_at = time.perf_counter()
        # No function calls the fetch: the frames between the loop and the reader are few.
        traced = wait_range()
        if traced is None:
            fetched = self._fetch()
        else:
            with traced:
                fetched = self._fetch()
        self.totals.add_seconds("next_seconds", time.perf_counter() - self._asked_at)
        return fetched

    def _fetch(self) -> tuple[Batch, Place]:
        place = self._settled()
        while True:
            if place.steps >= place.end:
                place = self._go_to(place)
            if place.steps == self._middle:
                self._session.rank_check.check_epoch(place.epoch)
            stream = self._stream
            assert stream is not None  # noqa: S101
            waited = stream.reader.waited_seconds
            try:
                batch = next(stream, None)
            except ListLengthError as error:
                raise self._placed(error, stream) from None
            if batch is not None:
                break
            if place.claims is None and stream.num_taken:
                # It was the first part of what is left. The next one goes on with its memory.
                self._close_stream()
                self._open(place)
                continue
            if place.claims is None:
                raise RuntimeError(
                    f"the epoch ended after {place.steps} batches of {place.end} that were planned"
                )
            # Nobody knew where the epoch ends for this rank.
            self.progress.position = place = place._replace(end=place.steps)
        reader = stream.reader
        reader.waits.count(reader.waited_seconds - waited, place)
        if reader.wants_next:
            reader.announce(self._session.streams.shares_to_read(self._next_shares(place)))
        self._num_rows_read = stream.num_rows_given
        if place.num_rows:
            if self._num_rows_read is not None:
                # Rows of it were delivered before, so it must still have them.
                check_rows(batch, self._num_rows_read)
                self._num_rows_read = num_rows_of(batch) - place.num_rows
            batch = sliced(batch, place.num_rows, num_rows_of(batch))
        place = place.after_batch()
        self._at_hand = self._following(stream, place)
        return batch, place

    def _placed(self, error: ListLengthError, stream: Stream) -> ListLengthError:
        """Return the error with the place in the files of a row that it counts by batch."""
        text, opened_at = str(error), self._opened_at
        found = _ROW_OF_BATCH.search(text)
        packed = self._session.streams.manifest.packed
        are_rows = packed is None or packed.unit == "sequence"
        if found is None or opened_at is None or not are_rows:
            return error
        number, row = stream.reader.num_taken, int(found[1])
        origin = origin_after(self._session, self.topology, opened_at, number, row)
        return ListLengthError(text.replace(found[0], str(origin), 1))

    def _following(self, stream: Stream, place: Place) -> Iterable[tuple[Place, Batch]]:
        """Return the batches at hand that need nothing, and the places after them."""
        batches = stream.at_hand
        if not batches or self._looks or shows_in_nvtx():
            return ()
        end = self._middle if place.steps <= self._middle else place.end
        return zip(place.after_each(end), batches, strict=False)

    def _next_shares(self, place: Place) -> Sequence[Share]:
        """Return what the next epoch reads, as far as one is to be expected; else nothing."""
        session = self._session
        follows, num_epochs = self._has_epoch_after(place), session.num_epochs
        # Who iterates once may not do so again. Who has done so twice goes on.
        if place.claims is not None or (not follows and place.epoch < (num_epochs or 0)):
            return ()
        try:
            following = session.planner.begin(place.epoch + 1, self.topology)
        except ValueError:
            return ()  # the next epoch says so
        return session.planner.shares(following, self.topology) if following.end else ()

    def _has_epoch_after(self, place: Place) -> bool:
        num_epochs = self._session.num_epochs
        return num_epochs is None or (place.epoch + 1) % num_epochs != 0

    @property
    def topology(self) -> Topology:
        """This process's rank and worker when the iteration began: later changes do not count."""
        return self._topology or self._session.topology()

    def _first_position(self) -> Place:
        return self._session.rank_check.begin(self._start)

    def _start(self, is_awaited: bool) -> Place:
        """Start the next epoch, or resume one."""
        session = self._session
        self._topology = topology = session.topology()
        place = session.begun(self, topology)
        if place.end == 0:
            self._warn_of_no_steps(place)
        session.warn_of_cut_row_groups(topology, place)
        if is_awaited and place.steps < place.end:
            # Other ranks are to hear of batches that do not fit the memory.
            self._stream_at(place).close()
        return place

    def _agree(self, begun: Place) -> None:
        self._session.rank_check.agree(partial(self._session.standing, place=begun))

    def _go_on(self, begun: Place) -> None:
        """Tell other ranks of an epoch that begins here, to look for theirs in its middle."""
        session = self._session
        session.looked_at = None, None
        self._noted = begun.epoch
        session.rank_check.note_epoch(begun.epoch)
        num_steps = begun.end - begun.steps
        in_step = num_steps >= _STEPS_TO_COMPARE and not session.planner.options.steps_may_differ
        self._middle = begun.steps + num_steps // 2 if in_step else -1

    def _warn_of_no_steps(self, place: Place) -> None:
        session = self._session
        options, manifest = session.planner.options, session.streams.manifest
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
            if place.claims is None:
                self.take_epoch()
            else:
                self._agree(place)  # what is taken stays, and the next iteration reads it
        if self._begun is None and place.epoch != self._noted:
            self._go_on(place)  # a mix leads to another epoch
        if self._stream is None:
            self._open(place)
        return place

    def _may_end_apart(self, place: Place) -> bool:
        """True if other ranks may ask for no second batch, or this one for no more."""
        return self._session.planner.options.steps_may_differ or place.end - place.steps == 1

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
            place = place._replace(steps=place.steps + num_taken, num_rows=0)
        return place == position and place.steps < place.end

    def _with_steps(self, place: Place) -> Place:
        """Return the place, or the start of the next epoch of this iteration that has a batch."""
        session = self._session
        if place.steps >= place.end:
            self.take_epoch()
        while place.steps >= place.end:
            session.end_epoch(place)
            self._num_empty = self._num_empty + 1 if place.end == 0 else 0
            is_endless = session.num_epochs is None
            if not self._has_epoch_after(place) or (
                is_endless and self._num_empty > _MAX_EMPTY_EPOCHS
            ):
                self.progress.has_ended = True
                session.rank_check.note_epoch(None)
                raise StopIteration
            place = session.begin_after(self.progress, place, self.topology)
            self._go_on(place)
            self.progress.position = place
        return place

    def _open(self, place: Place) -> None:
        self._opened_at = place
        stream = self._stream_at(place)
        self.totals.add(stream, self._asked_at)
        session, topology = self._session, self.topology
        # Methods of this iterator would form a cycle with it, and keep its threads.
        around = Surroundings(
            partial(session.seed_at, topology, place),
            partial(origin_after, session, topology, place),
            partial(self.totals.add_seconds, "function_seconds"),
        )
        self._stream = session.staged(stream, around)
        if self._closed:
            # Another thread closed the iterator meanwhile.
            self._close_stream()

    def _stream_at(self, place: Place) -> Stream:
        """Open a stream of the rest of the epoch that stands at `place`."""
        session, topology = self._session, self.topology
        return session.streams.open(session.planner.shares(place, topology), topology.num_workers)

    @property
    def num_rows_read(self) -> int | None:
        """Rows of the latest batch for the user's functions to keep; None without functions."""
        return self._num_rows_read

    def load_state_dict(self, state: dict[str, Any], other_data: OtherData = "error") -> None:
        """Go on from `state`; see `ParquetDataset.load_state_dict`."""
        self._session.load_state_dict(state, other_data)
        self.progress.move(None)

    def seek(self, step: int) -> None:
        """Make batch `step` of the epoch the next one; batches in between are not read."""
        session = self._session
        session.refuse_dynamic("step to go to")
        place = session.planner.sought(self.begin(), self.topology, step)
        session.follow_progress(self.progress)
        self.progress.move(place)

    def pass_over(self, num_items: int) -> int:
        """Go on after the next batches, which are not read; return how many of them there are."""
        self._session.refuse_dynamic("step to go to")
        place, left = self.begin(), num_items
        while left > (of_epoch := place.end - place.steps) and self._has_epoch_after(place):
            left -= of_epoch
            place = self._with_steps(place._replace(steps=place.end, num_rows=0))
        passed = min(left, of_epoch)
        if passed:
            self.progress.move(place._replace(steps=place.steps + passed, num_rows=0))
        return num_items - left + passed

    def origin(self, row: int | None = None) -> object:
        """Return where the latest batch is from, or row `row` of it, to be shown."""
        place = self.begin()
        return origin_after(self._session, self.topology, place, -1, row)

    def close(self) -> None:
        """Join the threads and give up what is in flight. Idempotent."""
        self._closed = True
        self._close_stream()

    def _close_stream(self) -> None:
        if self._stream is not None:
            self._stream.close()


def origin_after(
    session: DatasetSession,
    topology: Topology,
    place: Place,
    num_after: int,
    row: int | None = None,
) -> object:
    """Return where the batch is from that comes so many after the one at a place."""
    place = place._replace(steps=place.steps + num_after)
    shares = session.planner.shares(place, topology)
    at = place.epoch, place.steps_before + place.steps
    streams = session.streams
    if isinstance(streams, SampledOpener):
        return batch_origin(streams.rows.manifest, [streams.first_rows(shares)], at, topology, row)
    first = [first_rows(share, share.rows_of_first(1)) for share in shares]
    return batch_origin(streams.manifest, first, at, topology, row)


class SkippingIteration(Skipping[Place], Iteration):
    """An iteration over a `ParquetDataset` for a loader that drops its first batches."""
