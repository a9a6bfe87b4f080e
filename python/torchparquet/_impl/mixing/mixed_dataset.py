"""Joins data sets: batches, or the rows of each batch, in exact proportion."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_args

from torchparquet._impl.batches.iterable_only import IterableOnly
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.checks import checked_int, explaining_arguments
from torchparquet._impl.functions.transforms import Processor, Transform
from torchparquet._impl.metrics.read_metrics import Metrics, side_by_side
from torchparquet._impl.mixing.batch_mixing import BatchMixture
from torchparquet._impl.mixing.members import Metered, Mixable, begin_epoch, own_copies, worlds
from torchparquet._impl.mixing.mix_order import MixOptions, MixProgress, Stopping
from torchparquet._impl.mixing.mix_state import check, copied, dump, fractions
from torchparquet._impl.mixing.mixture import Mixture
from torchparquet._impl.mixing.row_mixing import RowMixture
from torchparquet._impl.mixing.unbatched import UnbatchedDataset
from torchparquet._impl.ranks.orphans import end_orphaned_worker
from torchparquet._impl.ranks.sharding import (
    in_worker,
    num_workers_of_caller,
    refuse_second_batching,
)
from torchparquet._impl.session.epoch_counter import EpochCounter
from torchparquet._impl.session.progress import warn_of_dropped_state

Weight = int | float | Fraction


@explaining_arguments()
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

    After t batches, a data set of weight w has given more than t * w - 1 and fewer than t * w + 1
    of them. The order is random, by `seed` and epoch alone, so it is the same on all ranks. All
    ranks take the same number of steps if they do so in each data set.

    Args:
        datasets: `ParquetDataset`s, or others with `len`, `set_epoch`, `state_dict` and
            `load_state_dict` like theirs. The mix sets their epochs. States of other data sets fit
            the same number of ranks only, unless they handle another number themselves.
        weights: Weight of each data set, in any scale; exact, also as fractions. A data set of
            weight 0 is left out until `set_weights` lets it join. None for equal weights.
        seed: Seed of the draws; the same on all ranks.
        stopping: The rule for a drawn data set without a batch left. "first_exhausted" ends the
            epoch. "all_exhausted" lets it leave the mix, and the others keep their proportion until
            each batch of all was delivered once. "repeat" starts it again in another order, until
            each data set was delivered once as a whole.
        within_batch: True mixes rows: each batch has rows of all data sets, in their order and in
            exact proportion. The rows are copied. Only with "all_exhausted" may the last batch be
            short. The data sets' columns must agree.
        batch_size: Rows of a batch with `within_batch=True`.
        source_key: Name of a tensor to add, int64 `[B]`: the number of each row's data set.

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


class MixedDataset(IterableOnly[Batch]):
    """Batches of several data sets in exact proportion; `mix` makes it.

    Every iteration is an epoch: the next one, unless `set_epoch` sets another. One that ends after
    a look at one batch takes no epoch.
    """

    _noun = "mix"

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
        self._state_is_for: int | None = None  # an iteration; None for this process's next one
        self._latest: Mixture[Any] | None = None
        self._latest_options = options
        self._ended: MixProgress | None = None
        self._are_own = False
        self._counted: tuple[Any, int] | None = None
        self._metrics_before: list[Metrics | None] = [None] * len(self._datasets)

    @property
    def datasets(self) -> list[Mixable]:
        """The data sets, in the order of the weights."""
        return list(self._datasets)

    @property
    def weights(self) -> list[float]:
        """The part of each data set in the mix, from the next iteration on; the sum is 1."""
        total = sum(self._options.weights)
        return [float(weight / total) for weight in self._options.weights]

    def set_weights(self, weights: Sequence[Weight]) -> None:
        """Change the proportion from the next epoch on, alike on all ranks.

        Raises:
            TypeError: A weight is not a number.
            ValueError: A weight is negative or not finite, all are 0, or their number differs from
                the data sets'.
        """
        self._options = self._with(_exact(weights, self._num))

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else of the next one."""
        if self._latest is not None and not self._latest.over:
            return self._latest.progress.epoch
        state = self.loaded_state
        return self._epochs.next() if state is None else int(state["progress"]["epoch"])

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; see `ParquetDataset.set_epoch`.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative.
        """
        epoch = checked_int("epoch", epoch, 0, 2**62)
        loaded = self.loaded_state
        if loaded is not None and loaded["progress"]["epoch"] != epoch:
            warn_of_dropped_state(epoch, loaded["progress"]["epoch"])
            self._state = None
        self._end_latest()
        self._epochs.set(epoch)

    def __iter__(self) -> Iterator[Batch]:
        """Begin the next epoch, or resume at a loaded state."""
        if in_worker() and not self._are_own:
            self._datasets, self._are_own = own_copies(self._datasets), True
        number = self._epochs.begin()
        state = self._state if self._state_is_for in (None, number) else None
        if self._latest is not None:
            self._latest.close()
        if state is None:
            progress, states = (
                MixProgress.begin(self._epochs.epoch_of(number), self._options.weights),
                None,
            )
            self._latest_options = self._options
        else:
            progress, states = MixProgress.read(state["progress"]), state["sources"]
            self._latest_options = self._with(fractions(state["weights"]))
            self._epochs.set_epoch_of(number, progress.epoch)
        self._latest, self._ended = None, progress if progress.over else None
        self._metrics_before = self._metrics_of_all()
        begun: Iterator[Batch] = iter(())
        if not progress.over:
            if states is None:
                _set_epochs(self._datasets, progress.epoch)
            begun = self._latest = self._kind(
                self._latest_options, self._datasets, progress, states, self._source_key
            )
            self._latest.look_first(self._epochs.commit)
        refuse_second_batching(self)  # after the data sets, which refuse loaders of Accelerate
        if progress.over:
            self._epochs.commit()
        if in_worker():
            self._state = None
        end_orphaned_worker()
        return begun

    @property
    def _kind(self) -> type[BatchMixture] | type[RowMixture]:
        return BatchMixture if self._options.batch_size is None else RowMixture

    def __len__(self) -> int:
        """Return the batches of the epoch under way, or else of the next one.

        Batches before a loaded state count too. With `ParquetDataset`s, `len(loader)` covers all
        workers; after they have begun an epoch, it is the length of the next one.

        Raises:
            TypeError: Rows are mixed, and a data set has no known number of rows.
        """
        latest, state = self._latest, self.loaded_state
        if latest is not None and not latest.closed:
            return latest.length
        num_workers = 0 if in_worker() else num_workers_of_caller(self)
        if state is None:
            options = self._options
            progress = MixProgress.begin(self._epochs.next(), options.weights)
        else:
            options = self._with(fractions(state["weights"]))
            progress = MixProgress.read(state["progress"])
        states = None if state is None else state["sources"]
        key = (options, progress, num_workers, worlds(self._datasets), states is None)
        if self._counted is None or self._counted[0] != key:
            counted = [copy.copy(data) for data in self._datasets]  # a length moves nothing
            if states is None:
                _set_epochs(counted, progress.epoch)
            num = self._kind.count(options, counted, progress, states, num_workers)
            self._counted = key, num
        return self._counted[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration: the batches that it has returned.

        The state holds the states of all data sets, as JSON values. It is the same on all ranks at
        the same step; with `even="none"`, until a rank has no row left of a data set.

        Raises:
            RuntimeError: DataLoader workers have iterated the mix.
        """
        loaded = self.loaded_state if self._latest is None else None
        if loaded is not None:
            return dict(copied(loaded))
        self._epochs.check_seen("mix")
        options, latest, sources = self._options, self._latest, None
        progress = self._ended or MixProgress.begin(self._epochs.next(), options.weights)
        if latest is not None:
            # Looking for further rows may be the only way to know if the epoch is over.
            over = latest.over
            if not over:
                options, progress = self._latest_options, latest.progress
                sources = latest.state_dicts()
            elif in_worker():
                # The loader itself begins the next epoch after all workers have ended.
                progress = replace(latest.progress, over=True)
        return dump(options, self._options, progress, sources)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`, with the weights of that time.

        A state taken after the last batch begins the next epoch. On another number of ranks, the
        undelivered rows of each `ParquetDataset` are divided among them.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is not the state of a mix, or belongs to another mix.
        """
        check(state, self._options)
        self._state = copied(state)
        self._options = self._with(fractions(state["next_weights"]))
        self._end_latest()
        epoch = state["progress"]["epoch"]
        if in_worker():
            # Another worker may have begun this iteration, so the next one comes after it.
            self._state_is_for = None
            return
        if state["progress"].get("over", False):
            self._state, epoch = None, epoch + 1
        self._epochs.set(epoch)
        self._state_is_for = self._epochs.num_iterations()

    def metrics(self, *, all_iterations: bool = False) -> Metrics:
        """Return the metrics of this process: of the mix, and of each data set in `sources`.

        See `ParquetDataset.metrics`. The data sets are read side by side, so the time of each is
        the time of the mix, without the time in `next` of the others.

        Raises:
            RuntimeError: DataLoader workers iterate the mix, each with metrics of its own.
        """
        present = self._metrics_of_all()
        if not all_iterations:
            self._epochs.check_own("mix", "metrics")
            present = [
                one if one is None or was is None else one.since(was)
                for one, was in zip(present, self._metrics_before, strict=True)
            ]
        return side_by_side(present)

    def _metrics_of_all(self) -> list[Metrics | None]:
        return [
            dataset.metrics(all_iterations=True) if isinstance(dataset, Metered) else None
            for dataset in self._datasets
        ]

    def marking_repeats(self) -> MixedDataset:
        """Return a copy with `batch["row.valid"]`; see `ParquetDataset.marking_repeats`.

        Rows that the mix itself reads again, as with `stopping="repeat"`, are no repeats. Batches
        of data sets that cannot mark them are without.

        Raises:
            TypeError: Rows are mixed, and a data set cannot mark them.
        """
        made = copy.copy(self)
        for number, dataset in enumerate(made._datasets):
            mark = getattr(dataset, "marking_repeats", None)
            if mark is not None:
                made._datasets[number] = mark()
            elif self._options.batch_size is not None:
                raise TypeError(
                    "a mix with within_batch=True can mark the rows that even= repeats only if "
                    "all of its data sets can, as those of Parquet files do: data set "
                    f"{number} has no marking_repeats()"
                )
        return made

    def unbatched(
        self,
        *,
        processors: Mapping[str, Processor] | None = None,
        transform: Transform | None = None,
    ) -> UnbatchedDataset:
        """Return a data set of the mix's rows, one by one; see `ParquetDataset.unbatched`.

        A state within a batch fits the same ranks and workers only.
        """
        return UnbatchedDataset(self, processors, transform)

    def close(self) -> None:
        """End all iterations and free their memory. The data sets stay usable."""
        self._end_latest()
        for dataset in self._datasets:
            close = getattr(dataset, "close", None)
            if close is not None:
                close()

    @property
    def loaded_state(self) -> dict[str, Any] | None:
        """The loaded state that the next iteration resumes at; None if it begins an epoch."""
        # Workers may have begun that iteration.
        if self._state_is_for in (None, self._epochs.num_iterations()):
            return self._state
        return None

    def _end_latest(self) -> None:
        if self._latest is not None:
            self._latest.close()
        self._latest = self._ended = self._counted = None

    @property
    def _num(self) -> int:
        return len(self._datasets)

    def __copy__(self) -> MixedDataset:
        """Return a copy that counts epochs by itself, in this process."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__getstate__())
        made._datasets = own_copies(self._datasets)
        made._epochs = copy.deepcopy(self._epochs)
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without the iteration under way."""
        return self.__dict__ | {"_latest": None, "_metrics_before": [None] * self._num}

    def _with(self, weights: tuple[Fraction, ...]) -> MixOptions:
        own = self._options
        return MixOptions(weights, own.seed, own.stopping, own.batch_size)


def _set_epochs(datasets: Sequence[Mixable], epoch: int) -> None:
    for dataset in datasets:
        begin_epoch(dataset, epoch)


def _exact(weights: Sequence[Weight], count: int) -> tuple[Fraction, ...]:
    weights = list(weights)
    if len(weights) != count:
        raise ValueError(f"weights must be as many as data sets, got {len(weights)} for {count}")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, int | float | Fraction):
            raise TypeError(f"weights must be numbers, got {weight!r}")
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weights must be at least 0 and finite, got {weight!r}")
    if not any(weights):
        raise ValueError(f"weights must not all be 0, got {weights!r}")
    return tuple(Fraction(weight) for weight in weights)
