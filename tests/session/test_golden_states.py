"""States that were saved before must stay valid, whatever changes within the package.

If one of these fails, users lose their place. `python -m tests.session.test_golden_states` adds
the states of new cases, and leaves those that exist as they are.
"""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import Column, Pack, ParquetDataset, mix
from torchparquet._impl.files.manifest_reading import read_manifest

GOLDEN = Path(__file__).parent / "golden"
STATES = GOLDEN / "states.json"
MIX_STATES = GOLDEN / "mix_states.json"

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


MIXES: dict[str, dict[str, Any]] = {
    **{f"mix, {stopping}": {"stopping": stopping} for stopping in ("all_exhausted", "repeat")},
    "mixed rows": {"within_batch": True, "batch_size": 6},
    "mixed rows, repeat": {"within_batch": True, "batch_size": 6, "stopping": "repeat"},
    "rows": {},
    "rows of a mix": {"stopping": "all_exhausted"},
    "mix of a mix": {"stopping": "repeat"},
    "mixed rows of a mix": {"within_batch": True, "batch_size": 7},
}


def opened_mix(case: str) -> Any:
    world_size = 1 if case.endswith("of a mix") and case != "rows of a mix" else 2
    order: dict[str, Any] = {"columns": ["id"], "shuffle": True, "shuffle_window": 2}
    order["world_size"] = world_size
    first, second = (
        ParquetDataset(GOLDEN / "kinds.parquet", batch_size=4 + i, seed=3 + i, rank=0, **order)
        for i in range(2)
    )
    if case == "rows":
        return first.unbatched()
    if world_size == 1:
        return mix([mix([first, second], weights=[1, 2]), first], seed=1, **MIXES[case])
    mixed = mix([first, second], weights=[3, 1], seed=2, **MIXES[case])
    return mixed.unbatched() if case == "rows of a mix" else mixed


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
    assert [seen(item) for item in islice(dataset, len(golden["next"]))] == golden["next"]


@pytest.mark.parametrize("case", MIXES)
def test_a_state_of_a_mix_or_of_rows_resumes(case: str) -> None:
    golden = json.loads(MIX_STATES.read_text())[case]
    dataset = opened_mix(case)
    dataset.load_state_dict(golden["state"])
    assert [item["id"].tolist() for item in islice(dataset, 5)] == golden["next"]


def test_the_names_of_types_stay_as_they_are(tmp_path: Path) -> None:
    """States hold a digest of the files' content, and these names are a part of it.

    To reword one would make states of all files with such a column useless. If a message needs
    other words, give it other words there.
    """
    types = {
        **{name: getattr(pa, name)() for name in ("int8", "int16", "int32", "int64")},
        **{name: getattr(pa, name)() for name in ("uint8", "uint16", "uint32", "uint64")},
        **{"bool": pa.bool_(), "float16": pa.float16(), "null": pa.null(), "date": pa.date32()},
        **{"float32": pa.float32(), "float64": pa.float64()},
        **{f"time[{unit}]": pa.time32(unit) for unit in ("ms",)},
        **{f"time[{unit}]": pa.time64(unit) for unit in ("us", "ns")},
        **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("ms", "us", "ns")},
        **{f"timestamp[{unit}, UTC]": pa.timestamp(unit, "UTC") for unit in ("ms", "us", "ns")},
        **{f"duration[{unit}]": pa.duration(unit) for unit in ("s", "ms", "us", "ns")},
        "decimal(5, 2)": pa.decimal128(5, 2),
        "decimal(38, 10)": pa.decimal128(38, 10),
        "fixed_size_binary(3)": pa.binary(3),
        "uuid": pa.uuid(),
        "binary": pa.binary(),
        "string": pa.string(),
        "json": pa.json_(),
        "list<int32>": pa.list_(pa.int32()),
        "list<list<string>>": pa.list_(pa.list_(pa.string())),
    }
    table = pa.table({str(number): pa.nulls(1, kind) for number, kind in enumerate(types.values())})
    path = tmp_path / "key=1" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(table, path)
    manifest = read_manifest(tmp_path)
    assert [leaf.kind for leaf in manifest.schemas[0]] == list(types)


def test_the_digest_of_golden_files_stays_as_it_is() -> None:
    states = json.loads(STATES.read_text())
    assert (
        opened("all columns").manifest.content_fingerprint == states["all columns"]["state"]["data"]
    )


def write() -> None:
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
    for path, cases, open_case in ((STATES, CASES, opened), (MIX_STATES, MIXES, opened_mix)):
        states = json.loads(path.read_text()) if path.exists() else {}
        for case in cases:
            if case not in states:
                items = iter(dataset := open_case(case))
                list(islice(items, 3))
                state = json.loads(json.dumps(dataset.state_dict()))
                states[case] = {"state": state, "next": [seen(item) for item in islice(items, 5)]}
        lines = [f"{json.dumps(case)}: {json.dumps(state)}" for case, state in states.items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
