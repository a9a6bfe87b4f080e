"""Server processes of tests: on free ports, waited for, and ended with who started them."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

START_SECONDS = 60
POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1


class ServerError(RuntimeError):
    """A server ended, or did not answer in time; the message ends with its log."""


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has now, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def accepts(port: int) -> bool:
    """True if somebody accepts connections there."""
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _die_with_parent() -> None:
    """Let the kernel end the server even if the tests' process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def server(
    command: Sequence[str | Path],
    is_ready: Callable[[], bool],
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; what it prints goes to `log`.

    `is_ready` is asked again and again until it says so. An error means no.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        _await(process, is_ready, log)
        yield process
    finally:
        process.kill()
        process.wait()


def _await(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerError(f"{process.args!r} ended: {_end_of(log)}")
        try:
            if is_ready():
                return
        except Exception as error:  # kept for the message
            trouble = error
        time.sleep(POLL_SECONDS)
    raise ServerError(f"{process.args!r} is not ready: {trouble!r}, {_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]
