"""Applies random changes to the plan and the session, one by one, and counts what tests see.

`nox -s mutants` calls it. It works in a copy of the tracked files, on the installed extension. The
same seed and sources give the same changes. It takes an hour and more.
"""

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db

ROOMS = ("plan", "session")
# The tests of the plan, of states and of ranks; the fast ones come first.
TESTS = ("tests/plan", "tests/session", "tests/mixing", "tests/ranks", "tests/sequences")
COPY = Path("build/mutants")
CONFIG = """
[cosmic-ray]
module-path = [{paths}]
timeout = {timeout}.0
excluded-modules = []
test-command = "{command}"

[cosmic-ray.distributor]
name = "local"
"""


def copied() -> dict[str, str]:
    """Copy the tracked files and the extension; return the environment of tests there."""
    import torchparquet._impl._core as core

    shutil.rmtree(COPY, ignore_errors=True)
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(name, COPY / name)
    for library in Path(core.__file__).parent.glob("*.so"):
        shutil.copy2(library, COPY / "python/torchparquet/_impl")
    return os.environ | {"PYTHONPATH": str((COPY / "python").resolve())}


def main() -> None:
    """Print what became of each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for the tests of one")
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    options = parser.parse_args()
    environment = copied()
    paths = [f"python/torchparquet/_impl/{room}" for room in options.rooms]
    tests = [name for name in options.tests if (COPY / name).exists()]
    command = shlex.join([sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *tests])
    config = CONFIG.format(
        paths=", ".join(f'"{path}"' for path in paths), timeout=options.timeout, command=command
    )
    (COPY / "mutants.toml").write_text(config)
    tool = [sys.executable, "-m", "cosmic_ray.cli"]

    def call(*arguments: str) -> None:
        subprocess.run([*tool, *arguments], cwd=COPY, env=environment, check=True)

    call("init", "mutants.toml", "mutants.sqlite")
    with use_db(str(COPY / "mutants.sqlite"), WorkDB.Mode.open) as work:
        items = sorted(work.work_items, key=lambda item: item.job_id)
        places = sorted(
            (str(one.module_path), one.start_pos, one.operator_name, one.occurrence, item.job_id)
            for item in items
            for one in item.mutations
        )
        kept = {place[-1] for place in random.Random(options.seed).sample(places, options.count)}
        chosen = [item for item in items if item.job_id in kept]
        work.clear()
        work.add_work_items(chosen)
    call("exec", "mutants.toml", "mutants.sqlite")
    with use_db(str(COPY / "mutants.sqlite"), WorkDB.Mode.open) as work:
        results = {item.job_id: result for item, result in work.completed_work_items}
    survived = [item for item in chosen if results[item.job_id].test_outcome.value == "survived"]
    for item in survived:
        (one,) = item.mutations
        print(f"survived: {one.module_path}:{one.start_pos[0]} {one.operator_name}")
    print(f"{options.count - len(survived)} of {options.count} changes were seen by tests")


if __name__ == "__main__":
    main()
