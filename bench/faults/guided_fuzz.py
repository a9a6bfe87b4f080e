"""Runs the fuzzer that coverage leads, on all cores, and keeps its corpus small.

    nox -s guided_fuzz -- -max_total_time=600

Arguments go to libFuzzer. Findings stay in build/fuzz/found; the program
build/fuzz/cpp/tests/guided_fuzz repeats it, given the file. Exits with 1 if anything is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_BUILD = Path(__file__).resolve().parents[2] / "build" / "fuzz"
_PROGRAM = _BUILD / "cpp" / "tests" / "guided_fuzz"
# Arrow is not compiled with the sanitizer, so that vectors which cross over would look overrun.
_ENVIRONMENT = {
    "ASAN_OPTIONS": "max_allocation_size_mb=64:detect_container_overflow=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def main() -> int:
    """Fuzz, cut the corpus, and print executions, coverage and the corpus."""
    # Without -h, which would take libFuzzer's own -help=1 for itself.
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="-help=1 shows libFuzzer's options.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("--help", action="help", help="show this message")
    _, fuzzer_options = parser.parse_known_args()
    corpus, found = _BUILD / "corpus", _BUILD / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **_ENVIRONMENT}
    num_cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as logs:
        command: list[str | Path] = [
            _PROGRAM,
            f"-jobs={num_cores}",
            f"-workers={num_cores}",
            "-max_len=4096",
        ]
        command += ["-rss_limit_mb=2048", "-timeout=20", "-print_final_stats=1"]
        command += [f"-artifact_prefix={found}/", *fuzzer_options, corpus]
        failed = subprocess.run(command, env=environment, cwd=logs, check=False).returncode
        said = [log.read_text(errors="replace") for log in sorted(Path(logs).glob("fuzz-*.log"))]
    if failed:
        print(*(text[-4000:] for text in said), sep="\n")
    executions = sum(
        int(count)
        for text in said
        for count in re.findall(r"number_of_executed_units: (\d+)", text)
    )
    reached = [int(number) for text in said for number in re.findall(r"cov: (\d+)", text)]
    _cut(corpus, environment)
    files = list(corpus.iterdir())
    print(
        f"{executions:,} executions, {len(list(found.iterdir()))} findings; "
        f"{max(reached, default=0):,} edges reached; corpus: {len(files):,} inputs, "
        f"{sum(file.stat().st_size for file in files):,} bytes"
    )
    return 1 if failed else 0


def _cut(corpus: Path, environment: dict[str, str]) -> None:
    """Leave the fewest inputs that reach all that the corpus reaches."""
    kept = corpus.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir()
    command: list[str | Path] = [_PROGRAM, "-merge=1", kept, corpus]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    shutil.rmtree(corpus)
    kept.rename(corpus)


if __name__ == "__main__":
    sys.exit(main())
