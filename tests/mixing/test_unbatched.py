"""Rows one by one: their values, their shares, and going on at any of them."""

from __future__ import annotations

import copy
import functools
import json
import pickle
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader

from tests.fixtures.datasets import opener
from torchparquet import Column, ParquetDataset, TransformError, mix

ROWS = [11, 0, 30, 7, 41, 22, 1, 18]
NUM_ROWS = sum(ROWS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Any:
    root = tmp_path_factory.mktemp("unbatched")
    table = pa.table({"id": np.arange(NUM_ROWS), "text": [f"é{i}" for i in range(NUM_ROWS)]})
    begin = 0
    for number in range(2):
        with pq.ParquetWriter(root / f"{number}.parquet", table.schema) as file:
            for rows in ROWS[4 * number : 4 * number + 4]:
                file.write_table(table.slice(begin, rows))
                begin += rows
    return root


open_dataset = opener(batch_size=8, num_threads=1)


def ids(rows: Any) -> list[int]:
    return [int(row["id"]) for row in rows]


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return value.to_list() if hasattr(value, "to_list") else value


def test_rows_have_the_values_that_pyarrow_reads() -> None:
    table = pa.table(
        {
            "number": pa.array([1, 2, 3], pa.int16()),
            "maybe": [0.5, None, 1.5],
            "text": ["a", "", "né"],
            "raw": pa.array([b"\x00\xff", b"", b"z"]),
            "list": [[1, 2], [], [3]],
            "holes": [[1, None], [], None],
            "words": [["x", "yy"], [], [""]],
            "deep": [[[1], []], [], [[2, 3]]],
            "small": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.uint8())),
            "left": [1.0, 2.0, 3.0],
            "right": [4.0, 5.0, 6.0],
        }
    )
    columns = {name: name for name in table.column_names[:9]}
    columns |= {
        "maybe": Column("maybe", nulls="mask"),
        "holes": Column("holes", nulls="mask"),
        "pair": ["left", "right"],
        "fixed": Column("small", length=2),
    }
    rows = list(ParquetDataset(table, batch_size=2, columns=columns, row_ids=True).unbatched())
    for number, (row, expected) in enumerate(zip(rows, table.to_pylist(), strict=True)):
        found = {name: plain(value) for name, value in row.items()}
        assert found.pop("row.id") == number
        assert found.pop("pair") == [expected.pop("left"), expected.pop("right")]
        assert found.pop("fixed") == expected["small"]
        assert found.pop("maybe.valid") == (expected["maybe"] is not None)
        holes = expected.pop("holes")
        assert found.pop("holes.valid") == (holes is not None)
        valid = found.pop("holes.values.valid")
        assert valid == [item is not None for item in holes or []]
        assert found.pop("holes") == [item or 0 for item in holes or []]
        found["maybe"] = found["maybe"] if expected["maybe"] is not None else None
        assert found == expected
        assert row["number"].dtype == torch.int16
        assert row["small"].dtype == torch.uint8


def add(amount: Any, row: Any) -> dict[str, Any]:
    return {"id": row["id"] + amount, "length": row["text"]}


def test_functions_on_batches_come_before_those_on_rows(data: Any) -> None:
    dataset = open_dataset(data, transform=double_ids, processors={"text": to_str})
    rows = dataset.unbatched(processors={"text": len}, transform=functools.partial(add, 5))
    expected = [{"id": 2 * i + 5, "length": len(f"é{i}")} for i in range(NUM_ROWS)]
    assert [{name: plain(value) for name, value in row.items()} for row in rows] == expected


def double_ids(batch: Any) -> Any:
    return batch | {"id": batch["id"] * 2}


def to_str(text: Any) -> Any:
    return text.to_str()


def fail_on(wanted: Any, row: Any) -> Any:
    if row["id"] == wanted:
        raise LookupError("this one")
    return row


@pytest.mark.parametrize("even", ["split", "dynamic"])
def test_errors_name_the_row(data: Any, even: str) -> None:
    dataset = open_dataset(data, shuffle=True, even=even)
    expected = ids(open_dataset(data, shuffle=True, even=even).unbatched())
    rows = iter(dataset.unbatched(transform=functools.partial(fail_on, 60)))
    found: list[int] = []
    with pytest.raises(TransformError) as caught:
        found.extend(int(row["id"]) for row in rows)
    assert found == expected[: expected.index(60)]
    place = f"row 12 of row group 0 of {str(data / '1.parquet')!r}"
    assert str(caught.value).endswith(place)
    assert isinstance(caught.value.__cause__, LookupError)
    if even == "split":
        step, row = divmod(len(found), 8)
        assert f"row {row} of batch {step} of epoch 0" in str(caught.value)
    # The iterator stays before the row.
    with pytest.raises(TransformError):
        next(rows)


def test_a_transform_of_batches_must_keep_their_rows(data: Any) -> None:
    with pytest.raises(ValueError, match=r"must keep rows.*'id' is 7 rows, given were 8"):
        list(open_dataset(data, transform=drop_first_row).unbatched())
    with pytest.raises(ValueError, match=r"must keep rows.*'sum' is float"):
        list(open_dataset(data, transform=lambda batch: {"sum": 1.0}).unbatched())


def drop_first_row(batch: Any) -> dict[str, Any]:
    return {"id": batch["id"][1:]}


@pytest.mark.parametrize("batch_size", [8, None])
@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_give_as_many_rows_as_they_say(
    data: Any, batch_size: int | None, even: str, drop_last: bool
) -> None:
    found, lengths = [], []
    for rank in range(3):
        rows = open_dataset(
            data, batch_size=batch_size, even=even, drop_last=drop_last, rank=rank, world_size=3
        ).unbatched()
        lengths.append(len(rows))
        found.append(ids(rows))
        assert len(found[-1]) == lengths[-1]
        # The next iteration is the next epoch, although rows may have been left out.
        assert rows.epoch == 1
    together = sorted(chain.from_iterable(found))
    assert set(together) <= set(range(NUM_ROWS))
    if even == "none":
        assert len(together) == len(set(together))
    else:
        assert len(set(lengths)) == 1
    if not drop_last and (even == "none" or (even == "split")):
        assert set(together) == set(range(NUM_ROWS))
        assert len(together) <= NUM_ROWS + 2


@pytest.mark.parametrize("shuffle", [False, True])
def test_states_go_on_at_every_row(data: Any, shuffle: bool) -> None:
    options = {"shuffle": shuffle, "shuffle_window": 3 if shuffle else None}
    dataset = open_dataset(data, **options)
    expected, following = ids(dataset.unbatched()), ids(dataset.unbatched())
    rows = open_dataset(data, **options).unbatched()
    states = [rows.state_dict()]
    for _ in rows:
        states.append(rows.state_dict())
    resumed = open_dataset(data, **options).unbatched()
    for taken, state in enumerate(states):
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert resumed.state_dict() == state
        found = ids(resumed)
        assert found == (expected[taken:] if taken < NUM_ROWS else following), taken
    assert len(states) == NUM_ROWS + 1


def test_a_live_iterator_goes_on_and_a_lost_one_is_remembered(data: Any) -> None:
    rows = open_dataset(data, shuffle=True).unbatched()
    expected = ids(rows)
    rows.set_epoch(0)
    iterator = iter(rows)
    assert ids(next(iterator) for _ in range(13)) == expected[:13]
    state = rows.state_dict()
    assert ids(next(iterator) for _ in range(9)) == expected[13:22]
    rows.load_state_dict(state)
    assert ids(next(iterator) for _ in range(5)) == expected[13:18]
    del iterator
    other = open_dataset(data, shuffle=True).unbatched()
    other.load_state_dict(rows.state_dict())
    assert ids(other) == expected[18:]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_copy_stands_where_its_original_did(data: Any, is_mixed: bool) -> None:
    def make() -> Any:
        return mixed(data) if is_mixed else open_dataset(data, shuffle=True).unbatched()

    expected = ids(make())
    rows = make()
    taken = [next(iterator) for iterator in [iter(rows)] for _ in range(11)]
    rows.load_state_dict(rows.state_dict())
    for other in (copy.deepcopy(rows), pickle.loads(pickle.dumps(rows))):
        assert ids(taken) + ids(other) == expected
        assert other.epoch == 1
        assert rows.epoch == 0


@pytest.mark.parametrize(("batch_size", "limit_steps"), [(8, None), (8, 1000), (None, None)])
def test_states_go_on_in_other_worlds(
    data: Any, batch_size: int | None, limit_steps: int | None
) -> None:
    """Three ranks, then two, then one: each row once, but for those that ranks repeat."""
    options = {"shuffle": True, "batch_size": batch_size, "limit_steps": limit_steps}
    found, state = [], None
    for world_size, taken in [(3, 13), (2, 17), (1, None)]:
        states = []
        for rank in range(world_size):
            rows = open_dataset(data, rank=rank, world_size=world_size, **options).unbatched()
            if state is not None:
                rows.load_state_dict(state)
            iterator = iter(rows)
            if taken is None:
                found += ids(iterator)
            else:
                found += ids(next(iterator) for _ in range(taken))
                states.append(rows.state_dict())
        assert all(other == states[0] for other in states)
        state = states[0] if states else None
    assert sorted(found) == list(range(NUM_ROWS))


def test_limited_row_groups_do_not_go_on_in_another_world(data: Any) -> None:
    """Ranks have begun different numbers of them, so no count of the rest is right for all."""
    options = {"batch_size": None, "limit_steps": 3, "even": "none"}
    rows = open_dataset(data, rank=0, world_size=2, **options).unbatched()
    iterator = iter(rows)
    taken = ids(next(iterator) for _ in range(13))
    same = open_dataset(data, rank=0, world_size=2, **options).unbatched()
    same.load_state_dict(rows.state_dict())
    assert taken + ids(same) == ids(open_dataset(data, rank=0, world_size=2, **options).unbatched())
    other = open_dataset(data, rank=0, world_size=1, **options).unbatched()
    other.load_state_dict(rows.state_dict())
    with pytest.raises(ValueError, match="limit_steps counts batches"):
        next(iter(other))


def collate(rows: int) -> dict[str, Any]:
    return {"ids": torch.stack([row["id"] for row in rows]), "texts": [r["text"] for r in rows]}  # type: ignore[attr-defined]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_loaders_batch_and_collate(data: Any, num_workers: int) -> None:
    rows = open_dataset(data, shuffle=True, even="none").unbatched()
    loader = DataLoader(
        rows,
        batch_size=10,
        collate_fn=collate,  # type: ignore[arg-type]
        num_workers=num_workers,
        multiprocessing_context="fork" if num_workers else None,
        timeout=60 if num_workers else 0,
    )
    for _ in range(2):
        batches = list(loader)
        found = [int(row) for batch in batches for row in batch["ids"]]
        assert [text for batch in batches for text in batch["texts"]] == [f"é{i}" for i in found]
        assert sorted(found) == list(range(NUM_ROWS))
        # torch counts the batches as if one worker made them.
        assert len(loader) == -(-NUM_ROWS // 10)
    assert rows.epoch == 2
    if num_workers:
        with pytest.raises(RuntimeError, match="StatefulDataLoader"):
            rows.state_dict()


def mixed(data: Any, **options: Any) -> Any:
    first = open_dataset(data, **options)
    second = open_dataset(data, batch_size=5, **options)
    return mix([first, second], weights=[2, 1], stopping="all_exhausted").unbatched()


def test_rows_of_a_mix_go_on_at_every_row(data: Any) -> None:
    rows = mixed(data)
    states, expected = [rows.state_dict()], []
    for row in rows:
        expected.append(int(row["id"]))
        states.append(rows.state_dict())
    assert sorted(expected) == sorted(2 * list(range(NUM_ROWS)))
    following = ids(rows)
    for taken in (0, 1, 7, 8, 9, 100, len(expected) - 1, len(expected)):
        resumed = mixed(data)
        resumed.load_state_dict(json.loads(json.dumps(states[taken])))
        assert resumed.state_dict() == states[taken]
        found = ids(resumed)
        assert found == (expected[taken:] if taken < len(expected) else following)
    with pytest.raises(TypeError, match="rows of a mix have no len"):
        len(rows)


def state_after(rows: Any, taken: int) -> Any:
    """The state of a first iteration after some rows."""
    iterator = iter(rows)
    for _ in range(taken):
        next(iterator)
    return json.loads(json.dumps(rows.state_dict()))


@pytest.mark.parametrize("looks", [1, 2])
def test_a_look_leaves_a_state_within_a_batch_of_a_mix_in_force(data: Any, looks: int) -> None:
    expected = ids(mixed(data))
    resumed = mixed(data)
    resumed.load_state_dict(state_after(mixed(data), 11))  # a batch of 8, and 3 rows
    for _ in range(looks):
        assert ids([next(iter(resumed))]) == expected[11:12]
        after = mixed(data)
        after.load_state_dict(resumed.state_dict())
        assert ids(after) == expected[12:]
    assert ids(resumed) == expected[11:]
    # The next epoch begins with its first row.
    whole = mixed(data)
    ids(whole)
    assert ids(resumed) == ids(whole)


def test_a_state_within_a_batch_is_dropped_with_its_epoch(data: Any) -> None:
    resumed = mixed(data)
    resumed.load_state_dict(state_after(mixed(data), 2))
    with pytest.warns(UserWarning, match="drops a loaded state"):
        resumed.set_epoch(1)
    whole = mixed(data)
    whole.set_epoch(1)
    assert ids(resumed) == ids(whole)


def test_a_state_within_a_batch_of_a_mix_is_of_its_world(data: Any) -> None:
    other = mixed(data, rank=0, world_size=1)
    other.load_state_dict(state_after(mixed(data, rank=0, world_size=2), 1))
    with pytest.raises(ValueError, match=r"fits the same ranks.*\[\[2, 1\], \[2, 1\]\].*\[\[1, 1"):
        iter(other)
