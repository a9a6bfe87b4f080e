"""Documents packed into sequences, against a slow packer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.packing_oracle import packed
from torchparquet import Column, Pack, ParquetDataset

PADDING, SEPARATOR = -1, -2


def write(path: Path, row_groups: list[list[int]], kind: pa.DataType | None = None) -> None:
    """Write documents of these lengths; all tokens of the file differ."""
    schema = pa.schema({"tokens": pa.list_(kind or pa.int32()), "loss": pa.list_(pa.bool_())})
    first = 0
    with pq.ParquetWriter(path, schema, data_page_size=256) as writer:
        for lengths in row_groups:
            documents = [np.arange(first, first := first + length) for length in lengths]
            loss = [document % 3 == 0 for document in documents]
            writer.write_table(pa.table([documents, loss], schema))


def sequences_of(row_groups: list[list[int]], pack: Pack) -> list[dict[str, list[int]]]:
    """Return tokens, documents and positions of each sequence that the slow packer makes."""
    has_separator = pack.separator is not None
    sequences = []
    first = 0
    for lengths in row_groups:
        begins = first + np.cumsum([0, *lengths])
        first += sum(lengths)
        with_separators = [length + has_separator * (length > 0) for length in lengths]
        for parts in packed(with_separators, pack.length, pack.strategy, pack.window):
            tokens, documents, positions = [], [], []
            for number, (document, begin, end) in enumerate(parts):
                for token in range(begin, end):
                    is_separator = token == lengths[document]
                    tokens.append(SEPARATOR if is_separator else int(begins[document]) + token)
                    documents.append(number)
                    positions.append(token - begin)
            rest = pack.length - len(tokens)
            sequences.append(
                {
                    "tokens": tokens + [PADDING] * rest,
                    "tokens.document": documents + [-1] * rest,
                    "tokens.position": [*positions, *range(rest)],
                }
            )
    return sequences


def joined(batches: Any) -> dict[str, Any]:
    batches = list(batches)
    return {name: [row for b in batches for row in b[name].tolist()] for name in batches[0]}


LENGTHS = st.lists(
    st.lists(
        st.one_of(st.just(0), st.integers(1, 9), st.integers(1, 40), st.just(700)),
        min_size=1,
        max_size=30,
    ),
    min_size=1,
    max_size=5,
).filter(lambda row_groups: any(map(sum, row_groups)))
PACKS = st.builds(
    Pack,
    st.just("tokens"),
    st.one_of(st.integers(1, 12), st.just(64), st.just(1000)),
    st.sampled_from(["concat", "split", "best_fit"]),
    st.sampled_from([None, SEPARATOR]),
    st.just(PADDING),
    st.sampled_from([1, 3, 16_384]),
)


@settings(max_examples=150, deadline=None)
@given(LENGTHS, PACKS, st.integers(1, 5), st.sampled_from([1, 3]))
def test_sequences_are_those_of_the_slow_packer(
    row_groups: list[list[int]], pack: Pack, batch_size: int, num_threads: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.parquet", row_groups)
        dataset = ParquetDataset(
            folder, batch_size=batch_size, pack=pack, row_ids=True, num_threads=num_threads
        )
        found = joined(dataset)
    expected = sequences_of(row_groups, pack)
    assert found.pop("row.id") == list(range(len(expected)))
    assert found == {name: [one[name] for one in expected] for name in expected[0]}


@settings(max_examples=60, deadline=None)
@given(LENGTHS, PACKS, st.integers(1, 4), st.integers(1, 3), st.data())
def test_worlds_and_resumes_read_each_token_once(
    row_groups: list[list[int]], pack: Pack, world_size: int, batch_size: int, data: st.DataObject
) -> None:
    def of(rank: int, world_size: int) -> ParquetDataset:
        return ParquetDataset(
            folder,
            batch_size=batch_size,
            pack=pack,
            shuffle=True,
            even="none",
            shuffle_window=data.draw(st.shared(st.sampled_from([0, 1, 2]), key="window")),
            rank=rank,
            world_size=world_size,
        )

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "a.parquet", row_groups)
        expected = sorted(one["tokens"] for one in sequences_of(row_groups, pack))
        found: list[list[int]] = []
        states = []
        steps = data.draw(st.integers(0, 6))
        for rank in range(world_size):
            dataset = of(rank, world_size)
            assert len(list(dataset)) == len(of(rank, world_size))
            dataset = of(rank, world_size)
            for _, batch in zip(range(steps), dataset, strict=False):
                found += batch["tokens"].tolist()
            states.append(dataset.state_dict())
        if len({str(state) for state in states}) > 1:
            return  # A share ended before others, which even="none" allows.
        later_size = data.draw(st.integers(1, 4))
        for rank in range(later_size):
            dataset = of(rank, later_size)
            dataset.load_state_dict(states[0])
            if dataset.epoch == 0:
                found += [row for batch in dataset for row in batch["tokens"].tolist()]
    assert sorted(found) == expected


@pytest.mark.parametrize("strategy", ["concat", "split", "best_fit"])
def test_columns_in_step(tmp_path: Path, strategy: Any) -> None:
    row_groups = [[5, 0, 17, 3], [40, 1]]
    write(tmp_path / "a.parquet", row_groups)
    pack = Pack(
        ["ids", "loss"], 8, strategy, separator=SEPARATOR, padding={"ids": PADDING, "loss": False}
    )
    columns: Any = {"loss": "loss", "ids": Column("tokens", dtype="int64")}
    batch = joined(ParquetDataset(tmp_path, batch_size=2, columns=columns, pack=pack))
    expected = sequences_of(row_groups, Pack("tokens", 8, strategy, SEPARATOR, PADDING))
    assert list(batch) == ["ids", "ids.document", "ids.position", "loss"]
    assert batch["ids"] == [one["tokens"] for one in expected]
    assert batch["loss"] == [[t >= 0 and t % 3 == 0 for t in one["tokens"]] for one in expected]


def test_lengths_for_kernels(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[3, 5, 2, 4]])
    pack = Pack("tokens", 8, boundaries="cu_seqlens")
    (batch,) = ParquetDataset(tmp_path, batch_size=2, pack=pack)
    assert list(batch) == ["tokens", "cu_seqlens", "max_seqlen"]
    assert batch["cu_seqlens"].dtype == torch.int32
    assert batch["cu_seqlens"].tolist() == [0, 3, 8, 10, 14, 16]
    assert batch["max_seqlen"] == 5


def test_a_very_long_document(tmp_path: Path) -> None:
    tokens = np.arange(10_000_000, dtype=np.uint32)
    table = pa.table({"tokens": pa.array([tokens, tokens[:5]], pa.list_(pa.uint32()))})
    pq.write_table(table, tmp_path / "a.parquet")
    for strategy in ("concat", "split", "best_fit"):
        pack = Pack("tokens", 4096, strategy, boundaries="none")
        dataset = ParquetDataset(tmp_path, batch_size=64, pack=pack)
        rows = torch.cat([batch["tokens"] for batch in dataset]).view(-1)
        assert torch.equal(rows[:10_000_000], torch.from_numpy(tokens))
        assert len(dataset) == 39
