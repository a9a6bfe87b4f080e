"""Every option of the way of a batch with every other: the same batches as the plain stream.

Pairs that cannot go together are refused, and stand on a page of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from torchparquet import (
    Ahead,
    ByLength,
    Jagged,
    Order,
    Pack,
    ParquetDataset,
    Weights,
    Window,
    batch_seed,
    mix,
)

NUM_ROWS = 240


def drawn(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch with a value that follows from a column, and one that is drawn."""
    tokens = batch["tokens"]
    values: Any = tokens.values if isinstance(tokens, Jagged) else tokens
    assert values.device.type == "cpu"
    sums = torch.tensor([int(tokens[row].sum()) for row in range(len(tokens))])
    numbers = np.random.default_rng(batch_seed()).integers(1 << 40, size=len(tokens))
    return batch | {"sum": sums, "drawn": torch.from_numpy(numbers)}


# How a batch comes to the loop. None of these may change what it holds.
WAYS: dict[str, dict[str, Any]] = {
    "device": {"device": "cuda", "pin_memory": False},
    "threads": {"transform": Ahead(drawn, threads=2)},
    "processes": {"transform": Ahead(drawn, processes=1)},
}
# The rows that are read, and their order. Each changes the content of batches.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ByLength": {"batch_size": ByLength("tokens", max_tokens=60)},
    "cost": {"batch_size": ByLength("tokens", rows=16, cost="linear")},
    "max_tokens": {"batch_size": ByLength("tokens", max_tokens=60, cost="linear")},
    "Pack": {"pack": Pack("tokens", length=16), "columns": ["tokens"]},
    "Window": {"pack": Window("id", past=2, future=3, edges="repeat")},
    "Weights": {"sample": Weights(np.arange(1, NUM_ROWS + 1))},
    "unique": {"unique": "key"},
    "global": {"shuffle": "global"},
    "drop": {"even": "drop"},
    "pad": {"even": "pad"},
    "none": {"even": "none"},
    "dynamic": {"even": "dynamic", "rank": None, "world_size": None},
    "canonical_world_size": {"order": Order(canonical_world_size=4)},
    "limit_steps": {"limit_steps": 5},
}
# Who asks for the batches.
LOOPS = ["loop", "DataLoader", "mix", "unbatched"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(3)
    lists = [rng.integers(0, 99, size) for size in rng.integers(1, 12, NUM_ROWS)]
    table = pa.table({"id": np.arange(NUM_ROWS), "tokens": lists, "key": np.arange(NUM_ROWS) // 4})
    for number in range(2):
        half = table.slice(number * NUM_ROWS // 2, NUM_ROWS // 2)
        pq.write_table(half, folder / f"{number}.parquet", row_group_size=25)
    return folder


@pytest.fixture(autouse=True)
def cpu_in_place_of_a_device(monkeypatch: Any) -> None:
    """Let batches take the way to a device, whose place the CPU takes."""
    monkeypatch.setattr(
        "torchparquet._impl.reading.streams.resolved_device", lambda device: torch.device("cpu")
    )


def shown(value: Any) -> Any:
    if isinstance(value, Jagged):
        return (shown(value.values), shown(value.offsets))
    return value.tolist() if isinstance(value, torch.Tensor) else value


def items_of(data: Any, kind: str, ways: tuple[str, ...], loop: str) -> Iterator[dict[str, Any]]:
    options: dict[str, Any] = {"batch_size": 16, "transform": drawn, "shuffle": True, "seed": 5}
    options |= {"rank": 1, "world_size": 2, "num_threads": 2} | KINDS[kind]
    for way in ways:
        options |= WAYS[way]
    dataset = ParquetDataset(data, **options)
    source: Any = dataset
    if loop == "DataLoader":
        source = DataLoader(dataset, batch_size=None, num_workers=2, timeout=100)
    elif loop == "mix":
        other = ParquetDataset(data, **options | {"seed": 6})
        source = mix([dataset, other], weights=[2, 1])
    elif loop == "unbatched":
        source = dataset.unbatched()
    try:
        for item in source:
            yield {name: shown(value) for name, value in item.items()}
    finally:
        dataset.close()


# Reasons stand on docs/reference/pairs.md.
REFUSED = {
    ("ByLength", "canonical_world_size"),
    ("ByLength", "dynamic"),
    ("ByLength", "pad"),
    ("ByLength", "Pack"),
    ("ByLength", "unbatched"),
    ("unique", "unbatched"),
    ("max_tokens", "unbatched"),
    ("DataLoader", "device"),
    ("DataLoader", "dynamic"),
    ("DataLoader", "processes"),
    ("DataLoader", "canonical_world_size"),
    ("dynamic", "mix"),
}


def is_refused(*parts: str) -> bool:
    return any(
        pair in REFUSED or pair[::-1] in REFUSED for pair in itertools.combinations(parts, 2)
    )


COMBINED = [
    (kind, ways, loop)
    for kind in KINDS
    for ways in (("device",), ("threads",), ("processes",), ("device", "threads"))
    for loop in LOOPS
]


# The number has no divisor in common with those of ways and loops, so all of these come.
@pytest.mark.mostly_long(every=19)
@pytest.mark.parametrize(("kind", "ways", "loop"), COMBINED, ids=str)
def test_the_way_changes_no_batch(data: Path, kind: str, ways: tuple[str, ...], loop: str) -> None:
    if is_refused(kind, loop, *ways):
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            list(items_of(data, kind, ways, loop))
        return
    expected = list(items_of(data, kind, (), loop))
    assert expected
    assert list(items_of(data, kind, ways, loop)) == expected


def test_refused_pairs_stand_on_their_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "pairs.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert 0 < len(rows) <= 8
    for first, second in REFUSED:
        assert any(first in row and second in row for row in rows), (first, second)
