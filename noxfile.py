#!/usr/bin/env python3
"""One entry for every check of this project: `nox -l` lists them, `nox -s NAME` runs one.

Sessions run in the environment that nox runs in, which CONTRIBUTING.md sets up once.
Only `pythons`, `frameworks`, `servers`, `build`, `wheel`, `sdist` and `review` make an environment
of their own.
"""

import os
import pathlib

import nox

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "none"

CPP = "'cpp/*.h' 'cpp/*.cc'"
# Newer ones want a newer Node.
AZURITE = (
    "npm",
    "install",
    "--no-audit",
    "--no-fund",
    "--prefix",
    "build/azurite",
    "azurite@3.35.0",
)
SERVER_TESTS = ("tests/remote", "tests/frameworks/documents/test_stores.py")
# The bindings need Python's headers, which the C++ tests do without.
CPP_UNITS = "'cpp/*.cc' ':!cpp/bindings' ':!cpp/tests'"


def run_on_files(session: nox.Session, command: str, patterns: str) -> None:
    """Run a command on the files under version control that match git's patterns."""
    session.run("bash", "-c", f"set -o pipefail; git ls-files {patterns} | xargs {command}")


def cpp_tests(session: nox.Session, preset: str) -> None:
    """Configure, build and run the C++ tests of a preset in CMakePresets.json."""
    session.run("cmake", "--preset", preset, silent=True)
    session.run("cmake", "--build", "--preset", preset)
    session.run("ctest", "--preset", preset, *session.posargs)


@nox.session(default=False)
def fix(session: nox.Session) -> None:
    """Format Python and C++, and apply the fixes that ruff knows."""
    session.run("ruff", "check", "--fix", ".")
    session.run("ruff", "format", ".")
    run_on_files(session, "clang-format -i", CPP)


@nox.session(default=True)
def lint(session: nox.Session) -> None:
    """Check formats, ruff's rules, the size of files, and that imports go down the rooms."""
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    run_on_files(session, "clang-format --dry-run -Werror", CPP)
    session.run("python", ".ci/check_files.py")
    session.run("python", ".ci/check_rooms.py")
    session.run("lint-imports", "--no-logo", env={"PYTHONPATH": "python"})


@nox.session(default=True)
def typecheck(session: nox.Session) -> None:
    """Check types with mypy."""
    session.run("mypy", *session.posargs)


@nox.session(default=True)
def tests(session: nox.Session) -> None:
    """Run the suite of the README. Arguments go to pytest: `nox -s tests -- -k resume`."""
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(default=False, venv_backend="virtualenv", python=["3.11", "3.12", "3.13", "3.14"])
def pythons(session: nox.Session) -> None:
    """Run the suite on another Python: `nox -s pythons-3.12`. Skips one that is missing."""
    session.install("-c", "constraints.txt", ".[test]")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(default=False)
def long(session: nox.Session) -> None:
    """Run the tests that the suite leaves out to stay below five minutes."""
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "long and not soak", *session.posargs)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Apply 150 random changes to plan/ and session/, and count those that the tests see."""
    session.run("pip", "install", "-q", "--group", "mutants")
    session.run("python", ".ci/mutants.py", *session.posargs)


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Run tests of the suite with many more repeats: for an hour or more."""
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "soak", *session.posargs)


@nox.session(default=False)
def snippets(session: nox.Session) -> None:
    """Run the code of the documents, as far as its libraries are installed."""
    session.run("python", "-m", "pytest", "-n", "auto", "tests/frameworks/documents")


@nox.session(default=False, venv_backend="virtualenv")
def frameworks(session: nox.Session) -> None:
    """Run every example and every snippet of the documents, in a new environment."""
    session.install("-c", "constraints.txt", ".", "--group", "frameworks")
    # Chat templates need transformers too.
    tests = ("tests/frameworks", "tests/text/test_chats.py")
    session.run("python", "-m", "pytest", *tests, *session.posargs)


@nox.session(default=False, venv_backend="virtualenv")
def servers(session: nox.Session) -> None:
    """Read from servers that speak as stores do, all of them, in a new environment."""
    session.install("-c", "constraints.txt", ".[servers]", "sybil>=10")
    if not pathlib.Path("build/azurite/node_modules/.bin/azurite-blob").exists():
        session.run(*AZURITE, external=True)
    environment = {"TORCHPARQUET_SERVERS": "require"}
    tests = session.posargs or ["-m", "not soak", *SERVER_TESTS]
    session.run("python", "-m", "pytest", *tests, env=environment)


@nox.session(default=False)
def package(session: nox.Session) -> None:
    """Check the files of a plain installation, and that an editable one rebuilds."""
    session.run("python", ".ci/check_installed.py")
    session.run(".ci/check_editable")


@nox.session(default=False)
def matrix(session: nox.Session) -> None:
    """Read next to each release of pyarrow. `nox -s matrix -- oldest 25` chooses some."""
    session.run("python", "packaging/matrix.py", *session.posargs)


@nox.session(default=False)
def stub(session: nox.Session) -> None:
    """Check the stubs of the extensions. `nox -s stub -- --write` writes `_core.pyi` anew."""
    session.run(".ci/stub", *(session.posargs or ["--check"]))


@nox.session(default=False)
def cpp(session: nox.Session) -> None:
    """Run the C++ tests."""
    cpp_tests(session, "dev")


@nox.session(default=False)
@nox.parametrize("preset", ["asan", "tsan"], ids=["asan", "tsan"])
def sanitize(session: nox.Session, preset: str) -> None:
    """Run the C++ tests under sanitizers: `nox -s "sanitize(tsan)"` for data races alone.

    ThreadSanitizer then sees those of threads under a few schedules that seeds draw.
    """
    cpp_tests(session, preset)
    if preset == "tsan":
        session.run("python", "bench/faults/schedules.py", "--runs", "2")


@nox.session(default=False)
@nox.parametrize("preset", ["asan", "tsan"], ids=["asan", "tsan"])
def sanitize_python(session: nox.Session, preset: str) -> None:
    """Run the suite on an extension under sanitizers: `nox -s "sanitize_python(asan)"`."""
    pybind11 = session.run("python", "-m", "pybind11", "--cmakedir", silent=True)
    options = (f"-Dpybind11_DIR={str(pybind11).strip()}", "-DTORCHPARQUET_BINDINGS=ON")
    session.run("cmake", "--preset", preset, *options, "-DTORCHPARQUET_EDITABLE=ON", silent=True)
    session.run("cmake", "--build", "--preset", preset, "--target", "_core", "bridges")
    session.run("python", "bench/faults/sanitized_suite.py", preset, *session.posargs)


@nox.session(default=False)
def tidy(session: nox.Session) -> None:
    """Check C++ with clang-tidy."""
    session.run("cmake", "--preset", "dev", silent=True)
    run_on_files(session, "-n 4 -P 2 clang-tidy -quiet -p build/dev", CPP_UNITS)


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Read damaged files. Arguments go to bench/fuzz.py."""
    session.run("python", "bench/fuzz.py", *(session.posargs or ["--cases", "100000"]))


@nox.session(default=False)
def guided_fuzz(session: nox.Session) -> None:
    """Feed hostile bytes, led by coverage: `nox -s guided_fuzz -- -max_total_time=600`.

    Needs clang and its libFuzzer; the variable CXX names another clang++. The corpus in
    build/fuzz/corpus grows, and is cut to what reaches all that it reaches.
    """
    compiler = os.environ.get("CXX", "clang++")
    session.run("cmake", "--preset", "fuzz", f"-DCMAKE_CXX_COMPILER={compiler}", silent=True)
    session.run("cmake", "--build", "--preset", "fuzz")
    session.run("python", "bench/faults/guided_fuzz.py", *session.posargs)


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """End and kill processes that read. Arguments go to both programs of bench/faults."""
    for program in ("ends", "kills"):
        arguments = session.posargs or ["--count", "1000"]
        session.run("python", f"bench/faults/{program}.py", *arguments)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Take the figures of bench/results/RESULTS.md: `nox -s bench -- --quick` for a first look."""
    session.run("python", "-m", "bench", *session.posargs)


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site into build/site: `nox -s docs -- serve` shows it while you write."""
    session.run("mkdocs", *(session.posargs or ["build", "--strict"]))


@nox.session(default=False, venv_backend="virtualenv")
def build(session: nox.Session) -> None:
    """Build the source distribution and, from it, a wheel with all bridges into dist/."""
    session.install("build")
    session.run("python", "packaging/fetch_pyarrows.py", "build/pyarrows")
    pyarrows = pathlib.Path("build/pyarrows").resolve()
    session.run("python", "-m", "build", f"-Ccmake.define.TORCHPARQUET_PYARROWS={pyarrows}")


@nox.session(default=False, venv_backend="virtualenv")
def wheel(session: nox.Session) -> None:
    """Build a wheel for older systems into dist/, and run the quick start on it.

    `nox -s wheel -- --processor aarch64` builds one for another processor; `--twice` compares.
    """
    session.install("--group", "wheel")
    session.run("python", "packaging/wheel.py", *session.posargs)


@nox.session(default=False, venv_backend="virtualenv")
def sdist(session: nox.Session) -> None:
    """Build the source distribution into dist/, a wheel from it, and check their versions."""
    session.install("--group", "sdist")
    session.run("python", "packaging/sdist.py", *session.posargs)


@nox.session(default=False)
def aarch64(session: nox.Session) -> None:
    """Build the C++ tests for aarch64 and run them in QEMU."""
    fetch = ("packaging/fetch_pyarrows.py", "--platform", "manylinux_2_28_aarch64")
    newest = pathlib.Path("packaging/pyarrow_releases.txt").read_text().split()[-1]
    session.run("python", *fetch, "build/pyarrow_aarch64", newest)
    cpp_tests(session, "aarch64")


@nox.session(default=False)
def hooks(session: nox.Session) -> None:
    """Run every pre-commit hook on every file."""
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", *session.posargs)


@nox.session(default=False, venv_backend="virtualenv")
def review(session: nox.Session) -> None:
    """Compare the form of the repository with the guide of Scientific Python."""
    session.install("--group", "review")
    session.run("repo-review", ".", *session.posargs)


if __name__ == "__main__":
    nox.main()
