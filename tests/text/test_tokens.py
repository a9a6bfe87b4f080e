"""Texts that are tokenised and packed, against tokenizers called by hand and a slow packer."""

from __future__ import annotations

import random
import string
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.fixtures.texts import (
    END,
    FILES,
    MADE,
    Bytes,
    hugging_face,
    rows_of,
    sequences,
    tiktoken_encoding,
    write_texts,
)
from torchparquet import Column, NullValueError, Pack, ParquetDataset, Ranks, mix

TEXTS = [row_group for row_groups in FILES for row_group in row_groups]


@pytest.mark.parametrize("strategy", ["concat", "split", "best_fit"])
@pytest.mark.parametrize("made", MADE)
def test_batches_are_those_of_tokens_made_by_hand(tmp_path: Path, made: str, strategy: Any) -> None:
    write_texts(tmp_path / "data")
    tokenizer, by_hand, end = MADE[made]()
    separators: list[Any] = [None, end] if made == "function" else [None, END]
    for separator in separators:
        pack = Pack("text", 16, strategy, separator, tokenizer=tokenizer)
        expected = sequences(
            [[by_hand(text) for text in texts] for texts in TEXTS],
            pack,
            None if separator is None else end,
        )
        for folder in (None, tmp_path / "tokens"):
            options: Any = {"batch_size": 2, "pack": pack, "row_ids": True}
            options |= {} if folder is None else {"cache_dir": tmp_path / "blocks"}
            dataset = ParquetDataset(tmp_path / "data", **options)
            batches = list(dataset)
            assert batches[0]["text"].dtype == torch.int64
            assert rows_of(batches) == expected
            assert rows_of(batches, "row.id") == list(range(len(expected)))
            assert len(dataset) == len(batches)
        assert len(list((tmp_path / "blocks.tokens").iterdir())) == len(FILES)


def test_tokens_equal_a_column_of_tokens_in_every_tensor(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    schema = pa.schema({"text": pa.list_(pa.int64())})
    with pq.ParquetWriter(tmp_path / "tokens.parquet", schema) as writer:
        for texts in TEXTS:
            writer.write_table(pa.table([[list(text.encode()) for text in texts]], schema))
    options: dict[str, Any] = {"batch_size": 3, "shuffle": True, "seed": 4, "even": "pad"}
    every: Any = {"strategy": "split", "boundaries": "both", "pad_documents_to": 4, "separator": 9}
    expected = list(
        ParquetDataset(tmp_path / "tokens.parquet", pack=Pack("text", 12, **every), **options)
    )
    pack = Pack("text", 12, tokenizer=Bytes(), **every)
    found = list(ParquetDataset(tmp_path / "data", pack=pack, **options))
    assert len(found) == len(expected) > 3
    for batch, other in zip(found, expected, strict=True):
        assert list(batch) == list(other)
        for name in batch:
            assert torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(other[name]))


@pytest.mark.parametrize("in_folder", [False, True])
def test_every_state_leads_to_the_rest_on_every_world(tmp_path: Path, in_folder: bool) -> None:
    write_texts(tmp_path / "data")
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "t" if in_folder else None)
    expected = sorted(sequences([[list(t.encode()) for t in one] for one in TEXTS], pack, None))

    def of(rank: int, world_size: int) -> ParquetDataset:
        world: Any = {"rank": rank, "world_size": world_size}
        return ParquetDataset(
            tmp_path / "data", batch_size=2, pack=pack, shuffle=True, even="none", **world
        )

    steps = min(len(of(rank, 2)) for rank in range(2))
    assert steps > 3
    for step in range(steps + 1):
        found, states = [], []
        for rank in range(2):
            dataset = of(rank, 2)
            iteration = iter(dataset)
            found += rows_of(next(iteration) for _ in range(step))
            states.append(dataset.state_dict())
        for rank in range(3):
            dataset = of(rank, 3)
            dataset.load_state_dict(states[0])
            if dataset.epoch == 0:
                found += rows_of(dataset)
        assert sorted(found) == expected


def test_workers_read_each_sequence_once(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    for folder in (None, tmp_path / "tokens"):
        pack = Pack("text", 8, tokenizer=Bytes(), token_cache=folder)
        expected = sequences([[list(t.encode()) for t in one] for one in TEXTS], pack, None)
        dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack, even="none")
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        assert sorted(rows_of(loader)) == sorted(expected)


@pytest.mark.parametrize(
    "options", [{"filters": "n % 3 <> 1"}, {"rows": [0, 2, 4, 7, 10]}, {"split": "part"}]
)
def test_selected_texts_alone_are_tokenised(tmp_path: Path, options: dict[str, Any]) -> None:
    write_texts(tmp_path / "data")
    if "split" in options:
        options = {"split": ("a", {"a": 0.5, "b": 0.5})}
    chosen = ParquetDataset(tmp_path / "data", batch_size=1, columns=["n"], **options)
    numbers = {number for batch in chosen for number in batch["n"].tolist()}
    assert 0 < len(numbers) < sum(map(len, TEXTS))
    first, documents, expected_texts = 0, [], []
    for texts in TEXTS:
        left = [text for row, text in enumerate(texts, first) if row in numbers]
        first += len(texts)
        expected_texts += left
        documents.append([list(text.encode()) for text in left])
    tokenizer = Bytes()
    pack = Pack("text", 8, "split", 1, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
    found = ParquetDataset(tmp_path / "data", batch_size=1, pack=pack, **options)
    assert tokenizer.texts == expected_texts
    assert rows_of(found) == sequences(documents, pack, 1)


def test_row_groups_and_portions_cut_each_other_anywhere(tmp_path: Path) -> None:
    """A row group has several portions of texts, and a portion several row groups."""
    long = ["y" * 300_000 + str(row) for row in range(12)]
    write_texts(tmp_path / "data", [[[], long, ["a"], ["b", "c"], [], [""], long[:5], ["d"]]])
    tokenizer = Bytes(step=1000)
    pack = Pack("text", 64, separator=7, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
    dataset = ParquetDataset(tmp_path / "data", batch_size=4, pack=pack, num_threads=1)
    documents = [long, ["a"], ["b", "c"], [""], long[:5], ["d"]]
    tokens = [[list(text.encode()[::1000]) for text in texts] for texts in documents]
    assert rows_of(dataset) == sequences(tokens, pack, 7)
    (file,) = (tmp_path / "tokens").iterdir()
    footer = pq.read_metadata(file)
    assert [footer.row_group(at).num_rows for at in range(6)] == [12, 1, 2, 1, 5, 1]


def test_texts_of_even_dynamic_and_of_a_mix(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    expected = sequences([[list(t.encode()) for t in one] for one in TEXTS], pack, None)
    store = dist.HashStore()  # type: ignore[attr-defined]
    world: Any = {"ranks": Ranks(store=store), "rank": 0, "world_size": 1}
    dataset = ParquetDataset(tmp_path / "data", batch_size=3, pack=pack, even="dynamic", **world)
    assert rows_of(dataset) == expected
    sources = [ParquetDataset(tmp_path / "data", batch_size=1, pack=pack) for _ in range(2)]
    mixed = rows_of(mix(sources, weights=[1, 1], seed=0))
    assert {tuple(row) for row in mixed} == {tuple(row) for row in expected}


def test_the_numbers_of_sequences_are_kept_beside_the_manifest(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    cache = tmp_path / "cache"
    pack = Pack("text", 8, "split", tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    for _ in range(2):
        dataset = ParquetDataset(tmp_path / "data", batch_size=1, pack=pack, manifest_cache=cache)
        assert len(list(tmp_path.glob("cache.tokens.*.lengths"))) == 1
        assert len(dataset) == len(
            sequences([[list(t.encode()) for t in one] for one in TEXTS], pack, None)
        )


def test_a_folder_that_is_read_is_refused(tmp_path: Path) -> None:
    write_texts(tmp_path / "data/more")
    for name, is_wrong in ((".tokens", False), ("more", True), ("", True)):
        pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "data" / name)
        with pytest.raises(ValueError, match="would be read") if is_wrong else nullcontext():
            for _ in range(2):
                ParquetDataset(tmp_path / "data", batch_size=1, pack=pack)


def test_a_huge_document(tmp_path: Path) -> None:
    text = "ten million characters " * 434_783
    write_texts(tmp_path / "data", [[["a", text, "b"]]])
    pack = Pack("text", 1 << 16, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    found = torch.cat(
        [b["text"].flatten() for b in ParquetDataset(tmp_path / "data", batch_size=8, pack=pack)]
    )
    expected = f"a{text}b".encode()
    assert bytes(found[: len(expected)].to(torch.uint8).numpy()) == expected
    assert not found[len(expected) :].any()
    pack = Pack("text", 1 << 16, tokenizer=Bytes())
    on_the_way = ParquetDataset(tmp_path / "data", batch_size=8, pack=pack, even="dynamic")
    assert torch.equal(torch.cat([batch["text"].flatten() for batch in on_the_way]), found)


def test_nulls(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", [[["a"], ["b", None, "c"]]])
    pack = Pack("text", 4, tokenizer=Bytes())
    with pytest.raises(NullValueError, match=r"column 'text.*0\.parquet', row group 1"):
        ParquetDataset(tmp_path / "data", batch_size=1, pack=pack)
    dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack, nulls="empty")
    assert rows_of(dataset) == [[97, 0, 0, 0], [98, 99, 0, 0]]


def test_a_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    content = pa.array([b"ok", b"", b"ab\xff", b"ok"]).cast(pa.string(), safe=False)
    for texts in (content.slice(0, 2), content):
        name = f"{len(texts)}.parquet"
        pq.write_table(pa.table({"text": texts, "n": range(len(texts))}), tmp_path / name)
    pq.write_table(
        pa.table({"text": content, "n": range(4)}), tmp_path / "4.parquet", row_group_size=2
    )
    pack = Pack("text", 4, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    files = [str(tmp_path / "2.parquet"), str(tmp_path / "4.parquet")]
    message = r"not UTF-8.*rows=.*4\.parquet', row group 1, row 0, column 'text', byte 2"
    for filters in (None, "n <> 1"):
        with pytest.raises(ValueError, match=message):
            ParquetDataset(files, batch_size=1, pack=pack, filters=filters)
    on_the_way = Pack("text", 4, tokenizer=Bytes())
    with pytest.raises(ValueError, match=message):
        list(ParquetDataset(files, batch_size=1, pack=on_the_way, even="dynamic"))
    found = ParquetDataset(files, batch_size=9, pack=pack, rows=[0, 1, 2, 3, 5])
    assert rows_of(found) == [[*b"ok", 0, 0]] * 3


def test_columns_get_other_names(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    tokenizer = Bytes()
    for name in ("tokens", "words"):
        pack = Pack(name, 8, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
        dataset = ParquetDataset(
            tmp_path / "data", batch_size=99, columns={name: Column("text")}, pack=pack
        )
        (batch,) = dataset
        assert list(batch) == [name, f"{name}.document", f"{name}.position"]
    assert len(tokenizer.texts) == sum(map(len, TEXTS))


def test_truncation_and_padding_are_off(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    tokenizer = hugging_face()
    pack = Pack("text", 16, tokenizer=tokenizer)
    expected = rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack))
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    assert rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)) == expected
    assert tokenizer.truncation["max_length"] == 3


def test_special_tokens(tmp_path: Path) -> None:
    processors = pytest.importorskip("tokenizers.processors")
    write_texts(tmp_path / "data")
    tokenizer = hugging_face()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", special_tokens=[(END, 0)]
    )
    for encodes in (False, True):
        tokenizer.encode_special_tokens = encodes  # those within texts
        for adds in (False, True):
            pack = Pack(
                "text",
                16,
                tokenizer=tokenizer,
                add_special_tokens=adds,
                token_cache=tmp_path / "tokens",
            )
            expected = sequences(
                [[tokenizer.encode(t, add_special_tokens=adds).ids for t in o] for o in TEXTS],
                pack,
                None,
            )
            dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
            assert rows_of(dataset) == expected
    assert len(list((tmp_path / "tokens").iterdir())) == 4 * len(FILES)


def test_tokenizers_are_found_by_path_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path / "data")
    tokenizer = hugging_face()
    snapshot = tmp_path / "hub/models--some--name/snapshots/0123"
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("0123")
    file = snapshot / "tokenizer.json"
    tokenizer.save(str(file))
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    fingerprints = set()
    for given in (tokenizer, file, str(file), snapshot, "some/name"):
        pack = Pack("text", 16, separator=END, tokenizer=given)
        dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
        fingerprints.add(dataset.manifest.fingerprint)
    assert len(fingerprints) == 1
    for missing in ("other/name", "a/b/c", str(tmp_path / "none.json")):
        pack = Pack("text", 16, tokenizer=missing)
        with pytest.raises(FileNotFoundError, match=r"hf download.*" + missing):
            ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    pack = Pack("text", 16, tokenizer=tmp_path / "data/0.parquet")
    with pytest.raises(ValueError, match=r"cannot be read: .*0\.parquet"):
        ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)


def lies(texts: list[str]) -> list[Any]:
    return [[1]] * (len(texts) + 1)


def floats(texts: list[str]) -> list[Any]:
    return [[0.5] for _ in texts]


def nulls(texts: list[str]) -> list[Any]:
    return [[None] for _ in texts]


def large(texts: list[str]) -> list[Any]:
    return [[2**31] for _ in texts]


def fails(texts: list[str]) -> list[Any]:
    raise ArithmeticError("of the tokenizer")


def forgets(texts: list[str]) -> list[Any]:
    return None  # type: ignore[return-value]


for one in (lies, floats, nulls, large, fails, forgets):
    one.fingerprint = "wrong"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        ({"tokenizer": lambda texts: texts}, "needs an attribute fingerprint"),
        ({"tokenizer": 5}, "tokenizer must be a tokenizer of Hugging Face"),
        ({"tokenizer": lies}, "given 5 texts and returned 6"),
        ({"tokenizer": floats}, "ints below"),
        ({"tokenizer": nulls}, "ints below"),
        ({"tokenizer": large}, "ints below"),
        ({"tokenizer": fails}, "of the tokenizer"),
        ({"tokenizer": forgets}, "given 5 texts and returned None"),
        ({"tokenizer": Bytes(), "separator": END}, "separator must be a number"),
        ({"tokenizer": Bytes(), "separator": 0.5}, "separator must be representable"),
        ({"tokenizer": Bytes(), "padding": 2**63}, "padding must be representable"),
        ({"tokenizer": Bytes(), "add_special_tokens": True}, "add_special_tokens is for"),
        ({"tokenizer": Bytes(), "columns": "n"}, "column of strings.*'n' is int64"),
        ({"tokenizer": Bytes(), "columns": "other"}, "other"),
        ({"tokenizer": Bytes(), "token_cache": "s3://bucket/x"}, "folder on disk"),
        ({}, "with tokenizer= for a column of strings"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, pack: dict[str, Any], message: str) -> None:
    write_texts(tmp_path / "data")
    given: dict[str, Any] = {"columns": "text", "length": 8, **pack}
    made = Pack(**given)
    with pytest.raises((ArithmeticError, TypeError, ValueError), match=message):
        ParquetDataset(tmp_path / "data", batch_size=1, pack=made)
    assert not getattr(made.tokenizer, "texts", None)  # what is wrong beforehand costs no tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"separator": END}, "separator=.* needs a tokenizer"),
        ({"token_cache": "x"}, "token_cache needs a tokenizer"),
        ({"add_special_tokens": True}, "add_special_tokens needs a tokenizer"),
        ({"columns": ["a", "b"], "tokenizer": "x"}, "one column"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"columns": "text", "length": 8, **arguments}
    with pytest.raises(ValueError, match=message):
        Pack(**given)


def test_tokens_that_do_not_fit_memory_need_a_folder(tmp_path: Path) -> None:
    text = "".join(random.Random(0).choices(string.ascii_lowercase, k=80_000))
    write_texts(tmp_path / "data", [[[text]]])
    options: Any = {"batch_size": 1, "max_memory": "128KiB"}
    with pytest.raises(ValueError, match=r"token_cache=.*max_memory=131072"):
        ParquetDataset(tmp_path / "data", pack=Pack("text", 8, tokenizer=Bytes()), **options)
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    assert len(ParquetDataset(tmp_path / "data", pack=pack, **options)) == 10_000


def test_tokens_that_do_not_fit_memory_are_not_all_made(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", [[[f"{row} of many" for row in range(20_000)]]])
    tokenizer = Bytes()
    pack = Pack("text", 8, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="must fit half of max_memory"):
        ParquetDataset(tmp_path / "data", batch_size=1, pack=pack, max_memory="256KiB")
    assert len(tokenizer.texts) < 10_000


def test_a_function_may_return_the_bytes_of_texts(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", [[["four", "twelve bytes"]]])

    def tokenize(texts: list[str]) -> list[bytes]:
        return [text.encode() for text in texts]

    tokenize.fingerprint = "bytes"  # type: ignore[attr-defined]
    pack = Pack("text", 4, tokenizer=tokenize)
    dataset = ParquetDataset(tmp_path / "data", batch_size=1, pack=pack)
    assert b"".join(map(bytes, rows_of(dataset))) == b"fourtwelve bytes"


def test_a_tokenizer_that_makes_random_tokens_is_refused(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    pack = Pack("text", 8, tokenizer=hugging_face(dropout=0.1))
    with pytest.raises(ValueError, match=r"dropout=0\.1.*: set tokenizer\.model\.dropout = None"):
        ParquetDataset(tmp_path / "data", batch_size=1, pack=pack)


def test_long_texts_side_by_side_are_read_in_smaller_portions(tmp_path: Path) -> None:
    texts = ["short"] * 700 + [letter * 20_000 for letter in string.ascii_letters] + ["short"] * 90
    write_texts(tmp_path / "data", [[texts[:710], texts[710:]]])
    tokenizer = Bytes(step=1000)
    pack = Pack("text", 64, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
    dataset = ParquetDataset(tmp_path / "data", batch_size=1, pack=pack, max_memory="512KiB")
    assert tokenizer.texts == texts
    tokens = [list(text.encode()[::1000]) for text in texts]
    assert rows_of(dataset) == sequences([tokens[:710], tokens[710:]], pack, None)


def test_texts_that_may_be_encrypted_leave_no_tokens_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path / "data")
    options: Any = {"batch_size": 1, "decryption_properties": lambda path: None}
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    with pytest.raises(ValueError, match="token_cache must not be given with decryption"):
        ParquetDataset(tmp_path / "data", pack=pack, **options)
    assert not (tmp_path / "tokens").exists()
    pack = Pack("text", 8, tokenizer=Bytes())
    expected = sequences([[list(t.encode()) for t in one] for one in TEXTS], pack, None)
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    assert rows_of(ParquetDataset(tmp_path / "data", pack=pack, **options)) == expected


def test_unknown_tokens_are_named(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    for tokenizer in (hugging_face(), tiktoken_encoding()):
        pack = Pack("text", 8, separator="<none>", tokenizer=tokenizer)
        with pytest.raises(ValueError, match=r"separator must be a token.*<none>"):
            ParquetDataset(tmp_path / "data", batch_size=1, pack=pack)
