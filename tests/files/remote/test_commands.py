"""Commands do to files of stores what they do to the same files on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.files.remote.conftest import Bucket, upload
from torchparquet.cli import main


def report_of(capsys: Any, *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def without_root(report: Any, root: str) -> str:
    return json.dumps(report, sort_keys=True).replace(root, "ROOT")


@pytest.mark.parametrize("command", ["inspect", "plan", "verify"])
def test_reports_are_those_of_files_on_disk(
    tree: Path, memory: Any, capsys: Any, command: str
) -> None:
    upload(tree, memory, "/root")
    local = report_of(capsys, command, str(tree))
    remote = report_of(capsys, command, "memory://root")
    assert without_root(remote, "memory://root") == without_root(local, str(tree))


@pytest.mark.long
def test_s3_with_options(tree: Path, bucket: Bucket, capsys: Any) -> None:
    url, given = bucket.upload(tree), {**bucket.options, "client_kwargs.region_name": "us-east-1"}
    options = [f"--storage-option={name}={value}" for name, value in given.items()]
    local = report_of(capsys, "verify", str(tree))
    assert without_root(report_of(capsys, "verify", url, *options), url) == without_root(
        local, str(tree)
    )
    assert report_of(capsys, "inspect", url, *options)["rows"] == 400


@pytest.mark.parametrize("text", ["s3cr3t", "=s3cr3t", "a.=s3cr3t", "a={s3cr3t"])
def test_wrong_options_are_not_shown(text: str, capsys: Any) -> None:
    assert main(["inspect", "memory://root", "--storage-option", text]) == 2
    assert "s3cr3t" not in capsys.readouterr().err


@pytest.mark.parametrize("order", [[], ["--shuffle"]])
def test_rewrite_from_store_to_store(
    tree: Path, memory: Any, capsys: Any, tmp_path: Path, order: list[str]
) -> None:
    upload(tree, memory, "/in")
    options = [*order, "--row-group-rows", "17", "--row-groups-per-file", "3"]
    local = report_of(
        capsys, "rewrite", str(tree / "day=0"), "--output", str(tmp_path / "out"), *options
    )
    moved = ["memory://in/day=0", "--output", "memory://out/a", *options]
    report = report_of(capsys, "rewrite", *moved)
    assert without_root(report, "memory://out/a") == without_root(local, str(tmp_path / "out"))
    for path in (tmp_path / "out").rglob("*.parquet"):
        with memory.open(f"/out/a/day=0/{path.name}") as file:
            assert pq.read_table(file) == pq.read_table(path, partitioning=None)
    # The second run finds all of the first; after a loss it writes what is missing.
    again = report_of(capsys, "rewrite", *moved)
    assert again["files_resumed"] == len(report["files"])
    memory.rm(report["files"][-1]["path"])
    again = report_of(capsys, "rewrite", *moved)
    assert again["files_resumed"] == len(report["files"]) - 1
    assert again["rows"] == 200


def test_rewrite_keeps_input_and_output_apart(tree: Path, memory: Any, capsys: Any) -> None:
    upload(tree, memory, "/in")
    for output in ("memory://in/out", "memory://in", "memory://"):
        assert main(["rewrite", "memory://in", "--output", output]) == 1
        assert "--output must not" in capsys.readouterr().err
    memory.pipe_file("/other/x", b"1")
    assert main(["rewrite", "memory://in/day=0", "--output", "memory://other"]) == 1
    assert "'memory://other' holds 'x'" in capsys.readouterr().err
