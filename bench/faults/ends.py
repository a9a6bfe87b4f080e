"""Ends of processes that read: each kind by the thousand, and what goes wrong.

Each end is a forked child of this process, which has imported all and started nothing. The child
reads, tells that it does, and ends; its interpreter exits in the regular way. Anything that is not
0 is printed with what the child wrote, and the exit code is 1.

    python bench/faults/ends.py --count 1000
    python bench/faults/ends.py --settings "2 ranks" --keep-groups    # torch aborts some of them
    python bench/faults/ends.py --settings "2 ranks, DDP" --late-import    # and of these
    python bench/faults/ends.py --count 50 --kinds "Ctrl-C" "daemon thread" --settings alone fork
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

# The modules of this room, for children that import the program anew too.
sys.path.append(str(Path(__file__).resolve().parents[1]))

# The modules' objects stay until the end. A collector that goes over them at imports and at exits
# took a third of the time of an end whose worker imports torch anew.
gc.disable()

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402

from faults.processes.children import (  # noqa: E402
    Belongings,
    Child,
    adopt_orphans,
    fork,
    num_left_processes,
    take_own_shared_memory,
    wait_for,
)
from faults.processes.endings import (  # noqa: E402
    ENDINGS,
    NUM_ROWS,
    RANKS,
    SETTINGS,
    SLOW_SETTINGS,
    Scene,
)

gc.freeze()
gc.enable()

# Less the time that the process has waited for a processor.
END_SECONDS = 20.0
ORPHAN_SECONDS = 60.0
_START_SECONDS = 120.0
_MOST_SIGNAL_DELAY_SECONDS = 0.004
_REPORT_SECONDS = 1.0
_SHOWN_BYTES = 1500
_CAUSE = re.compile(
    r"terminate called|what\(\):|Fatal Python error|Assertion|free\(\)|\*\*\*|destroy_process_group"
)
_MAX_CAUSES = 20
FAULTS = ("hangs", "wrong codes", "processes", "descriptors", "shared memory", "threads")


@dataclass
class Tally:
    """How the ends of one kind in one setting went.

    Attributes:
        ends: Processes that ended, or were to end.
        begun: Those that had told of threads or processes reading.
        faults: Numbers by column.
        codes: Wrong exit codes.
        shown: The stacks of those that hang, and the last words of children.
    """

    ends: int = 0
    begun: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    codes: list[int] = field(default_factory=list)
    shown: str = ""

    @property
    def holds(self) -> bool:
        """True if every end took place in mid-iteration, and nothing was left."""
        return self.begun == self.ends > 0 and not any(self.faults.values())


@dataclass(frozen=True)
class Options:
    """The ends to run.

    Attributes:
        kinds: Of `ENDINGS`.
        settings: Of `SETTINGS`.
        count: Ends of each.
        slow_count: Ends of each in settings that import torch anew.
        seed: Of the moments of signals.
        at_once: Groups that end side by side.
        keeps_groups: True if no process group is destroyed.
    """

    kinds: Sequence[str] = tuple(ENDINGS)
    settings: Sequence[str] = SETTINGS
    count: int = 1
    slow_count: int = 1
    seed: int = 0
    at_once: int = 4
    keeps_groups: bool = False


class Storm:
    """Ends of one kind in one setting, several at a time."""

    def __init__(self, kind: str, setting: str, folder: Path, options: Options) -> None:
        """Prepare.

        Args:
            kind: Of `ENDINGS`.
            setting: Of `SETTINGS`.
            folder: Has the files in `data`.
            options: Of all storms.
        """
        self._ending = ENDINGS[kind]
        self._setting = setting
        self._folder = folder
        self._options = options
        self._draw = random.Random(f"{options.seed} {kind} {setting}")
        self._log = folder / "log"
        self._groups: list[list[Child]] = []
        self.tally = Tally()

    def run(self) -> Callable[[], None] | None:
        """Run all ends. Returns in children too, with what they are to do."""
        is_slow = self._setting in SLOW_SETTINGS
        count = self._options.slow_count if is_slow else self._options.count
        self._log.unlink(missing_ok=True)
        belongings = Belongings()
        ranks = RANKS.get(self._setting, 1)
        started = 0
        while started < count or self._groups:
            while started < count and len(self._groups) < self._options.at_once:
                started += ranks
                mine = self._start(ranks)
                if mine is not None:
                    return mine
            self._look()
        self._count("processes", num_left_processes(ORPHAN_SECONDS))
        self._count("descriptors", belongings.new_descriptors())
        shared = belongings.new_shared_memory()
        self._count("shared memory", len(shared))
        if shared:
            self.tally.shown += f"shared memory: {', '.join(shared)}\n"
        if not self.tally.holds and self._log.exists():
            self.tally.shown += _telling(self._log.read_text(errors="replace"))
        return None

    def _start(self, ranks: int) -> Callable[[], None] | None:
        group = []
        store = tempfile.mktemp(prefix="store-", dir=self._folder)  # of this group alone
        for rank in range(ranks):
            child, pipe = fork(self._log)
            if child is None:
                return partial(self._end, rank, store, pipe)
            group.append(child)
        self._groups.append(group)
        return None

    def _end(self, rank: int, store: str, pipe: int) -> None:
        """Be a process that ends."""
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        # Workers that are killed leave folders for multiprocessing's sockets.
        tempfile.tempdir = os.environ["TMPDIR"] = str(self._folder)
        scene = Scene(self._setting, self._folder / "data", rank, store, pipe)
        with scene.ended(keeps_group=self._options.keeps_groups):
            self._ending.run(scene)

    def _look(self) -> None:
        """Wait for news, and act on them."""
        wait_for([child for group in self._groups for child in group if child.code is None], 0.5)
        for group in self._groups:
            had_begun = all(child.facts for child in group)
            for child in group:
                if child.code is None:
                    child.look()
            if not had_begun and all(child.facts for child in group):
                self._have_begun(group)
            self._check_time(group)
        for group in [one for one in self._groups if all(c.code is not None for c in one)]:
            self._groups.remove(group)
            for child in group:
                self._judge(child)

    def _have_begun(self, group: list[Child]) -> None:
        for child in group:
            child.begin_to_count()
        if self._ending.signal:
            time.sleep(self._draw.uniform(0, _MOST_SIGNAL_DELAY_SECONDS))
            for child in group:
                # One that has ended too soon is found by its code.
                if child.code is None:
                    os.kill(child.pid, self._ending.signal)

    def _check_time(self, group: list[Child]) -> None:
        """End a group that takes too long, even less the time without a processor."""
        living = [child for child in group if child.code is None and not child.is_hanging]
        limit = END_SECONDS if all(child.facts for child in group) else _START_SECONDS
        if not living or min(child.seconds() for child in living) < limit:
            return
        for child in living:
            self._count("hangs", 1)
            self.tally.shown += f"hangs in {child.where()}\n"
            child.is_hanging = True
            os.kill(child.pid, signal.SIGUSR1)  # has it write where it is
        time.sleep(_REPORT_SECONDS)
        for child in living:
            os.kill(child.pid, signal.SIGKILL)

    def _judge(self, child: Child) -> None:
        self.tally.ends += 1
        self.tally.begun += child.facts.get("readers", 0) > 0
        for name in ("threads", "descriptors"):
            self._count(name, child.facts.get(name, 0))
        if child.code != self._ending.code and not child.is_hanging:
            self._count("wrong codes", 1)
            self.tally.codes.append(int(child.code or 0))

    def _count(self, fault: str, number: int) -> None:
        self.tally.faults[fault] += number


def _telling(log: str) -> str:
    """Return the lines of a log that tell why a process was aborted, and the last ones."""
    causes = [line for line in log.splitlines() if _CAUSE.search(line)]
    return "\n".join([*causes[:_MAX_CAUSES], log[-_SHOWN_BYTES:]])


def _write_data(folder: Path) -> None:
    """Write the files in a process of its own: this one stays without threads."""
    child = os.fork()
    if child == 0:
        rng = np.random.default_rng(0)
        folder.mkdir()
        for number in range(4):
            columns = {"x": rng.random(NUM_ROWS // 4), "y": rng.integers(0, 9, NUM_ROWS // 4)}
            pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=250)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("writing the files failed")


def _undo_import() -> None:
    """Let the first model import torch's functions, which torchparquet has done before."""
    del torch.distributed.nn
    for name in [name for name in sys.modules if name.startswith("torch.distributed.nn")]:
        del sys.modules[name]


def _print_row(kind: str, setting: str, tally: Tally) -> None:
    cells = [f"{tally.ends:>5}", f"{tally.begun:>16}"]
    cells += [f"{tally.faults[name]:>{len(name)}}" for name in FAULTS]
    print(f"| {kind:<18} | {setting:<12} | {' | '.join(cells)} |", flush=True)
    if not tally.holds:
        print(f"FAULT: codes {sorted(set(tally.codes))}\n{tally.shown}", flush=True)


def run_all(options: Options) -> Callable[[], None] | int:
    """Run ends of all kinds in all settings, and print the table.

    Returns:
        The number of rows with faults; in a child, what it is to do.
    """
    # Not a TemporaryDirectory, which children would remove as they exit.
    folder = Path(tempfile.mkdtemp(prefix="ends-"))
    _write_data(folder / "data")
    adopt_orphans()
    if not take_own_shared_memory():
        print("shared memory is that of all processes here")
    print(f"| kind | setting | ends | in mid-iteration | {' | '.join(FAULTS)} |")
    print("|---|---|" + "---:|" * (len(FAULTS) + 2), flush=True)
    num_faulty = 0
    for setting in options.settings:
        for kind in options.kinds:
            storm = Storm(kind, setting, folder, options)
            mine = storm.run()
            if mine is not None:
                return mine
            _print_row(kind, setting, storm.tally)
            num_faulty += not storm.tally.holds
    shutil.rmtree(folder)
    return num_faulty


def main() -> Callable[[], None] | int:
    """Run. Returns 1 if anything went wrong; in a child, what it is to do."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100, help="ends of each kind")
    parser.add_argument("--slow-count", type=int, help="of those that import torch anew")
    parser.add_argument("--kinds", nargs="+", choices=ENDINGS, default=list(ENDINGS))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument(
        "--keep-groups", action="store_true", help="destroy no process group: torch may abort"
    )
    parser.add_argument(
        "--late-import",
        action="store_true",
        help="have models import what torchparquet imports before: torch may abort",
    )
    arguments = parser.parse_args()
    if arguments.late_import:
        if "2 ranks, DDP" not in arguments.settings:
            parser.error('--late-import is about the setting "2 ranks, DDP"')
        _undo_import()
    settings = arguments.settings
    if "page-locked" in settings and not torch.cuda.is_available():
        settings.remove("page-locked")
        print("page-locked memory is left out: there is no device")
    options = Options(
        arguments.kinds,
        settings,
        arguments.count,
        arguments.slow_count or arguments.count,
        arguments.seed,
        arguments.at_once,
        arguments.keep_groups,
    )
    begin = time.perf_counter()
    outcome = run_all(options)
    if not isinstance(outcome, int):
        return outcome
    print(f"{outcome} rows with faults, {time.perf_counter() - begin:.0f} s")
    return 1 if outcome else 0


if __name__ == "__main__":
    ended = main()
    if isinstance(ended, int):
        sys.exit(ended)
    # In a child: what it raises goes to the interpreter.
    ended()
