"""Ends that go wrong in one way each, run as those of `bench/faults/ends.py` are."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from faults import ends
from faults.processes.endings import ENDINGS, Ending, Scene

opened: list[int] = []


def hangs(scene: Scene) -> None:
    scene.tell_end_of_loop(1)
    threading.Event().wait()


def aborts(scene: Scene) -> None:
    scene.tell_end_of_loop(1)
    os.abort()


def ends_before_it_begins(scene: Scene) -> None:
    pass


def leaves_a_process(scene: Scene) -> None:
    if os.fork() == 0:
        signal.pause()
    scene.tell_end_of_loop(1)


def leaves_shared_memory(scene: Scene) -> None:
    Path(f"/dev/shm/planted-{os.getpid()}").touch()
    scene.tell_end_of_loop(1)


def leaves_a_thread(scene: Scene) -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    scene.tell_end_of_loop(1)
    scene.tell_what_is_left()


def leaves_a_descriptor(scene: Scene) -> None:
    opened.append(os.open("/dev/null", os.O_RDONLY))
    scene.tell_end_of_loop(1)
    scene.tell_what_is_left()


PLANTS = (
    aborts,
    ends_before_it_begins,
    leaves_a_process,
    leaves_shared_memory,
    leaves_a_thread,
    leaves_a_descriptor,
)

if __name__ == "__main__":
    ends.ORPHAN_SECONDS = 0.5
    ENDINGS.update({plant.__name__: Ending(plant) for plant in (*PLANTS, hangs)})
    ended = ends.run_all(ends.Options([plant.__name__ for plant in PLANTS], ["alone"]))
    if isinstance(ended, int):
        ends.END_SECONDS = 1.0
        ended = ends.run_all(ends.Options(["hangs"], ["alone"]))
    if isinstance(ended, int):
        sys.exit()
    ended()
