"""Row groups that are batches, and `even=`."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.parquet_files import numbered_files
from torchparquet import ParquetDataset


def warnings_of(dataset: ParquetDataset) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            list(dataset)
    return [str(one.message) for one in caught if "row group" in str(one.message)]


@pytest.mark.parametrize("even", ["split", "drop", "pad", "none"])
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_row_groups_that_are_batches_are_cut_only_with_a_word(
    tmp_path: Path, even: Any, num_ranks: int
) -> None:
    sizes = [10, 30, 5, 19]
    data = numbered_files(tmp_path, sizes, number="x")
    said, lengths = [], set()
    for rank in range(num_ranks):
        options: Any = {"rank": rank, "world_size": num_ranks, "even": even, "batch_size": None}
        dataset = ParquetDataset(data, **options)
        said += warnings_of(dataset)
        lengths |= {len(batch["x"]) for batch in dataset}
    is_cut = not lengths <= set(sizes)
    assert is_cut == (even == "split" and num_ranks > 1)
    assert bool(said) == is_cut
    assert len(said) <= num_ranks
    assert all('even="none"' in text for text in said)
