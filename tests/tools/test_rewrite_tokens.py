"""`torchparquet rewrite --pack --tokenizer`: the tokens that `Pack(tokenizer=...)` makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.texts import END, hugging_face, write_texts
from torchparquet import Pack, ParquetDataset
from torchparquet.cli import main

FILES = [
    [["a red bike", "", "ein blaues Haus"], ["x" * 70, f"has {END} inside", "b"]],
    [["日本語 text", "\0 and\nlines", "one two three " * 9], ["c", "", "d e"]],
]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    hugging_face().save(str(path))
    return path


KINDS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary("int8", "str")]


def by_number(folder: Path) -> dict[int, Any]:
    table = pq.read_table(sorted(folder.glob("*.parquet")))
    return dict(zip(table["n"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize("order", [(), ("--shuffle",)], ids=["in order", "shuffled"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_text_becomes_its_tokens(
    report_of: Any, tokenizer: Path, tmp_path: Path, order: Any, kind: Any
) -> None:
    texts = [text for row_groups in FILES for group in row_groups for text in group] + [None]
    table = pa.table({"text": pa.array(texts).cast(kind), "n": range(len(texts))})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data/0.parquet", row_group_size=4)
    packed = ("--pack", "text", "--tokenizer", tokenizer)
    size = ("--row-group-rows", 3, "--row-groups-per-file", 2)
    output = tmp_path / "output"
    report = report_of("rewrite", tmp_path / "data", "--output", output, *size, *packed, *order)
    assert report["tokenized"] == "text"
    assert report["encodings"]["text"] == "byte_stream_split"
    encode = hugging_face().encode
    assert by_number(output) == {
        row: None if text is None else encode(text, add_special_tokens=False).ids
        for row, text in enumerate(texts)
    }
    assert pq.read_schema(output / "part-00000.parquet").field("text").type == pa.list_(pa.int32())


def test_tokens_are_packed_as_their_texts_are(
    report_of: Any, tokenizer: Path, tmp_path: Path
) -> None:
    write_texts(tmp_path / "data", FILES)
    packed = ("--pack", "text", "--tokenizer", tokenizer)
    size = ("--row-group-rows", 3, "--row-groups-per-file", 2)
    report_of("rewrite", tmp_path / "data", "--output", tmp_path / "output", *size, *packed)
    end = hugging_face().token_to_id(END)
    packs = {
        "data": Pack("text", 16, separator=END, tokenizer=str(tokenizer)),
        "output": Pack("text", 16, separator=end),
    }
    read = {
        name: [
            {key: value.tolist() for key, value in batch.items()}
            for batch in ParquetDataset(tmp_path / name, batch_size=2, pack=pack, shuffle=True)
        ]
        for name, pack in packs.items()
    }
    assert read["output"] == read["data"] != []


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--pack text", 2, "--pack needs --tokenizer NAME"),
        ("--tokenizer x", 2, "--tokenizer needs --pack NAME"),
        ("--pack n --tokenizer {}", 1, "'n' is int64"),
        ("--pack none --tokenizer {}", 1, "'none' is none of"),
        ("--pack text --tokenizer {}.missing", 1, "the tokenizer is no file"),
    ],
)
def test_what_cannot_be_tokenised_is_refused(
    error_of: Any, tokenizer: Path, tmp_path: Path, options: str, code: int, said: str
) -> None:
    write_texts(tmp_path / "data", FILES)
    output = tmp_path / "output"
    given = options.format(tokenizer).split()
    error = error_of("rewrite", tmp_path / "data", "--output", output, *given, code=code)
    assert said in error
    assert not output.exists()


def test_a_text_that_is_not_utf_8_is_named(tokenizer: Path, tmp_path: Path, capsys: Any) -> None:
    lengths = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1]
    texts = pa.StringArray.from_buffers(3, lengths, pa.py_buffer(b"a\xffb"))
    pq.write_table(pa.table({"text": texts}), tmp_path / "0.parquet")
    packed = ["--pack", "text", "--tokenizer", str(tokenizer)]
    arguments = [str(tmp_path / "0.parquet"), "--output", str(tmp_path / "output")]
    assert main(["rewrite", *arguments, *packed]) != 0
    error = capsys.readouterr().err
    assert "a text is not UTF-8" in error
    assert f"'{tmp_path / '0.parquet'}', row group 0, row 1, column 'text'" in error


def test_a_rewrite_resumes_with_its_tokenizer_alone(
    report_of: Any, error_of: Any, tokenizer: Path, tmp_path: Path
) -> None:
    write_texts(tmp_path / "data", FILES)
    arguments = ["rewrite", tmp_path / "data", "--output", tmp_path / "output", "--pack", "text"]
    whole = report_of(*arguments, "--tokenizer", tokenizer)
    moved = tokenizer.rename(tmp_path / "moved.json")
    assert report_of(*arguments, "--tokenizer", moved)["files_resumed"] == len(whole["files"])
    other = hugging_face()
    other.add_tokens(["bike"])
    other.save(str(tokenizer))
    assert "a rewrite with another tokenizer" in error_of(*arguments, "--tokenizer", tokenizer)
