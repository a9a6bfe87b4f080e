"""Manifest caches, and those of conditions and packing beside them, whose writers are killed."""

from __future__ import annotations

import hashlib
import io
import random
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

# pyarrow imports both when it needs them, which takes longer than all else that is killed.
import pandas as pd  # noqa: F401
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from faults.processes.findings import Findings
from faults.processes.moments import NEVER, Course, Tell, Work, course_of, run
from torchparquet import Pack, ParquetDataset

_NUM_FILES = 5
_CACHE = "manifest"


def write_documents(folder: Path, version: int) -> None:
    """Write documents; the last file differs by version."""
    folder.mkdir(exist_ok=True)
    for file in range(_NUM_FILES):
        rng = np.random.default_rng([file, version if file == _NUM_FILES - 1 else 0])
        documents = [rng.integers(0, 99, rng.integers(1, 20)).tolist() for _ in range(200)]
        columns = {"tokens": pa.array(documents, pa.list_(pa.int32())), "n": range(200)}
        pq.write_table(pa.table(columns), folder / f"{file}.parquet", row_group_size=50)


class KilledCaches:
    """Openings of a data set with caches, absent or outdated ones, killed at any moment."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Write documents, outdated caches of them, and newer documents.

        Args:
            folder: To write to.
            seed: Of the moments.
        """
        self._data, self._caches = folder / "documents", folder / "caches"
        self._log = folder / "log"
        self._draw = random.Random(seed)
        self.findings = Findings()
        self._caches.mkdir()
        self._in_child(lambda _: write_documents(self._data, 0))
        self._in_child(self._reader(self._caches / _CACHE))
        self._old = {path.name: path.read_bytes() for path in self._caches.iterdir()}
        self._in_child(lambda _: write_documents(self._data, 1))
        self._expected = self._in_child(self._reader(None))["rows"]
        self._courses: list[Course] = []
        for has_old in (False, True):
            self._lay_out(has_old)
            self._courses.append(course_of(self._open, self._log))
            if not has_old:
                self._new = self._digests()
        if len(self._new) != len(self._old) or len(self._new) < 3:
            raise RuntimeError(f"there are not three kinds of caches: {sorted(self._new)}")

    def round(self) -> None:
        """Kill a writer, look at what it left, and read with that."""
        has_old = self._draw.random() < 0.5
        self._lay_out(has_old)
        moment = self._courses[has_old].draw(self._draw)
        children = run([self._open], moment, self._log)
        self.findings.add_kills(children)
        old = {name: _digest(content) for name, content in self._old.items()} if has_old else {}
        for name, digest in self._digests().items():
            is_whole = digest in (self._new.get(name), old.get(name))
            self.findings.add("files not whole", not is_whole, name)
        found = self._in_child(self._reader(self._caches / _CACHE))["rows"]
        self.findings.add("other batches", found != self._expected, f"read {found}")
        now = self._digests()
        differing = {name for name in self._new if now.get(name) != self._new[name]}
        self.findings.add("failed repeats", len(differing), f"{differing} are not the new ones")
        self.findings.rounds += 1

    def _lay_out(self, has_old: bool) -> None:
        shutil.rmtree(self._caches)
        self._caches.mkdir()
        for name, content in self._old.items() if has_old else ():
            (self._caches / name).write_bytes(content)

    def _dataset(self, cache: Path | None) -> ParquetDataset:
        # A cache that is damaged is told of by a warning.
        warnings.simplefilter("error")
        return ParquetDataset(
            self._data,
            batch_size=8,
            filters=ds.field("n") < 150,
            pack=Pack("tokens", 32, "best_fit"),
            manifest_cache=cache,
            rank=0,
            world_size=1,
            num_threads=2,
        )

    def _open(self, _: Tell) -> None:
        self._dataset(self._caches / _CACHE)

    def _reader(self, cache: Path | None) -> Work:
        def read(tell: Tell) -> None:
            digest = hashlib.blake2b(digest_size=7)
            for batch in self._dataset(cache):
                digest.update(batch["tokens"].numpy().tobytes())
            tell(rows=int.from_bytes(digest.digest(), "little"))

        return read

    def _in_child(self, work: Work) -> dict[str, int]:
        (child,) = run([work], NEVER, self._log)
        if child.code != 0:
            words = self._log.read_text(errors="replace")[-2000:]
            self.findings.add("failed repeats", 1, words)
        return {"rows": -1} | child.facts

    def _digests(self) -> dict[str, str]:
        """Return digests of the caches by name, drafts of killed writers apart."""
        paths = [path for path in self._caches.iterdir() if not path.name.startswith(".")]
        return {path.name: _digest(path.read_bytes()) for path in paths}


def _digest(content: bytes) -> str:
    """Return a digest of an archive's arrays, without its times; "torn" if it is not whole."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            for name in sorted(stored.files):
                array: Any = stored[name]
                digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    except (zipfile.BadZipFile, EOFError, KeyError, ValueError):
        return "torn"
    return digest.hexdigest()
