"""Several data sets as one: batches, or the rows of each batch, in exact proportion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any, Protocol, get_args

from torch.utils.data import IterableDataset

from torchparquet.epochs import EpochCounter
from torchparquet.mix_order import BatchOrder, MixOptions, Progress, RowOrder, Stopping
from torchparquet.plan_options import checked_int
from torchparquet.row_mixing import ROUND_EPOCHS, RowMixture, close_iterator, marked, rows_per_epoch
from torchparquet.tensors import Batch

Weight = int | float | Fraction

_FORMAT = 1


class Mixable(Protocol):
    """What is asked of a data set: that of `ParquetDataset`."""

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or go on with a state."""

    def __len__(self) -> int:
        """Return the batches of the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration."""

    def state_dict(self) -> dict[str, Any]:
        """Return where the latest iteration stands, counting batches that it has returned."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration go on where `state` was taken."""


def mix(
    datasets: Sequence[Mixable],
    *,
    weights: Sequence[Weight] | None = None,
    seed: int = 0,
    stopping: Stopping = "first_exhausted",
    within_batch: bool = False,
    batch_size: int | None = None,
    source_key: str | None = None,
) -> MixedDataset:
    """Return a data set of batches drawn from several data sets in exact proportion.

    After t batches a data set of weight w has given more than t * w - 1 and fewer than t * w + 1
    of them. Which comes next is random, a function of `seed` and epoch alone, so that all ranks
    draw alike: their steps are even if those of each data set are.

    Args:
        datasets: `ParquetDataset`s, or others with `len`, `set_epoch`, `state_dict` and
            `load_state_dict` like theirs. The mix sets their epochs.
        weights: Of each data set, above 0, in any scale; exact, also as fractions. None for
            equal ones.
        seed: Of the draws; the same on all ranks.
        stopping: "first_exhausted" ends the epoch when the data set that is drawn has no batch
            left. "all_exhausted" lets it leave the mix and the others go on in their proportion,
            until each batch of all was delivered once. "repeat" begins the data set anew, in
            another order, until each was delivered once as a whole.
        within_batch: Mix the rows of each batch, which are copied for it, in the order of the
            data sets, and in exact proportion as batches are; the last batch may be short only
            with "all_exhausted". The data sets' columns must agree.
        batch_size: Rows of such a batch.
        source_key: Add a tensor of this name, int64 `[B]`: the number of the data set that each
            row is from.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of its range.
    """
    datasets = list(datasets)
    if not datasets:
        raise ValueError("datasets must hold a data set, got none")
    for dataset in datasets:
        if getattr(dataset, "num_epochs", 1) != 1:
            raise ValueError("data sets of a mix must iterate over one epoch, num_epochs=1")
    if not isinstance(within_batch, bool):
        raise TypeError(f"within_batch must be a bool, got {within_batch!r}")
    if within_batch != (batch_size is not None):
        raise ValueError(
            "within_batch=True and batch_size go together, got "
            f"within_batch={within_batch}, batch_size={batch_size}"
        )
    if batch_size is not None:
        batch_size = checked_int("batch_size", batch_size, 1, 2**40)
    if stopping not in get_args(Stopping):
        raise ValueError(f"stopping must be one of {get_args(Stopping)}, got {stopping!r}")
    if source_key is not None and not isinstance(source_key, str):
        raise TypeError(f"source_key must be a str or None, got {source_key!r}")
    exact = _exact([1] * len(datasets) if weights is None else weights, len(datasets))
    options = MixOptions(exact, checked_int("seed", seed, 0, 2**64), stopping, batch_size)
    return MixedDataset(datasets, options, source_key)


class MixedDataset(IterableDataset[Batch]):
    """Batches of several data sets in exact proportion; made by `mix`.

    Every iteration is an epoch, the next one unless `set_epoch` says which.
    """

    def __init__(
        self, datasets: Sequence[Mixable], options: MixOptions, source_key: str | None
    ) -> None:
        """See `mix`, which checks the arguments."""
        super().__init__()
        self._datasets = list(datasets)
        self._options = options
        self._source_key = source_key
        self._epochs = EpochCounter()
        self._state: dict[str, Any] | None = None
        self._latest: _BatchMixture | RowMixture | None = None
        self._latest_options = options
        self._counted: tuple[Any, int] | None = None

    @property
    def datasets(self) -> list[Mixable]:
        """The data sets, in the order of the weights."""
        return list(self._datasets)

    @property
    def weights(self) -> list[float]:
        """How much of the mix each data set is from the next iteration on; their sum is 1."""
        total = sum(self._options.weights)
        return [float(weight / total) for weight in self._options.weights]

    def set_weights(self, weights: Sequence[Weight]) -> None:
        """Mix in another proportion from the next epoch on; the same one on all ranks.

        Raises:
            TypeError: A weight is not a number.
            ValueError: A weight is not above 0 and finite, or there are not as many as data sets.
        """
        self._options = self._with(_exact(weights, self._num))

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else that the next one will have."""
        if self._latest is not None and not self._latest.over:
            return self._latest.progress.epoch
        return self._epochs.next()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next iteration; a state that was loaded of it stays in force.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative or 2**32 and above.
        """
        epoch = checked_int("epoch", epoch, 0, ROUND_EPOCHS)
        if self._state is not None and self._state["progress"]["epoch"] != epoch:
            self._state = None
        self._end_latest()
        self._epochs.set(epoch)

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or go on where a state was taken."""
        state, self._state = self._state, None
        number = self._epochs.begin()
        if self._latest is not None:
            self._latest.close()
        if state is None:
            progress, states = Progress.begin(self._epochs.epoch_of(number), self._num), None
            self._latest_options = self._options
        else:
            progress, states = Progress(**_copied(state["progress"])), state["sources"]
            self._latest_options = self._with(_fractions(state["weights"]))
            self._epochs.set_epoch_of(number, progress.epoch)
        if states is None:
            for dataset in self._datasets:
                dataset.set_epoch(progress.epoch)
        kind = _BatchMixture if self._options.batch_size is None else RowMixture
        self._latest = kind(
            self._latest_options, self._datasets, progress, states, self._source_key
        )
        return self._latest

    def __len__(self) -> int:
        """Return the batches of the epoch under way, or else of the next one.

        Batches before a state was loaded count too.

        Raises:
            TypeError: Rows are mixed, and a data set does not say how many it has.
        """
        options, epoch, sizes = self._options, self._epochs.next(), []
        if self._latest is not None and not self._latest.over:
            progress = self._latest.progress
            options, epoch, sizes = self._latest_options, progress.epoch, progress.sizes
        elif self._state is not None:
            options = self._with(_fractions(self._state["weights"]))
            epoch, sizes = (self._state["progress"][name] for name in ("epoch", "sizes"))
        if not sizes:
            for dataset in self._datasets:
                dataset.set_epoch(epoch)
            of_rows = options.batch_size is not None
            sizes = [rows_per_epoch(data) if of_rows else len(data) for data in self._datasets]
        key = (options, epoch, sizes)
        if self._counted is None or self._counted[0] != key:
            self._counted = (key, _num_batches(options, epoch, sizes))
        return self._counted[1]

    def state_dict(self) -> dict[str, Any]:
        """Return where the latest iteration stands, counting batches that it has returned.

        The state holds those of all data sets, and goes through JSON.
        """
        if self._state is not None:
            return dict(_copied(self._state))
        options, latest, sources = self._options, self._latest, None
        progress = Progress.begin(self._epochs.next(), self._num)
        if latest is not None:
            # Whether it is over may be known only after looking for further rows.
            over = latest.over
            if not over:
                options, progress = self._latest_options, latest.progress
                sources = latest.state_dicts()
        state = {
            "format": _FORMAT,
            **_identity(options, self._num),
            "weights": [str(weight) for weight in options.weights],
            "next_weights": [str(weight) for weight in self._options.weights],
            "progress": asdict(progress),
            "sources": sources,
        }
        return dict(_copied(state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration go on where `state` was taken, with the weights of then.

        A state taken behind the last batch leads to the next epoch.

        Raises:
            TypeError: `state` is no dict.
            ValueError: It is not the state of a mix, or of another one.
        """
        if not isinstance(state, dict):
            raise TypeError(f"state must be a dict, got {type(state).__name__}")
        if state.get("format") != _FORMAT or "progress" not in state:
            raise ValueError(f"state must be that of a mix, got keys {sorted(state)}")
        for name, own in _identity(self._options, self._num).items():
            if state[name] != own:
                raise ValueError(
                    f"state must be of the same mix, got {name}={state[name]!r}, here {own!r}"
                )
        self._state = _copied(state)
        self._options = self._with(_fractions(state["next_weights"]))
        self._end_latest()
        self._epochs.set(state["progress"]["epoch"])

    def close(self) -> None:
        """End all iterations and free their memory. The data sets stay usable."""
        self._end_latest()
        for dataset in self._datasets:
            close = getattr(dataset, "close", None)
            if close is not None:
                close()

    def _end_latest(self) -> None:
        if self._latest is not None:
            self._latest.close()
        self._latest = None

    @property
    def _num(self) -> int:
        return len(self._datasets)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the iteration under way."""
        return self.__dict__ | {"_latest": None}

    def _with(self, weights: tuple[Fraction, ...]) -> MixOptions:
        own = self._options
        return MixOptions(weights, own.seed, own.stopping, own.batch_size)


class _BatchMixture(Iterator[Batch]):
    """One epoch of a mix whose batches are those of its data sets."""

    def __init__(
        self,
        options: MixOptions,
        datasets: list[Mixable],
        progress: Progress,
        states: list[Any] | None,
        source_key: str | None,
    ) -> None:
        """Go on at `progress` with data sets at `states`; None for the start of an epoch."""
        self._datasets = datasets
        self._source_key = source_key
        self.progress = progress
        for number, dataset in enumerate(datasets if states is not None else ()):
            if number in progress.active:
                dataset.load_state_dict(states[number])  # type: ignore[index]
        # A length is that of the iteration under way, so these come first.
        self._iterators = {number: iter(datasets[number]) for number in progress.active}
        lengths = [len(dataset) for dataset in datasets]
        progress.sizes = progress.sizes or list(lengths)
        self._order = BatchOrder(options, progress, lengths)
        self._closed = False

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            RuntimeError: A data set has fewer batches than it said.
            StopIteration: After the last batch.
        """
        number = self._order.source
        if self._closed or number is None:
            self.close()
            raise StopIteration
        batch = next(self._iterators[number], None)
        if batch is None:
            raise RuntimeError(
                f"data set {number} ended after {self.progress.delivered[number]} batches, "
                f"its length is {self._order.num_batches[number]}"
            )
        if self._order.count():
            self._begin_round(number)
        return marked(batch, self._source_key, number)

    @property
    def over(self) -> bool:
        """Whether there is no further batch."""
        return self._order.source is None

    def close(self) -> None:
        """End the iterations over the data sets. Idempotent."""
        self._closed = True
        for iterator in self._iterators.values():
            close_iterator(iterator)

    def state_dicts(self) -> list[Any]:
        """Return where each data set stands; None for those that have left the mix."""
        active = self.progress.active
        return [
            dataset.state_dict() if number in active else None
            for number, dataset in enumerate(self._datasets)
        ]

    def _begin_round(self, number: int) -> None:
        dataset = self._datasets[number]
        dataset.set_epoch(self.progress.epoch + self.progress.rounds[number] * ROUND_EPOCHS)
        self._iterators[number] = iter(dataset)
        self._order.num_batches[number] = len(dataset)


def _num_batches(options: MixOptions, epoch: int, sizes: list[int | None]) -> int:
    progress = Progress.begin(epoch, len(sizes))
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise TypeError("a mix within batches has no len: a data set does not say its rows")
    if options.batch_size is None:
        return BatchOrder(options, progress, known).count_all()
    return RowOrder(options, progress).count_all(known)


def _exact(weights: Sequence[Weight], count: int) -> tuple[Fraction, ...]:
    weights = list(weights)
    if len(weights) != count:
        raise ValueError(f"weights must be as many as data sets, got {len(weights)} for {count}")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float | Fraction):
            raise TypeError(f"weights must be numbers, got {weight!r}")
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"weights must be above 0 and finite, got {weight!r}")
    return tuple(Fraction(weight) for weight in weights)


def _fractions(texts: Sequence[str]) -> tuple[Fraction, ...]:
    return tuple(Fraction(text) for text in texts)


def _identity(options: MixOptions, num_datasets: int) -> dict[str, Any]:
    """Return what a state must share with the mix that loads it, by name."""
    return {
        "num_datasets": num_datasets,
        "seed": options.seed,
        "stopping": options.stopping,
        "batch_size": options.batch_size,
    }


def _copied(value: Any) -> Any:
    """Return a copy of dicts and lists, so that a state does not change any more."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
