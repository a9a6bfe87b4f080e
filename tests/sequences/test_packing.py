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
from torch.utils.data import DataLoader

from tests.oracles.packing_oracle import packed
from torchparquet import (
    Column,
    ListLengthError,
    NullValueError,
    Pack,
    ParquetDataset,
    SchemaMismatchError,
    mix,
)

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
        multiple = pack.pad_documents_to
        for parts in packed(with_separators, pack.length, pack.strategy, pack.window, multiple):
            tokens, documents, positions = [], [], []
            for number, (document, begin, end) in enumerate(parts):
                for token in range(begin, end):
                    is_separator = token == lengths[document]
                    tokens.append(SEPARATOR if is_separator else int(begins[document]) + token)
                    documents.append(number)
                    positions.append(token - begin)
                num_padded = -len(tokens) % multiple
                tokens += [PADDING] * num_padded
                documents += [-1] * num_padded
                positions += range(end - begin, end - begin + num_padded)
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
    lambda length, multiple, strategy, separator, window: Pack(
        "tokens",
        length * multiple,
        strategy,
        separator,
        PADDING,
        window,
        pad_documents_to=multiple,
    ),
    st.one_of(st.integers(1, 12), st.just(64), st.just(250)),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["concat", "split", "best_fit"]),
    st.sampled_from([None, SEPARATOR]),
    st.sampled_from([1, 3, 16_384]),
)


@settings(max_examples=30, deadline=None)
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


@pytest.mark.long
@settings(max_examples=20, deadline=None)
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


@pytest.mark.parametrize("strategy", ["concat", "split", "best_fit"])
def test_padded_documents_have_lengths(tmp_path: Path, strategy: Any) -> None:
    write(tmp_path / "a.parquet", [[3, 5, 2, 11, 1], [4, 1]])
    pack = Pack(
        ["tokens", "loss"],
        8,
        strategy,
        padding={"tokens": PADDING, "loss": False},
        boundaries="both",
        pad_documents_to=4,
    )
    dataset = ParquetDataset(tmp_path, batch_size=2, pack=pack)
    tokens = []
    for batch in dataset:
        ends, lengths = batch["cu_seqlens"].tolist(), batch["seqlens"]
        assert lengths.dtype == torch.int32
        assert len(ends) == len(lengths) + 1
        assert all(end % 4 == 0 for end in ends)
        assert batch["max_seqlen"] == max(np.diff(ends))
        flat, loss = batch["tokens"].flatten().tolist(), batch["loss"].flatten().tolist()
        document = batch["tokens.document"].flatten().tolist()
        for begin, end, length in zip(ends, ends[1:], lengths.tolist(), strict=False):
            inside = flat[begin : begin + length]
            assert inside == list(range(inside[0], inside[0] + length)) if inside else True
            assert flat[begin + length : end] == [PADDING] * (end - begin - length)
            assert len(set(document[begin : begin + length])) <= 1
            assert document[begin + length : end] == [-1] * (end - begin - length)
            assert loss[begin:end] == [t >= 0 and t % 3 == 0 for t in flat[begin:end]]
            tokens += inside
    assert sorted(tokens) == list(range(27))


def test_states_of_padded_documents(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[3, 9, 2, 30, 1, 1]])
    pack = Pack("tokens", 8, "split", boundaries="cu_seqlens", pad_documents_to=2)
    (whole,) = ParquetDataset(tmp_path, batch_size=9, pack=pack)
    dataset = ParquetDataset(tmp_path, batch_size=9, pack=pack)
    state = dataset.state_dict()
    dataset.load_state_dict(state | {"legs": [[1, 1, 9, 0, 2]]})
    (rest,) = dataset
    num_before = whole["cu_seqlens"].tolist().index(16)
    assert rest["seqlens"].tolist() == whole["seqlens"].tolist()[num_before:]
    assert rest["cu_seqlens"].tolist() == [
        n - 16 for n in whole["cu_seqlens"].tolist()[num_before:]
    ]
    for other in (Pack("tokens", 8, "split"), Pack("tokens", 8, "split", pad_documents_to=4)):
        with pytest.raises(ValueError, match="state"):
            ParquetDataset(tmp_path, batch_size=9, pack=other).load_state_dict(state)


def tokens_of(batches: Any) -> list[int]:
    return [t for batch in batches for t in batch["tokens"].view(-1).tolist() if t != PADDING]


@pytest.mark.parametrize("strategy", ["concat", "split", "best_fit"])
def test_some_documents_are_packed(tmp_path: Path, strategy: Any) -> None:
    documents = [[row * 100 + i for i in range(row % 13)] for row in range(60)]
    languages = ["de" if row % 3 else "fr" for row in range(60)]
    table = pa.table({"tokens": pa.array(documents, pa.list_(pa.int64())), "language": languages})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=25)
    expected = [token for row in range(60) if row % 3 for token in documents[row]]
    pack = Pack("tokens", 7, strategy, padding=PADDING, boundaries="none")
    every: list[Any] = [{}, {"num_threads": 3, "shuffle": True, "max_memory": "64KiB"}]
    for options in every:
        options |= {"filters": "language = 'de'", "row_ids": True}
        dataset = ParquetDataset(tmp_path, batch_size=2, pack=pack, **options)
        batches = list(dataset)
        ids = [row for batch in batches for row in batch["row.id"].tolist()]
        assert sorted(ids) == list(range(dataset.manifest.num_rows))
        assert sorted(tokens_of(batches)) == expected


def test_workers_read_each_token_once(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[9, 30, 0, 5, 44, 2, 2, 17]] * 5)
    pack = Pack("tokens", 16, "best_fit", padding=PADDING, boundaries="cu_seqlens")
    dataset = ParquetDataset(tmp_path, batch_size=3, pack=pack, shuffle=True, even="none")
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    assert sorted(tokens_of(loader)) == list(range(109 * 5))


def test_the_answer_is_kept_beside_the_manifest(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[9, 30, 0], [5]])
    cache = tmp_path / "cache"
    options: Any = {"batch_size": 1, "manifest_cache": cache}
    pack = Pack("tokens", 16)
    first = ParquetDataset(tmp_path / "a.parquet", pack=pack, **options)
    (kept,) = tmp_path.glob("cache.*.lengths")
    content = kept.read_bytes()
    again = ParquetDataset(tmp_path / "a.parquet", pack=pack, **options)
    assert len(again) == len(first) == 4
    assert again.manifest.fingerprint == first.manifest.fingerprint
    kept.write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match="is damaged"):
        ParquetDataset(tmp_path / "a.parquet", pack=pack, **options)
    assert kept.read_bytes() == content
    ParquetDataset(tmp_path / "a.parquet", pack=Pack("tokens", 8), **options)
    assert len(list(tmp_path.glob("cache.*.lengths"))) == 2


def test_states_are_of_one_packing(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[9, 30, 0], [5]])
    state = ParquetDataset(tmp_path, batch_size=1, pack=Pack("tokens", 16)).state_dict()
    for other in (Pack("tokens", 8), Pack("tokens", 16, "split"), Pack("tokens", 16, separator=1)):
        with pytest.raises(ValueError, match="state"):
            ParquetDataset(tmp_path, batch_size=1, pack=other).load_state_dict(state)


@pytest.mark.parametrize("transform", [None, lambda b: dict(sorted(b.items()))], ids=["", "sorted"])
def test_lengths_follow_the_rows_of_a_batch(tmp_path: Path, transform: Any) -> None:
    """A state within a batch leads to the rest of it, documents included."""
    write(tmp_path / "a.parquet", [[3, 9, 2, 30, 1, 1]])
    pack = Pack("tokens", 8, "split", boundaries="both")
    (whole,) = ParquetDataset(tmp_path, batch_size=9, pack=pack)
    dataset = ParquetDataset(tmp_path, batch_size=9, pack=pack, transform=transform)
    dataset.load_state_dict(dataset.state_dict() | {"legs": [[1, 1, 9, 0, 2]]})
    (rest,) = dataset
    assert torch.equal(rest["tokens"], whole["tokens"][2:])
    ends = [end - 16 for end in whole["cu_seqlens"].tolist() if end >= 16]
    assert rest["cu_seqlens"].tolist() == ends
    assert rest["max_seqlen"] == max(np.diff(ends))
    rows = ParquetDataset(tmp_path, batch_size=2, pack=Pack("tokens", 8)).unbatched()
    assert [row["tokens"].shape for row in rows] == [(8,)] * 6
    with pytest.raises(ValueError, match="rows one by one cannot have 'cu_seqlens'"):
        next(iter(ParquetDataset(tmp_path, batch_size=2, pack=pack).unbatched()))


def test_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tokens": [[1, None, 2], None, [3]]}), tmp_path / "a.parquet")
    with pytest.raises(NullValueError, match=r"column 'tokens.*a\.parquet', row group 0"):
        list(ParquetDataset(tmp_path, batch_size=1, pack=Pack("tokens", 2)))
    (batch,) = ParquetDataset(tmp_path, batch_size=2, pack=Pack("tokens", 2), nulls=7)
    assert batch["tokens"].tolist() == [[1, 7], [2, 3]]


def test_columns_out_of_step_are_named(tmp_path: Path) -> None:
    table = pa.table({"a": [[1], [2, 3], [4]], "b": [[1], [2, 3], [4, 5]]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    message = r"a\.parquet', row group 1, row 0: 'a' has 1, 'b' has 2"
    with pytest.raises(ListLengthError, match=message):
        ParquetDataset(tmp_path, batch_size=1, pack=Pack(["a", "b"], 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pack": Pack("tokens", 4, separator=2**40)}, "separator must be representable"),
        ({"pack": Pack("tokens", 4, padding=0.5)}, "padding must be representable"),
        ({"pack": Pack("language", 4)}, "lists of numbers"),
        ({"columns": ["tokens", "language"]}, "not packed"),
        ({"pack": Pack("other", 4)}, "other"),
        ({"pack": Pack("none", 4)}, "none"),
        ({"columns": {"tokens": Column("tokens", length=3)}}, "length does not go with pack"),
        ({"pack": "tokens"}, "pack must be a Pack"),
        ({"filters": "language = 'xx'"}, "no row"),
        ({"columns": {"tokens": Column("tokens", dtype="uint8")}}, "uint8: 300"),
        ({"nulls": "mask"}, 'nulls="mask" does not go with pack'),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    tokens = pa.array([[1, 300]], pa.list_(pa.int32()))
    table = pa.table({"tokens": tokens, "language": ["de"], "none": pa.array([[]])})
    pq.write_table(table, tmp_path / "a.parquet")
    options = {"pack": Pack("tokens", 4), "columns": ["tokens"], **options}
    if "filters" in options or options["pack"] != Pack("tokens", 4):
        del options["columns"]
    with pytest.raises((TypeError, ValueError), match=message):
        list(ParquetDataset(tmp_path, batch_size=1, **options))


@pytest.mark.parametrize(
    "arguments",
    [
        *({"length": 0}, {"length": 2.5}, {"strategy": "first_fit"}, {"boundaries": "all"}),
        *({"window": 0}, {"columns": []}, {"separator": "x"}),
        *({"pad_documents_to": 0}, {"pad_documents_to": 3}),
        {"columns": ["a", "b"], "separator": {"a": 1}},
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any]) -> None:
    given: Any = {"columns": "tokens", "length": 8} | arguments
    with pytest.raises((TypeError, ValueError), match=next(reversed(arguments))):
        Pack(**given)


def test_rows_of_packed_data_sets_are_mixed_with_their_lengths(tmp_path: Path) -> None:
    sources = []
    for number, lengths in enumerate(([5, 3, 9, 4], [2, 2, 2, 2, 2, 2, 2, 2, 2])):
        write(tmp_path / f"{number}.parquet", [lengths])
        pack = Pack("tokens", 7, padding=PADDING, boundaries="both")
        path = tmp_path / f"{number}.parquet"
        sources.append(ParquetDataset(path, columns=["tokens"], batch_size=2, pack=pack))
    mixed = mix(sources, weights=[1, 1], within_batch=True, batch_size=4, seed=0)
    batches = list(mixed)
    assert batches
    for batch in batches:
        first = batch["tokens.position"].flatten() == 0
        expected = [*first.nonzero().flatten().tolist(), first.numel()]
        assert batch["cu_seqlens"].tolist() == expected
        assert batch["max_seqlen"] == max(np.diff(expected))
    other = ParquetDataset(
        tmp_path / "0.parquet", columns=["tokens"], batch_size=2, pack=Pack("tokens", 7)
    )
    with pytest.raises(
        SchemaMismatchError, match=r"'cu_seqlens' is of packed sequences in .*missing"
    ):
        list(mix([sources[0], other], weights=[1, 1], within_batch=True, batch_size=4, seed=0))
