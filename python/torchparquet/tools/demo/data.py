"""The data of the demo: TPC-H files that it writes, or the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchparquet._impl.files.footers.leaf import Leaf
from torchparquet._impl.files.manifest import Manifest

_MAX_FEATURES = 16
_ROWS_PER_SCALE_FACTOR = 6_000_000
_WRITTEN_BYTES_PER_ROW = 66
_MAX_ROW_GROUP_BYTES = 64_000_000
# Codec, encodings and number of row groups of each file, chosen so that whole row groups cannot
# be dealt evenly.
_PARTS = (
    ("SNAPPY", "", 3),
    ("ZSTD(1)", "l_orderkey=DELTA_BINARY_PACKED,l_shipdate=DELTA_BINARY_PACKED", 17),
    ("LZ4_RAW", "l_partkey=BYTE_STREAM_SPLIT", 6),
    ("UNCOMPRESSED", "l_suppkey=PLAIN,l_commitdate=PLAIN", 9),
)


@dataclass(frozen=True)
class Task:
    """The columns that a model is trained on."""

    origin: str
    features: tuple[str, ...]
    target: str
    remark: str = ""


def find_tpchgen() -> str:
    """Return the path of the program tpchgen-cli."""
    own_scripts = sysconfig.get_path("scripts")
    program = shutil.which("tpchgen-cli", path=own_scripts) or shutil.which("tpchgen-cli")
    if program is None:
        raise RuntimeError(
            "the demo needs tpchgen-cli, which is not installed: pip install tpchgen-cli; "
            "or give your own files with --data"
        )
    return program


def write_lineitem(directory: Path, scale_factor: float) -> Path:
    """Write TPC-H's `lineitem` with tpchgen-cli, unless the directory has it already."""
    final = directory / f"lineitem-sf{scale_factor:g}"
    if final.is_dir():
        return final
    program = find_tpchgen()
    directory.mkdir(parents=True, exist_ok=True)
    # Renamed when complete, so that no run takes the files of an interrupted one for data.
    with tempfile.TemporaryDirectory(prefix=".lineitem-", dir=directory) as unfinished:
        for number in range(1, len(_PARTS) + 1):
            _write_part(program, number, scale_factor, unfinished)
        os.replace(Path(unfinished) / "lineitem", final)  # noqa: PTH105
    return final


def _write_part(program: str, number: int, scale_factor: float, directory: str) -> None:
    codec, encodings, num_row_groups = _PARTS[number - 1]
    part_bytes = scale_factor * _ROWS_PER_SCALE_FACTOR / len(_PARTS) * _WRITTEN_BYTES_PER_ROW
    row_group_bytes = min(_MAX_ROW_GROUP_BYTES, max(1000, int(part_bytes / num_row_groups)))
    command = [
        *(program, "parquet", "--quiet", "--tables=lineitem", f"--scale-factor={scale_factor:g}"),
        *(f"--parts={len(_PARTS)}", f"--part={number}", f"--compression={codec}"),
        *(f"--row-group-bytes={row_group_bytes}", f"--output-dir={directory}"),
        *([f"--column-encoding={encodings}"] if encodings else []),
    ]
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = output[-1] if output else "no message"
        raise RuntimeError(f"tpchgen-cli failed (exit code {done.returncode}): {last}")


def lineitem_task(scale_factor: float) -> Task:
    """Return the task of predicting when goods are received from the other dates."""
    return Task(
        f"TPC-H lineitem at scale factor {scale_factor:g}, by tpchgen-cli",
        ("l_shipdate", "l_commitdate", "l_linenumber", "l_partkey", "l_suppkey"),
        "l_receiptdate",
        # TPC-H 4.2.3: l_receiptdate = l_shipdate + a random value of 1 .. 30.
        "l_shipdate plus 1 to 30 random days, so no model has an error below 8.66 days",
    )


def own_task(manifest: Manifest) -> Task:
    """Return the task of predicting the last float column, or else the last column of numbers."""
    known = [{leaf.path: leaf for leaf in schema} for schema in manifest.schemas]
    numbers = {
        leaf.path: leaf
        for leaf in manifest.schemas[0]
        if _is_number(leaf)
        and all(leaf.path in leaves and leaves[leaf.path].kind == leaf.kind for leaves in known)
    }
    if not numbers:
        kinds = sorted({leaf.kind for leaf in manifest.schemas[0]})
        raise ValueError(f"the demo needs a column of numbers; the files have {kinds}")
    floats = [name for name, leaf in numbers.items() if leaf.dtype.startswith("float")]
    target = (floats or list(numbers))[-1]
    features = [name for name in numbers if name != target][:_MAX_FEATURES]
    return Task(manifest.files[0], tuple(features) or (target,), target)


def _is_number(leaf: Leaf) -> bool:
    """Return whether a leaf is a top-level column of numbers that pyarrow reads exactly too."""
    is_plain = leaf.items is None and not leaf.num_offsets and "." not in leaf.path
    return bool(leaf.dtype) and is_plain and not leaf.kind.startswith(("decimal", "time["))
