"""Libraries that stand before the system's functions, for the whole of a process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_FLAGS = ("-std=c++20", "-fPIC", "-shared")


def begin(source: Path, flags: Sequence[str] = ()) -> None:
    """Go on as a process with the library loaded, compiled from `source` unless it is there."""
    if f"{source.stem}_" in os.environ.get("LD_PRELOAD", ""):
        return
    folder = Path(tempfile.gettempdir())
    name = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    library = folder / f"{source.stem}_{name}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as made:
            partial = Path(made) / "library.so"
            compiler = os.environ.get("CXX", "c++").split()
            command: list[str | Path] = [*compiler, *_FLAGS, *flags, source]
            command += ["-o", partial, "-ldl"]
            subprocess.run(command, check=True)
            partial.replace(library)
    # One thread of ours, and none of libraries: processes with threads cannot be forked safely.
    variables = {
        "LD_PRELOAD": str(library),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | variables)
