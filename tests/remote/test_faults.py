"""A store that fails now and then changes nothing; one that lies or stays away is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.remote.reading import SECRET, FaultyStore, by_http, by_s3, digests, open_dataset, whole
from tests.servers.faults import Fault, busy
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import CorruptFileError

WAYS: dict[str, Callable[[FaultyOrigin, Path], FaultyStore]] = {"s3": by_s3, "http": by_http}
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 6, "shuffle_window": 3}
READS = "GET *.parquet"


@pytest.fixture(params=WAYS)
def faulty(request: pytest.FixtureRequest, origin: FaultyOrigin, data: Path) -> FaultyStore:
    if request.param == "s3":
        pytest.importorskip("s3fs")
    return WAYS[request.param](origin, data / "train")


@pytest.mark.parametrize("num_epochs", [3, pytest.param(50, marks=pytest.mark.long)])
def test_epochs_with_a_fifth_of_the_answers_faulty(
    faulty: FaultyStore, data: Path, num_epochs: int
) -> None:
    local, remote = open_dataset(data / "train", **SHUFFLED), faulty.open(**SHUFFLED)
    faulty.origin.script.by_chance(0.2, seed=num_epochs)
    for epoch in range(num_epochs):
        assert digests(remote) == digests(local), epoch
    assert faulty.origin.num_faults() > num_epochs


RECOVERED = {
    "reset before a byte": [Fault("reset")],
    "reset in the body": [Fault("reset", at=1000)] * 2,
    "short body": [Fault("short", at=999)] * 2,
    "length of more": [Fault("long length", at=5)],
    "busy": busy(2),
    "busy, says when": busy(2, retry_after=0),
    "too many requests": busy(2, 429, retry_after=0),
    "time out of the store": busy(1, 408),
    "no HTTP": [Fault("garbage")],
    "slow": [Fault("drip", at=20_000, seconds=0)],
    "error as a body": [Fault("error body")],
    "another range": [Fault("wrong range", at=8)],
    "header of another range": [Fault("wrong header", at=8)],
}


@pytest.mark.parametrize("name", RECOVERED)
def test_what_passes_is_overcome(faulty: FaultyStore, data: Path, name: str) -> None:
    dataset = faulty.open()
    # Those at the beginning, and some under way.
    faulty.origin.script.add("GET *part-0.parquet", RECOVERED[name])
    faulty.origin.script.add("GET *part-3.parquet", RECOVERED[name])
    assert digests(dataset) == whole(data / "train")
    assert faulty.origin.num_faults() == 2 * len(RECOVERED[name])


LYING = {
    "all of the object": Fault("whole"),
    "no end": Fault("endless"),
    "another range": Fault("wrong range", at=8),
    "header of another range": Fault("wrong header", at=8),
    "length of less": Fault("short length", at=100),
    "another object": Fault("etag"),
}


@pytest.mark.parametrize("name", LYING)
def test_a_store_that_always_lies_gives_no_wrong_row(
    faulty: FaultyStore, data: Path, name: str
) -> None:
    """Right batches, or an error that names the file."""
    dataset = faulty.open(fetch_options={"max_tries": 3})
    expected = whole(data / "train")
    faulty.origin.script.add("GET *part-1.parquet", [LYING[name]], forever=True)
    found: list[str] = []
    failure = ""
    try:
        for batch in dataset:
            found += digests([batch])
    except OSError as error:
        failure = str(error)
    if failure:
        assert "part-1.parquet" in failure
        assert found == expected[: len(found)]
    else:
        assert found == expected


def test_an_object_that_is_replaced_within_an_epoch_is_named(
    faulty: FaultyStore, data: Path
) -> None:
    # Few row groups fit, so that most are read after the change.
    dataset = faulty.open(max_memory="300KB")
    iterator = iter(dataset)
    next(iterator)
    other = (data / "train" / "part-0.parquet").read_bytes()
    key = next(k.key for k in faulty.origin.listed() if k.key.endswith("part-4.parquet"))
    faulty.origin.put(key, other)
    with pytest.raises(CorruptFileError, match=r"part-4\.parquet"):
        list(iterator)


def test_an_object_that_is_deleted_within_an_epoch_is_named(faulty: FaultyStore) -> None:
    iterator = iter(faulty.open(max_memory="300KB"))
    next(iterator)
    key = next(k.key for k in faulty.origin.listed() if k.key.endswith("part-4.parquet"))
    faulty.origin.delete(key)
    with pytest.raises(OSError, match=r"part-4\.parquet"):
        list(iterator)


def test_an_expired_signature_is_made_anew(origin: FaultyOrigin, data: Path) -> None:
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    dataset = faulty.open(max_memory="300KB")
    expected = whole(data / "train")
    iterator = iter(dataset)
    found = [next(iterator)]
    origin.script.add(READS, [Fault("expired")] * 2)
    found += list(iterator)
    assert digests(found) == expected
    assert origin.counts["fault: expired"] == 2


def test_a_store_that_refuses_is_an_error_with_the_reason(origin: FaultyOrigin, data: Path) -> None:
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    dataset = faulty.open()
    origin.script.add(READS, [Fault("expired")], forever=True)
    with pytest.raises(OSError, match=r"part-0\.parquet") as caught:
        list(dataset)
    assert any(word in str(caught.value) for word in ("403", "denied"))
    assert SECRET not in str(caught.value)


def test_listings_come_in_pages(origin: FaultyOrigin, data: Path) -> None:
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    origin.page_size = 2
    assert digests(faulty.open()) == whole(data / "train")


@pytest.mark.parametrize("kind", ["listing without token", "listing that repeats", "listing cut"])
def test_a_listing_that_is_broken_hides_no_file(
    origin: FaultyOrigin, data: Path, kind: Any
) -> None:
    """All files, or an error; a store that repeats a page would make a client ask for ever."""
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    origin.page_size = 2
    origin.script.add("GET /bucket*", [Fault(), Fault(kind)])
    try:
        dataset = faulty.open()
    except (OSError, ValueError):
        return
    assert digests(dataset) == whole(data / "train")


def test_busy_listings_are_asked_for_again(origin: FaultyOrigin, data: Path) -> None:
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    origin.script.add("GET /bucket", busy(2))
    assert digests(faulty.open()) == whole(data / "train")


@pytest.mark.parametrize("key", ["a b", "a+b", "a%2Fb", "a=b&c", "ä", "a#b", "a?b"])
def test_keys_of_any_characters(origin: FaultyOrigin, data: Path, key: str) -> None:
    pytest.importorskip("s3fs")
    content = (data / "train" / "part-0.parquet").read_bytes()
    origin.put(f"bucket/odd/{key}.parquet", content)
    faulty = by_s3(origin, data / "train")
    faulty.url = "s3://bucket/odd"
    assert digests(faulty.open()) == whole(data / "train" / "part-0.parquet")
    assert any(unquote(one.path).endswith(".parquet") for one in origin.requests)


# Credentials


def secret_of(request: Any) -> str:
    """All that a request shows of who asks."""
    shown = (request.header("Authorization"), request.header("Cookie"), request.header("X-Token"))
    return " ".join(shown)


def test_headers_do_not_follow_a_redirect_to_another_host(origin: FaultyOrigin, data: Path) -> None:
    faulty = by_http(origin, data / "train")
    faulty.options = {"headers": {"Authorization": f"Bearer {SECRET}", "X-Token": SECRET}}
    dataset = faulty.open()
    with FaultyOrigin() as other:
        by_http(other, data / "train")
        origin.script.add(READS, [Fault("redirect", to=other.url)], forever=True)
        assert digests(dataset) == whole(data / "train")
        assert SECRET in secret_of(origin.requests[-1])
        assert other.requests
        assert [one for one in other.requests if SECRET in secret_of(one)] == []


def test_messages_and_representations_tell_no_secret(origin: FaultyOrigin, data: Path) -> None:
    pytest.importorskip("s3fs")
    faulty = by_s3(origin, data / "train")
    dataset = faulty.open()
    shown = [repr(dataset), repr(dataset.manifest), str(dataset.state_dict())]
    for fault in (Fault("status", status=404), Fault("expired")):
        origin.script.clear()
        origin.script.add(READS, [fault], forever=True)
        with pytest.raises(OSError, match="part-0") as caught:
            list(dataset)
        shown += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    for text in shown:
        assert SECRET not in text
        assert "X-Amz-Signature" not in text


def test_a_password_in_a_url_is_not_shown(origin: FaultyOrigin) -> None:
    url = origin.url.replace("http://", f"http://user:{SECRET}@") + "/none.parquet"
    with pytest.raises(OSError, match="none") as caught:
        open_dataset(url)
    assert SECRET not in str(caught.value)
