"""A note in the output directory, so that an interrupted rewrite resumes, and no other does."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchparquet.tools.rewrite.options import Layout

JOURNAL = "_rewrite.json"
_FORMAT = 1


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock the directory against other rewrites, and make it if it is missing.

    Raises:
        RuntimeError: Another process holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another rewrite is writing to {str(directory)!r}"
            raise RuntimeError(message) from None
        yield
    finally:
        os.close(descriptor)


def begun_layout(directory: Path, request: dict[str, Any]) -> Layout | None:
    """Return the layout of the rewrite begun in the directory; None if none was begun.

    Args:
        directory: The output.
        request: All facts that shape the output.

    Raises:
        ValueError: The directory holds other files, or a rewrite of other input or options.
    """
    path = directory / JOURNAL
    if not path.exists():
        others = sorted(entry.name for entry in directory.iterdir())
        if others and others != [JOURNAL + ".tmp"]:
            raise ValueError(
                f"--output must be a directory that is empty or of the same rewrite, "
                f"{str(directory)!r} holds {others[0]!r}"
            )
        return None
    journal = _read(path)
    begun = journal["request"]
    differing = [key for key in request if begun.get(key) != request[key]]
    if differing:
        key = differing[0]
        what = (
            "of other input files, or they have changed"
            if key == "fingerprint"
            else f"with {key}={begun.get(key)!r}, not {request[key]!r}"
        )
        raise ValueError(f"{str(directory)!r} holds a rewrite {what}; take another --output")
    layout = journal["layout"]
    return Layout(**{**layout, "encodings": tuple(layout["encodings"])})


def _read(path: Path) -> dict[str, Any]:
    try:
        journal = json.loads(path.read_text())
        version = journal.get("format")
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{str(path)!r}, the note of a rewrite, is damaged ({error}); take "
            "another --output, or empty this one"
        ) from None
    if version != _FORMAT:
        raise ValueError(f"{str(path)!r} was written by another version of torchparquet")
    return dict(journal)


def begin(directory: Path, request: dict[str, Any], layout: Layout) -> None:
    """Write the note of a new rewrite."""
    journal = {"format": _FORMAT, "request": request, "layout": asdict(layout)}
    unfinished = directory / (JOURNAL + ".tmp")
    with unfinished.open("w") as file:
        json.dump(journal, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, directory / JOURNAL)  # noqa: PTH105
