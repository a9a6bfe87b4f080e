"""torchrun on two hosts: two network namespaces with a cable between them."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.jobs.example_records import (
    assert_even_steps,
    assert_goes_on,
    read_record,
    upto,
)
from tests.frameworks.jobs.running import documented, end, finish, run, start, torchrun

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def ip(*arguments: str) -> None:
    command = ["ip", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if result.returncode != 0:
        raise OSError(f"{shlex.join(command)}: {result.stderr.strip()}")


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """The names of two namespaces, each with one interface, eth0, to the other."""
    names = [f"torchparquet-{os.getpid()}-{number}" for number in range(2)]
    try:
        try:
            for name in names:
                ip("netns", "add", name)
            ends = ("type", "veth", "peer", "name", "eth0", "netns", names[1])
            ip("link", "add", "eth0", "netns", names[0], *ends)
            for name, address in zip(names, ADDRESSES, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except OSError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def launch(node: int) -> list[str]:
    """The documented command for a node, with the names of this test."""
    (command,) = documented("torchrun.md", 1)
    names = {"node0": ADDRESSES[0], "$NODE_RANK": str(node)}
    return [names.get(word, word) for word in command]


def received_bytes(host: str) -> int:
    path = "/sys/class/net/eth0/statistics/rx_bytes"
    command = ["ip", "netns", "exec", host, "cat", path]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_two_nodes_train_as_documented_and_one_goes_on_alone(
    hosts: list[str], clicks: Any, tmp_path: Path
) -> None:
    (tmp_path / "clicks").symlink_to(clicks)
    stop = ["--record", "record", "--stop-after", "10"]
    nodes = [
        start(["ip", "netns", "exec", host, *launch(node), *stop], tmp_path)
        for node, host in enumerate(hosts)
    ]
    try:
        for node in nodes:
            finish(node)
    finally:
        for node in nodes:
            end(node)
    before = read_record(tmp_path / "record")
    assert_even_steps(before, 4)
    assert len(before[0]) == 10
    # Ten steps' gradients of 32,000 weights and more went over the cable, both ways.
    assert all(received_bytes(host) > 10 * 32_000 for host in hosts)

    arguments = ("clicks", "checkpoints", "--record", "alone")
    run(torchrun(2, "examples/torchrun_ddp.py", *arguments), tmp_path)
    assert_goes_on(upto(before, 10), read_record(tmp_path / "alone"), 2)
