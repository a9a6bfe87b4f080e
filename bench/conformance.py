"""Reads every file of a directory of test files, and prints the outcomes as a Markdown table.

    python bench/conformance.py path/to/parquet-testing/data > docs/reference/conformance.md

Each column is read by itself, whole, with masks for nulls. That values are right is for the tests
to say: tests/formats/test_corpus.py holds each column of the same files against pyarrow's reading.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torchparquet import CorruptFileError, ParquetDataset, UnsupportedColumnError
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import read_manifest

COMMAND = "python bench/conformance.py path/to/parquet-testing/data > docs/reference/conformance.md"


class Outcome(NamedTuple):
    """The findings about one file.

    Attributes:
        rows: That its footer claims, or None where it is not believed.
        kinds: The kind of each column that was read, in the file's order.
        refused: Why the file, or a column of it, was not.
    """

    rows: int | None
    kinds: list[str]
    refused: list[str]


def outcome_of(path: Path) -> Outcome:
    """Returns what happens when the file is opened and each of its columns is read."""
    try:
        manifest = read_manifest(str(path))
    except (CorruptFileError, ValueError) as error:
        return Outcome(None, [], [_reason(error, path)])
    kinds, refused = [], []
    for leaf in manifest.schemas[0]:
        try:
            _read(manifest, path, leaf.path)
        except (CorruptFileError, UnsupportedColumnError) as error:
            refused.append(f"`{leaf.path}` (`{leaf.kind}`): {_reason(error, path)}")
        else:
            kinds.append(leaf.kind)
    return Outcome(manifest.num_rows, kinds, refused)


def _read(manifest: Manifest, path: Path, column: str) -> None:
    dataset = ParquetDataset(
        str(path), batch_size=1000, columns=[column], nulls="mask", rank=0, world_size=1
    )
    num_rows = sum(len(batch[f"{column}.valid"]) for batch in dataset)
    if num_rows != manifest.num_rows:
        raise AssertionError(f"{path.name}, {column}: {num_rows} of {manifest.num_rows} rows")


def _reason(error: Exception, path: Path) -> str:
    """Returns the error's class and the first part of its message, without what varies."""
    message = str(error).replace(str(path), path.name)
    message = re.sub(r": ('|file '|[0-9]).*", "", message)
    return f"{type(error).__name__}, {message}"


def lines_of(folder: Path) -> Iterator[str]:
    """Yields the lines of the document."""
    outcomes = {path.name: outcome_of(path) for path in sorted(folder.glob("*.parquet"))}
    num_read = sum(len(outcome.kinds) for outcome in outcomes.values())
    whole = sum(not outcome.refused for outcome in outcomes.values())
    yield "# Conformance"
    yield ""
    yield (
        "The files come from [parquet-testing](https://github.com/apache/parquet-testing). Many "
        "tools wrote them, some with faults on purpose. `tests/formats/test_corpus.py` compares "
        "every column that is read with pyarrow's reading, value by value."
    )
    yield ""
    yield (
        f"Of {len(outcomes)} files {whole} are read whole, {num_read} columns in all. "
        f"Printed by `{COMMAND}`."
    )
    yield ""
    yield "| file | rows | columns read | kinds | refused, with the reason |"
    yield "|---|--:|--:|---|---|"
    for name, outcome in outcomes.items():
        kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(outcome.kinds))
        rows = "" if outcome.rows is None else outcome.rows
        refused = "<br>".join(outcome.refused)
        yield f"| {name} | {rows} | {len(outcome.kinds)} | {kinds} | {refused} |"


def main() -> None:
    """Prints the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the .parquet files are")
    for line in lines_of(parser.parse_args().folder):
        print(line)


if __name__ == "__main__":
    main()
