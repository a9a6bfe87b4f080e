"""Joins data sets: batches, or the rows of each batch, in exact proportion."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self, get_args

from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.checks import (
    checked_bool,
    checked_int,
    checked_word,
    explaining_arguments,
    optional_int,
)
from torchparquet._impl.functions.transforms import Processor, Transform
from torchparquet._impl.mixing.mix_order import MixOptions, Stopping
from torchparquet._impl.mixing.mix_session import Member, MixSession
from torchparquet._impl.mixing.mixture import Mixture, SkippingMixture
from torchparquet._impl.mixing.row_mixing import RowMixture, SkippingRowMixture
from torchparquet._impl.mixing.session_dataset import SessionDataset
from torchparquet._impl.ranks.loaders import (
    IterableOnly,
    end_orphaned_worker,
    num_dropped_by_accelerate,
    num_workers_of_caller,
    refuse_second_batching,
)
from torchparquet._impl.ranks.sharding import in_worker
from torchparquet.dataset import ParquetDataset
from torchparquet.unbatched import UnbatchedDataset

Weight = int | float | Fraction


@explaining_arguments()
def mix(
    datasets: Sequence[ParquetDataset | MixedDataset],
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
        datasets: `ParquetDataset`s, and mixes of them, whose epochs and states stay as they are.
            Of data sets of other libraries, torchdata.nodes makes mixes.
        weights: Weight of each data set, in any scale; exact, also as fractions. A data set of
            weight 0 is left out until `set_weights` lets it join. None for equal weights.
        seed: Seed of the draws; the same on all ranks.
        stopping: The rule for a drawn data set without a batch left. "first_exhausted" ends the
            epoch. "all_exhausted" lets it leave the mix, and the others keep their proportion.
            "repeat" starts it again in another order, until each was delivered once as a whole.
        within_batch: True mixes rows: each batch has rows of all data sets, in their order and in
            exact proportion, copied. Only with "all_exhausted" may the last batch be short. The
            data sets' columns must agree.
        batch_size: Rows of a batch with `within_batch=True`.
        source_key: Name of a tensor to add, int64 `[B]`: the number of each row's data set.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of its range.
    """
    if isinstance(datasets, IterableOnly | Mapping | str):
        raise TypeError("datasets must be a list of data sets, as in mix([one, other])")
    datasets = list(datasets)
    if not datasets:
        raise ValueError("datasets must hold a data set, got none")
    for number, dataset in enumerate(datasets):
        _check_member(number, dataset)
    checked_bool("within_batch", within_batch)
    if within_batch != (batch_size is not None):
        raise ValueError(
            "within_batch=True and batch_size go together, got "
            f"within_batch={within_batch}, batch_size={batch_size}"
        )
    batch_size = optional_int("batch_size", batch_size, 1, 2**40)
    checked_word("stopping", stopping, get_args(Stopping))
    if source_key is not None and not isinstance(source_key, str):
        raise TypeError(f"source_key must be a str or None, got {source_key!r}")
    exact = _exact([1] * len(datasets) if weights is None else weights, len(datasets))
    options = MixOptions(exact, checked_int("seed", seed, 0, 2**64), stopping, batch_size)
    return MixedDataset(datasets, options, source_key)


class MixedDataset(SessionDataset[Batch]):
    """Batches of several data sets in exact proportion, an epoch an iteration; `mix` makes it."""

    _noun = "mix"
    _session: MixSession

    def __init__(
        self,
        datasets: Sequence[ParquetDataset | MixedDataset],
        options: MixOptions,
        source_key: str | None,
    ) -> None:
        """See `mix`, which checks the arguments."""
        super().__init__()
        self._datasets = list(datasets)
        mixing = Mixture if options.batch_size is None else RowMixture
        sessions: list[Member] = [dataset._session for dataset in datasets]
        self._session = MixSession(sessions, options, source_key, mixing)

    @property
    def datasets(self) -> list[ParquetDataset | MixedDataset]:
        """The data sets, in the order of the weights."""
        return list(self._datasets)

    @property
    def weights(self) -> list[float]:
        """The part of each data set in the mix, from the next iteration on; the sum is 1."""
        weights = self._session.options.weights
        return [float(weight / sum(weights)) for weight in weights]

    def set_weights(self, weights: Sequence[Weight]) -> None:
        """Change the proportion from the next epoch on, alike on all ranks.

        Raises:
            TypeError: A weight is not a number.
            ValueError: A weight is negative or not finite, all are 0, or their number differs from
                the data sets'.
        """
        exact = _exact(weights, len(self._datasets))
        self._session.options = replace(self._session.options, weights=exact)

    def __iter__(self) -> Mixture:
        """Return an iterator. Its first `next` begins the next epoch or resumes from a state."""
        self._session.refuse_second_sharding()
        refuse_second_batching(self)  # after the data sets, which refuse loaders of Accelerate
        num_dropped = num_dropped_by_accelerate(self) if self._session.can_pass_over else 0
        is_of_rows = self._session.options.batch_size is not None
        if num_dropped:
            skipping = SkippingRowMixture if is_of_rows else SkippingMixture
            mixture: Mixture = skipping(self._session, num_dropped)
        else:
            mixture = self._session.mixing(self._session)
        end_orphaned_worker()
        return mixture

    def __len__(self) -> int:
        """Return the batches of the epoch under way, or else of the next one.

        Batches before a loaded state count too. `len(loader)` covers all workers.

        Raises:
            TypeError: Rows are mixed, and a data set has no known number of rows.
        """
        return self._session.num_steps(0 if in_worker() else num_workers_of_caller(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`, with the weights of that time.

        A live iterator resumes there too. A state taken after the last batch begins the next
        epoch. Another number of ranks divides the undelivered rows of each `ParquetDataset`.

        Raises:
            TypeError: `state` is not a dict.
            ValueError: `state` is not the state of a mix, or belongs to another mix.
        """
        self._session.load_state_dict(state)

    def marking_repeats(self) -> Self:
        """Return a copy with `batch["row.valid"]`; see `ParquetDataset.marking_repeats`.

        Rows that the mix itself reads again, as with `stopping="repeat"`, are no repeats.
        """
        return self._of([dataset.marking_repeats() for dataset in self._datasets])

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

    def _of(self, datasets: Sequence[ParquetDataset | MixedDataset]) -> Self:
        """Return a copy that mixes other data sets, and counts epochs by itself."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._datasets = list(datasets)
        sessions = [dataset._session for dataset in datasets]
        made._session = copy.copy(self._session).over(sessions)
        return made

    def __copy__(self) -> Self:
        """Return a copy that counts epochs by itself, in this process."""
        return self._of([copy.copy(dataset) for dataset in self._datasets])

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return `copy.copy`: copies share only objects that never change."""
        return copy.copy(self)


def _check_member(number: int, dataset: object) -> None:
    if not isinstance(dataset, ParquetDataset | MixedDataset):
        raise TypeError(
            "mix takes ParquetDatasets and mixes of them; torchdata.nodes.MultiNodeWeightedSampler "
            f"mixes data sets of any kind. Data set {number} is of another kind"
        )
    own = ParquetDataset if isinstance(dataset, ParquetDataset) else MixedDataset
    if type(dataset).__iter__ is not own.__iter__:
        raise TypeError(
            "mix does not call an __iter__ that a subclass defines: give the data set a "
            "transform=, or mix by torchdata.nodes.MultiNodeWeightedSampler. Data set "
            f"{number} has an __iter__ of its own"
        )
    if isinstance(dataset, ParquetDataset) and dataset.num_epochs != 1:
        raise ValueError("data sets of a mix must iterate over one epoch, num_epochs=1")


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
