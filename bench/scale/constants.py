"""Measures what the simulation needs of this machine: servers, footers, listings, clients.

Servers and ranks are measured by the time of their processors, which other work on the machine
changes least.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch._C._distributed_c10d import TCPStore

from scale.real_runs import CONDITION, write_files
from scale.simulation import Costs, Machine
from stores.nginx import Distance, Place, store
from stores.readers import options_of_s3
from torchparquet import ParquetDataset
from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.manifest import RowSelection
from torchparquet._impl.files.manifest_reading import _codec, read_manifest
from torchparquet._impl.files.remote.storage import StorageArguments

_TIMES = 4000
_KEYS = 1000
_BYTES = 4 << 20
_DIGEST_BYTES = 16


def measured() -> Costs:
    """Returns the costs of this machine."""
    operation, more_key, server_byte, round_trip = _torch_store()
    with tempfile.TemporaryDirectory() as name:
        return Costs(
            operation=operation,
            more_key=more_key,
            server_byte=server_byte,
            round_trip=round_trip,
            **_files(Path(name)),
        )


def machine(most_ranks: int) -> Machine:
    """Returns what ranks get of this machine's processors now."""
    processors: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        files = Path(name) / "files"
        files.mkdir()
        write_files(files, 4)
        distance = Distance(0, late_share=0, connection_kb_per_second=0)
        with store(Path(name), {"files": files}, [distance]) as (endpoint,):
            place = Place(endpoint, "files/")
            for busy in takewhile(lambda busy: busy <= most_ranks, (1, 2, 4, 8, 16, 32)):
                with multiprocessing.get_context("fork").Pool(busy) as pool:
                    of_ranks = pool.map(_spent_by_rank, [place] * busy, 1)
                begins, ends, spent = zip(*of_ranks, strict=True)
                processors[busy] = sum(spent) / (max(ends) - min(begins))
    return Machine(processors)


def _serve(pipe: Any) -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    pipe.send(server.port)
    while pipe.recv():
        pipe.send(time.process_time())


def _torch_store() -> tuple[dict[str, float], float, float, float]:
    """Return processor seconds of the server's operations, keys and bytes, and a round trip."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(theirs,))
    process.start()
    client = TCPStore("127.0.0.1", ours.recv(), is_master=False, use_libuv=True)
    trips: list[float] = []

    def used(act: Callable[[int], object], times: int = _TIMES) -> float:
        ours.send(True)
        before = ours.recv()
        for number in range(times):
            begin = time.perf_counter()
            act(number)
            trips.append(time.perf_counter() - begin)
        ours.send(True)
        return float(ours.recv() - before) / times

    operation = {
        "set": used(lambda at: client.set(f"key/{at}", "x")),
        "get": used(lambda at: client.get(f"key/{at}")),
        "add": used(lambda at: client.add(f"count/{at % 8}", 1)),
        "check": used(lambda at: client.check([f"key/{at}"])),
        "compare_set": used(lambda at: client.compare_set(f"new/{at}", "", "x")),
        "multi_get": used(lambda at: client.multi_get([f"key/{at}"])),
        "multi_set": used(lambda at: client.multi_set([f"key/{at}"], ["x"])),  # type: ignore[attr-defined]
        "delete_key": used(lambda at: client.delete_key(f"key/{at}")),
    }
    round_trip = statistics.median(trips) - statistics.fmean(operation.values())
    keys = [f"key/{at}" for at in range(_KEYS)]
    for key in keys:
        client.set(key, "x")
    more_key = (used(lambda _: client.check(keys), 50) - operation["check"]) / _KEYS
    client.set("large", "x" * _BYTES)
    server_byte = (used(lambda _: client.get("large"), 50) - operation["get"]) / _BYTES
    ours.send(False)
    process.join()
    return operation, max(0.0, more_key), max(0.0, server_byte), max(0.0, round_trip)


def _opened(place: Place, filters: str | None = None) -> ParquetDataset:
    options = options_of_s3(place)
    return ParquetDataset(place.s3_url, storage_options=options, batch_size=8, filters=filters)


def _spent_by_rank(place: Place) -> tuple[float, float, float]:
    """Return when a process begins and ends its first data set, and its processor seconds."""
    begin, used = time.perf_counter(), time.process_time()
    _opened(place)
    return begin, time.perf_counter(), time.process_time() - used


def _files(folder: Path) -> dict[str, Any]:
    """Return what a file costs ranks: its footer, its place in a listing, and in a manifest."""
    few, many, served = folder / "few", folder / "many", folder / "served"
    for one in (few, many, served):
        one.mkdir()
    write_files(few, 100)
    write_files(many, 2000, 10)
    distance = Distance(0, late_share=0, connection_kb_per_second=0)
    objects = {"few": few, "many": many}
    with store(served, objects, [distance]) as (endpoint,):
        places = {name: Place(endpoint, f"{name}/") for name in objects}

        def spent(act: Callable[[Place], object], name: str, times: int = 3) -> float:
            of: list[float] = []
            for _ in range(times):
                begin = time.process_time()
                act(places[name])
                of.append(time.process_time() - begin)
            return min(of)

        def listed(place: Place) -> Any:
            return find_files(place.s3_url, StorageArguments(options=options_of_s3(place)))

        listings = [spent(listed, name) for name in objects]
        openings = [spent(_opened, name) for name in objects]
        selecting = [spent(partial(_opened, filters=CONDITION), name) for name in objects]
        # A forked rank makes what later openings of this process have; modules it has, as those
        # that `real_runs` forks.
        firsts = []
        for _ in range(3):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                firsts.append(pool.apply(_spent_by_rank, (places["few"],))[-1])
        selection = _opened(places["many"], CONDITION).manifest.selection
        listing = listed(places["many"])
        options = options_of_s3(places["many"])
        manifest = read_manifest(places["many"].s3_url, StorageArguments(options=options))
    codec, num_files, more = _codec(listing, with_chunk_sizes=False), 2000, 1900
    content = codec.encode(manifest)
    entries = list(zip(listing.names, listing.num_bytes, listing.stamps, strict=True))
    text = json.dumps([[*entry, False] for entry in entries]).encode()
    begin = time.process_time()
    codec.decode(content)
    json.loads(text)
    decoded = time.process_time() - begin
    of_list = (listings[1] - listings[0]) / more
    of_footer = (openings[1] - openings[0]) / more - of_list
    selected = b"".join(getattr(selection, of.name).tobytes() for of in fields(RowSelection))
    return {
        "footer": of_footer,
        "evaluated": (selecting[1] - selecting[0]) / more - of_list - of_footer,
        "selected_bytes": len(zlib.compress(selected)) / num_files,
        "listed": of_list,
        "open_store": min(firsts) - 100 * (of_list + of_footer),
        "decode_file": decoded / num_files,
        # ETags of S3 are digests, those of nginx are nearly the same.
        "listed_bytes": len(zlib.compress(text)) / num_files + _DIGEST_BYTES,
        "footer_bytes": len(zlib.compress(content)) / num_files + _DIGEST_BYTES,
        "rank_note_bytes": 800,
    }


def footer_seconds_per_column(num_columns: int = 200, num_files: int = 200) -> tuple[float, float]:
    """Returns processor seconds to read a footer from disk for each column, and its bytes."""
    with tempfile.TemporaryDirectory() as name:
        table = pa.table({f"c{at}": np.arange(4) for at in range(num_columns)})
        for number in range(num_files):
            pq.write_table(table, f"{name}/{number}.parquet")
        begin = time.process_time()
        read_manifest(name)
        spent = time.process_time() - begin
        size = pq.read_metadata(f"{name}/0.parquet").serialized_size
    return spent / num_files / num_columns, size / num_columns
