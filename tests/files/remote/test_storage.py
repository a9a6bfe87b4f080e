"""storage_options, filesystem, missing packages, and what is not imported for local paths."""

from __future__ import annotations

import pickle
import sys
import textwrap
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options

from tests.fixtures.tree import completed
from torchparquet import ParquetDataset
from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.remote.filesystems import fsspec_options
from torchparquet._impl.files.remote.storage import StorageArguments

PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    **{"hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp"},
}


def run(program: str, *arguments: str) -> str:
    done = completed("-c", textwrap.dedent(program), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_nothing_of_stores_is_imported_for_local_paths(tmp_path: Path) -> None:
    path = tmp_path / "day=1" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"x": range(50)}), path, row_group_size=10)
    program = """
        import sys, threading
        import torch.utils.data
        STORES = {"fsspec", "s3fs", "gcsfs", "adlfs", "huggingface_hub", "aiohttp", "botocore"}
        before = STORES & set(sys.modules)
        from torchparquet import ParquetDataset
        dataset = ParquetDataset(
            sys.argv[1], batch_size=8, filters=[("day", "=", 1)], manifest_cache=sys.argv[2]
        )
        assert sum(len(batch["x"]) for batch in dataset) == 50
        dataset.close()
        assert threading.active_count() == 1
        assert not STORES & set(sys.modules) - before, STORES & set(sys.modules)
        print("fsspec" in before)
    """
    assert run(program, str(tmp_path), str(tmp_path / "cache")) == "False\n"


MISSING = [(scheme, package, f"fsspec {package}") for scheme, package in PACKAGES.items()]
MISSING += [("memory", "fsspec", "fsspec"), ("simplecache::s3", "fsspec", "fsspec s3fs")]


@pytest.mark.parametrize(("scheme", "package", "needed"), MISSING)
def test_a_missing_package_is_named_with_all_that_the_url_needs(
    scheme: str, package: str, needed: str, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError) as caught:
        ParquetDataset(f"{scheme}://bucket/a.parquet", batch_size=4)
    told = f"{scheme}:// paths need the package {package} (pip install {needed})"
    assert told in str(caught.value)


def test_unknown_scheme() -> None:
    with pytest.raises(ValueError, match=r"fsspec knows; got scheme 'nosuch'"):
        ParquetDataset("nosuch://a.parquet", batch_size=4)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["memory://a.parquet", "/a.parquet"], "all of one store"),
        (["/a.parquet", "memory://a.parquet"], "all of one store"),
        (["s3://b/a.parquet", "memory://a.parquet"], "all of one store"),
        (
            [f"abfs://c@{account}.dfs.core.windows.net/a" for account in ("one", "two")],
            "one store",
        ),
    ],
)
def test_paths_of_several_stores(paths: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ParquetDataset(paths, batch_size=4)
    assert all(path in str(caught.value) for path in paths)


def test_wrong_arguments(tmp_path: Path, memory: Any) -> None:
    def made(**options: Any) -> None:
        ParquetDataset(str(tmp_path), batch_size=4, **options)

    with pytest.raises(ValueError, match="must be given for URLs of stores alone"):
        made(storage_options={"key": "k"})
    with pytest.raises(TypeError, match=r"storage_options must be a dict.*got list"):
        made(storage_options=[("key", "secret")])
    with pytest.raises(TypeError, match=r"filesystem must be a file system of fsspec.*got str"):
        made(filesystem="s3")
    with pytest.raises(ValueError, match="must not be given with filesystem"):
        made(filesystem=memory, storage_options={"key": "k"})
    with pytest.raises(ValueError, match=r"must be of the filesystem \(memory\); got 's3://b/a'"):
        ParquetDataset("s3://b/a", batch_size=4, filesystem=memory)
    with pytest.raises(OSError, match=r"cannot look up 's3://b/a'.*nosuch"):
        ParquetDataset("s3://b/a", batch_size=4, storage_options={"nosuch": 1})


def test_names_of_other_packages() -> None:
    polars = {"aws_skip_signature": "true", "aws_region": "r", "client_kwargs": {"verify": False}}
    made = {"anon": True, "client_kwargs": {"region_name": "r", "verify": False}}
    assert fsspec_options("s3", polars) == made
    pandas = {"key": "k", "client_kwargs": {"region_name": "r"}, "anon": False}
    assert fsspec_options("s3", pandas) == pandas
    assert fsspec_options("gs", {"google_service_account": "a.json"}) == {"token": "a.json"}
    azure = {"azure_storage_account_name": "n", "azure_storage_account_key": "k"}
    assert fsspec_options("abfss", azure) == {"account_name": "n", "account_key": "k"}
    assert fsspec_options("hf", {"token": "t"}) == {"token": "t"}
    headers = {"User-Agent": "me", "headers": {"X": "1"}, "block_size": 5}
    made = {"headers": {"X": "1", "User-Agent": "me"}, "block_size": 5}
    assert fsspec_options("https", headers) == made


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({"max_retries": 0}, {"max_tries": 1}),
        ({"max_retries": "3", "key": "k"}, {"max_tries": 4}),  # as Polars takes them
        ({"retry_timeout_ms": 1500}, {"max_seconds": 1.5}),
        ({"max_connections": 7, "hedges": "false"}, {"max_connections": 7, "hedges": False}),
    ],
)
def test_the_patience_of_the_client_is_no_option_of_a_library(
    memory: Any, options: dict[str, Any], arguments: dict[str, Any], native_store: Any
) -> None:
    pq.write_table(pa.table({"x": [1]}), (file := pa.BufferOutputStream()))
    memory.pipe_file("/a.parquet", file.getvalue().to_pybytes())
    given = {name: value for name, value in options.items() if name != "key"}
    for more in ({"storage_options": options}, {"storage_options": given, "filesystem": memory}):
        ParquetDataset("memory://a.parquet", batch_size=1, **more)
        made = native_store.made[-1].options
        assert all(getattr(made, name) == value for name, value in arguments.items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_retry": 1}, "did you mean 'max_retries': 'max_retry'"),
        ({"max_tries": 1}, "did you mean 'max_retries': 'max_tries'"),
        ({"hedge": False}, "did you mean 'hedges': 'hedge'"),
        ({"retry_max_backoff_ms": 5}, "must not set how long to wait .*'retry_max_backoff_ms'"),
        ({"max_retries": -1}, r"storage_options\['max_retries'\] must be >= 0"),
        ({"retry_timeout_ms": 0}, r"storage_options\['retry_timeout_ms'\] must be >= 1"),
        ({"max_connections": "many"}, r"storage_options\['max_connections'\] must be an int"),
        ({"hedges": 2}, r"storage_options\['hedges'\] must be a bool"),
    ],
)
@pytest.mark.parametrize("url", ["memory://a.parquet", "s3://b/a", "http://127.0.0.1:9/a"])
def test_wrong_options_of_the_client(url: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ParquetDataset(url, batch_size=4, storage_options=options)


def test_options_of_libraries_are_not_taken_for_those_of_the_client(s3_url: str) -> None:
    """s3fs has one that is spelled like `max_connections`."""
    options = {"key": "k", "secret": "s", "endpoint_url": s3_url, "max_concurrency": 3}
    with pytest.raises(FileNotFoundError):
        ParquetDataset("s3://none/a.parquet", batch_size=4, storage_options=options)


class HostFileSystem(MemoryFileSystem):
    """One whose URLs name a host, and whose names do not; like that of sftp."""

    protocol = "hostfs"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    hosts: ClassVar[list[Any]] = []

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.hosts.append(options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        path = str(infer_storage_options(path)["path"])
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        found = infer_storage_options(path)
        return {name: found[name] for name in ("host", "username", "password") if name in found}


def test_urls_with_hosts_and_users() -> None:
    fsspec.register_implementation("hostfs", HostFileSystem, clobber=True)
    for number in range(2):
        HostFileSystem(skip_instance_cache=True).pipe_file(f"/d/{number}.parquet", b"PAR1")
    for path in ("d", "d/", "d/*.parquet", "d/0.parquet"):
        found = find_files([f"hostfs://me:s3cr3t@host/{path}"], StorageArguments())
        assert found.paths[0] == "hostfs://host/d/0.parquet"
        assert "s3cr3t" not in repr(found)
        again = pickle.loads(pickle.dumps(found))
        with again.open(found.paths[0]) as file:
            assert file.read() == b"PAR1"
        assert HostFileSystem.hosts[-1] == {"host": "host", "username": "me", "password": "s3cr3t"}
    with pytest.raises(ValueError, match="all of one store"):
        find_files(["hostfs://a/d", "hostfs://b/d"], StorageArguments())


class ListingFileSystem(MemoryFileSystem):
    """One that remembers what it has listed; like those of fsspec for stores."""

    cachable = False
    listed: ClassVar[dict[str, Any]] = {}

    def info(self, path: str, **options: Any) -> Any:
        return self.listed.setdefault(path, super().info(path, **options))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.listed.clear()


def test_a_file_is_as_long_as_it_is_whatever_its_library_remembers(memory: Any) -> None:
    for num_rows in (10, 2000):
        with memory.open("/a.parquet", "wb") as file:
            pq.write_table(pa.table({"x": range(num_rows)}), file)
        dataset = ParquetDataset("/a.parquet", batch_size=1, filesystem=ListingFileSystem())
        assert len(dataset) == num_rows


def test_chains(memory: Any) -> None:
    memory.pipe_file("/d/a.parquet", b"PAR1")
    found = find_files(["simplecache::memory://d"], StorageArguments())
    with found.open(found.paths[0]) as file:
        assert file.read() == b"PAR1"


def test_other_file_systems_by_url_and_object(tmp_path: Path) -> None:
    """A chain of schemes, one whose URLs have hosts, and pyarrow's wrapper of fsspec's object."""
    import pyarrow.fs as pafs

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/d/a.parquet", b"PAR1")
    wrapped = pafs.PyFileSystem(pafs.FSSpecHandler(memory))
    for paths, filesystem in (("d", memory), ("/d", wrapped), ("memory://d", memory)):
        found = find_files([paths], StorageArguments(filesystem=filesystem))
        assert found.paths == ("memory://d/a.parquet",)
    inner = pafs._MockFileSystem()
    with inner.open_output_stream("b.parquet") as file:
        file.write(b"PAR1")
    found = find_files(["b.parquet"], StorageArguments(filesystem=inner))
    assert found.paths == ("mock://b.parquet",)
    memory.store.clear()
