"""Texts that are tokenised while they are read, against a slow packer and a column of tokens."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.texts import Bytes, rows_of, sequences, write_texts
from tests.text.test_chats import CHATS, by_bytes
from tests.text.test_chats import write as write_chats
from torchparquet import Pack, ParquetDataset, TransformError

STEP = 400  # bytes a token


def random_files() -> list[list[list[str]]]:
    """Return texts whose row groups and portions, of half a MiB, cut each other."""
    rng = random.Random(3)
    letters = rng.choices("abcdefgh", k=200_000)

    def text() -> str:
        begin = rng.randrange(1000)
        return "".join(letters[begin : begin + rng.choice([0, 1, 300, 9_000, 60_000, 150_000])])

    counts = [[5, 0, 60], [1, 8], [25]]
    return [[[text() for _ in range(count)] for count in of] for of in counts]


FILES = random_files()
TEXTS = [texts for row_groups in FILES for texts in row_groups]
TOKENS = [[list(text.encode()[::STEP]) for text in texts] for texts in TEXTS]


@pytest.fixture(scope="module")
def data(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("texts")
    write_texts(folder / "texts", FILES)
    schema = pa.schema({"text": pa.list_(pa.int64())})
    with pq.ParquetWriter(folder / "tokens.parquet", schema) as writer:
        for row_group in filter(None, TOKENS):
            writer.write_table(pa.table([row_group], schema))
    return folder


def of(data: Path, pack: dict[str, Any], tokenizer: Any = None, **options: Any) -> ParquetDataset:
    made = Pack("text", 16, tokenizer=tokenizer or Bytes(step=STEP), **pack)
    given: Any = {"batch_size": 7, "even": "dynamic", "num_threads": 1} | options
    return ParquetDataset(data / "texts", pack=made, **given)


@pytest.mark.parametrize("strategy", ["concat", "split", "best_fit"])
def test_every_tensor_is_that_of_a_column_of_tokens(data: Path, strategy: str) -> None:
    options: Any
    for more in ({}, {"separator": 9, "boundaries": "both", "pad_documents_to": 4, "window": 5}):
        pack: Any = {"strategy": strategy, **more}
        for options in ({}, {"shuffle": True, "seed": 2}, {"drop_last": True, "num_epochs": 2}):
            found = list(of(data, pack, **options))
            if not more and not options:
                assert rows_of(found) == sequences(TOKENS, Pack("text", 16, **pack), None)
            expected = list(
                ParquetDataset(
                    data / "tokens.parquet",
                    batch_size=7,
                    pack=Pack("text", 16, **pack),
                    even="none",
                    shuffle_window=0 if "shuffle" in options else None,
                    **options,
                )
            )
            assert len(found) == len(expected) > 20
            for batch, other in zip(found, expected, strict=True):
                assert list(batch) == list(other)
                for name in batch:
                    assert torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(other[name]))


def test_the_first_batch_comes_before_most_texts_are_tokenised(data: Path) -> None:
    tokenizer = Bytes(step=STEP)
    dataset = of(data, {}, tokenizer)
    assert not tokenizer.texts
    stream = iter(dataset)
    next(stream)
    assert len(tokenizer.texts) < sum(map(len, TEXTS)) // 2
    list(stream)
    assert tokenizer.texts == [text for texts in TEXTS for text in texts]
    assert dataset.manifest.num_rows == len(tokenizer.texts)


@pytest.mark.parametrize("pack", [{}, {"strategy": "best_fit", "window": 7}])
def test_a_state_goes_on_at_its_batch(data: Path, pack: dict[str, Any]) -> None:
    options: Any
    for options in ({"batch_size": 9}, {"shuffle": True, "limit_steps": 30, "num_epochs": 2}):
        whole = rows_of(of(data, pack, **options))
        stream = iter(dataset := of(data, pack, **options))
        found: list[Any] = []
        while len(found) < len(whole):
            state = json.loads(json.dumps(dataset.state_dict()))
            tokenizer = Bytes(step=STEP)
            resumed = of(data, pack, tokenizer, **options)
            resumed.load_state_dict(state)
            assert found + rows_of(resumed) == whole
            if "shuffle" not in options:
                # Of what came before, the row group under way alone is tokenised again.
                later = {text for texts in TEXTS[-1:] for text in texts}
                is_last = len(found) > len(sequences(TOKENS[:-1], Pack("text", 16, **pack), None))
                assert not is_last or set(tokenizer.texts) <= later
            found += rows_of(islice(stream, 8))
        assert found == whole


def test_a_state_of_any_row_goes_on_there(data: Path) -> None:
    found: list[Any] = []
    state = None
    for count in (1, 30, 7, 100, 10_000):
        rows = of(data, {}).unbatched()
        if state is not None:
            rows.load_state_dict(json.loads(json.dumps(state)))
        stream = iter(rows)
        found += [row["text"].tolist() for row in islice(stream, count)]
        state = stream.state_dict()
    assert found == sequences(TOKENS, Pack("text", 16), None)


def test_a_state_of_another_tokenizer_is_refused(data: Path) -> None:
    dataset = of(data, {})
    next(iter(dataset))
    for other in (of(data, {}, Bytes("other", STEP)), of(data, {"strategy": "split"})):
        with pytest.raises(ValueError, match="does not fit this data set"):
            other.load_state_dict(dataset.state_dict())
    damaged = dataset.state_dict() | {"sequences": [1] * 99}
    with pytest.raises(ValueError, match="sequences are counted of row groups"):
        dataset.load_state_dict(damaged)


def test_conversations_and_their_losses(tmp_path: Path) -> None:
    data = write_chats(tmp_path / "data")
    pack = Pack("chat", 16, "split", 7, tokenizer=by_bytes, chat=True)
    batches = list(ParquetDataset(data, batch_size=2, pack=pack, even="dynamic"))
    for at, name, separator in ((0, "chat", 7), (1, "chat.loss", 0)):
        made = [[list(pair[at]) for pair in by_bytes(one)] for one in CHATS]
        assert rows_of(batches, name) == sequences(made, pack, separator)


def test_long_texts_side_by_side_are_read_in_smaller_portions(tmp_path: Path) -> None:
    texts = ["short"] * 700 + [letter * 20_000 for letter in "abcdefghijklmnop"] + ["short"] * 90
    write_texts(tmp_path / "texts", [[texts[:710], texts[710:]]])
    tokenizer = Bytes(step=STEP)
    found = of(tmp_path, {}, tokenizer, max_memory="512KiB")
    tokens = [list(text.encode()[::STEP]) for text in texts]
    expected = sequences([tokens[:710], tokens[710:]], Pack("text", 16), None)
    assert rows_of(found) == expected
    assert tokenizer.texts == texts


def test_a_failing_text_is_named_at_its_place_and_again(data: Path) -> None:
    wrong = TEXTS[-1][-1]

    def tokenize(texts: list[str]) -> list[list[int]]:
        if wrong in texts:
            raise ArithmeticError("of the tokenizer")
        return [list(text.encode()[::STEP]) for text in texts]

    tokenize.fingerprint = "fails"  # type: ignore[attr-defined]
    stream = iter(of(data, {}, tokenize))
    expected = sequences(TOKENS, Pack("text", 16), None)
    found = rows_of(next(stream) for _ in range(5))
    for _ in range(2):
        with pytest.raises(ArithmeticError) as caught:
            found.extend(row for batch in stream for row in batch["text"].tolist())
        (note,) = caught.value.__notes__
        assert "2.parquet', row group 0, row " in note
    assert found == expected[: len(found)]


def test_a_failing_transform_names_sequences(data: Path) -> None:
    def fail(batch: Any) -> Any:
        if batch["text"].tolist() == batches[9]["text"].tolist():
            raise ArithmeticError("of the transform")
        return batch

    batches = list(of(data, {}))
    stream = iter(of(data, {}, transform=fail))
    first = 63 - len(sequences(TOKENS[:1], Pack("text", 16), None))
    place = f"batch 9 .*: sequences {first} to {first + 6} of row group 2 of"
    with pytest.raises(TransformError, match=place):
        list(stream)


def test_what_needs_counts_tokenises_first(data: Path, tmp_path: Path) -> None:
    given: Any = (
        ({}, {"row_ids": True}),
        ({}, {"batch_size": None}),
        ({"token_cache": tmp_path}, {}),
        ({}, {"even": "none"}),
    )
    for pack, options in given:
        tokenizer = Bytes(step=STEP)
        dataset = of(data, pack, tokenizer, **options)
        assert len(tokenizer.texts) == sum(map(len, TEXTS))
        assert rows_of(dataset) == sequences(TOKENS, Pack("text", 16), None)
