"""Programs in C++ that use the codecs of the reader: its own kernels, and Arrow's."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

import pyarrow as pa

_DIRECTORY = Path(__file__).resolve().parent
_CPP = _DIRECTORY.parents[1] / "cpp"
_UNITS = (
    "base/errors",
    "bridge/arrow/arrow_file",
    "bridge/arrow/codecs",
    "bridge/arrow/library",
    "bridge/arrow/remembered_keys",
    "bridge/arrow/schema_leaves",
    "bridge/loaded_library",
    "kernels/codecs/lz4",
    "kernels/codecs/snappy",
    "kernels/codecs/zstd",
    "kernels/codecs/zstd_blocks",
    "kernels/codecs/zstd_content",
    "kernels/codecs/zstd_literals",
    "kernels/codecs/zstd_sequences",
    "kernels/codecs/zstd_tables",
    "kernels/instructions",
    "kernels/xxhash64",
    "pages/libdeflate",
    "pages/page_codec",
    "pages/page_header",
)


def compiled(source: str, directory: Path) -> Path:
    """Compiles ``source`` of this room into ``directory``, unless it is there, and returns it."""
    main = _DIRECTORY / source
    sources = [main, *(_CPP / f"{unit}.cc" for unit in _UNITS)]
    headers = sorted([*(_CPP / "kernels/codecs").glob("*.h"), *(_CPP / "bridge").rglob("*.h")])
    text = b"".join(path.read_bytes() for path in [*sources, *headers])
    name = hashlib.sha256(text + pa.__version__.encode()).hexdigest()[:16]
    program = directory / f"{main.stem}_{name}"
    if program.exists():
        return program
    libraries = Path(pa.get_library_dirs()[0])
    release = pa.cpp_build_info.so_version
    linked = [libraries / f"lib{lib}.so.{release}" for lib in ("parquet", "arrow")]
    compiler = os.environ.get("CXX", "c++").split()
    # As the extension is compiled: tuned for one processor, loops differ by a quarter.
    march = ["-march=x86-64-v2"] if platform.machine() == "x86_64" else []
    flags = ["-std=c++20", "-O3", *march, "-pthread", "-ldl", f"-I{_CPP}"]
    flags += ['-DTORCHPARQUET_BRIDGE_ABI="bench"']
    flags += [f"-I{pa.get_include()}", f"-Wl,-rpath,{libraries}"]
    partial = program.with_suffix(".partial")
    command = [*compiler, *flags, *map(str, sources), *map(str, linked), "-o", str(partial)]
    subprocess.run(command, check=True)
    partial.replace(program)
    return program
