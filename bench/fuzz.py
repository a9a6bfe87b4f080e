"""Mutation fuzzing: damaged files must give right rows or a documented error, and nothing else.

Each case damages a file, reads it in a forked child with limits of memory and time, and compares
what comes of it with what the package promises. All is drawn from the seed.

    python bench/fuzz.py --cases 2000 --seed 1      # --data DIR: also the small files of DIR
    python bench/fuzz.py --seed 1 --case 17         # one case of a run with the same options
    python bench/fuzz.py --cases 100000 --flips     # single bits of pages that have a checksum
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# Before the libraries are loaded, which make threads otherwise, and reserve memory.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
# The format by another parser, and tables of every kind.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from fuzzing.fuzz_files import given_files, write_files
from fuzzing.fuzz_mutations import MUTATION_KINDS, Target, flip_checked_bit, mutate
from fuzzing.fuzz_reading import Case, Outcome, judge

_CASES_OF_A_CHILD = 200
# Beyond what is in use when the child begins.
_MEMORY_LIMIT_BYTES = 160 << 20
TIME_LIMIT_SECONDS = 20
_MAX_DETAIL = 400


class Result(NamedTuple):
    """A case's outcome."""

    number: int
    file: str
    mutation: str
    outcome: Outcome


def run_cases(
    make: Callable[[int], Case], numbers: Sequence[int], folder: Path
) -> Iterator[Result]:
    """Run the cases with these numbers, many in one child until one of them ends it."""
    left = list(numbers)
    while left:
        last = None
        for last in _run_in_child(make, left[:_CASES_OF_A_CHILD], folder):
            yield last
        if last is None:
            raise RuntimeError("a child ended before its first case")
        left = left[left.index(last.number) + 1 :]


def _run_in_child(
    make: Callable[[int], Case], numbers: Sequence[int], folder: Path
) -> Iterator[Result]:
    """Results up to the end of the child; the last one may be its end."""
    read_end, write_end = os.pipe()
    errors = folder / "stderr"
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _child(make, numbers, folder, write_end)
    os.close(write_end)
    begun: dict[str, Any] | None = None
    timed_out = False
    for line in _lines(read_end):
        if line is None:
            timed_out = True
            os.kill(child, signal.SIGKILL)
            break
        record = json.loads(line)
        if "label" not in record:
            begun = record
            continue
        outcome = Outcome(record["label"], record["detail"], record["is_finding"])
        yield Result(record["number"], record["file"], record["mutation"], outcome)
        begun = None
    os.close(read_end)
    _, status = os.waitpid(child, 0)
    if begun is not None:
        label = "hang" if timed_out else "crash"
        said, *_ = errors.read_text(errors="replace").split("\nExtension modules:")
        detail = f"wait status {status}: {said[-_MAX_DETAIL:]}"
        outcome = Outcome(label, detail, is_finding=True)
        yield Result(begun["number"], begun["file"], begun["mutation"], outcome)


def _lines(pipe: int) -> Iterator[bytes | None]:
    """Lines until the pipe is closed; None, and no more, where none comes for too long."""
    buffer = b""
    while _has_more(pipe):
        some = os.read(pipe, 65536)
        if not some:
            return
        *lines, buffer = (buffer + some).split(b"\n")
        yield from lines
    yield None


def _has_more(pipe: int) -> bool:
    # Second by second: while all of us are stopped, time goes on and no child can write.
    return any(select.select([pipe], [], [], 1)[0] for _ in range(TIME_LIMIT_SECONDS))


def _child(make: Callable[[int], Case], numbers: Sequence[int], folder: Path, pipe: int) -> None:
    """Run cases and tell the pipe of each; never returns."""
    status = 1
    try:
        errors = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 2)
        faulthandler.enable()
        _limit_memory()
        for number in numbers:
            case = make(number)
            about = {"number": number, "file": case.target.name, "mutation": case.mutation.kind}
            os.write(pipe, json.dumps(about).encode() + b"\n")
            outcome = judge(case, folder / "case.parquet")
            shown = outcome._replace(detail=outcome.detail[:_MAX_DETAIL])._asdict()
            os.write(pipe, json.dumps(about | shown).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _limit_memory() -> None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            limit = int(line.split()[1]) * 1024 + _MEMORY_LIMIT_BYTES
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def make_targets(folder: Path, data: Path | None) -> list[Target]:
    """The files to mutate; our own are written to `folder`."""
    write_files(folder)
    paths = [*given_files(folder), *(given_files(data) if data is not None else [])]
    return [Target.parse(path.stem, path.read_bytes()) for path in paths]


def _print_table(results: Counter[tuple[str, str]]) -> None:
    """Print how often which kind of mutation had which outcome."""
    labels = sorted({label for _, label in results})
    width = max(map(len, MUTATION_KINDS))
    print(" " * width, *labels, "all", sep="  ")
    struck = [kind for kind in MUTATION_KINDS if any(kind == one for one, _ in results)]
    for kind in (*struck, "all"):
        kinds = MUTATION_KINDS if kind == "all" else [kind]
        counts = {label: sum(results[k, label] for k in kinds) for label in labels}
        cells = [f"{count:>{len(label)}}" for label, count in counts.items()]
        print(f"{kind:<{width}}", *cells, sum(counts.values()), sep="  ")


def _report(results: Iterator[Result], seed: int, *, verbose: bool) -> tuple[int, int]:
    """Print findings as they come, then the table. Returns the numbers of cases and findings."""
    counts: Counter[tuple[str, str]] = Counter()
    findings = 0
    for number, file, mutation, outcome in results:
        counts[mutation, outcome.label] += 1
        findings += outcome.is_finding
        if outcome.is_finding or verbose:
            what = f"{file}: {mutation}: {outcome.label}"
            print(f"--seed {seed} --case {number}: {what}: {outcome.detail}", flush=True)
    _print_table(counts)
    return counts.total(), findings


def main() -> int:
    """Run; returns 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=os.environ.get("PARQUET_TEST_DATA") or None)
    parser.add_argument("--flips", action="store_true", help="flip one bit under a checksum")
    parser.add_argument("--case", type=int, help="run this one only, and say what came of it")
    parser.add_argument("--keep", type=Path, help="with --case: also write the damaged file here")
    arguments = parser.parse_args()
    numbers = range(arguments.cases) if arguments.case is None else [arguments.case]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        targets = make_targets(Path(folder), arguments.data)
        if arguments.flips:
            targets = [target for target in targets if target.has_checksums and target.bodies]
        mutated = flip_checked_bit if arguments.flips else mutate
        make = partial(Case.make, targets, arguments.seed, mutated=mutated)
        if arguments.keep is not None:
            case = make(arguments.case)
            arguments.keep.write_bytes(case.mutation.content)
            print(case.target.name, case.mutation.kind, case.options)
        begin = time.perf_counter()
        results = run_cases(make, numbers, Path(folder))
        num_cases, findings = _report(results, arguments.seed, verbose=arguments.case is not None)
        seconds = time.perf_counter() - begin
    print(f"{num_cases} cases of {len(targets)} files, {findings} findings, {seconds:.1f} s")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
