"""Credentials that end while they are used: a function gives others, seldom, and no step fails."""

from __future__ import annotations

import gc
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.fixtures.forked_programs import ForkedProgram
from tests.remote.reading import by_s3, by_s3fs, digests, open_dataset, whole
from tests.servers.ended_tokens import EndedTokens
from tests.servers.faults import Fault
from tests.servers.faulty_origin import FaultyOrigin
from torchparquet import ParquetDataset

pytest.importorskip("s3fs")
URL = "s3://bucket/train"
# Above what a data set of this size has in flight, which all uses up one token.
MOST_REQUESTS = 150


def open_by(function: Callable[[], Any], **options: Any) -> ParquetDataset:
    return open_dataset(URL, storage_options=function, **options)


@pytest.fixture
def tokens(origin: FaultyOrigin, data: Path, tmp_path: Path) -> EndedTokens:
    """Tokens of an origin that has the data set; each ends after some requests."""
    by_s3(origin, data / "train")
    return EndedTokens(origin, tmp_path / "ledger", most_requests=MOST_REQUESTS)


@pytest.mark.long
def test_fifty_epochs_without_a_step_that_fails(tokens: EndedTokens, data: Path) -> None:
    expected = whole(data / "train")
    dataset = open_by(tokens.function, num_epochs=50)
    read = digests(dataset)
    assert read == 50 * expected
    assert 5 < tokens.num_issued <= tokens.num_used_up + 1


def test_the_library_that_reads_the_bytes_has_the_new_options_too(
    tokens: EndedTokens, data: Path
) -> None:
    expected = whole(data / "train")

    def function() -> Any:
        options, expiry = tokens.function()
        return options | {"client_kwargs": {"verify": False}}, expiry

    assert digests(open_by(function, num_epochs=5)) == 5 * expected
    assert 1 < tokens.num_issued <= tokens.num_used_up + 1


@pytest.mark.long
def test_tokens_of_two_seconds(origin: FaultyOrigin, data: Path, tmp_path: Path) -> None:
    by_s3(origin, data / "train")
    tokens = EndedTokens(origin, tmp_path / "ledger", seconds=2.0)
    # An epoch takes half a second.
    origin.script.add("GET *part-4.parquet", [Fault("drip", 1 << 13, 0.05)], forever=True)
    begun = time.monotonic()
    expected = whole(data / "train")
    assert digests(open_by(tokens.function, num_epochs=50)) == 50 * expected
    took = time.monotonic() - begun
    assert 3 <= tokens.num_issued <= took + 2  # each is used for a second at least


@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_share_what_one_of_them_is_given(
    tokens: EndedTokens, data: Path, context: str
) -> None:
    options: dict[str, Any] = {"batch_size": None, "num_workers": 2, "persistent_workers": True}
    expected = digests(DataLoader(open_dataset(data / "train"), batch_size=None, num_workers=2))
    dataset = open_by(tokens.function)
    loader = DataLoader(dataset, multiprocessing_context=context, **options)
    for _ in range(16):
        assert digests(loader) == expected
    assert 1 < tokens.num_issued <= tokens.num_used_up + 1


def test_ranks_of_a_node_share_what_one_of_them_is_given(
    tokens: EndedTokens, origin: FaultyOrigin, data: Path, tmp_path: Path
) -> None:
    num_rows = ParquetDataset(data / "train", batch_size=1).manifest.num_rows
    program = "from tests.remote.renewing_rank import main; main()"
    ranks = [
        ForkedProgram(program, tmp_path, origin.url, num_rows, RANK=rank, LOCAL_RANK=rank)
        for rank in ("0", "1")
    ]
    for rank in ranks:
        _, errors = rank.communicate()
        assert rank.returncode == 0, errors
    assert 1 < tokens.num_issued <= tokens.num_used_up + 1


def test_what_processes_share_is_their_users_alone(tokens: EndedTokens) -> None:
    folder = Path("/dev/shm") / f"torchparquet-{os.geteuid()}"
    before = set(folder.iterdir()) if folder.exists() else set()
    dataset = open_by(tokens.function)
    (made,) = set(folder.iterdir()) - before
    assert folder.stat().st_mode & 0o777 == 0o700
    assert made.stat().st_mode & 0o777 == 0o600
    assert len(digests(pickle.loads(pickle.dumps(dataset)))) == len(dataset)
    del dataset
    gc.collect()
    assert not made.exists()


def test_states_manifests_and_texts_have_no_token(
    tokens: EndedTokens, tmp_path: Path, capfd: Any
) -> None:
    dataset = open_by(tokens.function, manifest_cache=tmp_path / "cache", cache_dir=tmp_path / "c")
    digests(dataset)
    texts = [repr(dataset), repr(dataset.manifest), json.dumps(dataset.state_dict())]
    on_disk = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert all("token-of-the-tests" not in text for text in texts)
    assert all(b"token-of-the-tests" not in content for content in on_disk)
    assert "token-of-the-tests" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("way", [by_s3, by_s3fs])
def test_the_error_of_an_ended_token_says_which_and_what_to_do(
    origin: FaultyOrigin, data: Path, way: Any
) -> None:
    store = way(origin, data / "train")
    given = store.options | {"token": "t0ken-of-mine"}
    dataset = open_dataset(URL, storage_options=given)
    batches = iter(dataset)
    next(batches)
    origin.allows = lambda _: False
    with pytest.raises(
        OSError, match=r"refuses access: .*; if token of storage_options has ended, .* function"
    ) as caught:
        digests([*batches, *dataset])
    assert "t0ken-of-mine" not in str(caught.value)


def test_the_error_of_tokens_that_do_not_help_says_when_they_came(
    tokens: EndedTokens, origin: FaultyOrigin
) -> None:
    dataset = open_by(tokens.function)
    origin.allows = lambda _: False
    num_before = tokens.num_issued
    with pytest.raises(
        OSError,
        match=r"refuses access: .*; these credentials came from the function.* at 20..-",
    ):
        digests(dataset)
    assert 1 <= tokens.num_issued - num_before <= 20


END = time.time() + 3600


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"key": "s3cr3t"}, "must return two values"),
        (("s3cr3t", None), "options must be a dict"),
        (({"key": "s3cr3t"}, "soon"), "expiry must be a number of seconds"),
        (({"key": "s3cr3t"}, END * 1000), "must be in seconds since 1970"),
        (({"key": "s3cr3t"}, END - 7200), "have ended already, at 20"),
    ],
)
def test_what_the_function_must_return(returned: Any, words: str) -> None:
    with pytest.raises(OSError, match=rf"storage_options= .*{words}") as caught:
        open_by(lambda: returned)
    assert "s3cr3t" not in str(caught.value)


def test_a_function_that_fails_is_the_cause() -> None:
    def function() -> Any:
        raise RuntimeError("no role")

    with pytest.raises(OSError, match=r"the function failed .RuntimeError: no role") as caught:
        open_by(function)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_function_that_fails_for_a_while_fails_no_step(tokens: EndedTokens, data: Path) -> None:
    expected = whole(data / "train")
    failures = iter([False, True, True, False, True])

    def function() -> Any:
        if next(failures, False):
            raise ConnectionError("no network")
        return tokens.function()

    assert digests(open_by(function, num_epochs=6)) == 6 * expected


def test_a_file_system_renews_itself(tokens: EndedTokens) -> None:
    import fsspec

    with pytest.raises(ValueError, match="must not be a function beside filesystem"):
        open_by(tokens.function, filesystem=fsspec.filesystem("memory"))
