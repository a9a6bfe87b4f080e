"""Decompression alone: the reader's codecs beside Arrow's and those of Python packages.

Pages of one kind of content each, as pyarrow writes them, are compressed by Arrow's codecs and
stay in memory. Every thread decompresses all pages into memory that is used again. Figures are GB/s
of content. "ours" takes one page after another, "pairs" two at once, as the reader does. "of
memcpy" is the faster of the two as a share of copying as many bytes within the cache. Packages run
on one thread; those that are not installed are left out.

    python bench/codec_speed.py                          # all codecs, one thread and two
    python bench/codec_speed.py --codecs snappy --threads 1
    python bench/codec_speed.py --codecs zstd --levels 1 3 9 19 --threads 1
    python bench/codec_speed.py --stages 1               # of the zstd kernel, by perf record
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from generated.pages import kinds_of_pages
from passes.native_program import compiled
from report.machine import described, environment

# As Parquet numbers them, and as pyarrow.Codec names them.
_CODECS = {"snappy": (1, "snappy"), "lz4": (7, "lz4_raw"), "zstd": (6, "zstd"), "gzip": (2, "gzip")}
Decompress = Callable[[bytes, int], object]


def _module(name: str) -> object | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _packages(codec: str) -> dict[str, Decompress]:
    """Returns how packages decompress a page to a known size, by their names."""
    found: dict[str, Decompress] = {}
    cramjam, lz4, zstandard = map(_module, ("cramjam", "lz4.block", "zstandard"))
    isal, deflate = map(_module, ("isal.isal_zlib", "deflate"))
    if cramjam is not None:
        raw: dict[str, Decompress] = {
            "snappy": lambda page, _: cramjam.snappy.decompress_raw(page),  # type: ignore[attr-defined]
            "lz4": lambda page, size: cramjam.lz4.decompress_block(page, output_len=size),  # type: ignore[attr-defined]
            "zstd": lambda page, size: cramjam.zstd.decompress(page, output_len=size),  # type: ignore[attr-defined]
            "gzip": lambda page, size: cramjam.gzip.decompress(page, output_len=size),  # type: ignore[attr-defined]
        }
        found["cramjam"] = raw[codec]
    if lz4 is not None and codec == "lz4":
        found["lz4"] = lambda page, size: lz4.decompress(page, size)  # type: ignore[attr-defined]
    if zstandard is not None and codec == "zstd":
        context = zstandard.ZstdDecompressor()  # type: ignore[attr-defined]
        found["zstandard"] = lambda page, size: context.decompress(page, size)
    if isal is not None and codec == "gzip":
        found["isal"] = lambda page, size: isal.decompress(page, 31, size)  # type: ignore[attr-defined]
    if deflate is not None and codec == "gzip":
        found["deflate"] = lambda page, size: deflate.gzip_decompress(page, size)  # type: ignore[attr-defined]
    return found


def _package_speed(
    decompress: Decompress, pages: list[tuple[bytes, int]], num_bytes: int, repeats: int
) -> float:
    seconds = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        for page, size in pages:
            decompress(page, size)
        seconds.append(time.perf_counter() - begin)
    return num_bytes / 1e9 / statistics.median(seconds[1:])


# By names of the kernel's functions. A loop of literals is one for a number of streams too.
_STAGES = {
    "headers and tables": r"Read|Build",
    "literals": r"Run\w*<\d+l, ",
    "sequences": r"Run\w*<\d+ul>",
    "copies": r"Write",
}


def _print_stages(level: int, kinds: list[tuple[str, list[bytes]]], folder: Path) -> None:
    """Print where the zstd kernel spends its time, on pages one by one and in pairs."""
    print(f"\nShares of the kernel's time at level {level}\n")
    print("| pages | " + " | ".join(_STAGES) + " |\n| --- |" + " ---: |" * len(_STAGES))
    for name, pages in kinds:
        program = _program("zstd", _compressed("zstd", level, pages), folder)
        data = ["-i", str(folder / "perf.data")]
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-o", data[1]]
        subprocess.run([*record, *program, "1", "7"], check=True, capture_output=True)
        report = ["perf", "report", *data, "--stdio", "-F", "overhead,symbol"]
        lines = subprocess.run(report, check=True, capture_output=True, text=True).stdout
        own = re.findall(
            r"([\d.]+)%.*torchparquet::kernels::(?:\(anonymous namespace\)::)?(.*)", lines
        )
        of = [
            sum(float(share) for share, function in own if re.match(pattern, function))
            for pattern in _STAGES.values()
        ]
        print(f"| {name} | " + " | ".join(f"{one / max(sum(of), 1e-9):.0%}" for one in of) + " |")


def _compressed(codec: str, level: int | None, pages: list[bytes]) -> list[tuple[bytes, int]]:
    arrow_codec = pa.Codec(_CODECS[codec][1], compression_level=level)
    return [(arrow_codec.compress(page, asbytes=True), len(page)) for page in pages]


def _program(codec: str, compressed: list[tuple[bytes, int]], directory: Path) -> list[str]:
    """Return the command that decompresses pages; numbers of threads and repeats come after it."""
    path = directory / "pages"
    with path.open("wb") as file:
        for page, size in compressed:
            file.write(struct.pack("<II", size, len(page)) + page)
    return [str(compiled("codec_speed.cc", directory)), str(path), str(_CODECS[codec][0])]


def measure(
    codec: str,
    level: int | None,
    pages: list[bytes],
    num_threads: int,
    repeats: int,
    directory: Path,
) -> dict[str, float]:
    """Return the GB/s of each way for these pages."""
    compressed = _compressed(codec, level, pages)
    command = [*_program(codec, compressed, directory), str(num_threads), str(repeats)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    speed = {way: float(value) for way, value in map(str.split, printed.splitlines())}
    num_bytes = sum(map(len, pages))
    speed["ratio"] = num_bytes / sum(len(page) for page, _ in compressed)
    if num_threads == 1:
        for package, decompress in _packages(codec).items():
            speed[package] = _package_speed(decompress, compressed, num_bytes, repeats)
    return speed


def _print_table(
    codec: str, level: int | None, num_threads: int, rows: dict[str, dict[str, float]]
) -> None:
    first = next(iter(rows.values()))
    known = {"ours", "pairs", "arrow", "memcpy", "ratio"}
    packages = [name for name in first if name not in known]
    ways = [way for way in ("ours", "pairs") if way in first]
    at_level = "" if level is None else f" of level {level}"
    print(f"\n{codec}{at_level}, {num_threads} thread{'s' if num_threads > 1 else ''}\n")
    titles = ["pages", "ratio", *ways, "Arrow", "ours / Arrow", "of memcpy", *packages]
    print(f"| {' | '.join(titles)} |")
    print(f"| --- |{' ---: |' * (len(titles) - 1)}")
    for name, speed in rows.items():
        best = max(speed[way] for way in ways)
        cells = [name, f"{speed['ratio']:.2f}", *(f"{speed[way]:.2f}" for way in ways)]
        cells += [f"{speed['arrow']:.2f}", f"{best / speed['arrow']:.2f}x"]
        cells.append(f"{best / speed['memcpy']:.0%}")
        cells += [f"{speed[package]:.2f}" for package in packages]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure, and print a table for each codec and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codecs", nargs="+", choices=list(_CODECS), default=list(_CODECS))
    parser.add_argument("--levels", nargs="+", type=int, default=[None], help="of zstd and gzip")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rows", type=int, default=1 << 20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--stages", type=int, metavar="LEVEL", help="only those of zstd")
    arguments = parser.parse_args()
    print(f"{described(environment(max(arguments.threads)))}; median of {arguments.repeats}")
    kinds = list(kinds_of_pages(arguments.rows))
    with tempfile.TemporaryDirectory() as folder:
        if arguments.stages is not None:
            _print_stages(arguments.stages, kinds, Path(folder))
            return
        for codec in arguments.codecs:
            for level, num_threads in itertools.product(arguments.levels, arguments.threads):
                options = codec, level
                rows = {
                    name: measure(*options, pages, num_threads, arguments.repeats, Path(folder))
                    for name, pages in kinds
                }
                _print_table(*options, num_threads, rows)


if __name__ == "__main__":
    main()
