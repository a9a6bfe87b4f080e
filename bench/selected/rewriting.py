"""Seconds to rewrite a distant data set in a random order, on one to four machines of Ray.

    PYTHONPATH=bench python bench/selected/rewriting.py --nodes 1 2 4

The machines are raylets of one processor each, on this machine, and the store is nginx with a
delay. Beside `torchparquet rewrite --shuffle --ray` stands Ray Data as its documentation has it:
read_parquet, random_shuffle, write_parquet. Both write to a local folder; every row of it is read
again and compared with the source's by its sum. Turns alternate; the median of all repeats. The
cluster is up before the time begins, and one small task has run on each machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stores.nginx import Distance, Place, store
from stores.readers import KEY, SECRET

_NODE = {"num_cpus": 1, "memory": 1 << 30, "object_store_memory": 300 << 20}
_ROW_GROUP_ROWS = 50_000


def _write(folder: Path, num_files: int, rows: int) -> None:
    rng = np.random.default_rng(5)
    for number in range(num_files):
        first = number * rows
        columns = {
            "id": np.arange(first, first + rows),
            "value": rng.random(rows),
            "text": [f"text {i % 9973}" for i in range(first, first + rows)],
        }
        pq.write_table(pa.table(columns), folder / f"{number:03}.parquet", compression="zstd")


def _ours(place: Place, output: Path, address: str) -> None:
    from torchparquet.cli import main as command

    options = {"key": KEY, "secret": SECRET, "endpoint_url": place.endpoint}
    arguments = ["rewrite", place.s3_url, "--output", str(output), "--shuffle", "--seed", "5"]
    arguments += ["--row-group-rows", str(_ROW_GROUP_ROWS), "--row-groups-per-file", "4"]
    arguments += ["--max-memory", "128MiB", "--ray", address]
    for name, value in options.items():
        arguments += ["--storage-option", f"{name}={value}"]
    with contextlib.redirect_stdout(io.StringIO()):
        if command(arguments):
            raise RuntimeError("the rewrite failed")


def _rays(place: Place, output: Path, address: str) -> None:
    import pyarrow.fs as pafs
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    where = pafs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        endpoint_override=place.endpoint,
        region="us-east-1",
    )
    found = ray.data.read_parquet(place.path, filesystem=where)
    found.random_shuffle(seed=5).write_parquet(f"local://{output}")
    ray.shutdown()


def _checked(output: Path, num_rows: int) -> None:
    """Read all that was written."""
    ids = pq.read_table(output, columns=["id", "value", "text"])["id"].to_numpy()
    if len(ids) != num_rows or (np.sort(ids) != np.arange(num_rows)).any():
        raise RuntimeError("rows were lost or doubled")


def _seconds(
    side: Callable[[Place, Path, str], None], place: Place, address: str, num_rows: int
) -> float:
    output = Path(tempfile.mkdtemp()) / "output"
    try:
        begin = time.perf_counter()
        side(place, output, address)
        taken = time.perf_counter() - begin
        _checked(output, num_rows)
    finally:
        shutil.rmtree(output.parent)
    return taken


def main() -> None:
    """Measures what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--rows", type=int, default=100_000, help="Of a file.")
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    import ray
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory() as files,
        tempfile.TemporaryDirectory(prefix="torchparquet-store-") as folder,
    ):
        _write(Path(files), arguments.files, arguments.rows)
        distance = Distance(arguments.latency_ms, late_share=0, connection_kb_per_second=0)
        with store(Path(folder), {"files": Path(files)}, [distance]) as (endpoint,):
            place, num_rows = Place(endpoint, "files/"), arguments.files * arguments.rows
            print(
                "| machines | rewrite --ray, s | Ray Data, s | times as fast |\n|---|---|---|---|"
            )
            for nodes in arguments.nodes:
                made = Cluster(initialize_head=True, head_node_args=_NODE)
                for _ in range(nodes - 1):
                    made.add_node(**_NODE)
                made.wait_for_nodes()
                taken: dict[str, list[float]] = {"ours": [], "rays": []}
                for _ in range(arguments.repeats + 1):  # the first one starts processes
                    for name, side in (("ours", _ours), ("rays", _rays)):
                        taken[name].append(_seconds(side, place, made.address, num_rows))
                ray.shutdown()
                made.shutdown()
                ours, rays = (statistics.median(of[1:]) for of in taken.values())
                print(f"| {nodes} | {ours:.1f} | {rays:.1f} | {rays / ours:.2f} |", flush=True)


if __name__ == "__main__":
    main()
