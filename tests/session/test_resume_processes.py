"""States of a long shuffled epoch: each goes on bit for bit, here and in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from typing import Any

import pytest

from tests.fixtures.datasets import opener
from tests.fixtures.shape_files import (
    COLUMNS,
    digest_of,
    digest_of_batch,
    digest_of_digests,
    shape_files,
)
from tests.fixtures.tree import child_environment

BATCH_SIZE, NUM_BATCHES = 9, 500
ORDERS = {"windows": {"shuffle_window": 4}, "the default window": {"max_memory": "256KiB"}}

# Prints what is left behind each of some states.
PROGRAM = """
import json, sys
from tests.fixtures.shape_files import digest_of
from tests.session.test_resume_processes import make

folder, options, states = json.loads(sys.argv[1])
for state in states:
    dataset = make(folder, **options)
    dataset.load_state_dict(state)
    print(digest_of(dataset))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> str:
    """Five files of 12 row groups; two rows are missing of 500 whole batches."""
    num_rows = BATCH_SIZE * NUM_BATCHES - 2
    return shape_files(tmp_path_factory.mktemp("long") / "data", num_rows, 5, 12)


make = opener(
    rank=0, world_size=1, batch_size=BATCH_SIZE, columns=COLUMNS, shuffle=True, seed=5, row_ids=True
)


@pytest.fixture(scope="module", params=ORDERS)
def order(request: Any) -> Any:
    return ORDERS[request.param]


@pytest.fixture(scope="module")
def epoch(folder: str, order: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """The digest of every batch of the second epoch, and the state before each and at the end."""
    dataset = make(folder, **order)
    dataset.set_epoch(1)
    digests, states = [], [dataset.state_dict()]
    for batch in dataset:
        digests.append(digest_of_batch(batch))
        states.append(json.loads(json.dumps(dataset.state_dict())))
    assert len(digests) == len(set(digests)) == NUM_BATCHES
    return digests, states


@pytest.mark.long
def test_every_state_goes_on(
    folder: str, order: dict[str, Any], epoch: tuple[list[str], list[dict[str, Any]]]
) -> None:
    """The next three batches after each; the states come in no order, to one data set."""
    digests, states = epoch
    resumed = make(folder, num_threads=1, **order)
    for place in range(NUM_BATCHES):
        stop = place * 237 % NUM_BATCHES
        resumed.load_state_dict(states[stop])
        following = list(map(digest_of_batch, islice(resumed, 3)))
        assert following == digests[stop : stop + 3], stop


@pytest.mark.long
def test_states_go_on_to_the_end(
    folder: str, order: dict[str, Any], epoch: tuple[list[str], list[dict[str, Any]]]
) -> None:
    digests, states = epoch
    for stop in [*range(0, NUM_BATCHES, 21), NUM_BATCHES - 1]:
        resumed = make(folder, **order)
        resumed.load_state_dict(states[stop])
        assert list(map(digest_of_batch, resumed)) == digests[stop:], stop


def test_the_last_state_leads_to_the_next_epoch(
    folder: str, order: dict[str, Any], epoch: tuple[list[str], list[dict[str, Any]]]
) -> None:
    resumed, third = make(folder, **order), make(folder, **order)
    resumed.load_state_dict(epoch[1][NUM_BATCHES])
    third.set_epoch(2)
    assert digest_of(resumed) == digest_of(third)


@pytest.mark.parametrize(
    ("order", "num_threads", "stops"),
    [
        ("windows", 1, (1, 250, 499)),
        ("windows", 2, (37, 318, 0)),
        ("windows", 4, (123, 444)),
        ("the default window", 2, (77, 401)),
    ],
    indirect=["order"],
)
@pytest.mark.long
def test_states_go_on_in_another_process(
    folder: str,
    order: str,
    epoch: tuple[list[str], list[dict[str, Any]]],
    num_threads: int,
    stops: Any,
) -> None:
    digests, states = epoch
    options: dict[str, Any] = order | {"num_threads": num_threads}  # type: ignore[operator]
    arguments = json.dumps([folder, options, [states[stop] for stop in stops]])
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[:-1] == [digest_of_digests(digests[stop:]) for stop in stops]
