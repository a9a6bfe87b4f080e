"""`torchparquet rewrite`, killed and repeated."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path

# The command imports these when it needs them, which takes longer than all else that is killed.
import pandas as pd  # noqa: F401
import rich.progress
import rich.table  # noqa: F401

import torchparquet.cli.rewrite  # noqa: F401
from faults.processes.findings import Findings
from faults.processes.moments import NEVER, Course, Tell, course_of, run
from torchparquet.cli import main

_MOST_KILLS = 4


class KilledRewrites:
    """Rewrites of the same rows to new folders, each killed some times before it may end."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Rewrite once without a kill, in file order and shuffled.

        Args:
            folder: Has the files in `rows`, and room for outputs.
            seed: Of the moments.
        """
        self._data, self._folder, self._log = folder / "rows", folder, folder / "log"
        self._draw = random.Random(seed)
        self.findings = Findings()
        self._courses: list[Course] = []
        self._whole: list[dict[str, bytes]] = []
        for shuffle in (False, True):
            output = folder / f"whole-{shuffle}"
            self._shuffle, self._output = shuffle, output
            self._courses.append(course_of(self._work, self._log))
            self._whole.append(_content(output))

    def round(self) -> None:
        """Kill a rewrite some times, look at its folder each time, and let it end at last."""
        self._shuffle = self._draw.random() < 0.5
        self._output = self._folder / "output"
        shutil.rmtree(self._output, ignore_errors=True)
        whole = self._whole[self._shuffle]
        for _ in range(self._draw.randint(1, _MOST_KILLS)):
            moment = self._courses[self._shuffle].draw(self._draw)
            children = run([self._work], moment, self._log)
            self.findings.add_kills(children)
            self._check_ended(children[0].code, (0, -9))
            torn = [
                name
                for name, content in _content(self._output).items()
                if name.endswith(".parquet") and whole.get(name) != content
            ]
            self.findings.add("files not whole", len(torn), f"{torn}")
        (child,) = run([self._work], NEVER, self._log)
        self._check_ended(child.code, (0,))
        found = _content(self._output)
        differing = {name for name in found | whole if found.get(name) != whole.get(name)}
        self.findings.add("failed repeats", len(differing), f"differ at last: {differing}")
        self.findings.rounds += 1

    def _check_ended(self, code: int | None, allowed: tuple[int, ...]) -> None:
        words = self._log.read_text(errors="replace")[-2000:] if code not in allowed else ""
        self.findings.add("failed repeats", code not in allowed, f"exit code {code}: {words}")

    def _work(self, _: Tell) -> None:
        arguments = ["rewrite", str(self._data), "--output", str(self._output)]
        arguments += ["--row-group-rows", "300", "--row-groups-per-file", "3"]
        arguments += ["--shuffle", "--max-memory", "1MiB"] if self._shuffle else []
        warnings.simplefilter("error")
        code = main(arguments)
        if code:
            raise RuntimeError(f"the command ended with {code}")


def _content(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
