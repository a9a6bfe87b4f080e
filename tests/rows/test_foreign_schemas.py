"""Conditions and commands on files that pyarrow refuses for a column that they do not name."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ParquetDataset
from torchparquet.cli import main
from torchparquet.errors import CorruptFileError

TABLE = pa.table(
    {
        "z": range(40),
        "m": pa.array([[(f"k{i}", i)] for i in range(40)], pa.map_(pa.string(), pa.int64())),
        "t": [f"t{i % 7}" for i in range(40)],
    }
)
REPETITION_OF_KEY = b"\x25\x00\x18\x03key", b"\x25\x02\x18\x03key"


def optional_map_keys(path: Path) -> None:
    """As Hive writes them."""
    pq.write_table(TABLE, path, row_group_size=10)
    required, optional = REPETITION_OF_KEY
    content = path.read_bytes()
    assert content.count(required) == 1
    path.write_bytes(content.replace(required, optional))


def no_base64(path: Path) -> None:
    store(path, b"!no base64!")


def integers_of_128_bits(path: Path) -> None:
    """As Polars declares them."""
    schema = TABLE.schema.serialize().to_pybytes()
    width = (64).to_bytes(4, "little")
    assert width in schema
    store(path, base64.b64encode(schema.replace(width, (128).to_bytes(4, "little"))))


def store(path: Path, arrow_schema: bytes) -> None:
    table = TABLE.replace_schema_metadata({"ARROW:schema": arrow_schema})
    pq.write_table(table, path, row_group_size=10)


@pytest.fixture(params=[optional_map_keys, no_base64, integers_of_128_bits])
def path(request: Any, tmp_path: Path) -> str:
    made = tmp_path / "a.parquet"
    request.param(made)
    with pytest.raises((pa.ArrowException, OSError)):
        pq.read_table(made, columns=["z"])
    return str(made)


def read(source: Any, **options: Any) -> list[int]:
    dataset = ParquetDataset(source, batch_size=3, columns=["z"], even="none", **options)
    return [z for batch in dataset for z in batch["z"].tolist()]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([("z", ">", 30)], lambda z: z > 30),
        ([("z", ">=", 10), ("z", "<", 30)], lambda z: 10 <= z < 30),
        ([("t", "=", "t3")], lambda z: z % 7 == 3),
        (
            [[("z", "<", 2)], [("t", "in", ["t1", "t2"]), ("z", ">=", 20)]],
            lambda z: z < 2 or (z % 7 in (1, 2) and z >= 20),
        ),
    ],
)
def test_rows_of_a_condition(path: str, filters: Any, kept: Any) -> None:
    expected = [z for z in range(40) if kept(z)]
    assert read(path, filters=filters) == expected
    assert read(pa.py_buffer(Path(path).read_bytes()), filters=filters) == expected


@pytest.mark.parametrize("make", [no_base64, integers_of_128_bits])
def test_commands(tmp_path: Path, make: Any, capsys: Any) -> None:
    path = str(tmp_path / "a.parquet")
    make(Path(path))
    assert main(["inspect", path]) == 0
    assert "z" in capsys.readouterr().out
    main(["verify", path])
    assert "40 of 40 rows exactly once" in capsys.readouterr().out


def test_files_beside_one_another_that_pyarrow_reads(path: str, tmp_path: Path) -> None:
    other = tmp_path / "b.parquet"
    pq.write_table(TABLE, other)
    assert read([path, str(other)], filters=[("z", "<", 2)]) == [0, 1, 0, 1]


def test_a_damaged_footer_is_still_one(tmp_path: Path) -> None:
    damaged = tmp_path / "a.parquet"
    pq.write_table(TABLE, damaged)
    content = bytearray(damaged.read_bytes())
    content[-60:-20] = b"\xff" * 40
    damaged.write_bytes(content)
    with pytest.raises(CorruptFileError):
        read(str(damaged), filters=[("z", "<", 2)])
