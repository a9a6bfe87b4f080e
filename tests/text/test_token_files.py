"""Token files: each is made once, whole, by whoever comes first, and never mistaken for another."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fixtures.forked_programs import ForkedProgram
from tests.fixtures.texts import (
    FILES,
    Bytes,
    hugging_face,
    rows_of,
    sequences,
    tiktoken_encoding,
    write_texts,
)
from torchparquet import CorruptFileError, Pack, ParquetDataset
from torchparquet._impl.text import token_files, tokenized

MANY = [[[f"file {file} text {row}" for row in range(40)]] for file in range(6)]
# Tokenises by bytes, writes what it tokenises to a file, and is killed after so many portions.
PROGRAM = """
import os, signal, sys
from torchparquet import Pack, ParquetDataset
data, tokens, log, most = sys.argv[1:]
calls = 0
def tokenize(texts):
    global calls
    calls += 1
    if calls > int(most):
        os.kill(os.getpid(), signal.SIGKILL)
    with open(log, "a") as file:
        file.write("".join(text + "\\n" for text in texts))
    return [list(text.encode()) for text in texts]
tokenize.fingerprint = "bytes"
pack = Pack("text", 16, tokenizer=tokenize, token_cache=tokens)
dataset = ParquetDataset(data, batch_size=1, pack=pack, num_threads=1)
print(sum(int(batch["text"].sum()) for batch in dataset))
"""


def start(tmp_path: Path, most: int = 1000) -> ForkedProgram:
    return ForkedProgram(PROGRAM, *(tmp_path / name for name in ("data", "tokens", "log")), most)


def tokenised(tmp_path: Path) -> Counter[str]:
    return Counter((tmp_path / "log").read_text().splitlines())


def expected_sum(files: list[list[list[str]]]) -> int:
    return sum(sum(text.encode()) for row_groups in files for texts in row_groups for text in texts)


def test_a_killed_run_leaves_whole_files_and_the_next_goes_on(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY)
    killed = start(tmp_path, most=3)
    assert killed.wait() == -signal.SIGKILL
    left = sorted(file.name for file in (tmp_path / "tokens").glob("*.parquet"))
    assert [name.partition(".")[0] for name in left] == ["0", "1", "2"]
    assert list((tmp_path / "tokens").glob(".*.draft"))
    output, _ = start(tmp_path).communicate()
    assert int(output) == expected_sum(MANY)
    assert set(tokenised(tmp_path).values()) == {1}
    assert sorted(left) == sorted(
        file.name for file in (tmp_path / "tokens").iterdir() if file.name in left
    )
    assert len(list((tmp_path / "tokens").iterdir())) == len(MANY)


def test_processes_divide_the_files(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY)
    processes = [start(tmp_path) for _ in range(2)]
    outputs = [process.communicate()[0] for process in processes]
    assert {int(output) for output in outputs} == {expected_sum(MANY)}
    texts = [text for row_groups in MANY for texts in row_groups for text in texts]
    assert tokenised(tmp_path) == Counter(texts)


def test_processes_take_over_the_files_of_one_that_is_killed(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY)
    processes = [start(tmp_path, most) for most in (1, 1000)]
    codes = []
    for process in processes:
        output, _ = process.communicate()
        codes.append(process.returncode)
        assert process.returncode or int(output) == expected_sum(MANY)
    assert set(codes[1:]) == {0}


def test_another_tokenizer_makes_other_files(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    found = []
    for tokenizer in (Bytes("bytes"), Bytes("every third", step=3)):
        pack = Pack("text", 8, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
        dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
        tokens = [[list(t.encode()[:: tokenizer.step]) for t in o] for f in FILES for o in f]
        assert rows_of(dataset) == sequences(tokens, pack, None)
        found.append(dataset)
    assert len(list((tmp_path / "tokens").iterdir())) == 2 * len(FILES)
    with pytest.raises(ValueError, match="state"):
        found[1].load_state_dict(found[0].state_dict())


def test_what_makes_other_tokens_has_another_key(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    first, other = hugging_face(), hugging_face(unk_token="<|endoftext|>")
    encoding = tiktoken_encoding()
    more = type(encoding)(
        "test",
        pat_str=r"\S|\s",
        mergeable_ranks=encoding._mergeable_ranks,
        special_tokens=encoding._special_tokens,
    )
    fingerprints = [
        ParquetDataset(
            tmp_path / "data", batch_size=1, pack=Pack("text", 8, tokenizer=tokenizer)
        ).manifest.content_fingerprint
        for tokenizer in (first, hugging_face(), other, encoding, tiktoken_encoding(), more)
    ]
    assert fingerprints[0] == fingerprints[1]
    assert fingerprints[3] == fingerprints[4]
    assert len(set(fingerprints)) == 4


def test_files_that_changed_are_tokenised_again_and_others_are_not(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY[:3])
    tokenizer = Bytes()
    pack = Pack("text", 8, tokenizer=tokenizer, token_cache=tmp_path / "tokens")

    def read() -> tuple[list[list[int]], list[str]]:
        tokenizer.texts.clear()
        rows = rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack))
        return rows, list(tokenizer.texts)

    whole, texts = read()
    assert len(texts) == 120
    assert read() == (whole, [])
    write_texts(tmp_path / "more", [[["new"]], *MANY[3:4]])
    (tmp_path / "more/1.parquet").rename(tmp_path / "data/3.parquet")
    rows, texts = read()
    assert (rows[: len(whole)], texts) == (whole, MANY[3][0])
    # The same size and the same statistics.
    changed = [*MANY[1][0][:-2], MANY[1][0][-1], MANY[1][0][-2]]
    write_texts(tmp_path / "more", [MANY[0], [changed]])
    (tmp_path / "more/1.parquet").rename(tmp_path / "data/1.parquet")
    assert read()[1] == changed


def test_equal_files_are_all_read(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_texts(tmp_path / folder, MANY[:1])
        os.utime(tmp_path / folder / "0.parquet", ns=(1, 1))
    pack = Pack("text", 1024, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    paths = [str(tmp_path / folder) for folder in ("a", "b")]
    one, two = ParquetDataset(paths, batch_size=1, pack=pack)
    assert one["text"].tolist() == two["text"].tolist()


def test_a_cut_token_file_is_made_anew(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    tokenizer = Bytes()
    pack = Pack("text", 8, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
    whole = rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack))
    (file,) = (tmp_path / "tokens").glob("1.*")
    content = file.read_bytes()
    for damaged in (content[:-9], b"", b"PAR1"):
        file.write_bytes(damaged)
        tokenizer.texts.clear()
        assert rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)) == whole
        assert tokenizer.texts == [text for texts in FILES[1] for text in texts]
        assert file.read_bytes() == content
    # Another file under its name.
    (other,) = (tmp_path / "tokens").glob("0.*")
    file.write_bytes(other.read_bytes())
    assert rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)) == whole


@pytest.mark.parametrize("name", ["data/tokens", "data/.tokens", "data/a/_b", "data", "tokens"])
def test_tokens_are_not_read_as_texts(tmp_path: Path, name: str) -> None:
    write_texts(tmp_path / "data", MANY[:1])
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / name)
    for _ in range(2):
        if name in ("data", "data/tokens"):
            with pytest.raises(ValueError, match="must not be below a directory that is read"):
                ParquetDataset([tmp_path / "data"], batch_size=2, pack=pack)
            assert len(list((tmp_path / "data").iterdir())) == 1
        else:
            ParquetDataset([tmp_path / "data"], batch_size=2, pack=pack)


def test_files_may_have_names_as_long_as_the_disk_takes(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY[:1])
    (tmp_path / "data/0.parquet").rename(tmp_path / f"data/{'語' * 82}.parquet")
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    assert [file.name[:3] for file in (tmp_path / "tokens").iterdir()] == ["語語語"]


def test_a_file_that_another_process_has_made_anew_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path / "data", MANY[:1])
    tokenizer = Bytes()
    pack = Pack("text", 8, tokenizer=tokenizer, token_cache=tmp_path / "tokens")
    whole = rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack))
    (file,) = (tmp_path / "tokens").iterdir()
    content, read = file.read_bytes(), pq.read_metadata
    file.write_bytes(content[:-9])

    def read_before(path: Path) -> Any:
        try:
            return read(path)
        finally:
            file.write_bytes(content)

    monkeypatch.setattr(pq, "read_metadata", read_before)
    tokenizer.texts.clear()
    assert rows_of(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)) == whole
    assert tokenizer.texts == []


def test_a_file_that_cannot_be_read_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_texts(tmp_path / "data", MANY[:1])
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    (file,) = (tmp_path / "tokens").iterdir()

    def refuse(path: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(pq, "read_metadata", refuse)
    with pytest.raises(PermissionError, match=file.name):
        ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    assert file.exists()


def test_a_process_that_waits_for_another_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made, said = tmp_path / "a.parquet", [], []
    draft = tmp_path / ".a.parquet.draft"
    other = draft.open("wb")
    fcntl.flock(other, fcntl.LOCK_EX)

    def end_other(message: str, *values: Any) -> None:
        said.append(message % values)
        other.close()

    def write(_path: Path, to: Path) -> None:
        made.append(to)
        pq.write_table(pa.table({"tokens": [[1]]}), to)

    monkeypatch.setattr(token_files, "_WARN_SECONDS", 0.0)
    monkeypatch.setattr(logging.getLogger("torchparquet"), "warning", end_other)
    token_files.written([path], lambda _: [1], write)
    assert said == [
        "another process holds the lock of 1 token files, and this one waits; if no such process "
        f"works, delete {draft}"
    ]
    assert made == [draft]


def test_a_changed_byte_of_a_token_file_is_an_error(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY[:1])
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    (file,) = (tmp_path / "tokens").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 4] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=file.name):
        list(ParquetDataset(tmp_path / "data", batch_size=2, pack=pack))


def test_states_fit_tokens_wherever_they_are(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    every: list[Any] = [None, tmp_path / "tokens", tmp_path / "others"]
    states, rests = [], []
    for folder in every:
        pack = Pack("text", 8, "split", tokenizer=Bytes(), token_cache=folder)
        dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack, shuffle=True)
        iteration = iter(dataset)
        next(iteration)
        states.append(dataset.state_dict())
        del states[-1]["files"]  # names, for messages
        dataset.load_state_dict(dataset.state_dict() | states[0])
        rests.append(rows_of(dataset))
    assert states[0] == states[1] == states[2]
    assert rests[0] == rests[1] == rests[2]
    assert rests[0]


@pytest.mark.parametrize("steps", [(1, 2), (2, 1)])
def test_a_tokenizer_that_changes_behind_its_fingerprint_is_noticed(
    tmp_path: Path, steps: tuple[int, int]
) -> None:
    write_texts(tmp_path / "data", MANY)
    states = []
    for step in steps:
        tokenizer = Bytes("the same", step=step)
        pack = Pack("text", 8, "split", tokenizer=tokenizer, token_cache=tmp_path / "tokens")
        dataset = ParquetDataset(
            tmp_path / "data", batch_size=2, pack=pack, manifest_cache=tmp_path / "kept"
        )
        tokens = [[list(t.encode()[::step]) for t in texts] for (texts,) in MANY]
        assert rows_of(dataset) == sequences(tokens, pack, None)
        states.append(dataset.state_dict())
        shutil.rmtree(tmp_path / "tokens")
    with pytest.raises(ValueError, match="state"):
        dataset.load_state_dict(states[0])


def test_processes_divide_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is several token files, with the sequences and the states of any folder."""
    write_texts(tmp_path / "data", [[["a", "b"], ["", ""], [], *FILES[0]], *FILES[1:]])
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "whole")
    whole = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    largest = max(file.stat().st_size for file in (tmp_path / "data").iterdir())
    states = []
    for most, num_parts in ((largest - 1, 3), (1, 7)):
        monkeypatch.setattr(tokenized, "PART_BYTES", most)
        for folder in (tmp_path / str(most), None):
            pack = Pack("text", 8, tokenizer=Bytes(), token_cache=folder)
            dataset = ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
            assert rows_of(dataset) == rows_of(whole)
            assert len(dataset.manifest.files) == num_parts
            states.append(dataset.manifest.content_fingerprint)
    assert states[0] == states[1] != states[2] == states[3]
    names = [path.name for path in (tmp_path / "1").iterdir()]
    assert sorted(name.partition(".")[0] for name in names) == ["0"] * 4 + ["1"] * 3


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    write_texts(tmp_path / "data")
    pack = Pack("text", 8, tokenizer=Bytes(), token_cache=tmp_path / "tokens")
    before = os.umask(0)
    try:
        ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    finally:
        os.umask(before)
    assert (tmp_path / "tokens").stat().st_mode & 0o777 == 0o700
    (tmp_path / "tokens").chmod(0o777)
    with pytest.raises(ValueError, match=r"every user may write to it; run 'chmod o-w'.*tokens"):
        ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    (tmp_path / "tokens").chmod(0o755)
    ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    if os.geteuid() == 0:
        os.chown(tmp_path / "tokens", 12345, -1)
        with pytest.raises(ValueError, match="belongs to another user, of number 12345"):
            ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)


def test_a_failing_tokenizer_leaves_no_file(tmp_path: Path) -> None:
    write_texts(tmp_path / "data", MANY[:2])

    def tokenize(texts: list[str]) -> list[list[int]]:
        if "file 1 text 0" in texts:
            raise ArithmeticError("of the tokenizer")
        return [[1] for _ in texts]

    tokenize.fingerprint = "ones"  # type: ignore[attr-defined]
    pack = Pack("text", 8, tokenizer=tokenize, token_cache=tmp_path / "tokens")
    with pytest.raises(ArithmeticError, match="of the tokenizer") as caught:
        ParquetDataset(tmp_path / "data", batch_size=2, pack=pack)
    assert any("data/1.parquet" in note for note in caught.value.__notes__)
    assert [file.name[:2] for file in (tmp_path / "tokens").iterdir()] == ["0."]
