"""The broker answers every request, whatever the store's library does."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.files.remote.fake_native import FakeRemoteStore
from torchparquet._impl.files.discovery import find_sources
from torchparquet._impl.files.remote.broker import Broker
from torchparquet._impl.files.remote.file_access import entity_tag, http_date, may_be_same, stamp_of
from torchparquet.errors import CorruptFileError


class Files:
    """Three files in memory behind a broker."""

    def __init__(self, memory: Any, max_tries: int = 1) -> None:
        for number in range(3):
            memory.pipe_file(f"/f{number}", bytes(range(100)))
        self.store = FakeRemoteStore()
        files = find_sources([f"memory://f{number}" for number in range(3)]).remote
        assert files is not None
        files.storage.access().secrets = ("s3cr3t",)
        files = replace(files, fetch={"max_tries": max_tries})
        self.broker = Broker(self.store, files)  # type: ignore[arg-type]


def test_bytes(memory: Any) -> None:
    made = Files(memory)
    assert made.store.read(1, 10, 5) == bytes(range(10, 15))
    assert made.store.read(2, 0, 100) == bytes(range(100))
    made.broker.close()
    assert made.store.closed


def test_failures_name_the_file(memory: Any, monkeypatch: Any) -> None:
    made = Files(memory)
    memory.rm("/f0")
    with pytest.raises(FileNotFoundError, match="memory://f0"):
        made.store.read(0, 0, 5)
    memory.pipe_file("/f1", bytes(50))
    with pytest.raises(CorruptFileError, match=r"data set anew.*has changed.*memory://f1"):
        made.store.read(1, 0, 5)
    assert made.store.read(2, 0, 5) == bytes(range(5))
    monkeypatch.setattr(memory, "cat_file", lambda *_, **__: b"")
    with pytest.raises(OSError, match=r"cannot read 'memory://f2': 5 bytes at 0 .* 0 came"):
        made.store.read(2, 0, 5)

    def broken(*_: Any, **__: Any) -> bytes:
        raise RuntimeError("key s3cr3t at https://me:pw@host/x?sig=1 is bad")

    monkeypatch.setattr(memory, "cat_file", broken)
    with pytest.raises(OSError, match=r"cannot read 'memory://f2': key .* is bad") as caught:
        made.store.read(2, 0, 5)
    assert "key *** at https://host/x is bad" in str(caught.value)
    # The threads live on.
    monkeypatch.undo()
    assert made.store.read(2, 0, 5) == bytes(range(5))
    made.broker.close()


def test_a_file_that_is_replaced_between_ranges_is_an_error(memory: Any) -> None:
    made = Files(memory, max_tries=10)
    assert made.store.read(0, 0, 50) == bytes(range(50))
    memory.pipe_file("/f0", bytes(100))
    with pytest.raises(CorruptFileError, match=r"has changed.*memory://f0"):
        made.store.read(0, 50, 50)
    made.broker.close()


def test_a_file_that_is_replaced_under_way_is_an_error(memory: Any, monkeypatch: Any) -> None:
    made = Files(memory, max_tries=10)
    cat_file = memory.cat_file

    def replaced_meanwhile(name: str, **span: int) -> bytes:
        memory.pipe_file(name, bytes(100))
        return bytes(cat_file(name, **span))

    monkeypatch.setattr(memory, "cat_file", replaced_meanwhile)
    with pytest.raises(CorruptFileError, match=r"has changed.*memory://f0"):
        made.store.read(0, 0, 50)
    made.broker.close()


class Failing:
    """Fails some times before it acts, and counts its calls."""

    def __init__(self, act: Any, *errors: Any) -> None:
        self.act, self.errors, self.num_calls = act, list(errors), 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.num_calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.act(*args, **options)


@pytest.mark.parametrize("call", ["cat_file", "info"])
def test_failures_that_may_pass_are_tried_again(memory: Any, monkeypatch: Any, call: str) -> None:
    made = Files(memory, max_tries=4)
    errors = [OSError("reset"), PermissionError("the key is old"), RuntimeError("busy")]
    for num_errors in (1, 2, 3):
        failing = Failing(getattr(memory, call), *errors[:num_errors])
        with monkeypatch.context() as patched:
            patched.setattr(memory, call, failing)
            assert made.store.read(1, 10, 5) == bytes(range(10, 15))
        assert failing.num_calls == num_errors + 1
    made.broker.close()


@pytest.mark.parametrize(
    ("error", "num_tries"),
    [
        (OSError("reset"), 3),
        (PermissionError("no"), 2),
        (FileNotFoundError("gone"), 1),
        (TypeError("a fault of the code"), 1),
    ],
)
def test_tries_end(memory: Any, monkeypatch: Any, error: Any, num_tries: int) -> None:
    made = Files(memory, max_tries=3)
    failing = Failing(memory.cat_file, *[error] * 10)
    monkeypatch.setattr(memory, "cat_file", failing)
    with pytest.raises(OSError, match="memory://f1"):
        made.store.read(1, 10, 5)
    assert failing.num_calls == num_tries
    made.broker.close()


def test_the_end_does_not_wait_for_another_try(memory: Any, monkeypatch: Any) -> None:
    made = Files(memory, max_tries=1000)
    fails = threading.Event()

    def fail(*_: Any, **__: Any) -> bytes:
        fails.set()
        raise OSError("reset")

    monkeypatch.setattr(memory, "cat_file", fail)
    failures: list[str] = []

    def read() -> None:
        with pytest.raises(OSError, match="reset") as caught:
            made.store.read(1, 10, 5)
        failures.append(str(caught.value))

    reader = threading.Thread(target=read)
    reader.start()
    assert fails.wait(60)
    made.broker.close()
    reader.join(60)
    assert len(failures) == 1


def test_stamps() -> None:
    assert stamp_of({"ETag": '"ab"', "LastModified": 1}) == "etag ab"
    assert stamp_of({"etag": "0x8D", "content_md5": b"\x01"}) == "etag 0x8D"
    assert stamp_of({"generation": "12", "etag": "CJ=", "md5Hash": "x"}) == "generation 12"
    assert stamp_of({"blob_id": "b", "lfs": {"sha256": "s"}}) == "sha256 s"
    assert stamp_of({"blob_id": "b", "lfs": None}) == "blob b"
    assert stamp_of({"content_md5": bytearray(b"\x01")}) == "md5 01"
    assert stamp_of({"Last-Modified": "today"}) == "modified today"
    assert stamp_of({"size": 3}) == ""
    assert entity_tag("etag ab") == '"ab"'
    assert entity_tag('etag W/"ab"') == 'W/"ab"'
    assert entity_tag("generation 12") == ""
    assert http_date("modified Thu, 01 Jan 2026 00:00:00 GMT") == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert http_date("modified 1767225600.000000") == ""
    assert http_date("etag ab GMT") == ""
    assert may_be_same("etag a", "md5 b")
    assert not may_be_same("etag a", "etag b")
