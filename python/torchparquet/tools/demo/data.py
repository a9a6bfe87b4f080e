"""What the demo trains on: TPC-H files that it writes, or the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchparquet.files.leaf import Leaf
from torchparquet.files.manifest import Manifest

MISSING_EXTRA = 'the demo needs more packages; run: pip install "torchparquet[demo]"'
MAX_FEATURES = 16

_ROWS_PER_SCALE_FACTOR = 6_000_000
_WRITTEN_BYTES_PER_ROW = 66
_MAX_ROW_GROUP_BYTES = 64_000_000
# Codec, encodings and row groups of each file: nothing that could be dealt evenly.
_PARTS = (
    ("SNAPPY", "", 3),
    ("ZSTD(1)", "l_orderkey=DELTA_BINARY_PACKED,l_shipdate=DELTA_BINARY_PACKED", 17),
    ("LZ4_RAW", "l_partkey=BYTE_STREAM_SPLIT", 6),
    ("UNCOMPRESSED", "l_suppkey=PLAIN,l_commitdate=PLAIN", 9),
)
_LINEITEM_FEATURES = ("l_shipdate", "l_commitdate", "l_linenumber", "l_partkey", "l_suppkey")
_LINEITEM_TARGET = "l_receiptdate"


@dataclass(frozen=True)
class Task:
    """What is predicted from what.

    Attributes:
        columns: All that is read, each once.
        features: Names of the columns that the model sees.
        target: Name of the one it predicts.
        unit: Of the target, for the errors; may be empty.
        remark: What is known about the target beforehand; may be empty.
    """

    columns: tuple[Leaf, ...]
    features: tuple[str, ...]
    target: str
    unit: str
    remark: str


def write_lineitem(directory: Path, scale_factor: float) -> tuple[Path, bool]:
    """Write TPC-H's `lineitem` with tpchgen-cli, unless it lies there already.

    Args:
        directory: To hold it; made where missing.
        scale_factor: TPC-H's; 1 is six million rows.

    Returns:
        The directory of the four files, and whether they were written now.

    Raises:
        RuntimeError: tpchgen-cli is missing or fails.
    """
    final = directory / f"lineitem-sf{scale_factor:g}"
    if final.is_dir():
        return final, False
    program = find_tpchgen()
    directory.mkdir(parents=True, exist_ok=True)
    # Under its name only when complete: what an interrupted run leaves is never taken for data.
    with tempfile.TemporaryDirectory(prefix=".lineitem-", dir=directory) as unfinished:
        for number in range(1, len(_PARTS) + 1):
            _write_part(program, number, scale_factor, unfinished)
        os.replace(Path(unfinished) / "lineitem", final)  # noqa: PTH105
    return final, True


def find_tpchgen() -> str:
    """Return the path of the program tpchgen-cli.

    Raises:
        RuntimeError: It is not installed.
    """
    own_scripts = sysconfig.get_path("scripts")
    program = shutil.which("tpchgen-cli", path=own_scripts) or shutil.which("tpchgen-cli")
    if program is None:
        raise RuntimeError(f"tpchgen-cli is not installed: {MISSING_EXTRA}")
    return program


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
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = said[-1] if said else "it says nothing"
        raise RuntimeError(f"tpchgen-cli failed (exit code {done.returncode}): {last}")


def lineitem_task(manifest: Manifest) -> Task:
    """Predict when goods are received from when they were shipped, promised and so on."""
    leaves = {leaf.path: leaf for leaf in manifest.schemas[0]}
    names = (*_LINEITEM_FEATURES, _LINEITEM_TARGET)
    # TPC-H 4.2.3: l_receiptdate = l_shipdate + a random value of 1 .. 30.
    remark = "l_shipdate and 1 to 30 random days: 8.66 days is the best there is"
    columns = tuple(leaves[name] for name in names)
    return Task(columns, _LINEITEM_FEATURES, _LINEITEM_TARGET, "days", remark)


def own_task(manifest: Manifest, names: Sequence[str], target: str | None) -> Task:
    """Choose what can be trained on among the columns of the user's files.

    Args:
        manifest: Of the files.
        names: Of the columns at top level, in the order of the files.
        target: What to predict; None for the last float column, or else the last column.

    Raises:
        ValueError: No column can be read, or `target` is not among those that can.
    """
    usable = _usable_columns(manifest, names)
    if not usable:
        kinds = sorted({leaf.kind for leaf in manifest.schemas[0]})
        raise ValueError(f"no column of a kind that can be read yet; the files have {kinds}")
    if target is not None and target not in usable:
        raise ValueError(f"--target must be one of {list(usable)}, got {target!r}")
    if target is None:
        floats = [name for name, leaf in usable.items() if leaf.dtype.startswith("float")]
        target = (floats or list(usable))[-1]
    features = [name for name in usable if name != target][:MAX_FEATURES] or [target]
    remark = "it is the only column that can be read" if features == [target] else ""
    columns = tuple(usable[name] for name in dict.fromkeys([*features, target]))
    unit = "days" if usable[target].kind == "date" else ""
    return Task(columns, tuple(features), target, unit, remark)


def _usable_columns(manifest: Manifest, names: Sequence[str]) -> dict[str, Leaf]:
    """Return the columns of numbers that all files have alike, nullable where any says so."""
    usable: dict[str, Leaf] = {}
    for name in names:
        found = [[leaf for leaf in schema if leaf.path == name] for schema in manifest.schemas]
        if any(len(leaves) != 1 for leaves in found) or name.startswith("row."):
            continue
        leaves = [leaf for (leaf,) in found]
        if any(leaf.num_offsets or leaf.items for leaf in leaves):
            continue
        if leaves[0].dtype and len({leaf.kind for leaf in leaves}) == 1:
            nullable = any(leaf.nullable for leaf in leaves)
            usable[name] = Leaf(name, leaves[0].kind, leaves[0].dtype, nullable)
    # A column "a.valid" would meet the mask of a column "a".
    return {
        name: leaf
        for name, leaf in usable.items()
        if not (name.endswith(".valid") and name.removesuffix(".valid") in usable)
    }
