"""The session of a mix: its positions are made of those of its data sets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.metrics.read_metrics import Metrics, side_by_side
from torchparquet._impl.mixing.mix_order import MixOptions, MixProgress
from torchparquet._impl.mixing.row_cursor import RowPlace
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet._impl.session.dataset_session import DatasetSession
from torchparquet._impl.session.session import Session, Start
from torchparquet._impl.session.session_iterator import Totals

if TYPE_CHECKING:
    from torchparquet._impl.mixing.mixture import Mixture
    from torchparquet._impl.plan.plan_options import Topology
    from torchparquet._impl.ranks.peers import Peers

# A mix can read these.
Member: TypeAlias = "DatasetSession | MixSession"

_FORMAT = 2
_Worker = tuple[int, int] | None


@dataclass(frozen=True)
class Ended:
    """Stands for the place of a data set that has nothing left of its epoch in this world."""

    state: Any
    epoch: int = -1


@dataclass(frozen=True)
class MixPosition:
    """The position of a mix, or a state that was read.

    Attributes:
        options: Those of the mix, with the weights of this epoch.
        places: The place of each data set that takes part, or `Ended`; None of one that does not.
            Those of a state are the states of data sets, or None where an epoch begins.
        num_batches: Batches of the present round of each data set; empty if rows are mixed.
        skipped: Rows of the next batch that were delivered one by one, and the world of then.
    """

    progress: MixProgress
    options: MixOptions
    places: tuple[Any, ...]
    num_batches: tuple[int, ...] = ()
    skipped: tuple[int, Any] = (0, None)

    @property
    def epoch(self) -> int:
        """The epoch of the mix."""
        return self.progress.epoch


@dataclass
class MixTotals:
    """What the data sets of a mix have read."""

    parts: list[Totals]

    def metrics(self) -> Metrics:
        """Return what was read so far."""
        return side_by_side([part.metrics() for part in self.parts])


class MixSession(Session[MixPosition]):
    """What the iterations over one mix share: they lead iterators of its data sets' sessions."""

    what = "mix"

    def __init__(
        self,
        members: Sequence[Member],
        options: MixOptions,
        source_key: str | None,
        mixing: type[Mixture],
    ) -> None:
        """Stand before the first iteration."""
        self.members = tuple(members)
        self.options = options
        self.source_key = source_key
        self.mixing = mixing
        self._counted: tuple[Any, int] = (None, 0)
        super().__init__()

    def over(self, members: Sequence[Member]) -> Self:
        """Make this the session of a mix of other data sets."""
        self.members = tuple(members)
        self._enter_process()
        return self

    def new_totals(self) -> MixTotals:
        """Return sums before anything is read."""
        return MixTotals([member.new_totals() for member in self.members])

    @property
    def totals(self) -> MixTotals:
        """What this process has read."""
        return MixTotals([member.totals for member in self.members])

    @property
    def fields(self) -> tuple[Field, ...]:
        """The tensors of the batches of all data sets."""
        return tuple(field for member in self.members for field in member.fields)

    def rank_and_peers(self) -> tuple[Topology, Peers | None]:
        """Return this process's rank, and the processes that read the first data set with it."""
        return self.members[0].rank_and_peers()

    def take_longest_wait(self) -> tuple[float, str]:
        """Return the longest wait since this was last called, in seconds, and what it was for."""
        return max(member.take_longest_wait() for member in self.members)

    def refuse_second_sharding(self) -> None:
        """Raise if a loader of Accelerate would divide the batches among ranks a second time."""
        for member in self.members:
            member.refuse_second_sharding()

    def worlds(self) -> list[list[int]]:
        """Return the ranks and the DataLoader workers of each ParquetDataset that is read."""
        return [world for member in self.members for world in member.worlds()]

    def close(self) -> None:
        """End all iterations, those over the data sets too, and free their memory."""
        super().close()
        for member in self.members:
            member.close()

    # Positions.

    def lead(self, state: Any, epoch: int) -> Mixture:
        """Return an iterator that another mix leads; see `DatasetSession.lead`."""
        iterator = self.mixing(self, (state, epoch))
        iterator.begin()
        return iterator

    @property
    def can_pass_over(self) -> bool:
        """True if the position after a batch is known without reading it."""
        if self.options.batch_size is None:
            return all(of.can_pass_over for of in self.members)
        return all(isinstance(of, DatasetSession) for of in self.members)

    def placed(self, state: Any, epoch: int, worker: _Worker = None) -> MixPosition:
        """Return where a state leads to; the start of an epoch if it is None."""
        start = None if state is None else Start(None, self.read_state(state))
        return self._resolved(start, epoch, worker)

    def _resolved(self, start: Start | None, epoch: int, worker: _Worker) -> MixPosition:
        def place(number: int, state: Any, of_epoch: int) -> Any:
            return self.members[number].placed(state, of_epoch, worker)

        return self.resolved(start, epoch, place, worker)

    def resolved(
        self,
        start: Start | None,
        epoch: int,
        place: Callable[[int, Any, int], Any],
        worker: _Worker = None,
    ) -> MixPosition:
        """Return where an iteration begins.

        `place` returns the place of a data set, from its number, its state if there is one, and the
        epoch of its present round.
        """
        at = self._first(epoch) if start is None or start.state is None else start.state
        progress, places = at.progress, [None] * len(self.members)
        is_of_rows = at.options.batch_size is not None
        for number in () if progress.over else progress.active:
            source = at.places[number]
            state = source["state"] if source is not None and is_of_rows else source
            found = place(number, state, progress.epoch_of(number))
            if found.epoch != progress.epoch_of(number):
                found = Ended(source)
            elif is_of_rows:
                found = (found, 0 if source is None else source.get("used", 0))
            places[number] = found
        position = MixPosition(progress, at.options, tuple(places))
        return position if progress.over else self.mixing.begun(self, position, worker)

    def _first(self, epoch: int) -> MixPosition:
        """Return the state of the start of an epoch."""
        progress = MixProgress.begin(epoch, self.options.weights)
        return MixPosition(progress, self.options, (None,) * len(self.members))

    def epoch_after(self, start: Start | None) -> int:
        """Return the epoch that the next iteration reads."""
        if start is None or start.state is None:
            return self._ledger.next_epoch
        return int(start.state.epoch)

    def batches_left(self, position: MixPosition, worker: _Worker = None) -> int:
        """Return the batches of the epoch that are left."""
        return 0 if position.progress.over else self.mixing.batches_left(position)

    def steps_of_worker(self, worker: tuple[int, int]) -> int:
        """Return the batches of a DataLoader worker in the epoch that has begun."""
        return self.batches_left(self._resolved(*self._begun_from, worker))

    def rows(self, position: MixPosition, worker: _Worker = None) -> tuple[int, None]:
        """Return that nobody knows how many rows there are."""
        return 0, None

    def num_steps(self, num_workers: int = 0) -> int:
        """Return the batches of the epoch under way or to come, of all workers."""
        live: Any = self.live_iterator()
        if live is not None and live.progress.position is not None and live.first is not None:
            positions = [live.first]
        else:
            workers: list[_Worker] = [(worker, num_workers) for worker in range(num_workers)]
            at = self.next_start(), self._ledger.next_epoch
            positions = [self._resolved(*at, of) for of in workers or [None]]
        if self._counted[0] != positions:
            drawn = positions[0].progress.num_drawn
            before = -(-drawn // (self.options.batch_size or 1))
            left = sum(map(self.batches_left, positions))
            self._counted = positions, before + left
        return self._counted[1]

    # States.

    def state_at(self, position: MixPosition | None) -> dict[str, Any]:
        """Return the state of a position; None for that at which the next iteration begins."""
        live: Any = self.live_iterator()
        if position is not None and live is not None and live.progress.position is position:
            # Looking for further rows may be the only way to know if the epoch is over.
            is_over, position = live.over, live.progress.position
            return self._state_after(position) if is_over else self.state_of(position)
        return super().state_at(position)

    def state_of_start(self, start: Start | None) -> dict[str, Any]:
        """Return the state of the next iteration's beginning."""
        state = None if start is None else start.state
        return self._dumped(state or self._first(self._ledger.next_epoch))

    def state_of(self, position: MixPosition) -> dict[str, Any]:
        """Return the state of a position."""
        if position.progress.over or self.mixing.is_over(position):
            return self._state_after(position)
        sources: list[Any] = [None] * len(self.members)
        for number in position.progress.active:
            member, place = self.members[number], position.places[number]
            ended = place.batch.mark if isinstance(place, RowPlace) else place
            if isinstance(ended, Ended):
                sources[number] = ended.state
            elif isinstance(place, RowPlace):
                sources[number] = place.state(member)
            else:
                sources[number] = member.state_of(place)
        return self._dumped(replace(position, places=tuple(sources)))

    def _state_after(self, position: MixPosition) -> dict[str, Any]:
        """Return the state after the last batch of an epoch."""
        if in_worker():
            # The loader itself begins the next epoch after all workers have ended.
            progress = replace(position.progress, over=True)
            return self._dumped(replace(position, progress=progress, places=()))
        return self._dumped(self._first(position.epoch + 1))

    def state_of_row(self, position: MixPosition, used: int, taken: int) -> dict[str, Any]:
        """Return the state before a batch, and how many of its rows were taken."""
        state = {"state": self.state_of(position)}
        return state | {"used": used} if used else state

    def load_state_dict(self, state: dict[str, Any], skipped: tuple[int, Any] = (0, None)) -> None:
        """Make the next iteration, and the one under way, resume at `state`."""
        read = replace(self.read_state(state), skipped=skipped)
        self.options = replace(self.options, weights=_fractions(state["next_weights"]))
        if read.progress.over and not in_worker():
            live = self.live_iterator()
            self.begin_epoch(read.epoch + 1)
            if live is not None:
                live.progress.move(None)
        else:
            self.load(read)

    def _dumped(self, state: MixPosition) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            **self._identity(),
            "weights": [str(weight) for weight in state.options.weights],
            "next_weights": [str(weight) for weight in self.options.weights],
            "progress": state.progress.to_dict(),
            "sources": copy.deepcopy(list(state.places)) if any(state.places) else None,
        }

    def _identity(self) -> dict[str, Any]:
        """Return the values that a state must share with the mix that loads it, by name."""
        options = self.options
        return {
            "num_datasets": len(options.weights),
            "seed": options.seed,
            "stopping": options.stopping,
            "batch_size": options.batch_size,
        }

    def read_state(self, state: Any) -> MixPosition:
        """Read a state, after a check that it is that of a mix like this one, weights aside."""
        if not isinstance(state, dict):
            raise TypeError(f"state must be a dict, got {type(state).__name__}")
        if "progress" not in state:
            raise ValueError(f"state must be that of a mix, got keys {sorted(state)}")
        if state.get("format") != _FORMAT:
            raise ValueError(
                f"state must be of format {_FORMAT}, got format {state.get('format')!r}: it was "
                "saved by another release of torchparquet, which can read it"
            )
        own_identity = self._identity()
        keys = [*own_identity, "weights", "next_weights", "sources"]
        missing = [name for name in keys if name not in state]
        if missing:
            raise ValueError(f"state must be that of a mix, but lacks {missing}")
        for name, own in own_identity.items():
            if state[name] != own:
                later = "; one that joins later is there from the start, with weight 0"
                raise ValueError(
                    f"state must be of the same mix, got {name}={state[name]!r}, here {own!r}"
                    + (later if name == "num_datasets" else "")
                )
        progress = MixProgress.read(state["progress"])
        sizes = [len(state["weights"]), len(state["next_weights"]), len(progress.rounds)]
        sizes += [] if state["sources"] is None else [len(state["sources"])]
        num = len(self.members)
        if set(sizes) != {num}:
            raise ValueError(f"state must be of {num} data sets throughout, got {sizes}")
        options = replace(self.options, weights=_fractions(state["weights"]))
        sources = state["sources"] or [None] * num
        return MixPosition(progress, options, tuple(copy.deepcopy(sources)))


def _fractions(texts: Sequence[str]) -> tuple[Fraction, ...]:
    return tuple(Fraction(text) for text in texts)
