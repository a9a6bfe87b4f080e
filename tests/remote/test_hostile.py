"""Stores and names that would lead a reader astray: other hosts, odd characters, other folders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.remote.reading import SECRET, by_aiohttp, by_http, by_s3, by_s3fs, digests, whole
from tests.servers.faults import Fault
from tests.servers.faulty_origin import FaultyOrigin, Request

# With each of them the suite would take too long.
pytestmark = pytest.mark.mostly_long(every=2)

BY_HTTP = {"http": by_http, "aiohttp": by_aiohttp}
BY_S3 = {"s3": by_s3, "s3fs": by_s3fs}
ODD_KEYS = [
    "a b",
    "a+b",
    "a%b",
    "a%2Fb",
    "a=b&c;d",
    "a#b",
    "a?b",
    "a:b@c",
    "ä/ü",
    "日本",
    "'a'\"b\"",
    "a//b",
]
DOTTED_KEYS = ["../a", "../../../a", "b/../a", "./a"]


def tells_secret(request: Request) -> bool:
    return SECRET in str(request.headers)


# Names


@pytest.mark.mostly_long(every=4)
@pytest.mark.parametrize("way", BY_S3)
@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_of_any_characters(origin: FaultyOrigin, data: Path, way: str, key: str) -> None:
    path = data / "train" / "part-0.parquet"
    origin.put(f"bucket/odd/{key}.parquet", path.read_bytes())
    faulty = BY_S3[way](origin, data / "train")
    for url in ("s3://bucket/odd", f"s3://bucket/odd/{key}.parquet"):
        faulty.url = url
        if "?" in key and url != "s3://bucket/odd":
            continue  # a pattern
        assert digests(faulty.open()) == whole(path)


@pytest.mark.parametrize("way", BY_HTTP)
@pytest.mark.parametrize("key", ODD_KEYS)
def test_addresses_of_any_characters(origin: FaultyOrigin, data: Path, way: str, key: str) -> None:
    path = data / "train" / "part-0.parquet"
    origin.put(f"odd/{key}.parquet", path.read_bytes())
    faulty = BY_HTTP[way](origin, data / "train")
    faulty.url = f"{origin.url}/odd/{quote(key)}.parquet?token={quote(key, safe='')}"
    assert digests(faulty.open()) == whole(path)
    assert {one.query["token"] for one in origin.requests} == {key}


@pytest.mark.parametrize("way", BY_S3)
@pytest.mark.parametrize("key", DOTTED_KEYS)
def test_keys_with_dots_stay_within_the_cache(
    origin: FaultyOrigin, data: Path, tmp_path: Path, way: str, key: str
) -> None:
    path = data / "train" / "part-0.parquet"
    origin.put(f"bucket/dots/{key}.parquet", path.read_bytes())
    faulty = BY_S3[way](origin, data / "train")
    faulty.url = f"s3://bucket/dots/{key}.parquet"
    faulty.options |= {"hedges": False}  # which would be counted
    cache = tmp_path / "outer" / "middle" / "cache"
    dataset = faulty.open(cache_dir=cache)
    # Blocks are kept after they were delivered, so that an epoch may begin before that.
    for _ in range(20):
        origin.forget()
        assert digests(dataset) == whole(path)
        if not origin.counts["GET"]:
            break
    assert not origin.counts["GET"]  # all came from the folder
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert files
    assert all(one.is_relative_to(cache) for one in files)


# Other hosts


# Options that tell a host a secret in each way that there is.
TOLD = {"Authorization": f"Bearer {SECRET}", "Cookie": f"session={SECRET}", "X-Token": SECRET}


@pytest.mark.parametrize("way", BY_HTTP)
@pytest.mark.parametrize("pattern", ["*.parquet", "HEAD *.parquet", "GET *.parquet"])
def test_headers_stay_with_their_host(
    origin: FaultyOrigin, data: Path, way: str, pattern: str
) -> None:
    faulty = BY_HTTP[way](origin, data / "train")
    faulty.options |= {"headers": TOLD}
    with FaultyOrigin() as other:
        by_http(other, data / "train")
        origin.script.add(pattern, [Fault("redirect", to=other.url)], forever=True)
        assert digests(faulty.open()) == whole(data / "train")
        assert all(map(tells_secret, origin.requests))
        assert other.requests
        assert not any(map(tells_secret, other.requests))


def test_a_user_stays_with_its_host(origin: FaultyOrigin, data: Path) -> None:
    faulty = by_http(origin, data / "train")
    faulty.url = [one.replace("http://", f"http://me:{SECRET}@") for one in faulty.url]
    with FaultyOrigin() as other:
        by_http(other, data / "train")
        origin.script.add("*.parquet", [Fault("redirect", to=other.url)], forever=True)
        assert digests(faulty.open()) == whole(data / "train")
        assert all(one.header("Authorization").startswith("Basic ") for one in origin.requests)
        assert other.requests
        assert not any(one.header("Authorization") for one in other.requests)


@pytest.mark.parametrize("way", BY_S3)
def test_signed_headers_stay_with_their_host(origin: FaultyOrigin, data: Path, way: str) -> None:
    """The rows come from there, or it is an error. A signed URL is in the store's own answer."""
    faulty = BY_S3[way](origin, data / "train")
    dataset = faulty.open({"max_retries": 1})
    with FaultyOrigin() as other:
        by_s3(other, data / "train")
        origin.script.add("GET *.parquet", [Fault("redirect", to=other.url)], forever=True)
        with suppress(OSError):
            assert digests(dataset) == whole(data / "train")
        assert not any(one.header("Authorization") for one in other.requests)


# Lies and silence that last


@pytest.mark.long
def test_a_store_that_falls_silent_or_drips_is_asked_again(
    origin: FaultyOrigin, data: Path
) -> None:
    faulty = by_http(origin, data / "train")
    dataset = faulty.open()
    origin.script.add("GET *part-1.parquet", [Fault("stall", at=1000)])
    origin.script.add("GET *part-2.parquet", [Fault("stall", at=0)])
    origin.script.add("GET *part-3.parquet", [Fault("drip", at=1, seconds=0.05)])
    assert digests(dataset) == whole(data / "train")
    assert origin.num_faults() == 3


@pytest.mark.parametrize("way", BY_HTTP)
def test_a_token_that_is_refused_is_an_error_without_it(
    origin: FaultyOrigin, data: Path, way: str
) -> None:
    """A header is the user's: nobody can make another."""
    faulty = BY_HTTP[way](origin, data / "train")
    faulty.options |= {"headers": {"Authorization": f"Bearer {SECRET}"}}
    dataset = faulty.open()
    origin.script.add("GET *.parquet", [Fault("status", status=401)], forever=True)
    refusal = r"the store refuses access: HTTP 401 .*part-0\.parquet"
    with pytest.raises(OSError, match=refusal) as caught:
        list(dataset)
    assert SECRET not in str(caught.value)
