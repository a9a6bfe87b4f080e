"""Runs the suite on the extension of a build with sanitizers.

    nox -s "sanitize_python(asan)" -- -n 2
    python bench/faults/sanitized_suite.py asan tests/reading    # once that has built it

The interpreter, torch and pyarrow are as installed; the sanitizer's library is loaded before them.
Each process writes what it finds to a file, so that a child's report is seen too, and any report
fails the run. Races within libraries that are not instrumented are suppressed by name, in
tsan_suppressions.txt.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# All the rest of the suite runs.
_OF_BOTH = (
    # The sanitizers' own memory is larger than any limit, and a part of each size.
    "--deselect=tests/reading/test_memory.py",
    "--ignore=tests/faults/test_system.py",
    # Other readers and a server of its own.
    "--ignore=tests/bench/test_remote.py",
)
# ThreadSanitizer ends a forked child that starts threads, and a process that imports Polars or
# deltalake.
_NO_TSAN = ("fork", "worker", "loader", "process", "polars", "deltalake")
_OF_TSAN = (
    "--ignore=tests/files/test_memory_sources.py",
    "--ignore=tests/formats/test_writers.py",
    "--ignore=tests/security/test_tables.py",
    "--ignore=tests/tables/test_delta.py",
)
LEFT_OUT = {
    "asan": _OF_BOTH,
    "tsan": (*_OF_BOTH, *_OF_TSAN, "-k", " and ".join(f"not {name}" for name in _NO_TSAN)),
}
_TIMEOUT_SECONDS = 900


def _library(name: str) -> str:
    command = ["g++", f"-print-file-name={name}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return str(Path(found).resolve(strict=True))


def _install(preset: str) -> Path:
    """Put the package's modules and the sanitized extensions into one folder."""
    build = Path("build") / preset
    root = build / "python"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree("python/torchparquet", root / "torchparquet")
    command = ["cmake", "--install", str(build), "--component", "python", "--prefix", str(root)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return root.resolve()


def _environment(preset: str, root: Path, reports: Path) -> dict[str, str]:
    suppressions = Path(__file__).resolve().with_name("tsan_suppressions.txt")
    log = f"log_path={reports / 'report'}"
    # Data sets start threads in forked workers. A report must not change what a test sees.
    # jemalloc of Arrow takes more locks before a fork than the search for deadlocks can hold.
    searched = "report_signal_unsafe=0:die_after_fork=0:detect_deadlocks=0"
    of_threads = f"suppressions={suppressions}:{searched}:exitcode=0"
    options = {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        # The interpreter leaves objects to the system as it exits.
        "ASAN_OPTIONS": f"detect_leaks=0:allocator_may_return_null=1:{log}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{log}",
        "TSAN_OPTIONS": f"{of_threads}:{log}",
    }
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    preloaded = " ".join(map(_library, (f"lib{preset}.so", "libstdc++.so")))
    return os.environ | options | {"LD_PRELOAD": preloaded, "PYTHONPATH": os.pathsep.join(paths)}


def main() -> int:
    """Run pytest with the arguments. Returns 1 if a test fails or a sanitizer reports."""
    preset, *arguments = sys.argv[1:]
    root = _install(preset)
    reports = (Path("build") / preset / "reports").resolve()
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    command = [sys.executable, "-m", "pytest", f"--timeout={_TIMEOUT_SECONDS}", *LEFT_OUT[preset]]
    environment = _environment(preset, root, reports)
    is_sound = subprocess.run([*command, *arguments], env=environment, check=False).returncode == 0
    found = sorted(reports.iterdir())
    for report in found[:20]:
        print(f"--- {report.name}\n{report.read_text(errors='replace')[:6000]}")
    print(f"{preset}: {len(found)} reports")
    return 0 if is_sound and not found else 1


if __name__ == "__main__":
    sys.exit(main())
