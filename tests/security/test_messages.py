"""No terminal gets the words of files and paths raw: names, values and notes are escaped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from torchparquet import ByLength, Column, Pack, ParquetDataset
from torchparquet.cli import main
from torchparquet.errors import one_line, printable

# An escape sequence, a bell, a new line, a bidirectional override, a control of eight bits, a line
# separator and a tag that nobody sees.
EVIL = "a\x1b[31m\x07\n\u202eb\x9b\u2028\U000e0041"
NUM_ROWS = 10


def steers(text: str) -> list[str]:
    """The characters of a text that a terminal would obey or hide."""
    return [c for c in text if not c.isprintable() and c != "\n"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    table = pa.table(
        {
            EVIL: np.arange(NUM_ROWS),
            f"{EVIL}s": [f"{EVIL}{row}" for row in range(NUM_ROWS)],
            f"{EVIL}n": pa.array([None] * NUM_ROWS, pa.int64()),
            f"{EVIL}l": [[1] * row for row in range(NUM_ROWS)],
            f"{EVIL}t": pa.array([{EVIL: 1}] * NUM_ROWS),
        },
        metadata={EVIL: EVIL},
    )
    (root / "good").mkdir()
    path = root / "good" / "a.parquet"
    pq.write_table(table, path)
    # The writer's name is of one length, so that the footer stays whole.
    content = path.read_bytes()
    writer = pq.read_metadata(path).created_by.encode()
    assert content.count(writer) == 1
    path.write_bytes(content.replace(writer, (b"\x1b]0;\x07\x9b\xff\n" * 9)[: len(writer)]))
    other = table.set_column(0, EVIL, pa.array(["x"] * NUM_ROWS))
    pq.write_table(other, root / "other.parquet")
    keyed = root / "keyed" / f"k\x1b[2J\u202e={EVIL}"
    keyed.mkdir(parents=True)
    shutil.copy(path, keyed / f"{EVIL}.parquet")
    (root / "junk").mkdir()
    (root / "junk" / f"{EVIL}.parquet").write_bytes(b"junk" * 5)
    return root


def read(*paths: Path, **options: Any) -> None:
    list(ParquetDataset(list(paths), **{"batch_size": 4} | options))


def column(suffix: str, **options: Any) -> dict[str, Any]:
    return {"columns": {"x": Column(EVIL + suffix, **options)}}


def failing(batch: Any) -> Any:
    raise OSError(f"of a user: {EVIL}")


OPTIONS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "an unknown column": {"columns": ["unknown"]},
    "a name that is like one": {"columns": [f"{EVIL}ss"]},
    "a null": column("n"),
    "a dtype": column("", dtype="bool"),
    "a dtype of strings": column("s", dtype="int8"),
    "a length": column("l", length=2),
    "a struct": {"columns": [f"{EVIL}t"]},
    "a group": {"columns": {"g": [EVIL, f"{EVIL}s"]}},
    "no image": column("s", decode="image"),
    "filters": {"filters": [("unknown", "=", 1)]},
    "filters of a type": {"filters": [(f"{EVIL}s", "=", 1)]},
    "filters in SQL": {"filters": "unknown = 1"},
    "a split": {"split": ("a", {"a": 0.5, "b": 0.5}, 0, "unknown")},
    "pack": {"columns": [EVIL], "pack": Pack(EVIL, length=3)},
    "lengths": {"columns": [EVIL], "batch_size": ByLength(EVIL, max_tokens=3)},
    "a transform": {"columns": [EVIL], "transform": failing},
}


@pytest.mark.parametrize("what", OPTIONS)
def test_errors_escape_what_files_say(root: Path, what: str) -> None:
    with pytest.raises(Exception, match=r"(?s).") as caught:
        read(root / "good", **OPTIONS[what])
    assert steers(str(caught.value)) == []
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["keyed", "junk", f"missing{EVIL}"])
def test_errors_escape_paths(root: Path, name: str) -> None:
    with pytest.raises((OSError, ValueError)) as caught:
        read(root / name)
    assert steers(str(caught.value)) == []
    assert "\n" not in str(caught.value)


def test_files_that_disagree(root: Path) -> None:
    with pytest.raises(ValueError, match="files disagree") as caught:
        read(root / "good", root / "other.parquet")
    assert steers(str(caught.value)) == []


def hostile_states(state: dict[str, Any]) -> list[dict[str, Any]]:
    found = [{EVIL: 1}, {**state, "version": EVIL}]
    # "files" only says what differs.
    names = [name for name in state if name not in ("version", "files")]
    return [*found, *({**state, name: {EVIL: EVIL}} for name in names)]


def test_states(root: Path) -> None:
    dataset = ParquetDataset(root / "good", batch_size=4, columns=[EVIL])
    other = ParquetDataset(root / "good", batch_size=4, columns=[EVIL, f"{EVIL}l"])
    states = [*hostile_states(dataset.state_dict()), other.state_dict()]
    for state in states:
        with pytest.raises((TypeError, ValueError)) as caught:
            dataset.load_state_dict(state)
        assert steers(str(caught.value)) == []


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("name", ["good", "keyed", "junk"])
@pytest.mark.parametrize("command", ["inspect", "plan", "verify"])
def test_commands(
    root: Path, capfd: pytest.CaptureFixture[str], command: str, name: str, as_json: bool
) -> None:
    main([command, str(root / name), *(["--json"] if as_json else [])])
    out, err = capfd.readouterr()
    assert out + err
    assert steers(out + err) == []
    if as_json and out:
        json.loads(out)


def test_the_column_of_a_command(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(root / "good"), "--column", f"{EVIL}unknown"]) == 1
    assert steers("".join(capfd.readouterr())) == []


@pytest.mark.parametrize("show", [printable, lambda text: one_line(OSError(text))])
def test_escapes(show: Callable[[str], str]) -> None:
    """Printable characters stay, in any script; the rest is spelled out."""
    assert show("größe 大きさ ∑") == "größe 大きさ ∑"
    assert show("a\x1b[0mb\u202ec\udcffd\x9be") == r"a\x1b[0mb\u202ec\udcffd\x9be"
