"""Metrics of data sets for loggers, Prometheus and OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from typing import Any

from torchparquet._impl.metrics.read_metrics import Metrics
from torchparquet._impl.reading.waits import LENGTHS, bucket_end
from torchparquet.frameworks import Source, source_of


def _read_here(loader: object) -> Source:
    """Return the data set of a loader, if this process reads it."""
    source = source_of(loader)
    if source is None:
        raise TypeError(
            "metrics need a ParquetDataset or a mix, or a DataLoader of one, got "
            f"{type(loader).__name__}"
        )
    if num_workers := getattr(loader, "num_workers", 0):
        raise ValueError(
            "only the process that reads has metrics: use num_workers=0, or log them in "
            f"the workers, got num_workers={num_workers}"
        )
    return source


def interval_of(loader: object) -> Callable[[], Metrics]:
    """Return a function that gives a data set's metrics since its last call, at first since now."""
    source = _read_here(loader)
    before = source.metrics(all_iterations=True)

    def take() -> Metrics:
        nonlocal before
        now = source.metrics(all_iterations=True)
        since, before = now.since(before), now
        return since

    return take


class MetricsLog:
    """Writes the metrics of a data set to TensorBoard every few steps.

    Each point covers the steps since the one before: one `add_scalar` per number, such as
    `data/rows_per_second`, and the bottleneck as text.
    """

    def __init__(
        self,
        dataset: object,
        writer: Any,
        *,
        every_n_steps: int = 100,
        columns: bool = False,
        prefix: str = "data/",
    ) -> None:
        """Begin at step 0.

        Args:
            dataset: A `ParquetDataset` or a mix, or a DataLoader of one without workers.
            writer: A `torch.utils.tensorboard.SummaryWriter`, or an object with its `add_scalar`
                and `add_text`.
            every_n_steps: Calls of `step` between two points.
            columns: True writes the numbers of each column and codec too.
            prefix: Prefix of all names.

        Raises:
            TypeError: `dataset` is neither.
            ValueError: The DataLoader has workers, or `every_n_steps` is below 1.
        """
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps must be at least 1, got {every_n_steps}")
        self._take = interval_of(dataset)
        self._writer, self._prefix = writer, prefix
        self._every_n_steps, self._columns = every_n_steps, columns
        self._num_steps = 0

    def step(self, step: int | None = None) -> Metrics | None:
        """Count a training step, and write a point if one is due.

        Args:
            step: Number of the step, for the writer; None for the number of calls.

        Returns:
            The metrics that were written; None if no point was due.
        """
        self._num_steps += 1
        if self._num_steps % self._every_n_steps:
            return None
        metrics = self._take()
        number = self._num_steps if step is None else step
        for name, value in metrics.as_dict(columns=self._columns).items():
            self._writer.add_scalar(self._prefix + name, value, number)
        self._writer.add_text(self._prefix + "bottleneck", metrics.bottleneck, number)
        return metrics


# They may fall, or are of an interval; all other numbers of `Metrics` only grow.
_LEVELS = (
    *("num_threads", "batches_ready", "batches_in_flight", "max_batches_in_flight"),
    *("memory_bytes", "max_memory_bytes"),
)
_QUANTILES = tuple(f"wait_{name}" for name in LENGTHS)
_DERIVED = ("rows_per_second", "wait_fraction", "python_seconds", *_QUANTILES)
# Two buckets of `Waits` are one of Prometheus: as many series for each data set and rank.
_BUCKETS_IN_ONE = 2


def _labels(source: Source, name: str) -> dict[str, str]:
    topology, _ = source._session.rank_and_peers()
    return {"dataset": name, "rank": str(topology.rank)}


def _named(datasets: object) -> dict[str, Source]:
    given = datasets if isinstance(datasets, Mapping) else {"data": datasets}
    return {str(name): _read_here(loader) for name, loader in given.items()}


def to_prometheus(datasets: object, registry: Any = None) -> Any:
    """Let a registry of `prometheus_client` collect the metrics of data sets.

    Each scrape finds those of all iterations until then, as `torchparquet_rows_total` and so on,
    and the waits for batches as the histogram `torchparquet_batch_wait_seconds`, with the labels
    `dataset` and `rank`. An endpoint is that of the client library:
    `prometheus_client.start_http_server(port)`.

    Args:
        datasets: A `ParquetDataset` or a mix, a DataLoader of one without workers, or a dict of
            them by name, the label `dataset`; the name of a single one is "data".
        registry: A `CollectorRegistry`, which takes one such call; None for the default one.

    Returns:
        The collector: `registry.unregister(collector)` ends it and lets the data sets go.

    Raises:
        ImportError: `prometheus_client` is not installed.
        TypeError: A data set is neither.
        ValueError: A DataLoader has workers.
    """
    from prometheus_client import REGISTRY

    collector = _Collector(_named(datasets))
    (REGISTRY if registry is None else registry).register(collector)
    return collector


class _Collector:
    """Makes families of Prometheus of data sets, as scrapes ask for them."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources

    def describe(self) -> list[Any]:
        """Return no names: a registry asks for these before data is read."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield each family, with the values of all data sets."""
        from prometheus_client import core

        found = {
            name: source.metrics(all_iterations=True) for name, source in self._sources.items()
        }
        labels = {name: _labels(source, name) for name, source in self._sources.items()}
        numbers = {name: metrics.as_dict(columns=False) for name, metrics in found.items()}
        keys = ["dataset", "rank"]
        for quantity in (one for one in Metrics().as_dict(columns=False) if one not in _DERIVED):
            is_level = quantity in _LEVELS
            kind = core.GaugeMetricFamily if is_level else core.CounterMetricFamily
            text = f"{quantity} of torchparquet.{'Ring' if is_level else 'Metrics'}"
            family = kind(f"torchparquet_{quantity}", text, labels=keys)
            for name, values in numbers.items():
                family.add_metric(list(labels[name].values()), values[quantity])
            yield family
        waits = core.HistogramMetricFamily(
            "torchparquet_batch_wait_seconds", "waits of the loop for single batches", labels=keys
        )
        for name, metrics in found.items():
            sums = list(accumulate(metrics.waits.counts))
            ends = range(0, len(sums) - 1, _BUCKETS_IN_ONE)  # the last bucket has no end
            buckets = [(repr(bucket_end(end)), sums[end]) for end in ends] + [("+Inf", sums[-1])]
            waits.add_metric(list(labels[name].values()), buckets, metrics.wait_seconds)
        yield waits


def to_opentelemetry(datasets: object, meter: Any = None) -> None:
    """Let a meter of OpenTelemetry observe the metrics of data sets.

    Counters such as `torchparquet.rows` and `torchparquet.wait` (in seconds) are of all iterations.
    Gauges are the present batches in flight, and `torchparquet.wait.p50`, `p95`, `p99` and `max` of
    the waits since the observation before. Attributes are `dataset` and `rank`.

    Args:
        datasets: As for `to_prometheus`.
        meter: A `Meter`; None for that of the global provider.

    Raises:
        ImportError: `opentelemetry-api` is not installed.
        TypeError: A data set is neither.
        ValueError: A DataLoader has workers.
    """
    from opentelemetry.metrics import Observation, get_meter

    meter = get_meter("torchparquet", version("torchparquet")) if meter is None else meter
    observed = [(_Observed(source), name) for name, source in _named(datasets).items()]

    def callback(quantity: str) -> Callable[[object], list[Any]]:
        return lambda _: [
            Observation(one.number(quantity), _labels(one.source, name)) for one, name in observed
        ]

    for quantity in Metrics().as_dict(columns=False):
        create = meter.create_observable_counter
        if quantity in _QUANTILES or quantity in _LEVELS:
            create = meter.create_observable_gauge
        elif quantity in _DERIVED:
            continue
        name, unit = quantity, "By" if "bytes" in quantity else "1"
        if quantity.endswith("_seconds"):
            name, unit = quantity.removesuffix("_seconds"), "s"
        name = name.replace("wait_", "wait.") if quantity in _QUANTILES else name
        create(f"torchparquet.{name}", callbacks=[callback(quantity)], unit=unit)


class _Observed:
    """The numbers of a data set at one observation, in which each is asked for once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._take = interval_of(source)
        self._asked: set[str] = set()
        self._numbers: dict[str, float] = {}

    def number(self, quantity: str) -> float:
        """Return a number; if it was asked for before, of a new observation."""
        if not self._numbers or quantity in self._asked:
            since = self._take().as_dict(columns=False)
            self._numbers = self.source.metrics(all_iterations=True).as_dict(columns=False)
            self._numbers |= {name: since[name] for name in _QUANTILES}
            self._asked.clear()
        self._asked.add(quantity)
        return self._numbers[quantity]
