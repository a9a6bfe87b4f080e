"""Damaged files by the thousand, and proof that the fuzzer notices what it is there for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.tree import ROOT

FUZZ = str(ROOT / "bench" / "fuzz.py")


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )


@pytest.mark.parametrize(
    ("cases", "seed", "options"),
    [
        pytest.param(400, 1, [], marks=pytest.mark.long),
        pytest.param(200, 1, ["--flips"], marks=pytest.mark.long),
        pytest.param(5_000, 2, [], marks=pytest.mark.soak),
    ],
)
def test_damaged_files_read_right_or_raise(cases: int, seed: int, options: list[str]) -> None:
    """Checksums find flipped bits."""
    done = run(FUZZ, "--cases", str(cases), "--seed", str(seed), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} cases of" in done.stdout
    assert " 0 findings" in done.stdout


@pytest.mark.long
def test_a_case_is_the_same_every_time(tmp_path: Path) -> None:
    outputs = []
    for name in ("a", "b"):
        done = run(FUZZ, "--seed", "5", "--case", "11", "--keep", str(tmp_path / name))
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout.splitlines()[0])
    assert outputs[0] == outputs[1]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.long
def test_each_planted_bug_is_found() -> None:
    done = run(str(Path(__file__).parent / "fuzz_plants.py"))
    assert done.returncode == 0, done.stderr
