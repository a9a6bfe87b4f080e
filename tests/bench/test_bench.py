"""`python -m bench`: rows give ratios and verdicts, what is missing is named, results are kept."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tree import ROOT, completed

# A ratio, its spread over rounds, the target and the verdict.
JUDGED = re.compile(
    r"\| +([\d.]+)(x| ms) \| +[\d.]+ to [\d.]+ \| +(at \w+) ([\d.]+).*\| +(.*met) \|"
)


bench = partial(completed, "-m", "bench", cwd=ROOT)
# It compiles two programs.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("bench")
    results = folder / "RESULTS.md"
    rows = ("pread", "by-hand", "jollyjack")
    done = bench("--quick", "--only", *rows, "--data-dir", folder, "--results", results)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, results


@pytest.mark.long
def test_each_case_is_judged_by_its_target(run: Any) -> None:
    judged = JUDGED.findall(run[0])
    assert len(judged) == 10
    for figure, unit, sense, target, verdict in judged:
        assert (unit, sense) == ("x", "at least")
        is_met = float(figure) >= float(target)
        # Shown figures are rounded.
        if abs(float(figure) - float(target)) > 0.01:
            assert verdict.strip() == ("met" if is_met else "not met")


def test_the_table_of_the_readme_has_the_figures_of_the_cases(run: Any) -> None:
    case = re.compile(
        r"^\| (.+), (\w+) +\| +([\d.]+) GB/s \| .*: ([\d.]+) GB/s \| +([\d.]+x)", re.M
    )
    line = re.compile(r"^\| (.+?) +\| +(\w+) \| +([\d.]+) \| +([\d.]+) \| +([\d.]+x) \|$", re.M)
    measured, table = run[0].split("For README.md, in GB/s:")
    cases = case.findall(measured.split("\n## by-hand")[1])
    assert {codec for _, codec, *_ in cases} == {"none", "snappy", "zstd"}
    assert line.findall(table) == cases


@pytest.mark.long
def test_who_is_not_installed_is_skipped_by_name(run: Any) -> None:
    assert "skipped: jollyjack is not installed" in run[0]


def test_results_are_written_where_told(run: Any) -> None:
    printed, path = run
    text = path.read_text()
    assert JUDGED.findall(text) == JUDGED.findall(printed)
    for name in ("pyarrow", "torch", "numpy", "torchparquet"):
        assert re.search(rf"\b{name} \d", text)
    assert re.search(r"on \d{4}-\d\d-\d\d", text)
    assert re.search(r"\d cores", text)
    assert "python -m bench --quick --only pread by-hand jollyjack" in text


@pytest.mark.long
def test_an_unknown_row_is_refused_with_those_that_are() -> None:
    done = bench("--only", "nothing")
    assert done.returncode == 2
    assert "'nothing'" in done.stderr
    assert "ceiling" in done.stderr


def test_a_drawing_has_a_bar_for_each_side(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from report.results import draw

    path = tmp_path / "rates.svg"
    draw({"torchparquet": 2e7, "one rival": 5e6, "another": 1.25e6}, path)
    text = path.read_text()
    for shown in ("20.00", "5.00", "1.25", "another"):
        assert f"<!-- {shown} -->" in text


def test_the_table_of_the_click_log_has_both_comparisons(monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from report.readme import tables
    from report.results import Measured
    from report.verdicts import Outcome, Row, Setting, Verdict

    def measured(name: str, ours: str, other: str, figure: float) -> Measured:
        def measure(setting: Setting) -> Outcome:
            raise NotImplementedError

        verdict = Verdict("zstd", f"{ours} GB/s", f"pyarrow, cut, mmap: {other} GB/s", figure)
        return Measured(Row(name, "", "", measure), Outcome([verdict]))

    rows = [measured("batches", "3.00", "1.50", 2), measured("any-shape", "3.20", "1.60", 2.001)]
    line = tables(rows).splitlines()[-1]
    assert line.replace(" ", "") == "|zstd|3.00|1.50|2.00x|3.20|1.60|2.00x|"
    # Half of it would be no table.
    assert tables(rows[:1]) == ""
