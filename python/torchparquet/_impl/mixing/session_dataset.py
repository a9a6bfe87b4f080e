"""What all data sets that users hold have in common: a session."""

from __future__ import annotations

from typing import Any, TypeVar

from torchparquet._impl.checks import checked_int
from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.mixing.mix_session import Member
from torchparquet._impl.ranks.loaders import IterableOnly

_Item = TypeVar("_Item", covariant=True)


class SessionDataset(IterableOnly[_Item]):
    """A data set whose epochs, states and metrics are those of a session."""

    _session: Member

    @property
    def epoch(self) -> int:
        """The epoch of the iteration under way, or else that the next one will have."""
        return self._session.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration read `epoch`; later iterations count up from there.

        A loaded state stays in force if it is of this epoch; else it is dropped, with a warning.

        Raises:
            TypeError: `epoch` is not an int.
            ValueError: `epoch` is negative, or a loader of Accelerate that asks for it would
                divide the batches among ranks a second time.
        """
        self._session.refuse_second_sharding()
        self._session.set_epoch(checked_int("epoch", epoch, 0, 2**62))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the latest iteration: the items that it has returned.

        The state is a small dict that JSON, pickle and torch.save take. It is the same on every
        rank at the same step (in a mix with `even="none"`, until a rank has no row left of a data
        set), so saving it on one rank is enough. With `even="dynamic"` each rank has its own, with
        a number for each row group that it took: save all, and load each on the rank that it is of.

        Raises:
            RuntimeError: DataLoader workers iterated the data set. Only they know the state, which
                torchdata's `StatefulDataLoader` asks them for.
        """
        return self._session.latest_state()

    def metrics(self, *, all_iterations: bool = False, all_ranks: bool = False) -> Metrics:
        """Return how fast this process reads, and whether reading or the loop is slower.

        Any thread may call this at any time, also after `close`. Metrics of a mix have those of
        each data set in `sources`: its time is that of the mix, without the time in `next` of the
        others.

        Args:
            all_iterations: Count everything that this process has read since it made the data set.
                Otherwise count the iteration under way, or else the last one.
            all_ranks: Return the metrics of all ranks, without columns, codecs and sources, and
                name the rank that data held up most since the last such call, in `slowest`. Counts
                and seconds of decode threads are sums, seconds of the loop are means over ranks.
                All processes that `check_ranks_agree` compares must call this, in the same order
                as other such calls.

        Raises:
            RuntimeError: DataLoader workers iterate the data set, each with metrics of its own:
                `torch.utils.data.get_worker_info().dataset.metrics()` within a worker.
            RankMismatchError: With `all_ranks`, some rank did not call within the timeout of
                torch.distributed's store.
        """
        return self._session.metrics(all_iterations=all_iterations, all_ranks=all_ranks)

    def close(self) -> None:
        """End all iterations of this process and free their memory. The data set stays usable."""
        self._session.close()
