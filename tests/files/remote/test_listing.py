"""Paths of a store name the same files as paths on disk name of the same tree."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.files.remote.conftest import Bucket
from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.errors import CorruptFileError

NO_OPTIONS = StorageArguments()

DATA = """
a.parquet B.PARQUET day=1/z.parquet day=1/a.pq day=1/deep/er/x.parq day=1/_tmp/x.parquet
day=1/.hidden.parquet day=2/é.parquet day=2/\U0001f600.parquet day=2/\uffee.parquet
day=2/part-[0].parquet day=2/part-0.parquet _secret/a.parquet .git/a.parquet bare/one bare/_log
mixed/a.parquet mixed/b.data star*/a.parquet
"""
OTHERS = {"note.txt": b"text", "text/one": b"text", "bare/two": b"PARE", "bare/empty": b""}
FILES = dict.fromkeys(DATA.split(), b"PAR1") | OTHERS
PATHS = """
/ a.parquet note.txt day=1 day=1/ day=2 _secret _secret/a.parquet bare text mixed none none.parquet
*.parquet *.PARQUET * */ day=* day=*/*.parquet day=1/* day=1/.* day=?/[a-z].* day=1/** ** **/x.*
**/er day=1/**/x.parq day=2/part-[0].parquet day=2/part-[!1].parquet _* _secret/* _s*/a* star*
star[*] bare/* bare/one* none* none*/a.parquet day=1/none/*.parquet
"""


@pytest.fixture
def local(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


@pytest.fixture
def in_memory(memory: Any) -> str:
    for name, content in FILES.items():
        memory.pipe_file(f"/root/{name}", content)
    return "memory://root"


def found(paths: Any, root: str, arguments: StorageArguments | None = None) -> Any:
    """Return the files below `root` or the class of the error, and the names in warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            files = find_files(paths, arguments or NO_OPTIONS).paths
        except (OSError, ValueError) as error:
            return type(error)
    assert all(file.startswith(f"{root}/") for file in files)
    warned = [str(warning.message).replace(root, "ROOT") for warning in caught]
    return [file.removeprefix(f"{root}/") for file in files], sorted(warned)


@pytest.mark.parametrize("path", ["", *PATHS.split()])
def test_memory_lists_as_disk_does(local: Path, in_memory: str, path: str) -> None:
    expected = found(f"{local}/{path}", str(local))
    assert found(f"{in_memory}/{path}", in_memory, NO_OPTIONS) == expected


@pytest.mark.parametrize("by", ["fsspec", pytest.param("pyarrow", marks=pytest.mark.long)])
def test_s3_lists_as_disk_does(local: Path, bucket: Bucket, by: str) -> None:
    for file, content in FILES.items():
        bucket.filesystem.pipe_file(f"{bucket.name}/root/{file}", content)
    # pyarrow's without a scheme.
    root, arguments = f"{bucket.url}/root", StorageArguments(bucket.options)
    given = root
    if by == "pyarrow":
        given = f"{bucket.name}/root"
        arguments = StorageArguments(filesystem=bucket.of_arrow())
    for path in PATHS.split():
        expected = found(f"{local}/{path}", str(local))
        assert found(f"{given}/{path}", root, arguments) == expected, path


def generated(seed: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yield trees of files and patterns that may match some of them."""
    draw = random.Random(seed)
    parts = ("a", "b", "_a", ".a", "ab", "a.parquet", "b.pq", "_b.parquet", "[a]")
    magic = ("*", "**", "?", "a*", "_*", "[ab]", "*.parquet", ".*", "[!a]*", "a")
    while True:
        tree: set[str] = set()
        for _ in range(draw.randint(1, 12)):
            file = "/".join(draw.choices(parts, k=draw.randint(1, 4)))
            if not any(
                f"{file}/".startswith(f"{o}/") or f"{o}/".startswith(f"{file}/") for o in tree
            ):
                tree.add(file)
        patterns = ["/".join(draw.choices(magic, k=draw.randint(1, 4))) for _ in range(12)]
        yield sorted(tree), patterns


def test_random_patterns_match_as_on_disk(tmp_path: Path, memory: Any) -> None:
    for number, (tree, patterns) in enumerate(itertools.islice(generated(7), 60)):
        for file in tree:
            path = tmp_path / str(number) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"PAR1")
            memory.pipe_file(f"/{number}/{file}", b"PAR1")
        local, remote = f"{tmp_path}/{number}", f"memory://{number}"
        for pattern in patterns:
            expected = found(f"{local}/{pattern}", local)
            assert found(f"{remote}/{pattern}", remote, NO_OPTIONS) == expected, (tree, pattern)


def test_empty_file_is_an_error(memory: Any) -> None:
    memory.pipe_file("/d/a.parquet", b"")
    memory.pipe_file("/d/b.parquet", b"PAR1")
    for path in ("memory://d", "memory://d/a.parquet", "memory://d/*.parquet"):
        with pytest.raises(
            CorruptFileError, match=r"empty file \(0 bytes\).*memory://d/a\.parquet"
        ):
            find_files([path], NO_OPTIONS)
    listing = find_files(["memory://d"], NO_OPTIONS, empty_files=True)
    assert listing.num_bytes == (0, 4)


def test_objects_that_mark_directories_are_no_files(bucket: Bucket) -> None:
    bucket.filesystem.pipe_file(f"{bucket.name}/d/a.parquet", b"PAR1")
    for marker in ("d", "d/", "d/e.parquet/", "d/e.parquet"):
        bucket.filesystem.call_s3("put_object", Bucket=bucket.name, Key=marker, Body=b"")
    bucket.filesystem.pipe_file(f"{bucket.name}/d/e.parquet/b.parquet", b"PAR1")
    for path in ("d", "d/", "*", "d/**"):
        listing = find_files([f"{bucket.url}/{path}"], StorageArguments(bucket.options))
        files = [file.removeprefix(f"{bucket.url}/") for file in listing.paths]
        assert files == ["d/a.parquet", "d/e.parquet/b.parquet"], path


def test_a_pattern_spells_out_the_bucket(bucket: Bucket) -> None:
    with pytest.raises(ValueError, match=r"must spell out the bucket.*s3://\*/a"):
        find_files(["s3://*/a.parquet"], StorageArguments(bucket.options))
