"""Selected rows are read as if there were no others: exact, even, resumable."""

from __future__ import annotations

import hashlib
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rows.conftest import Stored
from tests.rows.reading import check_values, ids_of, open_rows
from torchparquet import CastError, Column, ParquetDataset
from torchparquet._impl.files.manifest import RowSelection

_NUM_ROWS = 10_001


def random_mask(seed: int, density: float, longest: int) -> Any:
    """Return a mask whose runs have lengths up to about `longest`."""
    rng = np.random.default_rng(seed)
    blocks = rng.random(-(-_NUM_ROWS // longest)) < density
    mask = np.repeat(blocks, longest)[:_NUM_ROWS]
    mask[rng.integers(_NUM_ROWS)] = True
    return mask


masks = st.builds(
    random_mask,
    st.integers(0, 2**31),
    st.sampled_from([0.001, 0.01, 0.1, 0.5, 0.9, 0.999]),
    st.sampled_from([1, 2, 30, 1000]),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mask=masks, batch_size=st.sampled_from([1000, 97, 13]), num_threads=st.integers(1, 3))
def test_rows_in_file_order(stored: Stored, mask: Any, batch_size: int, num_threads: int) -> None:
    dataset = open_rows(stored.path, rows=mask, batch_size=batch_size, num_threads=num_threads)
    batches = list(dataset)
    assert len(batches) == len(dataset) == -(-int(mask.sum()) // batch_size)
    assert all(len(batch["row.id"]) == batch_size for batch in batches[:-1])
    np.testing.assert_array_equal(ids_of(batches), np.flatnonzero(mask))
    check_values(batches, stored.table)


def digest_of_bounds(masks: list[Any]) -> bytes:
    """Return the digest that states hold: of 32-bit bounds of runs, or of bits if these are few."""
    forms, pieces = bytearray(), list[bytes]()
    for mask in masks:
        bounds = np.flatnonzero(np.diff(mask.astype(int), prepend=0, append=0))
        if mask.all():
            form, piece = 0, b""
        elif len(bounds) // 2 <= -(-len(mask) // 64):
            form, piece = 1, bounds.astype("<u4").tobytes()
        else:
            form, piece = 2, np.packbits(mask, bitorder="little").tobytes()
        forms.append(form)
        pieces.append(piece + bytes(-len(piece) % 8))
    begins = np.cumsum([0, *(len(piece) // 8 for piece in pieces)]).astype("<i8")
    whole = bytes(forms) + begins.tobytes() + b"".join(pieces)
    return hashlib.blake2b(whole, digest_size=16).digest()


def test_a_selection_keeps_its_rows_and_its_digest_in_few_bytes() -> None:
    rng = np.random.default_rng(3)
    masks = [rng.random(n) < d for n in (1, 63, 64, 5000, 70000) for d in (0, 0.001, 0.01, 0.6, 1)]
    masks += [np.repeat(rng.random(40) < 0.3, 3000), np.arange(200_000) == 199_999]
    selection = RowSelection.of_masks(masks)
    for row_group, mask in enumerate(masks):
        rows = np.flatnonzero(mask)
        stored = selection.stored_rows(row_group, np.arange(len(rows)))
        np.testing.assert_array_equal(stored, rows)
    assert selection.digest() == digest_of_bounds(masks)
    assert RowSelection.joined([selection] * 2).digest() == digest_of_bounds(masks * 2)
    one_of_hundred = rng.random(1 << 20) < 0.01
    words = RowSelection.of_masks([one_of_hundred]).words
    assert words.nbytes < 1.6 * np.count_nonzero(one_of_hundred)


@pytest.mark.filterwarnings("ignore:this epoch has no step")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mask=masks,
    world_size=st.integers(1, 5),
    even=st.sampled_from(["split", "drop", "pad", "none"]),
    shuffle=st.booleans(),
    seed=st.integers(0, 99),
)
def test_ranks_share_the_selected_rows(
    stored: Stored, mask: Any, world_size: int, even: Any, shuffle: bool, seed: int
) -> None:
    options: dict[str, Any] = {"rows": mask, "even": even, "shuffle": shuffle, "seed": seed}
    counts, ids = [], []
    for rank in range(world_size):
        dataset = open_rows(stored.path, rank=rank, world_size=world_size, **options)
        num_steps = len(dataset)
        batches = list(dataset)
        assert len(batches) == num_steps
        check_values(batches, stored.table)
        counts.append(len(batches))
        own = ids_of(batches)
        if even == "pad":
            valid = [batch["row.valid"].numpy() for batch in batches]
            own = own[np.concatenate([np.zeros(0, bool), *valid])]
        ids.append(own)
    if even != "none":
        assert len(set(counts)) == 1
    found, times = np.unique(np.concatenate(ids), return_counts=True)
    wanted = np.flatnonzero(mask)
    if even == "drop":
        assert np.isin(found, wanted).all()
        assert (times == 1).all()
    else:
        np.testing.assert_array_equal(found, wanted)
        assert times.sum() - len(found) < world_size


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mask=masks, done=st.integers(0, 5), worlds=st.tuples(st.integers(1, 3), st.integers(1, 3)))
def test_resume_and_resume_in_another_world(
    stored: Stored, mask: Any, done: int, worlds: tuple[int, int]
) -> None:
    options: dict[str, Any] = {"rows": mask, "shuffle": True, "seed": 3, "batch_size": 50}
    before: list[Any] = []
    state: dict[str, Any] = {}
    for rank in range(worlds[0]):
        dataset = open_rows(stored.path, rank=rank, world_size=worlds[0], **options)
        whole = list(open_rows(stored.path, rank=rank, world_size=worlds[0], **options))
        iterator = iter(dataset)
        own = list(islice(iterator, done))
        before.append(ids_of(own))
        state = pickle.loads(pickle.dumps(dataset.state_dict()))
        resumed = open_rows(stored.path, rank=rank, world_size=worlds[0], **options)
        resumed.load_state_dict(state)
        if len(own) < len(whole):
            np.testing.assert_array_equal(ids_of(list(resumed)), ids_of(whole[len(own) :]))
    if len(np.concatenate(before)) >= mask.sum():
        return
    after = []
    for rank in range(worlds[1]):
        dataset = open_rows(stored.path, rank=rank, world_size=worlds[1], **options)
        dataset.load_state_dict(state)
        batches = list(dataset)
        check_values(batches, stored.table)
        after.append(ids_of(batches))
    found = np.concatenate(before + after)
    np.testing.assert_array_equal(np.unique(found), np.flatnonzero(mask))
    assert len(found) - mask.sum() < sum(worlds)


def test_even_dynamic_reads_each_selected_row_once(stored: Stored) -> None:
    mask = random_mask(10, 0.2, 4)
    batches = list(open_rows(stored.path, rows=mask, even="dynamic"))
    np.testing.assert_array_equal(np.sort(ids_of(batches)), np.flatnonzero(mask))


def test_states_of_other_rows_are_refused(stored: Stored) -> None:
    one = open_rows(stored.path, rows=random_mask(1, 0.5, 1))
    next(iter(one))
    other = open_rows(stored.path, rows=random_mask(2, 0.5, 1))
    with pytest.raises(ValueError, match="other files or rows: rows are"):
        other.load_state_dict(one.state_dict())


def test_all_rows_selected_is_the_data_set_itself(stored: Stored) -> None:
    every = open_rows(stored.path, rows=np.ones(_NUM_ROWS, bool))
    assert every.manifest.fingerprint == open_rows(stored.path).manifest.fingerprint


def test_a_null_is_named_by_its_stored_row(stored: Stored) -> None:
    row = int(np.flatnonzero(stored.table["small"].is_null().to_numpy())[3])
    mask = random_mask(4, 0.5, 1) & ~stored.table["small"].is_null().to_numpy()
    mask[row] = True
    dataset = ParquetDataset(
        stored.path,
        batch_size=10,
        columns={"x": Column("small", nulls="error")},
        rows=mask,
        num_threads=1,
    )
    with pytest.raises(ValueError, match=rf"row {row % 1500}\b"):
        list(dataset)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BINARY_PACKED"])
def test_values_of_other_rows_need_not_fit(tmp_path: Path, dictionary: bool, encoding: str) -> None:
    numbers = np.arange(10_000) * 7919 % 256
    options: dict[str, Any] = {"use_dictionary": dictionary}
    if not dictionary:
        options["column_encoding"] = encoding
    pq.write_table(pa.table({"x": numbers}), tmp_path / "a.parquet", **options)

    def read(sql: str) -> list[int]:
        columns = {"x": Column("x", dtype="int8")}
        dataset = ParquetDataset(tmp_path, batch_size=999, columns=columns, filters=sql)
        return [number for batch in dataset for number in batch["x"].tolist()]

    assert read("x < 128") == numbers[numbers < 128].tolist()
    with pytest.raises(CastError, match="int8"):
        read("x <= 128")
