"""The memory that a row of a shuffle window takes, as a table of cases."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.reading.window_limits import window_memory


def field(dtype: str, **given: Any) -> Field:
    named: dict[str, Any] = {"width": None, "nulls": "error", "fill": 0} | given
    return Field("x", ("x",), (("x",),), dtype, **named)


# Each worked out by hand: tensors of 101 rows, aligned to 64 bytes, over 100 rows; the two
# columns that take most while they are put in order; six bytes for the row's place. Beside these,
# 256 bytes of a batch are its own.
CASES: list[tuple[list[Field], dict[str, bool], float]] = [
    ([], {}, 6),
    ([field("int64")], {}, 832 / 100 + 8 + 6),
    ([field("int64", nulls="mask")], {}, (832 + 128) / 100 + 9 + 6),
    ([field("float32", width=5)], {}, 2048 / 100 + 4 + 4 + 6),
    ([field("uint8", items=3)], {}, 320 / 100 + 6),
    ([field("bool"), field("bfloat16"), field("int32")], {}, (128 + 256 + 448) / 100 + 4 + 2 + 6),
    ([field("int16", length=4, nulls="mask")], {}, (832 + 448) / 100 + 8 + 4 + 6),
    ([field("int16", length=4, items=3)], {}, 2432 / 100 + 6),
    (
        [field("int32", num_offsets=2, row_bytes=30.25, nulls="mask")],
        {},
        30.25 + (832 + 128) / 100 + 8 + 30.25 + 1 + 6,
    ),
    ([field("float32")], {"row_ids": True}, (448 + 832) / 100 + 8 + 4 + 6),
    ([field("float32")], {"row_ids": True, "row_valid": True}, 1408 / 100 + 8 + 4 + 6),
]


@pytest.mark.parametrize(("fields", "row_fields", "expected"), CASES)
def test_the_bytes_of_a_row(
    fields: list[Field], row_fields: dict[str, bool], expected: float
) -> None:
    wanted = {"row_ids": False, "row_valid": False} | row_fields
    memory = window_memory(fields, 100, 1 << 30, **wanted)
    assert memory.bytes_per_row == pytest.approx(expected + 256 / 100, rel=1e-12)


def test_two_batches_are_aligned_tensors() -> None:
    memory = window_memory(
        [field("float32", nulls="mask")], 100, 1151, row_ids=False, row_valid=False
    )
    with pytest.raises(ValueError, match="1152 bytes for batches of 100 rows; got max_memory=1151"):
        memory.check_two_batches(100)
    memory.check_two_batches(96)


def test_what_windows_have_room_in_is_pickled() -> None:
    memory = window_memory([field("int64")], 100, 1 << 20, row_ids=True, row_valid=True)
    assert pickle.loads(pickle.dumps(memory)) == memory
