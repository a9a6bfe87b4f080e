"""A store that fails now and then changes nothing; one that lies or stays away is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.remote.reading import (
    SECRET,
    FaultyStore,
    by_aiohttp,
    by_http,
    by_s3,
    by_s3fs,
    digests,
    open_dataset,
    whole,
)
from tests.servers.faults import PASSING, Fault, busy
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import CorruptFileError
from torchparquet._impl.files import store_reading
from torchparquet._impl.files.remote.addresses import Address, AddressMaker, address_maker
from torchparquet._impl.files.remote.failures import Patience, patiently, plain_errors
from torchparquet._impl.files.remote.store import Store

# With each of them the suite would take too long.
pytestmark = pytest.mark.mostly_long(every=3)

Way = Callable[[FaultyOrigin, Path], FaultyStore]
WAYS: dict[str, Way] = {"s3": by_s3, "http": by_http, "s3fs": by_s3fs, "aiohttp": by_aiohttp}
SHUFFLED: dict[str, Any] = {"shuffle": True, "seed": 6, "shuffle_window": 3}
READS = "GET *.parquet"
BROKEN_LISTINGS = ("listing without token", "listing that repeats", "listing cut")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def faulty(way: str, origin: FaultyOrigin, data: Path) -> FaultyStore:
    return WAYS[way](origin, data / "train")


@pytest.fixture
def bucket(origin: FaultyOrigin, data: Path) -> FaultyStore:
    return by_s3(origin, data / "train")


def write_plain(path: Path, values: Any) -> bytes:
    """Write row groups of one size each; another one in its place would decode."""
    path.parent.mkdir()
    layout: dict[str, Any] = {"use_dictionary": False, "compression": "none"}
    table = pa.table({"x": values})
    pq.write_table(table, path, row_group_size=5000, write_statistics=False, **layout)
    return path.read_bytes()


def key_of(origin: FaultyOrigin, name: str) -> str:
    return next(one.key for one in origin.listed() if one.key.endswith(name))


def until_failure(batches: Iterable[Any]) -> tuple[list[str], OSError | None]:
    """Return the digests of batches, and the error that ended them."""
    found: list[str] = []
    try:
        for batch in batches:
            found += digests([batch])
    except OSError as error:
        return found, error
    return found, None


OVERCOME = (
    *PASSING,
    Fault("error body"),
    Fault("wrong range", at=8),
    Fault("wrong header", at=8),
)


@pytest.mark.parametrize("num_epochs", [3, pytest.param(50, marks=pytest.mark.long)])
def test_epochs_with_a_fifth_of_the_answers_faulty(
    faulty: FaultyStore, data: Path, num_epochs: int
) -> None:
    local, remote = open_dataset(data / "train", **SHUFFLED), faulty.open(**SHUFFLED)
    faulty.origin.script.by_chance(0.2, OVERCOME, seed=num_epochs)
    for epoch in range(num_epochs):
        assert digests(remote) == digests(local), epoch
    counts = faulty.origin.counts
    assert faulty.origin.num_faults() > counts["GET"] / 10
    if num_epochs == 50:
        assert {f"fault: {fault.name}" for fault in OVERCOME} <= set(counts)


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


@pytest.mark.mostly_long(every=4)
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
    "no header of a range": Fault("no header"),
    "length of less": Fault("short length", at=100),
    "another object": Fault("etag"),
}


@pytest.mark.mostly_long(every=3)
@pytest.mark.parametrize("name", LYING)
def test_a_store_that_always_lies_gives_no_wrong_row(
    faulty: FaultyStore, data: Path, name: str
) -> None:
    """Right batches, or an error that names the file."""
    dataset = faulty.open({"max_retries": 2})
    expected = whole(data / "train")
    faulty.origin.script.add("GET *part-1.parquet", [LYING[name]], forever=True)
    found, failure = until_failure(dataset)
    if failure:
        assert "part-1.parquet" in str(failure)
        assert found == expected[: len(found)]
    else:
        assert found == expected


def test_bytes_of_another_range_give_no_value(
    way: str, origin: FaultyOrigin, tmp_path: Path
) -> None:
    path = tmp_path / "data" / "part-0.parquet"
    values = np.random.default_rng(0).random(20_000)
    write_plain(path, values)
    footer = pq.read_metadata(path)
    chunks = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
    (size,) = {chunk.total_compressed_size for chunk in chunks}
    begins = [chunk.data_page_offset for chunk in chunks]
    assert begins == [begins[0] + number * size for number in range(len(chunks))]
    faulty = WAYS[way](origin, path.parent)
    dataset = faulty.open(max_memory="300KB", batch_size=1000)
    origin.script.add(READS, [Fault("wrong range", at=size)] * 2)
    found = np.concatenate([batch["x"].numpy() for batch in dataset])
    assert np.array_equal(found, values)
    assert origin.counts["fault: wrong range"] == 2


# Of another size, of the same size, which only its ETag tells, and nothing.
OTHERS: dict[str, Callable[[bytes], bytes | None]] = {
    "another": lambda content: content[: len(content) // 2],
    "of the same size": lambda content: content[:1000] + bytes(1000) + content[2000:],
    "deleted": lambda content: None,
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_object_that_is_replaced_or_deleted_within_an_epoch_is_named(
    faulty: FaultyStore, data: Path, other: str
) -> None:
    # Few row groups fit, so that most are read after the change.
    dataset = faulty.open(max_memory="300KB")
    iterator = iter(dataset)
    first = digests([next(iterator)])
    key = key_of(faulty.origin, "part-4.parquet")
    content = OTHERS[other](faulty.origin.content(key) or b"")
    if content is None:
        faulty.origin.delete(key)
    else:
        faulty.origin.put(key, content)
    later, failure = until_failure(iterator)
    assert isinstance(failure, OSError if content is None else CorruptFileError)
    assert "part-4.parquet" in str(failure)
    expected = whole(data / "train")
    found = first + later
    assert len(found) < len(expected)
    assert found == expected[: len(found)]


@pytest.mark.parametrize("validator", ["strong", "weak", "modified"])
def test_an_object_is_not_mixed_with_one_that_replaces_it(
    way: str, origin: FaultyOrigin, tmp_path: Path, validator: str
) -> None:
    """Both could be read, and differ in their values alone."""
    if validator != "strong" and way.startswith("s3"):
        pytest.skip("S3 has strong ETags")
    origin.validator = validator
    values = np.random.default_rng(0).random(200_000)
    first = write_plain(tmp_path / "first" / "part-0.parquet", values)
    second = write_plain(tmp_path / "second" / "part-0.parquet", -values)
    assert len(first) == len(second)
    faulty = WAYS[way](origin, tmp_path / "first")
    iterator = iter(faulty.open(max_memory="300KB", batch_size=1000))
    batches = [next(iterator)]
    origin.put(key_of(origin, "part-0.parquet"), second)
    with pytest.raises(CorruptFileError, match=r"part-0\.parquet"):
        batches.extend(iterator)
    found = np.concatenate([batch["x"].numpy() for batch in batches])
    assert 0 < len(found) < len(values)
    assert np.array_equal(found, values[: len(found)])


def test_an_expired_signature_is_made_anew(bucket: FaultyStore, data: Path) -> None:
    dataset = bucket.open(max_memory="300KB")
    expected = whole(data / "train")
    iterator = iter(dataset)
    found = [next(iterator)]
    # A request is signed anew once; a second fault might meet the same one again.
    bucket.origin.script.add(READS, [Fault("expired")])
    found += list(iterator)
    assert digests(found) == expected
    assert bucket.origin.counts["fault: expired"] == 1


def test_a_store_that_refuses_is_an_error_with_the_reason_and_no_secret(
    bucket: FaultyStore,
) -> None:
    dataset = bucket.open({"max_retries": 1})
    shown = [repr(dataset), repr(dataset.manifest), str(dataset.state_dict())]
    for fault in (Fault("status", status=404), Fault("expired")):
        bucket.origin.script.clear()
        bucket.origin.script.add(READS, [fault], forever=True)
        with pytest.raises(OSError, match=r"part-0\.parquet") as caught:
            list(dataset)
        shown += [str(caught.value), repr(caught.value), str(caught.value.__cause__)]
    assert any(word in shown[-3] for word in ("403", "denied"))
    for text in shown:
        assert SECRET not in text
        assert "X-Amz-Signature" not in text


def test_an_address_that_could_not_be_made_is_made_by_the_next_epoch(
    bucket: FaultyStore, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings: list[list[str]] = []  # the names that each was asked for
    lacks_credentials = True

    def fragile_maker(store: Store) -> AddressMaker:
        make = address_maker(store)
        assert make is not None
        names: list[str] = []
        readings.append(names)

        def made(name: str, stamp: str) -> Address | None:
            names.append(name)
            if lacks_credentials and len(names) > 1:  # the first one is a trial
                raise PermissionError("no credentials")
            return make(name, stamp)

        return made

    dataset = bucket.open({"max_retries": 0})
    monkeypatch.setattr(store_reading, "address_maker", fragile_maker)
    with pytest.raises(OSError, match="no credentials"):
        list(dataset)
    lacks_credentials = False
    assert digests(dataset) == whole(data / "train")
    assert len(readings) == 1


@pytest.mark.parametrize("kind", ["", *BROKEN_LISTINGS])
def test_listings_come_in_pages_and_a_broken_one_hides_no_file(
    bucket: FaultyStore, data: Path, kind: Any
) -> None:
    """All files, or an error; a store that repeats a page would make a client ask for ever."""
    bucket.origin.page_size = 2
    if kind:
        bucket.origin.script.add("GET /bucket*", [Fault(), Fault(kind)])
    try:
        dataset = bucket.open()
    except (OSError, ValueError):
        assert kind
        return
    assert digests(dataset) == whole(data / "train")


@pytest.mark.long
def test_busy_listings_are_asked_for_again(bucket: FaultyStore, data: Path) -> None:
    bucket.origin.script.add("GET /bucket", busy(2))
    assert digests(bucket.open()) == whole(data / "train")


def test_look_ups_are_as_patient_as_reads_with_a_busy_store(
    origin: FaultyOrigin, data: Path
) -> None:
    faulty = by_http(origin, data / "train")
    origin.script.add("*part-1.parquet", [*busy(3), *busy(1, 429), Fault("reset"), *busy(1)])
    assert digests(faulty.open()) == whole(data / "train")
    assert origin.num_faults() == 6
    origin.script.add("*part-1.parquet", busy(1, 429, retry_after=0), forever=True)
    with pytest.raises(OSError, match=r"HTTP 429"):
        faulty.open({"max_retries": 1})
    assert origin.num_faults() == 6 + 4


@pytest.mark.long
def test_look_ups_try_ten_times_by_default(origin: FaultyOrigin, data: Path) -> None:
    """Nine tries fail, each with two requests."""
    faulty = by_http(origin, data / "train")
    origin.script.add("*part-1.parquet", busy(18, 429, retry_after=0))
    assert digests(faulty.open()) == whole(data / "train")
    assert origin.num_faults() == 18


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_busy_store_is_left_alone_for_as_long_as_it_asks(form: str) -> None:
    asked = {"seconds": "7", "date": formatdate(time.time() + 60, usegmt=True)}
    least = {"seconds": 7.0, "date": 50.0}[form]
    waits: list[float] = []

    def ask() -> str:
        with plain_errors("read", "http://x/a.parquet", ()):
            if len(waits) < 2:
                error = OSError("too many requests")
                vars(error).update(status=429, headers={"Retry-After": asked[form]})
                raise error
            return "answer"

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return False

    assert patiently(ask, Patience(), wait) == "answer"
    assert len(waits) == 2
    assert min(waits) >= least
    waits.clear()
    with pytest.raises(OSError, match="too many requests"):
        patiently(ask, Patience(max_seconds=least / 2), wait)
    assert waits == []
