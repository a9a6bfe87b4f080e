"""The faulty origin: it serves ranges as stores do, and fails exactly as it is told to."""

from __future__ import annotations

import http.client
import re
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

from tests.servers.faults import Fault, Script, busy
from tests.servers.faulty_origin import FaultyOrigin

CONTENT = bytes(range(256)) * 100
KEY = "bucket/train/0.parquet"
Reply = tuple[int, dict[str, str], bytes]


def get(url: str, method: str = "GET", **headers: str) -> Reply:
    """Ask on a connection of its own, and follow nothing."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        target = parts.path + ("?" + parts.query if parts.query else "")
        connection.request(method, target, headers=named)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


@pytest.fixture
def url(origin: FaultyOrigin) -> str:
    origin.put(KEY, CONTENT)
    return origin.url_of(KEY)


def after(origin: FaultyOrigin, fault: Fault) -> None:
    """Have the next request fail in this way."""
    origin.script.add("*", [fault])


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=10-19", 10, 20),
        ("bytes=25590-", 25_590, 25_600),
        ("bytes=-8", 25_592, 25_600),
        ("bytes=25590-99999", 25_590, 25_600),
    ],
)
def test_a_range_is_that_of_the_object(url: str, asked: str, begin: int, end: int) -> None:
    status, headers, body = get(url, Range=asked)
    assert (status, body) == (206, CONTENT[begin:end])
    assert headers["Content-Range"] == f"bytes {begin}-{end - 1}/{len(CONTENT)}"


def test_objects_answer_as_in_stores(origin: FaultyOrigin, url: str) -> None:
    status, headers, body = get(url)
    assert (status, body) == (200, CONTENT)
    assert get(url, "HEAD")[1]["Content-Length"] == str(len(CONTENT))
    assert get(url, "HEAD")[2] == b""
    assert get(url, Range="bytes=99999-")[0] == 416
    assert get(url, If_Match=headers["ETag"])[0] == 200
    assert get(url, If_Match='"another"')[0] == 412
    assert get(origin.url_of("bucket/none"))[0] == 404
    assert origin.counts["HEAD"] == 2
    assert origin.counts["412"] == origin.counts["416"] == origin.counts["404"] == 1


def test_an_object_that_is_replaced_has_another_etag(origin: FaultyOrigin, url: str) -> None:
    before = get(url, "HEAD")[1]["ETag"]
    origin.put(KEY, b"another")
    assert get(url, If_Match=before)[0] == 412
    assert get(url)[2] == b"another"


def test_objects_may_have_weak_etags_or_times_alone(origin: FaultyOrigin, url: str) -> None:
    origin.validator = "weak"
    assert get(url)[1]["ETag"].startswith('W/"')
    origin.validator = "modified"
    before = get(url)[1]
    assert "ETag" not in before
    assert get(url, If_Unmodified_Since=before["Last-Modified"])[0] == 200
    origin.put(KEY, CONTENT[::-1])
    assert get(url)[1]["Last-Modified"] != before["Last-Modified"]
    assert get(url, If_Unmodified_Since=before["Last-Modified"])[0] == 412


@pytest.mark.parametrize("at", [0, 1, 5_000])
def test_a_reset_comes_after_so_many_bytes(origin: FaultyOrigin, url: str, at: int) -> None:
    after(origin, Fault("reset", at=at))
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as client:
        client.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        received, was_reset = b"", False
        try:
            while piece := client.recv(1 << 16):
                received += piece
        except ConnectionResetError:
            was_reset = True
    assert was_reset
    # A reset may take with it what was not read yet.
    assert len(received.partition(b"\r\n\r\n")[2]) <= at
    assert origin.counts["fault: reset"] == 1


@pytest.mark.parametrize("fault", [Fault("short", at=100), Fault("long length", at=7)])
def test_a_body_that_lacks_bytes_is_seen_to(origin: FaultyOrigin, url: str, fault: Fault) -> None:
    after(origin, fault)
    with pytest.raises(http.client.IncompleteRead) as caught:
        get(url)
    expected = CONTENT[:100] if fault.kind == "short" else CONTENT
    assert caught.value.partial == expected
    assert get(url)[2] == CONTENT


def test_a_length_that_is_too_short_hides_bytes(origin: FaultyOrigin, url: str) -> None:
    after(origin, Fault("short length", at=7))
    assert get(url)[2] == CONTENT[:-7]


def test_ranges_may_be_wrong(origin: FaultyOrigin, url: str) -> None:
    after(origin, Fault("wrong range", at=5))
    status, headers, body = get(url, Range="bytes=10-19")
    assert (status, body) == (206, CONTENT[15:25])
    assert headers["Content-Range"] == "bytes 15-24/25600"
    after(origin, Fault("wrong header", at=5))
    _, headers, body = get(url, Range="bytes=10-19")
    assert (headers["Content-Range"], body) == ("bytes 15-24/25600", CONTENT[10:20])
    after(origin, Fault("whole"))
    assert get(url, Range="bytes=10-19")[::2] == (200, CONTENT)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_burst_ends(origin: FaultyOrigin, url: str, status: int) -> None:
    origin.script.add("GET */train/*", busy(3, status, retry_after=2))
    for _ in range(3):
        found, headers, body = get(url)
        assert found == status
        assert headers["Retry-After"] == "2"
        assert b"<Code>" in body
    assert get(url)[0] == 200
    assert origin.counts[str(status)] == origin.counts[f"fault: status {status}"] == 3
    assert origin.num_faults() == 3


def test_a_rule_is_for_what_it_matches(origin: FaultyOrigin, url: str) -> None:
    origin.script.add("HEAD *", busy(1), forever=True)
    origin.script.add("GET *.csv", busy(1))
    assert get(url)[0] == 200
    assert {get(url, "HEAD")[0] for _ in range(3)} == {503}
    origin.script.clear()
    assert get(url, "HEAD")[0] == 200


def test_a_stall_lasts_until_the_client_hangs_up(origin: FaultyOrigin, url: str) -> None:
    after(origin, Fault("stall", at=10))
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as client:
        client.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        received = b""
        while len(received.partition(b"\r\n\r\n")[2]) < 10:
            received += client.recv(1 << 16)
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_an_endless_body_has_no_length(origin: FaultyOrigin, url: str) -> None:
    after(origin, Fault("endless"))
    with urllib.request.urlopen(url, timeout=30) as response:
        assert response.headers["Content-Length"] is None
        assert len(response.read(10 * len(CONTENT))) == 10 * len(CONTENT)


def test_other_lies(origin: FaultyOrigin, url: str) -> None:
    etag = get(url)[1]["ETag"]
    after(origin, Fault("etag"))
    status, headers, body = get(url, If_Match=etag)
    assert status == 200
    assert headers["ETag"] != etag
    assert body == CONTENT
    after(origin, Fault("error body"))
    status, _, body = get(url)
    assert status == 200
    assert b"<Code>SlowDown</Code>" in body
    after(origin, Fault("garbage"))
    with pytest.raises(http.client.BadStatusLine):
        get(url)


def test_pages_of_links_name_the_entries_of_a_folder(origin: FaultyOrigin) -> None:
    for key in ("a/0.parquet", "a/x y/1.parquet", "b/2.parquet"):
        origin.put(key, b"")
    text = get(origin.url + "/a/")[2].decode()
    assert re.findall('href="([^"]*)"', text) == ["0.parquet", "x%20y/"]
    assert get(origin.url + "/a/none")[0] == 404


def draws(script: Script, requests: list[str]) -> list[str]:
    return [script.fault_for("GET /a", request).name for request in requests]


def test_chance_depends_on_seed_and_request_alone() -> None:
    requests = [f"range {number % 40}" for number in range(400)]
    found = []
    for seed in (1, 1, 2):
        script = Script()
        script.by_chance(0.2, seed=seed)
        found.append(draws(script, requests))
    assert found[0] == found[1] != found[2]
    assert 40 < sum(name != "none" for name in found[0]) < 120
    # In another order, each request meets the same.
    script = Script()
    script.by_chance(0.2, seed=1)
    assert sorted(draws(script, sorted(requests))) == sorted(found[0])
