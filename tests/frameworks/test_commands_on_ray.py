"""`--ray`: the results of one machine, whatever the cluster, and whoever is killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.texts import hugging_face
from torchparquet.cli import main

ray = pytest.importorskip("ray", reason="Ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils")

ROWS = 60_000
# Several slices, buckets and files.
LAYOUT = ["--row-group-rows", "2000", "--row-groups-per-file", "2", "--max-memory", "4MiB"]
NODE = {"num_cpus": 1, "memory": 64 << 20, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("source")
    rng = np.random.default_rng(1)
    for number in range(3):
        begin, end = number * ROWS // 3, (number + 1) * ROWS // 3
        columns = {
            "id": range(begin, end),
            "value": rng.random(end - begin),
            "text": [f"text {i % 97}" for i in range(begin, end)],
            "list": [[i] * (i % 4) for i in range(begin, end)],
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=3000)
    return folder


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without processors, and two machines."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=NODE | {"num_cpus": 0})
    for _ in range(2):
        made.add_node(**NODE)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def without_torch(tmp_path: Path, monkeypatch: Any) -> None:
    """Let no machine of a cluster that starts afterwards import torch."""
    (tmp_path / "first" / "torch").mkdir(parents=True)
    (tmp_path / "first" / "torch" / "__init__.py").write_text("raise ImportError('no torch')")
    others = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'first'}{os.pathsep}{others}")


def rewritten(source: Path, output: Path, *options: str) -> int:
    return main(["rewrite", str(source), "--output", str(output), *LAYOUT, *options])


def contents(output: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.glob("*.parquet"))
    }


@pytest.fixture(scope="module")
def alone(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output: Path = tmp_path_factory.mktemp("alone") / "output"
    assert rewritten(source, output, "--shuffle", "--seed", "5") == 0
    return output


@pytest.mark.usefixtures("without_torch")
def test_the_files_are_those_of_one_machine(
    source: Path, alone: Path, cluster: Any, tmp_path: Path
) -> None:
    on_ray = ("--ray", cluster.address)
    assert rewritten(source, tmp_path / "shuffled", "--shuffle", "--seed", "5", *on_ray) == 0
    assert contents(tmp_path / "shuffled") == contents(alone)
    assert rewritten(source, tmp_path / "plain") == 0
    assert rewritten(source, tmp_path / "ordered", *on_ray) == 0
    assert contents(tmp_path / "ordered") == contents(tmp_path / "plain")
    read = f"SELECT * FROM read_parquet('{source}/*.parquet')"
    made = f"SELECT * FROM read_parquet('{tmp_path}/shuffled/*.parquet')"
    for first, second in ((read, made), (made, read)):
        difference = duckdb.sql(f"{first} EXCEPT ALL {second}")
        assert difference is not None
        assert difference.fetchall() == []


def test_files_are_inspected_and_verified_by_all_machines(
    source: Path, cluster: Any, tmp_path: Path, capsys: Any
) -> None:
    def report(command: str, *options: str) -> tuple[int, Any]:
        status = main([command, str(tmp_path), "--json", *options])
        return status, json.loads(capsys.readouterr().out)

    for path in source.iterdir():
        shutil.copy(path, tmp_path)
    on_ray = ("--ray", cluster.address)
    assert report("inspect", "--all-pages", *on_ray) == report("inspect", "--all-pages")
    content = bytearray((tmp_path / "1.parquet").read_bytes())
    content[4:20] = b"\xff" * 16  # the header of the first page
    (tmp_path / "1.parquet").write_bytes(content)
    few = ("--max-memory", "16MiB")
    status, found = report("verify", *few, *on_ray)
    assert (status, found) == report("verify", *few)
    assert {one["path"] for one in found["failures"]} == {str(tmp_path / "1.parquet")}


def test_statistics_are_those_of_one_machine(source: Path, cluster: Any, tmp_path: Path) -> None:
    """To the last bit, of a sample too, though tasks begin within row groups."""

    def saved(name: str, *options: str) -> Any:
        output = tmp_path / name
        few = ("--max-memory", "1MiB", "--sample", "5000", "--words", "id", "--max-words", "50")
        selected = ("--filter", "id % 3 != 0", "--output", str(output))
        assert main(["stats", str(source), *few, *selected, *options]) == 0
        return json.loads(output.read_text())

    alone = saved("alone.json")
    assert saved("on_ray.json", "--ray", cluster.address) == alone
    assert alone["rows"] == ROWS // 3 * 2
    assert alone["columns"]["list"]["num_sampled"] == 5000


def first_file(output: Path) -> None:
    while not any(output.glob("*.parquet")):
        time.sleep(0.01)


def test_a_machine_that_goes_away_loses_and_doubles_nothing(
    source: Path, alone: Path, cluster: Any, tmp_path: Path
) -> None:
    output = tmp_path / "output"

    def kill() -> None:
        first_file(output)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    assert rewritten(source, output, "--shuffle", "--seed", "5", "--ray", cluster.address) == 0
    killer.join()
    assert contents(output) == contents(alone)


def test_the_command_goes_on_after_the_cluster_was_killed(
    source: Path, alone: Path, cluster: Any, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    options = [*LAYOUT, "--shuffle", "--seed", "5", "--ray"]
    command = [sys.executable, "-m", "torchparquet", "rewrite", str(source), "--output"]
    command.append(str(output))
    begun = subprocess.Popen([*command, *options, cluster.address], stderr=subprocess.DEVNULL)
    first_file(output)
    begun.kill()
    begun.wait()
    cluster.shutdown()
    assert set(contents(output)) < set(contents(alone))
    done = subprocess.run(
        [*command, *options, "local", "--json"], check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout)["files_resumed"] > 0
    assert contents(output) == contents(alone)


def test_a_cluster_that_has_less_than_a_task_takes_is_refused(
    source: Path, cluster: Any, tmp_path: Path, capsys: Any
) -> None:
    options = ("--ray", cluster.address, "--max-memory", "2GiB")
    assert rewritten(source, tmp_path / "output", *options) != 0
    assert "no machine of Ray grants 2,147,483,648 bytes to one" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()
    few = ("--max-memory", "32MiB", "--num-threads", "9")
    assert main(["verify", str(source), "--ray", cluster.address, *few]) != 0
    assert "no machine of Ray grants 9 processors to one" in capsys.readouterr().err


def test_a_wrong_address_is_told_before_anything_is_read(
    source: Path, tmp_path: Path, capsys: Any
) -> None:
    on_ray = ("--ray", "127.0.0.1:1")
    for command in (
        ["rewrite", "--output", str(tmp_path / "output")],
        ["verify"],
        ["inspect"],
        ["stats"],
    ):
        assert main([*command, str(tmp_path / "missing"), *on_ray]) != 0
        assert "--ray cannot connect to '127.0.0.1:1'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["verify", str(source), "--no-decode", *on_ray]) == 0


def test_tokens_are_those_of_one_machine(source: Path, cluster: Any, tmp_path: Path) -> None:
    tokenizer = hugging_face()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    packed = ("--shuffle", "--pack", "text", "--tokenizer", str(tmp_path / "tokenizer.json"))
    assert rewritten(source, tmp_path / "alone", *packed) == 0
    assert rewritten(source, tmp_path / "on_ray", *packed, "--ray", cluster.address) == 0
    assert contents(tmp_path / "on_ray") == contents(tmp_path / "alone")
    made = pq.read_table(tmp_path / "on_ray").sort_by("id")
    words = [tokenizer.encode(f"text {i}", add_special_tokens=False).ids for i in range(97)]
    assert made["text"].to_pylist() == [words[i % 97] for i in range(ROWS)]


def test_errors_of_tasks_are_those_of_one_machine(
    source: Path, cluster: Any, tmp_path: Path, capsys: Any
) -> None:
    table = pq.read_table(source)
    pq.write_table(table, tmp_path / "bad.parquet", write_page_checksum=True)
    content = bytearray((tmp_path / "bad.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "bad.parquet").write_bytes(content)
    assert rewritten(tmp_path / "bad.parquet", tmp_path / "output", "--ray", cluster.address) != 0
    assert f"cannot read '{tmp_path}/bad.parquet', row group 0" in capsys.readouterr().err
