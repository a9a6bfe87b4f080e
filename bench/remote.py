"""Reading from a simulated store: torchparquet beside other packages, in one run.

The store is nginx on this machine, which waits before each answer and limits each connection; it
takes a part of the same cores. It needs packages of Debian, which the program names if they are
missing. Every byte of every batch is read; medians over rounds in which all take turns.

    python bench/remote.py                          # everything
    python bench/remote.py --parts reading          # end to end, by distance
    python bench/remote.py --parts first footers    # the first batch; many small files
    python bench/remote.py --parts cache waits      # epochs from a cache; hedged requests
    python bench/remote.py --quick                  # on small data: does everything work?
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from generated import click_log
from generated.generated_files import many_files
from report.machine import OtherLoad, described, environment
from report.tables import markdown
from report.verdicts import OURS, Setting, SkippedError
from stores.measures import (
    Batches,
    Measured,
    first_batch,
    measure,
    measure_batches,
    median_seconds,
)
from stores.nginx import Distance, Place, store
from stores.readers import Reader, curl_ranges, options_of_s3, our_dataset, readers

_DIRECTORY = Path(__file__).resolve().parent
FILE, FOLDER = "click_log.parquet", "many"
READING = (5.0, 30.0, 50.0)
FOOTERS_MS = 30.0
# Two distances: their difference is of round trips alone, not of work. It is large beside what
# other load does to either.
# Batches that need a request or two each, and passes enough for tens of late requests.
WAITS_BATCH_SIZE, WAITS_PASSES = 65_536, 40
NEAR, FAR = (Distance(ms, late_share=0, connection_kb_per_second=0) for ms in (5, 305))
CACHE_OPTION, CLIENT_OPTION = "cache_dir", "storage_options"
Figures = dict[str, Any]


class Bench:
    """The data, and what is asked of each part."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Generates the data where they are missing."""
        self.repeats: int = arguments.repeats
        self.batch_size: int = arguments.batch_size
        self.setting = Setting(arguments.data_dir, arguments.quick, self.repeats)
        rows = 80_000 if arguments.quick else arguments.rows
        options = click_log.ClickLogOptions(rows, min(rows // 4, 250_000))
        folder = arguments.data_dir / f"remote_{rows}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.file = click_log.ensure_files(folder, ("snappy",), options)["snappy"]
        self.num_bytes = self.file.stat().st_size
        found = readers()
        self.readers = [r for r in found if not r.missing and _is_chosen(r, arguments.only)]
        self.missing = [r for r in found if r.missing]

    @property
    def ours(self) -> Reader | None:
        """None if torchparquet cannot be measured."""
        return next((reader for reader in self.readers if reader.name == OURS), None)

    @contextmanager
    def places(self, distances: list[Distance], *, many: bool = False) -> Iterator[list[Place]]:
        """Runs the store, and yields the data at each distance."""
        objects = {FOLDER: many_files(self.setting)} if many else {FILE: self.file}
        key = f"{FOLDER}/" if many else FILE
        with (
            tempfile.TemporaryDirectory(prefix="torchparquet-store-") as folder,
            store(Path(folder), objects, distances) as endpoints,
        ):
            yield [Place(endpoint, key) for endpoint in endpoints]


def _is_chosen(reader: Reader, parts: list[str] | None) -> bool:
    return not parts or any(part in reader.name for part in parts)


def _ratio(ours: Measured | None, other: Measured) -> str:
    return "-" if ours is None else f"{other.seconds / ours.seconds:.2f}x"


def reading(bench: Bench) -> Figures:
    """End to end, at each distance."""
    figures: Figures = {}
    distances = [Distance(milliseconds) for milliseconds in READING]
    with bench.places(distances) as places:
        for distance, place in zip(distances, places, strict=True):
            found = measure(bench.readers, place, bench.batch_size, bench.repeats)
            ours = next((one for one in found if one.name == OURS), None)
            rows = [_reading_row(one, ours) for one in sorted(found, key=lambda one: one.seconds)]
            curl, _ = median_seconds("curl", _curl(bench, place), bench.repeats)
            stored = bench.num_bytes / 1e9 / curl
            rows.append([f"curl, its bytes alone: {stored:.2f} GB/s stored", f"{curl:.2f}"])
            rows[-1] += ["-"] * 6
            header = ["reader", "seconds", "range", "GB/s", "torchparquet", "p99 wait ms"]
            header += ["peak MiB", "CPU s"]
            print(f"\n### {distance}\n\n{markdown(header, rows)}", flush=True)
            figures[str(distance)] = {
                one.name: [p.seconds for p in one.passes] for one in found
            } | {"curl": curl, "stored_bytes": bench.num_bytes}
    return figures


def _reading_row(one: Measured, ours: Measured | None) -> list[str]:
    seconds = [single.seconds for single in one.passes]
    return [
        one.name,
        f"{one.seconds:.2f}",
        f"{min(seconds):.2f}-{max(seconds):.2f}",
        f"{one.gb_per_second:.2f}",
        _ratio(ours, one),
        f"{one.wait_p99_ms:.0f}",
        f"{one.peak_bytes / 2**20:.0f}",
        f"{sum(single.cpu_seconds for single in one.passes) / len(one.passes):.2f}",
    ]


def _curl(bench: Bench, place: Place) -> Callable[[], None]:
    if shutil.which("curl") is None:
        raise SkippedError("needs curl")

    def read() -> None:
        with tempfile.TemporaryDirectory() as folder:
            num_bytes = curl_ranges(place, bench.num_bytes, Path(folder))
        if num_bytes != bench.num_bytes:
            raise RuntimeError(f"curl read {num_bytes} bytes of {bench.num_bytes}")

    return read


def first(bench: Bench) -> Figures:
    """From nothing to the first batch: opening counts."""
    figures, rows = {}, []
    with bench.places([NEAR, FAR]) as places:
        for reader in bench.readers:
            if reader.batches is None:
                continue
            near, far = (
                median_seconds(
                    reader.name, first_batch(reader, place, bench.batch_size), bench.repeats
                )[0]
                for place in places
            )
            between = (FAR.first_byte_ms - NEAR.first_byte_ms) / 1e3
            trips = (far - near) / between
            figures[reader.name] = {"near": near, "far": far, "round_trips": trips}
            rows.append([reader.name, f"{1e3 * near:.0f}", f"{1e3 * far:.0f}", f"{trips:.1f}"])
    header = ["reader", f"ms at {NEAR.first_byte_ms:g} ms", f"ms at {FAR.first_byte_ms:g} ms"]
    print(f"\n### First batch\n\n{markdown([*header, 'round trips'], rows)}", flush=True)
    return figures


def footers(bench: Bench) -> Figures:
    """Opening a folder of many files, whose rows must then be known."""
    figures, rows = {}, []
    distance = Distance(FOOTERS_MS)
    with bench.places([distance], many=True) as (place,):
        expected = None
        for reader in bench.readers:
            if reader.count is None:
                continue
            call = functools.partial(reader.count, place)
            seconds, found = median_seconds(reader.name, call, bench.repeats)
            expected = found if expected is None else expected
            if found != expected:
                raise RuntimeError(f"{reader.name} counts {found} rows, not {expected}")
            figures[reader.name] = seconds
            rows.append([reader.name, f"{seconds:.2f}"])
    num_files = 200 if bench.setting.quick else 2000
    title = f"{num_files:,} footers, {distance}"
    print(f"\n### {title}\n\n{markdown(['reader', 'seconds'], rows)}", flush=True)
    return figures


def _options_of_datasets() -> set[str]:
    from torchparquet import ParquetDataset

    return set(inspect.signature(ParquetDataset.__init__).parameters)


def _require(bench: Bench, option: str) -> None:
    if bench.ours is None:
        raise SkippedError("torchparquet reads no URLs yet, or was not chosen")
    if option not in _options_of_datasets():
        raise SkippedError(f"ParquetDataset has no option {option}")


def _epochs(place: Place, batch_size: int, **options: Any) -> Batches:
    """Returns epochs of one data set, made on the first pass in the process that reads."""
    dataset = functools.cache(lambda: our_dataset(place, batch_size, **options))
    return lambda: iter(dataset())


def cache(bench: Bench) -> Figures:
    """The second epoch, of which the first has left all in a cache on this machine."""
    from torchparquet import ParquetDataset

    _require(bench, CACHE_OPTION)
    with (
        bench.places([Distance(FOOTERS_MS)]) as (place,),
        tempfile.TemporaryDirectory() as folder,
    ):
        local = functools.cache(
            lambda: ParquetDataset(str(bench.file), batch_size=bench.batch_size, num_threads=2)
        )
        ways: dict[str, Batches] = {
            "from the store": _epochs(place, bench.batch_size),
            "from the cache": _epochs(place, bench.batch_size, **{CACHE_OPTION: folder}),
            "from the file": lambda: iter(local()),
        }
        return _told("Epochs", measure_batches(ways, bench.repeats))


def waits(bench: Bench) -> Figures:
    """The longest waits, with second requests for what is late and without."""
    _require(bench, CLIENT_OPTION)
    with bench.places([Distance(FOOTERS_MS)]) as (place,):
        ways: dict[str, Batches] = {
            name: _epochs(
                place,
                WAITS_BATCH_SIZE,
                **{CLIENT_OPTION: options_of_s3(place) | {"hedges": is_hedged}},
            )
            for name, is_hedged in (("hedged", True), ("not hedged", False))
        }
        return _told("Waits", measure_batches(ways, WAITS_PASSES))


def _told(title: str, found: list[Measured]) -> Figures:
    rows = [
        [one.name, f"{one.seconds:.2f}", f"{one.gb_per_second:.2f}", f"{one.wait_p99_ms:.0f}"]
        for one in found
    ]
    header = ["torchparquet", "seconds", "GB/s", "p99 wait ms"]
    print(f"\n### {title}\n\n{markdown(header, rows)}", flush=True)
    return {one.name: {"seconds": one.seconds, "p99_ms": one.wait_p99_ms} for one in found}


PARTS: dict[str, Callable[[Bench], Figures]] = {
    "reading": reading,
    "first": first,
    "footers": footers,
    "cache": cache,
    "waits": waits,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data-dir", type=Path, default=_DIRECTORY / "data", help="where the files are kept")
    add("--rows", type=int, default=2_000_000)
    add("--batch-size", type=int, default=8192)
    add("--repeats", type=int, default=5)
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--only", nargs="+", metavar="PART", help="readers whose name contains one of these")
    add("--quick", action="store_true", help="small data; the figures say little")
    add("--json", type=Path, metavar="FILE", help="also write all figures there")
    return parser


def main() -> int:
    """Measures what can be measured here, and says what cannot."""
    arguments = _parser().parse_args()
    # Consumers only read, so tensors over Arrow's read-only buffers are fine.
    warnings.filterwarnings("ignore", message="The given .* is not writable")
    os.environ["POLARS_MAX_THREADS"] = "2"
    pa.set_cpu_count(2)
    torch.set_num_threads(2)
    bench = Bench(arguments)
    machine = environment(2)
    print(
        f"{described(machine)}; median of {bench.repeats}; {bench.num_bytes / 1e6:.0f} MB stored "
        "in snappy, the store on the same cores",
        flush=True,
    )
    for reader in bench.missing:
        print(f"Skipped: {reader.name}: {reader.missing}.")
    load = OtherLoad()
    figures = {}
    for name in arguments.parts:
        try:
            figures[name] = PARTS[name](bench)
        except SkippedError as error:
            print(f"\nSkipped: {name}: {error}.", flush=True)
    # The store's own work is among it.
    machine["other_load_cores"] = round(load.cores(), 2)
    print(f"\nOther processes, the store among them, used {machine['other_load_cores']} cores.")
    if arguments.json:
        text = json.dumps({"environment": machine, "figures": figures}, indent=1)
        arguments.json.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
