"""Conversations that are tokenised and packed, against a chat template applied to each by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.fixtures.texts import END, hugging_face, rows_of, sequences, tiktoken_encoding
from torchparquet import Pack, ParquetDataset

MESSAGE = pa.struct({"role": pa.string(), "content": pa.string()})
TEMPLATE = (
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('no such role') }}{% endif %}[{{ m.role }}] "
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
    "{% else %}{{ m.content }}{% endif %}\n{% endfor %}"
)


def chat(*contents: str | None, system: str = "") -> list[dict[str, Any]]:
    """Return a conversation of a user and an assistant in turns."""
    roles = ["user", "assistant"] * len(contents)
    said = [("system", system)] * bool(system) + list(zip(roles, contents, strict=False))
    return [{"role": role, "content": content} for role, content in said]


# Those of each row group of each file.
FILES: list[list[list[Any]]] = [
    [[chat("a red bike?", "yes"), [], chat("über 日本語?", "ja, 語")], [chat("alone")]],
    [[chat("1", "2", "3", "4", system="count"), chat("", ""), chat(f"x {END}", f"{END} y")], [[]]],
]
CHATS = [conversations for file in FILES for conversations in file]


def write(folder: Path, files: list[list[list[Any]]] = FILES, kind: Any = MESSAGE) -> Path:
    folder.mkdir(exist_ok=True)
    schema = pa.schema({"chat": pa.list_(kind), "n": pa.int64()})
    for number, row_groups in enumerate(files):
        with pq.ParquetWriter(folder / f"{number}.parquet", schema) as writer:
            for rows in row_groups:
                writer.write_table(pa.table([rows, range(len(rows))], schema))
    return folder


def by_bytes(conversations: list[Any]) -> list[tuple[list[int], list[bool]]]:
    """Return the bytes of each, of which those of the assistant have a loss."""
    made = []
    for messages in conversations:
        pairs = [(byte, m["role"] == "assistant") for m in messages for byte in text_of(m)]
        made.append(([byte for byte, _ in pairs], [loss for _, loss in pairs]))
    return made


def text_of(message: dict[str, str]) -> bytes:
    return f"{message['role']}: {message['content']}\n".encode()


by_bytes.fingerprint = "bytes v1"  # type: ignore[attr-defined]


def transformers_tokenizer(template: str | None = TEMPLATE) -> Any:
    transformers = pytest.importorskip("transformers")
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=hugging_face(), eos_token=END)
    made.chat_template = template
    return made


def by_template(tokenizer: Any, messages: list[Any]) -> tuple[list[int], list[int]]:
    if not messages:
        return [], []
    made = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True)
    return made["input_ids"], made["assistant_masks"]


def made_tokenizer(name: str) -> tuple[Any, Callable[[Any], Any]]:
    if name == "function":
        return by_bytes, lambda messages: by_bytes([messages])[0]
    tokenizer = transformers_tokenizer()
    return tokenizer, lambda messages: by_template(tokenizer, messages)


@pytest.mark.parametrize("name", ["function", "transformers"])
def test_tokens_and_losses_are_those_made_by_hand(tmp_path: Path, name: str) -> None:
    data = write(tmp_path / "data")
    tokenizer, by_hand = made_tokenizer(name)
    made = [[by_hand(messages) for messages in one] for one in CHATS]
    assert {bool(value) for one in made for _, loss in one for value in loss} == {True, False}
    for strategy, separator in (("concat", None), ("split", 7), ("best_fit", 7)):
        pack = Pack("chat", 16, strategy, separator, padding=3, tokenizer=tokenizer, chat=True)  # type: ignore[arg-type]
        rows = [[tokens for tokens, _ in one] for one in made]
        tokens = sequences(rows, pack, separator, padding=3)
        rows = [[loss for _, loss in one] for one in made]
        losses = sequences(rows, pack, None if separator is None else 0)
        for folder in (None, tmp_path / "blocks"):
            dataset = ParquetDataset(data, batch_size=2, pack=pack, cache_dir=folder)
            batches = list(dataset)
            assert list(batches[0])[:2] == ["chat", "chat.document"]
            assert batches[0]["chat.loss"].dtype == torch.bool
            assert rows_of(batches, "chat") == tokens
            assert rows_of(batches, "chat.loss") == losses
            assert len(dataset) == len(batches)
    assert len(list((tmp_path / "blocks.tokens").iterdir())) == len(FILES)


def test_states_go_on_and_selected_conversations_are_made_alone(tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    pack = Pack("chat", 8, tokenizer=by_bytes, chat=True, token_cache=tmp_path / "tokens")
    dataset = ParquetDataset(data, batch_size=2, pack=pack, shuffle=True)
    batches = list(dataset)
    for steps in range(len(batches)):
        again = ParquetDataset(data, batch_size=2, pack=pack, shuffle=True)
        iteration = iter(again)
        for _ in range(steps):
            next(iteration)
        state = again.state_dict()
        again.load_state_dict(state)
        assert rows_of(again, "chat.loss") == rows_of(batches[steps:], "chat.loss")
    found = ParquetDataset(data, batch_size=9, pack=pack, filters="n == 1")
    documents = [[by_bytes([one[1]])[0][0]] for one in CHATS if len(one) > 1]
    assert rows_of(found, "chat") == sequences(documents, pack, None)


def test_structs_of_lists_are_conversations_too(tmp_path: Path) -> None:
    """As Hugging Face stores a sequence of messages."""
    rows = [
        {"role": ["user", "assistant"], "content": ["a?", "b"]},
        {"role": ["user"], "content": []},
    ]
    pack = Pack("chat", 32, tokenizer=by_bytes, chat=True)
    for number, row in enumerate(rows):
        path = tmp_path / f"{number}.parquet"
        kind = pa.struct({name: pa.list_(pa.string()) for name in row})
        pq.write_table(pa.table({"chat": pa.array([row], kind)}), path)
    (batch,) = ParquetDataset(tmp_path / "0.parquet", batch_size=1, pack=pack)
    assert batch["chat"].flatten().tolist()[:23] == list(b"user: a?\nassistant: b\n\0")
    with pytest.raises(ValueError, match=r"1 roles and 0 contents.*1\.parquet', row group 0, row"):
        ParquetDataset(tmp_path / "1.parquet", batch_size=1, pack=pack)


def test_templates_are_in_the_name_of_token_files(tmp_path: Path) -> None:
    data = write(tmp_path / "data")
    tokenizer = transformers_tokenizer()
    found = []
    for template in (TEMPLATE, TEMPLATE.replace("}] ", "}]: "), TEMPLATE):
        tokenizer.chat_template = template
        pack = Pack("chat", 16, tokenizer=tokenizer, chat=True, token_cache=tmp_path / "tokens")
        found.append(ParquetDataset(data, batch_size=2, pack=pack).manifest.fingerprint)
    assert found[0] == found[2] != found[1]
    assert len(list((tmp_path / "tokens").iterdir())) == 2 * len(FILES)
    # Its folder is the same tokenizer, and what it was set to elsewhere does not matter.
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    tokenizer(["a"], truncation=True, max_length=2, split_special_tokens=True)
    for given in (tokenizer, tmp_path / "tokenizer"):
        pack = Pack("chat", 16, tokenizer=given, chat=True)
        assert ParquetDataset(data, batch_size=2, pack=pack).manifest.fingerprint == found[0]


@pytest.mark.parametrize("name", ["function", "transformers"])
def test_the_conversation_that_fails_is_named(tmp_path: Path, name: str) -> None:
    def tokenize(conversations: list[Any]) -> Any:
        made = by_bytes(conversations)
        roles = [{m["role"] for m in messages} for messages in conversations]
        return [([-1, 1], [0, 0]) if "tool" in r else m for r, m in zip(roles, made, strict=True)]

    tokenize.fingerprint = "negative"  # type: ignore[attr-defined]
    wrong: Any = [{"role": "tool", "content": "x"}]
    data = write(tmp_path / "data", [FILES[0], [[chat("a")], [chat("a"), [], wrong]]])
    tokenizer = tokenize if name == "function" else transformers_tokenizer()
    pack = Pack("chat", 16, tokenizer=tokenizer, chat=True)
    with pytest.raises(Exception, match=r"not negative: .*got -1|no such role") as caught:
        ParquetDataset(data, batch_size=2, pack=pack)
    (note,) = caught.value.__notes__
    assert note.endswith("1.parquet', row group 1, row 2")


def test_nulls_and_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    data = write(tmp_path / "data", [[[chat("a", None)]]])
    pack = Pack("chat", 32, tokenizer=by_bytes, chat=True)
    with pytest.raises(ValueError, match=r"chat\.content") as refused:
        ParquetDataset(data, batch_size=2, pack=pack)
    assert "mask" not in str(refused.value)  # which goes with no pack
    for nulls in ("empty", {"chat": "empty"}, {"chat.content": "empty"}):
        (batch,) = ParquetDataset(data, batch_size=2, pack=pack, nulls=nulls)  # type: ignore[arg-type]
        assert bytes(batch["chat"][0].tolist()).startswith(b"user: a\nassistant: \n\0")
    values = pa.array([b"ok", b"ab\xff"]).cast(pa.string(), safe=False)
    messages = pa.StructArray.from_arrays([pa.array(["user"] * 2), values], fields=list(MESSAGE))
    lists = pa.ListArray.from_arrays([0, 1, 2], messages)
    pq.write_table(pa.table({"chat": lists}), data / "1.parquet")
    message = r"not UTF-8.*1\.parquet', row group 0, row 1, column 'chat.content', byte 2"
    with pytest.raises(ValueError, match=message):
        ParquetDataset(data / "1.parquet", batch_size=2, pack=pack)


def test_a_function_may_return_arrays(tmp_path: Path) -> None:
    def in_arrays(conversations: list[Any]) -> list[Any]:
        pairs = by_bytes(conversations)
        return [(np.array(tokens, int), np.array(loss, bool)) for tokens, loss in pairs]

    in_arrays.fingerprint = "arrays"  # type: ignore[attr-defined]
    data, read = write(tmp_path / "data"), []
    for function in (by_bytes, in_arrays):
        pack = Pack("chat", 32, tokenizer=function, chat=True)
        read.append(list(ParquetDataset(data, batch_size=2, pack=pack)))
    for lists, arrays in zip(*read, strict=True):
        assert lists["chat"].equal(arrays["chat"])
        assert lists["chat.loss"].equal(arrays["chat.loss"])


def of_no_pair(conversations: list[Any]) -> list[Any]:
    return [[1, 2, 3] for _ in conversations]


def of_two_lengths(conversations: list[Any]) -> list[Any]:
    return [([1, 2, 3], [1, 0]) for _ in conversations]


def of_labels(conversations: list[Any]) -> list[Any]:
    return [([1, 2, 3], [1, 2, 3]) for _ in conversations]


for one in (of_no_pair, of_two_lengths, of_labels):
    one.fingerprint = "wrong"  # type: ignore[attr-defined]
TOOLS = pa.struct([*MESSAGE, pa.field("tool_calls", pa.string())])
THOUGHTS = pa.struct([*MESSAGE, pa.field("reasoning_content", pa.string())])


@pytest.mark.parametrize(
    ("tokenizer", "kind", "message"),
    [
        (of_no_pair, MESSAGE, "a pair of tokens and loss for each"),
        (of_two_lengths, MESSAGE, "as many values of loss as tokens"),
        (of_labels, MESSAGE, "each 0 or 1"),
        (by_bytes, TOOLS, r"would lose: .*chat\.tool_calls"),
        (by_bytes, THOUGHTS, r"would lose: .*chat\.reasoning_content"),
        (by_bytes, pa.struct({"from": pa.string()}), r"no such column: 'chat\.role'"),
        (by_bytes, pa.string(), "'chat' has no such parts"),
        (hugging_face, MESSAGE, "chat=True needs a fast tokenizer of transformers"),
        (tiktoken_encoding, MESSAGE, "chat=True needs a fast tokenizer of transformers"),
        (lambda: transformers_tokenizer(None), MESSAGE, r"set tokenizer\.chat_template"),
        (
            lambda: transformers_tokenizer("{% for m in messages %}{{ m.content }}{% endfor %}"),
            MESSAGE,
            "does not mark which tokens have a loss.*{% generation %}",
        ),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, tokenizer: Any, kind: Any, message: str) -> None:
    data = write(tmp_path / "data", [[[[], []]]], kind)
    given = tokenizer if hasattr(tokenizer, "fingerprint") else tokenizer()
    pack = Pack("chat", 16, tokenizer=given, chat=True)
    with pytest.raises((TypeError, ValueError), match=message):
        ParquetDataset(data, batch_size=2, pack=pack)
