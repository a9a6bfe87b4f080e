"""Of row groups of which only parts are read, only pages with a row that is wanted are fetched."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.generated_pages import Levels, list_entries, page, write_pages
from tests.remote.conftest import table, write_small_pages
from tests.remote.reading import FaultyStore, asked, by_http, by_s3fs, digests, open_dataset
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet._impl.files import manifest_reading
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet._impl.rows import column_bytes
from torchparquet._impl.rows.select_rows import RowArguments
from torchparquet._impl.session.assembly import Source

NUM_ROWS = 200_000
COLUMNS = ["id", "word", "items"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of one row group each, whose column chunks are of several blocks."""
    path = tmp_path_factory.mktemp("parts") / "train"
    path.mkdir()
    for number in range(2):
        rows = table(number, NUM_ROWS, kinds=()).select(COLUMNS)
        # Of all blocks of a column chunk, the last one too is larger than a page.
        noise = np.random.default_rng(number).integers(0, 2**62, NUM_ROWS)
        write_small_pages(rows.append_column("noise", [noise]), path / f"{number}.parquet")
    return path


@pytest.fixture(params=[by_http, by_s3fs])
def faulty(origin: FaultyOrigin, folder: Path, request: pytest.FixtureRequest) -> FaultyStore:
    store: FaultyStore = request.param(origin, folder)
    store.options |= {"hedges": False}
    return store


def some_rows(*runs: tuple[int, int]) -> Any:
    mask = np.zeros(2 * NUM_ROWS, bool)
    for begin, end in runs:
        mask[begin:end] = True
    return mask


def asked_for_epochs(faulty: FaultyStore, folder: Path, **options: Any) -> tuple[int, int]:
    """Read all, check it against the local files, and return what was asked for."""
    expected = digests(open_dataset(folder, **options))
    dataset = faulty.open(**options)
    faulty.origin.forget()
    assert digests(dataset) == expected
    return asked(faulty.origin)


@pytest.fixture
def stored(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.mostly_long(every=5)
@pytest.mark.parametrize("shuffle", [False, True])
def test_only_pages_with_selected_rows_are_fetched(
    faulty: FaultyStore, folder: Path, stored: int, shuffle: bool
) -> None:
    mask = some_rows((100, 300), (201_000, 201_010), (300_000, 300_001))
    num_bytes, num_ranges = asked_for_epochs(
        faulty, folder, rows=mask, shuffle=shuffle, batch_size=16
    )
    assert num_bytes < stored / 2
    # Offset indexes, and neighbouring blocks: nothing by itself and late.
    assert num_ranges <= 2 * (1 + 8)


def test_epochs_ask_for_no_index_again(faulty: FaultyStore, folder: Path) -> None:
    mask = some_rows((100, 300), (201_000, 201_010))
    _, of_all = asked_for_epochs(faulty, folder, rows=mask, num_epochs=3)
    _, of_one = asked_for_epochs(faulty, folder, rows=mask, num_epochs=1)
    indexes = 2
    assert of_all <= 3 * (of_one - indexes) + indexes


def test_conditions_ask_for_no_footer_again(
    faulty: FaultyStore, folder: Path, tmp_path: Path
) -> None:
    condition = "id % 7 = 3"

    def num_ranges(**options: Any) -> int:
        faulty.origin.forget()
        assert len(faulty.open(**options)) == len(open_dataset(folder, filters=condition))
        return asked(faulty.origin)[1]

    def num_ranges_in_parts() -> int:
        """As a rank that does all parts."""
        faulty.origin.forget()
        storage = StorageArguments(
            faulty.options,
            share=lambda _, most, work, *__: [work(part, most) for part in range(most)],
        )
        source = Source(faulty.url, RowArguments(condition), None, storage, None)
        found = source.open(with_sizes=False).row_group_num_rows
        assert found.sum() == len(open_dataset(folder, filters=condition, batch_size=1))
        return asked(faulty.origin)[1]

    faulty.open(manifest_cache=tmp_path / "cache")
    footers = asked(faulty.origin)[1]
    # Statistics do not decide it: of each file the page indexes and the values of a column.
    assert num_ranges(filters=condition) == footers + 4
    assert num_ranges_in_parts() == footers + 4
    # The cache has the rows of row groups, and not their statistics.
    assert num_ranges(filters=condition, manifest_cache=tmp_path / "cache") == footers + 4


@pytest.mark.parametrize("to_store", [by_http, by_s3fs])
def test_conditions_count_by_the_columns_of_all_files(
    origin: FaultyOrigin, tmp_path: Path, to_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first files are looked at before others tell of wider types, or of the column itself."""
    monkeypatch.setattr(manifest_reading, "_FILES_AT_ONCE", 1)
    monkeypatch.setattr(column_bytes, "_FILES", 1)
    monkeypatch.setattr(column_bytes, "_BYTES", 0)
    with_x = set()
    for number, kind in enumerate([None, pa.uint8(), pa.int64(), None, pa.int64()]):
        numbers = range(number * 50, number * 50 + 50)
        columns = {"id": pa.array(numbers)}
        if kind is not None:
            columns["x"] = pa.array(numbers, kind)
            with_x |= {*numbers}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=20)
    expected = [n for n in range(250) if (n > 79 if n in with_x else n > 180)]
    x, id_ = pc.field("x"), pc.field("id")
    # Of uint8 it would be positive.
    condition = (pc.bit_wise_not(x) < -80) | (x.is_null() & (id_ > 180))
    dataset = to_store(origin, tmp_path).open(columns=["id"], filters=condition)
    found = [batch["id"] for batch in dataset]
    assert torch.cat(found).tolist() == expected


@pytest.mark.mostly_long(every=3)
def test_windows_of_rows_fetch_each_part_once(
    faulty: FaultyStore, folder: Path, stored: int
) -> None:
    num_bytes, _ = asked_for_epochs(
        faulty, folder, shuffle=True, seed=1, shuffle_window="60_000 rows"
    )
    assert num_bytes < 1.7 * stored


@pytest.mark.parametrize("to_store", [by_http, by_s3fs])
def test_the_page_that_a_row_goes_on_in_is_fetched_with_it(
    origin: FaultyOrigin, tmp_path: Path, to_store: Any
) -> None:
    """Pages begin in the middle of rows, and the offset index counts the rows before each."""
    rows = [[row] * (1 + row % 3) for row in range(120_000)]
    entries = list_entries(rows)
    # Each page is longer than a block.
    parts = [entries[i : i + 20_000] for i in range(0, len(entries), 20_000)]
    begun = [sum(entry.repetition == 0 for entry in part) for part in parts]
    first_rows = list(itertools.accumulate(begun[:-1], initial=0))
    made = [page(part, Levels(1, 3)) for part in parts]
    (tmp_path / "train").mkdir()
    path = tmp_path / "train" / "0.parquet"
    field = pa.field("items", pa.list_(pa.int32()))
    write_pages(path, field, len(rows), made, len(entries), first_rows)
    number = next(i for i in range(4, 9) if parts[i - 1][0].repetition < parts[i][0].repetition)
    for wanted in ([first_rows[number] - 1], [first_rows[number]], [119_999]):
        store = to_store(origin, tmp_path / "train")
        store.options |= {"hedges": False}
        dataset = store.open(columns=["items"], rows=wanted)
        origin.forget()
        assert [batch["items"].to_list() for batch in dataset] == [[rows[wanted[0]]]]
        if wanted[0] == first_rows[number] - 1:
            num_bytes, num_ranges = asked(origin)
            # The index, and two pages at once.
            assert num_ranges <= 2
            assert num_bytes < path.stat().st_size / 3


@pytest.mark.long
def test_many_windows_of_a_row_group_in_little_memory(
    faulty: FaultyStore, folder: Path, stored: int
) -> None:
    num_bytes, num_ranges = asked_for_epochs(
        faulty, folder, shuffle=True, seed=2, shuffle_window="8_000 rows", max_memory=4 << 20
    )
    # Windows share blocks at their borders, and nothing is asked for piece by piece.
    assert num_bytes < 4 * stored
    assert num_ranges < 2 * 25 * 8
