"""A store of decoded rows, addressed by number: written in one pass, read at random.

    row groups ──► pieces ──► records | items | digests of blocks | what it is
    in file order  of about 128 MiB, mapped where they are read

With `cache_dir` a piece is a file, which is renamed to its name when it is whole; processes that
share the folder divide the pieces among them. Otherwise it is memory without a name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchparquet._impl.native import (
    locate_records,
    mark_cache_folder,
    read_ahead,
)
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Int64Array, PlanOptions
from torchparquet._impl.reading.streams import StreamOpener
from torchparquet._impl.sampling.store.pieces import (
    BLOCK_BYTES,
    Piece,
    finish_piece,
    unnamed_memory,
    write_at,
)
from torchparquet._impl.sampling.store.records import Layout, bytes_of_rows
from torchparquet.errors import CorruptFileError, users_level

# Small data has pieces for several ranks to make.
_PIECE_BYTES, _LEAST_PIECE_BYTES, _PIECES = 128 << 20, 1 << 20, 16
_BATCH_ROWS = 1 << 16
_FORMAT = 2
# How long a wait for another process lasts between two looks.
_WAIT_SECONDS = 0.05


class RowStore:
    """The decoded rows of a data set, in the order of its selected rows. Of one process."""

    def __init__(self, rows: StreamOpener, folder: str | None, limit_bytes: int | None) -> None:
        """Read nothing yet; `folder` is that of the cache, None to keep rows in memory."""
        manifest = rows.manifest
        self._given = rows, folder, limit_bytes
        self._memory = rows.options
        # A quarter of the memory, for an epoch may be under way beside the pass.
        most = max(1, rows.options.memory_per_worker(1) // 4)
        options = replace(rows.options, pin_memory=False, max_memory=most)
        self._rows = replace(rows, options=options, row_valid=False)
        self._limit_bytes = limit_bytes
        row_bytes, self.is_exact = bytes_of_rows(rows.tensors)
        self.num_bytes = int(manifest.num_rows * row_bytes)
        self._row_bytes, self._num_workers, self._batch_rows = row_bytes, 1, _BATCH_ROWS
        ends = np.cumsum(manifest.row_group_num_rows)
        begins = ends - manifest.row_group_num_rows
        piece_bytes = min(_PIECE_BYTES, max(_LEAST_PIECE_BYTES, self.num_bytes // _PIECES))
        # Empty row groups at the end are in the last piece.
        number = np.minimum(begins, ends[-1] - 1) * row_bytes // piece_bytes
        first: Int64Array = np.flatnonzero(np.diff(number, prepend=-1.0))
        self._row_groups: Int64Array = np.append(first, len(ends))
        self._first: Int64Array = np.append(begins[first], ends[-1])
        self.folder = None if folder is None else Path(folder) / "rows" / self._key()
        self._pieces: list[Piece | None] = [None] * len(first)
        self._base = np.zeros(len(first), np.uint64)
        self._begin = np.zeros(len(first), np.int64)  # of each piece's blocks, among all
        self._is_checked = np.zeros(0, bool)
        self._all_checked = False
        self._making = threading.Lock()
        self._ended = threading.Event()
        self._owner_pid = os.getpid()
        self.layout: Layout | None = None
        self._old: list[Piece] = []  # other threads may be reading them
        if limit_bytes is not None and folder is not None and self.num_bytes > limit_bytes:
            raise ValueError(
                f'cache_limit must hold the decoded rows that shuffle="global" reads, {self.told}: '
                f"got {limit_bytes} bytes"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a store that has opened nothing, in another process."""
        return RowStore, self._given

    def forget(self) -> None:
        """Give up what is open. No stream may read it."""
        self.__init__(*self._given)  # type: ignore[misc]

    @property
    def told(self) -> str:
        """The bytes of all rows, in words."""
        return f"{'' if self.is_exact else 'about '}{self.num_bytes} bytes"

    @property
    def row_bytes(self) -> float:
        """The bytes of a row: those expected, until all rows are there."""
        held = [len(piece.content) for piece in self._pieces if piece is not None]
        if len(held) < len(self._pieces):
            return self._row_bytes
        return sum(held) / self._rows.manifest.num_rows

    def check_memory(self, num_workers: int, written_bytes: int = 0) -> None:
        """Raise unless the rows fit half of the memory, where they are kept there.

        What strings and lists take is not known before they are written.
        """
        most = self._memory.memory_per_worker(num_workers) // 2
        if self.folder is None and max(self.num_bytes, written_bytes) > most:
            of = " of a worker" if num_workers > 1 else ""
            told = f"more than {written_bytes} bytes" if written_bytes > most else self.told
            raise ValueError(
                'shuffle="global" keeps all decoded rows, which must fit half of max_memory'
                f"{of}, {most} bytes, or be on disk: give cache_dir=, a folder on a local disk; "
                f"they take {told}"
            )

    def fill(
        self, index: int, num_sharers: int, num_workers: int, ended: threading.Event | None = None
    ) -> None:
        """Make the pieces that are missing, as one of several who do so, and open all.

        It gives up when `ended` is set.
        """
        self._num_workers = num_workers
        num_pieces = len(self._pieces)
        begin = index % num_sharers * num_pieces // num_sharers
        turn = [*range(begin, num_pieces), *range(begin)]
        ended = ended or threading.Event()
        while not self._lock.acquire(timeout=_WAIT_SECONDS):  # of two, one fills it for both
            if ended.is_set():
                return
        try:
            self._ended = ended
            if not all(self._pieces):
                self._make_room()
            while missing := [number for number in turn if self._pieces[number] is None]:
                if not [number for number in missing if self._open_or_make(number)]:
                    ended.wait(_WAIT_SECONDS)  # others make them
                if ended.is_set():
                    return
        except _EndedError:
            return
        finally:
            self._ended = threading.Event()
            self._rows.forget()
            self._lock.release()

    def is_whole(self) -> bool:
        """True if all pieces are there, which are opened; False while a thread makes them."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not all(self._pieces):
                self._make_room()
            for number in range(len(self._pieces)):
                path = self._path(number)
                is_open = self._pieces[number] is not None
                if not is_open and (path is None or not self._opened(number, path)):
                    return False
            return True
        finally:
            self._lock.release()

    @property
    def _lock(self) -> threading.Lock:
        if self._owner_pid != os.getpid():
            # A thread that does not exist in a forked child may hold it.
            self._making, self._owner_pid = threading.Lock(), os.getpid()
        return self._making

    def records(self, rows: Int64Array) -> tuple[Int64Array, NDArray[np.uint64]]:
        """Return the pieces of rows, int64 `[B]`, and the addresses of their records."""
        assert self.layout is not None  # noqa: S101
        size = self.layout.record_bytes
        piece, records = locate_records(rows, self._first, self._base, size)
        if not self._all_checked:
            begin = (rows - self._first[piece]) * size
            self._check(piece, begin, begin + size)
            # A piece that was made anew lies elsewhere.
            piece, records = locate_records(rows, self._first, self._base, size)
        if self.folder is not None:
            read_ahead(records, np.full(len(records), size))
        return piece, records

    def items(self, piece: Int64Array, places: Int64Array, sizes: Int64Array) -> NDArray[np.uint64]:
        """Return the addresses, uint64 `[B]`, of items by piece, place and size in bytes."""
        assert self.layout is not None  # noqa: S101
        begin = (self._first[piece + 1] - self._first[piece]) * self.layout.record_bytes + places
        if not self._all_checked:
            some = sizes > 0
            self._check(piece[some], begin[some], (begin + sizes)[some])
        addresses = self._base[piece] + begin.astype(np.uint64)
        if self.folder is not None:
            read_ahead(addresses, sizes)
        return addresses

    def _key(self) -> str:
        """Return a name that differs for other rows, columns, and ways to keep them."""
        rows = self._rows
        told = [
            *(_FORMAT, rows.manifest.fingerprint, rows.row_ids, self._first.tolist()),
            *([f.identity, f.shape, f.order, f.file_values, f.kinds] for f in rows.fields),
        ]
        return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()

    # Pieces.

    def _open_or_make(self, number: int) -> bool:
        """Open a piece, made first if it is missing; False if that is to be tried again."""
        path = self._path(number)
        if path is None:
            descriptor = unnamed_memory()
            try:
                self._write(number, descriptor)
                self._take(number, Piece(descriptor, self._name(number)))
            finally:
                os.close(descriptor)
            return True
        if self._opened(number, path):
            return True
        try:
            with _locked(path.with_suffix(".lock")) as lock:
                if lock != "of another" and not self._opened(number, path):
                    self._make(number, path, is_alone=lock == "ours")
                    if not self._opened(number, path):
                        raise CorruptFileError(
                            f"a file of decoded rows cannot be read: {str(path)!r}"
                        )
                return lock != "of another"
        except FileNotFoundError:
            if path.parent.exists():
                raise
            self._make_room()  # a process with other data needed it, and removed ours
            return False

    def _path(self, number: int) -> Path | None:
        """Return the file of a piece; None in memory."""
        return None if self.folder is None else self.folder / f"{number:06}.rows"

    def _name(self, number: int) -> str:
        """Return what a piece says that it is, wherever its file is."""
        return f"{'' if self.folder is None else self.folder.name}/{number}"

    def _opened(self, number: int, path: Path) -> bool:
        """Open a piece; False if there is none, or it is damaged and was removed."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            piece = Piece(descriptor, self._name(number))
        except ValueError as error:
            self._remove_damaged(path, str(error))
            return False
        finally:
            os.close(descriptor)
        self._take(number, piece)
        return True

    def _remove_damaged(self, path: Path, why: str) -> None:
        warnings.warn(
            f"a file of decoded rows is damaged ({why}), it is made anew: {str(path)!r}",
            stacklevel=users_level(),
        )
        path.unlink(missing_ok=True)

    def _take(self, number: int, piece: Piece) -> None:
        old = self._pieces[number]
        if old is not None:
            self._old.append(old)
        self.layout = self.layout or piece.layout
        if piece.layout != self.layout:
            raise RuntimeError("files of decoded rows of one data set differ in their columns")
        self._base[number] = piece.content.ctypes.data
        self._pieces[number] = piece
        if old is None and all(self._pieces):
            num_blocks = [len(one.digests) for one in self._pieces if one is not None]
            self._begin = np.cumsum(num_blocks, dtype=np.int64) - num_blocks
            self._is_checked = np.zeros(sum(num_blocks), bool)
            self._all_checked = self.folder is None  # memory of the process is not checked

    def _make(self, number: int, path: Path, *, is_alone: bool) -> None:
        if is_alone:  # then what is there is of processes that were killed
            for draft in path.parent.glob(f".{path.name}.*.draft"):
                draft.unlink(missing_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._write(number, descriptor)
            self._check_limit(path.parent, os.fstat(descriptor).st_size)
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            if isinstance(error, CorruptFileError) or error.filename is not None:
                raise
            free = shutil.disk_usage(path.parent).free
            raise OSError(
                error.errno,
                f'{error.strerror}: shuffle="global" keeps decoded rows, {self.told} in all, in '
                f"cache_dir=, and what it has written so far stays; the disk has {free} bytes left",
                str(path.parent),
            ) from error
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def _write(self, number: int, descriptor: int) -> None:
        """Write a piece whole, in smaller batches if its rows are longer than expected."""
        most = self._rows.options.memory_per_worker(self._num_workers) / 4 / self._row_bytes
        self._batch_rows = int(max(1, min(self._batch_rows, most)))
        while True:
            try:
                return self._write_rows(number, descriptor)
            except MemoryError:
                if self._batch_rows == 1:
                    raise
                self._batch_rows = -(-self._batch_rows // 8)

    def _write_rows(self, number: int, descriptor: int) -> None:
        """Read the row groups of a piece and write them, with what the file has."""
        row_groups = np.zeros(self._rows.manifest.num_row_groups, bool)
        row_groups[self._row_groups[number] : self._row_groups[number + 1]] = True
        num_rows = np.where(row_groups, self._rows.manifest.row_group_num_rows, 0)
        plan = EpochPlan(num_rows, PlanOptions(batch_size=self._batch_rows))
        layout, written, item_bytes = None, 0, 0
        held = sum(len(piece.content) for piece in self._pieces if piece is not None)
        # The memory of one piece's reader is the next one's.
        with closing(self._rows.open([plan.share(0)], self._num_workers)) as batches:
            for batch in batches:
                if self._ended.is_set():
                    raise _EndedError
                layout = layout or Layout.of(batch)
                records, items = layout.pack(batch, item_bytes)
                size = layout.record_bytes
                write_at(descriptor, written * size, records.numpy())
                write_at(descriptor, int(num_rows.sum()) * size + item_bytes, items.numpy())
                written += len(records)
                item_bytes += len(items)
                self.check_memory(self._num_workers, held + written * size + item_bytes)
        assert layout is not None  # noqa: S101
        content_bytes = written * layout.record_bytes + item_bytes
        finish_piece(descriptor, layout, self._name(number), content_bytes)

    # Room on the disk.

    def _make_room(self) -> None:
        """Mark the folder as a cache, and remove the least recently used of other data.

        Before this nothing of the folder is to be trusted.
        """
        if (folder := self.folder) is None:
            return
        mark_cache_folder(str(folder.parent.parent))
        for own in (folder.parent, folder):
            own.mkdir(mode=0o700, exist_ok=True)
        os.utime(folder)
        others = []
        for other in folder.parent.iterdir():
            if other != folder:
                with contextlib.suppress(OSError):  # removed meanwhile, no folder, or not readable
                    others.append((other.stat().st_mtime, other, _bytes_in(other)))
        too_much = self.num_bytes + sum(of for *_, of in others) - (self._limit_bytes or 0)
        for _, other, num_bytes in sorted(others):
            if too_much > 0:
                shutil.rmtree(other, ignore_errors=True)
                too_much -= num_bytes

    def _check_limit(self, folder: Path, more_bytes: int) -> None:
        """Raise if what strings and lists take in the end is more than was expected."""
        needed = _bytes_in(folder)  # with the draft
        if self._limit_bytes is not None and not self.is_exact and needed > self._limit_bytes:
            raise ValueError(
                'cache_limit must hold the decoded rows that shuffle="global" reads, which were '
                f"expected to take {self.told} and take more than {needed}; got "
                f"{self._limit_bytes} bytes, of which {more_bytes} did not fit"
            )

    # Damage.

    def _check(self, piece: Int64Array, begin: Int64Array, end: Int64Array) -> None:
        """Compare the digests of blocks of bytes that this process reads for the first time."""
        found = []
        first, last = begin // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        for step in range(int((last - first).max(initial=-1)) + 1):
            touched = first + step <= last
            blocks = (self._begin[piece] + first + step)[touched]
            found.append(blocks[~self._is_checked[blocks]])
        blocks = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
        of_piece = np.searchsorted(self._begin, blocks, side="right") - 1
        for number in np.unique(of_piece).tolist():
            own = blocks[of_piece == number] - self._begin[number]
            opened = self._pieces[number]
            assert opened is not None  # noqa: S101
            if opened.is_damaged(own):
                self._mend(number, opened)
            self._is_checked[own + self._begin[number]] = True
        self._all_checked = bool(self._is_checked.all())

    def _mend(self, number: int, damaged: Piece) -> None:
        """Make a damaged piece anew, unless another thread has done so."""
        path = self._path(number)
        assert path is not None  # noqa: S101
        with self._lock:
            if self._pieces[number] is not damaged:
                return
            self._remove_damaged(path, "its bytes have changed")
            while not self._open_or_make(number):
                time.sleep(_WAIT_SECONDS)
            self._rows.forget()


class _EndedError(Exception):
    """The rows of a piece are not wanted any more."""


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


_Lock = Literal["ours", "of another", "none"]


@contextmanager
def _locked(path: Path) -> Iterator[_Lock]:
    """Hold the lock of a file, which ends with its process; a file system may have none."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock: _Lock = "ours"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield "of another"
            return
        except OSError:
            lock = "none"  # processes may do the same work
        # Another process may have removed the file, and a third one locked its own.
        is_same = False
        with contextlib.suppress(FileNotFoundError):
            is_same = os.path.samestat(path.stat(), os.fstat(descriptor))
        try:
            yield lock if is_same else "of another"
        finally:
            if is_same:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
