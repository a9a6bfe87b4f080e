"""States that were saved before must stay valid, whatever changes within the package.

If one of these fails, users lose their place. `python -m tests.iteration.test_golden_states` adds
the states of new cases, and leaves those that exist as they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchparquet import Column, Pack, ParquetDataset

GOLDEN = Path(__file__).parent / "golden"
STATES = GOLDEN / "states.json"

CASES: dict[str, dict[str, Any]] = {
    "all columns": {},
    "shuffled": {"shuffle": True, "seed": 3, "shuffle_window": 0},
    "windows": {"shuffle": True, "seed": 3, "shuffle_window": 3},
    "groups, fills and casts": {
        "columns": {
            "id": "id",
            "pair": ["small", "number"],
            "hour": Column("time", dtype="int64"),
            "mask": Column("nullable", nulls="mask"),
            "fill": Column("nullable", nulls=-1),
            "word": Column("text", vocab=["row 0", "row 1"], unknown=9),
            "vector": Column("list", length=3),
        }
    },
    "rows": {"rows": list(range(5, 60)), "columns": ["id"]},
    "packed": {
        "columns": ["tokens"],
        "pack": Pack("tokens", length=8, separator=0),
    },
}


def opened(case: str, file: Path = GOLDEN / "kinds.parquet") -> ParquetDataset:
    options = {"batch_size": 4, "rank": 1, "world_size": 2, **CASES[case]}
    return ParquetDataset(file, **options)


def seen(batch: dict[str, Any]) -> list[int]:
    found: list[int] = (batch["id"] if "id" in batch else batch["tokens"].flatten()).tolist()
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_was_saved_before_resumes(case: str) -> None:
    golden = json.loads(STATES.read_text())[case]
    dataset = opened(case)
    dataset.load_state_dict(golden["state"])
    assert seen(next(iter(dataset))) == golden["next"]


def write() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = GOLDEN / "kinds.parquet"
    ids = range(64)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "small": pa.array(ids, pa.int16()),
        "number": pa.array(ids, pa.int16()),
        "float": pa.array([i / 4 for i in ids], pa.float32()),
        "flag": pa.array([i % 3 == 0 for i in ids]),
        "time": pa.array(ids, pa.timestamp("us", tz="UTC")),
        "date": pa.array(ids, pa.date32()),
        "duration": pa.array(ids, pa.duration("ms")),
        "decimal": pa.array(ids, pa.int32()).cast(pa.decimal128(12, 2)),
        "bytes": pa.array([bytes([i, i]) for i in ids], pa.binary(2)),
        "text": pa.array([f"row {i}" for i in ids]),
        "list": pa.array([[i, i + 1, i + 2] for i in ids], pa.list_(pa.int32())),
        "tokens": pa.array([list(range(1, 2 + i % 5)) for i in ids], pa.list_(pa.int32())),
        "nullable": pa.array([None if i % 7 == 0 else i for i in ids], pa.float64()),
    }
    if not file.exists():
        GOLDEN.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), file, row_group_size=10, compression="snappy")
    states = json.loads(STATES.read_text()) if STATES.exists() else {}
    for case in CASES:
        if case not in states:
            batches = iter(dataset := opened(case))
            next(batches)
            next(batches)
            state = json.loads(json.dumps(dataset.state_dict()))
            states[case] = {"state": state, "next": seen(next(batches))}
    STATES.write_text(json.dumps(states, indent=1) + "\n")


if __name__ == "__main__":
    write()
