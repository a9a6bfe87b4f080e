"""Which files a path, directory, pattern, URL or sequence names on disk."""

from __future__ import annotations

import os
import socket
import warnings
from pathlib import Path
from typing import Any

import fsspec
import pytest

from torchparquet._impl.files.discovery import find_files
from torchparquet._impl.files.remote.storage import StorageArguments
from torchparquet.errors import CorruptFileError


def put(path: Path, content: bytes = b"PAR1") -> Path:
    """Discovery looks at no more than the first bytes, so that any others do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def discovered(paths: Any) -> list[str]:
    return list(find_files(paths).paths)


def names(root: Path, found: list[str]) -> list[str]:
    return [str(Path(file).relative_to(root)) for file in found]


# Each: other files of a folder, the path or paths below it, and all files that these name.
NESTED = ["B.parquet", "a-b.parquet", "a.parquet", "a/z/2.parquet", "b/1.parquet"]
OTHERS = ["readme.md", "x.parquet.crc", "parquet", "y.pqs"]
SUFFIXES = ["a.parquet", "b.PARQ", "c.Pq", "d.snappy.parquet"]
HIDDEN = ["_temporary/0/b.parquet", ".cache/c.parquet", "_d.parquet", ".e.parquet", "_SUCCESS"]
OUT = ["out/a.parquet", "out/_b.parquet", "out/.c.parquet", "out/_tmp/0/d.parquet", "out/_SUCCESS"]
SERIES = ["s-0.parquet", "s-1.parquet", "s-2.parquet", "x/y/s-0.parquet"]
ODD = ["run[1]/a*.parquet", "run1/ab.parquet"]
LISTED = ["z.parquet", "d/b.parquet", "d/a.parquet", "y-1.parquet", "y-0.parquet"]
NAMED: list[tuple[list[str], Any, list[str]]] = [
    (["_part.dat"], "_part.dat", ["_part.dat"]),
    (["d/a.parquet"], "./d//a.parquet", ["d/a.parquet"]),
    (["d/a.parquet"], "d/", ["d/a.parquet"]),
    (["d/a.parquet"], "d/*.parquet", ["d/a.parquet"]),
    (NESTED[::-1], "", NESTED),
    ([*OTHERS, *SUFFIXES], "", SUFFIXES),
    ([*HIDDEN, "day=1/a.parquet", "day=1/_metadata"], "", ["day=1/a.parquet"]),
    (["_staging/a.parquet"], "_staging", ["_staging/a.parquet"]),
    (["out.parquet/part-0.parquet"], "", ["out.parquet/part-0.parquet"]),
    (SERIES, "s-[01].parquet", SERIES[:2]),
    (SERIES, "**/s-0.parquet", [SERIES[0], SERIES[3]]),
    (SERIES[::-1], "*.parquet", SERIES[:3]),
    (OUT, "out/*", OUT[:1]),
    (OUT, "out/*.parquet", OUT[:1]),
    (OUT, "out/**/*.parquet", OUT[:1]),
    (OUT, "out/_*.parquet", OUT[1:2]),
    (OUT, "out/_[b].parquet", OUT[1:2]),
    (OUT, "out/_tmp/**/*.parquet", OUT[3:4]),
    (ODD, "run[1]/a*.parquet", ODD[:1]),
    (ODD, "run[1]", ODD[:1]),
    (LISTED, ["z.parquet", "d", "y-*"], [LISTED[n] for n in (0, 2, 1, 4, 3)]),
]


@pytest.mark.parametrize(("files", "paths", "expected"), NAMED, ids=str)
def test_paths_name_files_of_a_folder(
    tmp_path: Path, monkeypatch: Any, files: list[str], paths: Any, expected: list[str]
) -> None:
    for name in files:
        put(tmp_path / name, b"no data" if name in OTHERS else b"PAR1")
    absolute = [f"{tmp_path}/{path}" for path in ([paths] if isinstance(paths, str) else paths)]
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="error"):
        for given in (absolute, tuple(map(Path, absolute)), paths or "."):
            assert names(tmp_path, discovered(given)) == expected
        if isinstance(paths, str):
            assert names(tmp_path, discovered(f"file://{absolute[0]}")) == expected


# Files


def test_dot_dot_after_a_link_follows_the_link(tmp_path: Path) -> None:
    right = put(tmp_path / "far" / "a.parquet")
    put(tmp_path / "a.parquet")
    (tmp_path / "far" / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "inner")
    assert discovered(f"{tmp_path}/link/../a.parquet") == [str(right)]


@pytest.mark.parametrize("name", ["none.parquet", "none/", "file.parquet/below"])
def test_missing_path_names_itself(tmp_path: Path, name: str) -> None:
    put(tmp_path / "file.parquet")
    with pytest.raises(FileNotFoundError) as caught:
        discovered(f"{tmp_path}/{name}")
    assert caught.value.filename == str(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)


def test_empty_file_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path / "a.parquet", b"")
    put(tmp_path / "b.parquet")
    for path in (file, tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(CorruptFileError, match=r"empty file \(0 bytes\).*a\.parquet"):
            discovered(path)


# The type is seen before the file is opened: opening a FIFO without a writer would not return.
@pytest.mark.timeout(20)
@pytest.mark.parametrize("by", ["name", "directory", "pattern"])
def test_fifo_is_never_opened(tmp_path: Path, by: str) -> None:
    put(tmp_path / "a.parquet")
    os.mkfifo(tmp_path / "f.parquet")
    path = {"name": "f.parquet", "directory": ".", "pattern": "f*"}[by]
    with pytest.raises(ValueError, match=r"regular file.*f\.parquet"):
        discovered(tmp_path / path)


def test_device_and_socket_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"regular file.*/dev/zero"):
        discovered("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(tmp_path, os.O_RDONLY)
        try:  # the address of a socket is short; tmp_path may not be
            listener.bind(f"/proc/self/fd/{directory}/s.parquet")
        finally:
            os.close(directory)
        with pytest.raises(ValueError, match=r"regular file.*s\.parquet"):
            discovered(tmp_path / "s.parquet")


def test_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/a\xff.parquet"
    try:
        Path(os.fsdecode(raw)).write_bytes(b"PAR1")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with pytest.raises(ValueError, match=r"UTF-8.*udcff"):
        discovered(tmp_path)


# Directories


def test_directory_tells_of_files_that_are_parquet_by_content_only(tmp_path: Path) -> None:
    """As Hive names them; never are they left out in silence."""
    for name in ("a.parquet", "000000_0", "deep/b.parquet.gz"):
        put(tmp_path / name)
    with pytest.warns(UserWarning, match=r"left out files .* such as .*000000_0'"):
        assert names(tmp_path, discovered(tmp_path)) == ["a.parquet"]


def test_what_lies_beside_parquet_files_need_not_be_readable(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path, discovered(tmp_path)) == ["a.parquet"]


def test_directory_without_suffixes_takes_all_that_is_not_empty(tmp_path: Path) -> None:
    put(tmp_path / "part-1")
    put(tmp_path / "deep" / "part-0.snappy")
    put(tmp_path / "DONE", b"")
    put(tmp_path / "_SUCCESS", b"x")
    os.mkfifo(tmp_path / "pipe")
    assert names(tmp_path, discovered(tmp_path)) == ["deep/part-0.snappy", "part-1"]


@pytest.mark.parametrize("content", [[], ["_a.parquet"], ["sub/.a.parquet"]])
def test_directory_without_parquet_is_an_error(tmp_path: Path, content: list[Any]) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for name in content:
        put(root / name)
    put(root / "readme.md", b"# Data")
    with pytest.raises(FileNotFoundError, match="No Parquet file in the directory") as caught:
        discovered(root)
    assert caught.value.filename == str(root)


def test_links_to_files_and_directories_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "store" / "blob")
    put(tmp_path / "other" / "b.parquet")
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.parquet").symlink_to(tmp_path / "store" / "blob")
    (root / "linked").symlink_to(tmp_path / "other")
    assert names(root, discovered(root)) == ["a.parquet", "linked/b.parquet"]


@pytest.mark.timeout(20)
def test_loop_of_links_ends(tmp_path: Path) -> None:
    put(tmp_path / "a" / "x.parquet")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert names(tmp_path, discovered(tmp_path)) == ["a/x.parquet"]


def test_dangling_link_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to(tmp_path / "gone")
    for path in (tmp_path, tmp_path / "b.parquet", tmp_path / "*.parquet"):
        with pytest.raises(FileNotFoundError, match=r"b\.parquet"):
            discovered(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every directory")
def test_unreadable_directory_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet")
    closed = put(tmp_path / "closed" / "b.parquet").parent
    closed.chmod(0)
    try:
        with pytest.raises(PermissionError, match="closed"):
            discovered(tmp_path)
    finally:
        closed.chmod(0o700)


def test_error_below_a_directory_is_raised(tmp_path: Path, monkeypatch: Any) -> None:
    """As above, and where the tests run as root."""
    put(tmp_path / "a.parquet")
    put(tmp_path / "closed" / "b.parquet")
    scandir = os.scandir

    def refuse(path: Path) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="closed"):
        discovered(tmp_path)


# Patterns


def test_pattern_lists_directories_and_names_nothing_twice(tmp_path: Path) -> None:
    for name in ("day=1/a.parquet", "day=2/sub/b.parquet", "night/c.parquet"):
        put(tmp_path / name)
    put(tmp_path / "day=1" / "note.txt")
    (tmp_path / "day=3").mkdir()
    found = discovered(tmp_path / "day=*")
    assert names(tmp_path, found) == ["day=1/a.parquet", "day=2/sub/b.parquet"]
    (tmp_path / "day=1" / "note.txt").unlink()
    found = discovered(tmp_path / "**")
    assert names(tmp_path, found) == ["day=1/a.parquet", "day=2/sub/b.parquet", "night/c.parquet"]


@pytest.mark.parametrize("pattern", ["*.parquet", "none/**", "empty*", "_*", "a" * 300 + "*"])
def test_pattern_without_match_is_an_error(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError, match="No file matches the pattern") as caught:
        discovered(tmp_path / pattern)
    assert caught.value.filename == str(tmp_path / pattern)


# URLs


def test_file_url_is_percent_decoded(tmp_path: Path) -> None:
    file = put(tmp_path / "a b#c?[é]%20.parquet")
    assert file.as_uri() != f"file://{file}"
    assert discovered(file.as_uri()) == [str(file)]
    assert discovered(file.as_uri().replace("file://", "FILE://localhost")) == [str(file)]
    assert discovered(tmp_path.as_uri()) == [str(file)]


@pytest.mark.parametrize("url", ["file://host/a.parquet", "file://a.parquet", "file://"])
def test_file_url_of_another_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=f"no other host.*{url}"):
        discovered(url)


@pytest.mark.parametrize("scheme", ["s3", "gs", "hf", "https", "abfs+x"])
def test_other_schemes_are_refused(scheme: str) -> None:
    url = f"{scheme}://bucket/a.parquet"
    on_disk = StorageArguments(filesystem=fsspec.filesystem("file"))
    with pytest.raises(ValueError, match="a local path must be") as caught:
        find_files(["/", url], on_disk)
    assert url in str(caught.value)


# Sequences


def test_file_named_twice_is_an_error(tmp_path: Path) -> None:
    file = put(tmp_path / "a.parquet")
    put(tmp_path / "b.parquet")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "l.parquet"
    link.symlink_to(file)
    for again in (file, tmp_path, f"{tmp_path}/./a.parquet", tmp_path / "a*", link):
        with pytest.raises(ValueError, match=r"only once.*a\.parquet"):
            discovered([file, again])


@pytest.mark.parametrize("paths", ["", [], (), [""], "a\0b"])
def test_nothing_named_is_a_value_error(paths: Any, tmp_path: Path, monkeypatch: Any) -> None:
    put(tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="paths"):
        discovered(paths)


@pytest.mark.parametrize("paths", [None, 3, {"a"}, {"a": 1}, (p for p in "a"), ["a", 3], [["a"]]])
def test_wrong_type_is_a_type_error(paths: Any) -> None:
    with pytest.raises(TypeError, match="paths"):
        discovered(paths)
