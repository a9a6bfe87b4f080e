"""The manifest: the files and row groups of a data set, from its footers, and which rows count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import numpy as np

from torchparquet._impl.files.footers.leaf import Leaf, TableFacts
from torchparquet._impl.files.listing import Listing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Unit = Literal["sequence", "batch", "sample"]

_ALL, _RUNS, _BITS = 0, 1, 2
_WORD_ROWS = 64
# Begins and ends of runs have 32 bits, and twice as many rows 33.
_MAX_ROWS = 2**32
_MAX_VARINT_BYTES = 5
_OF_ROW_GROUPS = [
    f"row_group_{name}" for name in ("file", "in_file", "num_rows", "num_bytes", "first_row")
]


@dataclass(frozen=True, eq=False)
class RowSelection:
    """The selected rows of `G` row groups, each kept as runs or as bits.

    Every rank keeps all of them: one row in a hundred, at random, takes 1.6 bytes.
    """

    form: NDArray[np.uint8]
    begin: NDArray[np.int64]  # [G + 1], where the words of each row group begin, and the last end
    # Runs are varints of 7 bits a byte, lowest first, padded with zeros: how many runs there are;
    # for each, twice the rows left out before it, plus 1 if it is longer than one row; for each of
    # these, its rows less 2. Bits are 64 rows a word, the first row lowest.
    words: NDArray[np.uint64]
    num_rows: NDArray[np.int64]

    @classmethod
    def of_masks(cls, masks: Iterable[NDArray[np.bool_]]) -> RowSelection:
        """Return the selection of the rows that a mask of each row group marks."""
        packed = [(*_packed(mask), np.count_nonzero(mask)) for mask in masks]
        parts = [words for _, words, _ in packed]
        return cls(
            np.array([form for form, _, _ in packed], np.uint8),
            np.cumsum([0, *map(len, parts)], dtype=np.int64),
            np.concatenate([np.zeros(0, np.uint64), *parts]),
            np.array([count for _, _, count in packed], np.int64),
        )

    @classmethod
    def joined(cls, parts: Sequence[RowSelection]) -> RowSelection:
        """Return the selection of the row groups of all parts in turn."""
        parts = [cls.of_masks([]), *parts]
        sizes = np.concatenate([np.diff(part.begin) for part in parts])
        return cls(
            np.concatenate([part.form for part in parts]),
            np.append(0, np.cumsum(sizes)),
            np.concatenate([part.words for part in parts]),
            np.concatenate([part.num_rows for part in parts]),
        )

    @property
    def is_all(self) -> bool:
        """True if every row is selected."""
        return not self.form.any()

    def digest(self) -> bytes:
        """Return 16 bytes that differ for other rows."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        # States hold it, and so it is that of bounds of runs, each two halves of a word.
        parts = [self._words(at) for at in range(len(self.form))]
        is_runs = (self.form == _RUNS).tolist()
        sizes = [
            _num_runs(words) if runs else len(words)
            for words, runs in zip(parts, is_runs, strict=True)
        ]
        begin = np.append(0, np.cumsum(sizes, dtype=np.int64))
        whole = (
            _edges(words).astype("<u4") if runs else words
            for words, runs in zip(parts, is_runs, strict=True)
        )
        return _digest(b"", chain([self.form, begin], whole))

    def _words(self, row_group: int) -> NDArray[np.uint64]:
        return self.words[self.begin[row_group] : self.begin[row_group + 1]]

    def keep(self, row_groups: NDArray[np.bool_]) -> RowSelection:
        """Return the selection of the marked row groups alone."""
        if row_groups.all():
            return self
        sizes = np.diff(self.begin)
        return RowSelection(
            self.form[row_groups],
            np.concatenate([[0], np.cumsum(sizes[row_groups])]),
            self.words[np.repeat(row_groups, sizes)],
            self.num_rows[row_groups],
        )

    def stored_rows(self, row_group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, in their row group, of rows that are counted among the selected."""
        words, form = self._words(row_group), self.form[row_group]
        if form == _ALL:
            return rows
        if form == _BITS:
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            return np.flatnonzero(bits)[rows]
        bounds = _edges(words).reshape(-1, 2)
        ends = np.cumsum(bounds[:, 1] - bounds[:, 0])
        run = np.searchsorted(ends, rows, side="right")
        stored: NDArray[np.int64] = bounds[run, 1] - (ends[run] - rows)
        return stored


@dataclass(frozen=True, eq=False)
class PackedRows:
    """The packed sequences, or batches of similar length, that rows of `G` row groups become.

    Or the rows, or batches of rows, that `G` blocks of a sampled epoch have; `chosen` says how.
    """

    unit: Unit
    rules: str
    num_units: NDArray[np.int64]
    num_tokens: NDArray[np.int64]  # items of lists, separators included, padding not
    num_places: NDArray[np.int64]  # entries of the tensors that tokens and padding fill
    num_documents: NDArray[np.int64]
    chosen: str = ""

    def digest(self) -> bytes:
        """Return 16 bytes that differ for other units."""
        return _digest(self.rules.encode(), _arrays_of(self).values())

    @classmethod
    def joined(cls, parts: Sequence[PackedRows]) -> PackedRows:
        """Return what the row groups of all parts become."""
        arrays = [_arrays_of(part) for part in parts]
        whole: dict[str, Any] = {
            name: np.concatenate([part[name] for part in arrays]) for name in arrays[0]
        }
        return replace(parts[0], **whole)

    def keep(self, row_groups: NDArray[np.bool_]) -> PackedRows:
        """Return what the marked row groups alone become."""
        kept: dict[str, Any] = {n: array[row_groups] for n, array in _arrays_of(self).items()}
        return replace(self, **kept)


def _arrays_of(rows: PackedRows) -> dict[str, NDArray[np.int64]]:
    return {name: value for name, value in vars(rows).items() if isinstance(value, np.ndarray)}


def _digest(head: bytes, arrays: Iterable[NDArray[Any]]) -> bytes:
    digest = hashlib.blake2b(head, digest_size=16)
    for array in arrays:
        digest.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.digest()


@dataclass(frozen=True, eq=False)
class Manifest:
    """The files of a data set and their row groups, numbered over all files. It can be pickled.

    ``F`` is the number of files, ``G`` that of row groups, empty ones included; arrays are int64.

    Attributes:
        listing: The files, and how to reach them.
        file_num_bytes: [F] sizes in bytes.
        file_mtime_ns: [F] times of the last change, nanoseconds since 1970; -1 unless on disk.
        file_inode: [F] inode numbers; -1 unless on disk.
        file_digest: [F] XXH64 of the footers, which hold sizes, offsets and statistics.
        file_has_hidden_columns: [F] 1 if a column is encrypted and no key decrypts it.
        file_num_rows: [F] rows.
        file_schema: [F] index into ``schemas``, the distinct ones in order of first appearance.
        row_group_file: [G] index into ``files``.
        row_group_in_file: [G] number within the file.
        row_group_num_rows: [G] rows; the selected ones, or units such as packed sequences.
        row_group_num_bytes: [G] compressed bytes of all columns.
        row_group_first_row: [G] number of the first stored row in file order, or of the first unit.
        fingerprint: Hex digest, equal for equal relative names, sizes, times of change, ETags,
            footers and selected rows. For files in memory it depends on the bytes instead of names
            and times.
        chunk_num_bytes: The compressed bytes of each column chunk, row group after row group, in
            the order of the leaves; None unless they were asked for.
        selection: The selected of the stored rows; None for all.
        table: The facts that a table's metadata have of the files; None if they are of none.
        packed: The units that rows become; None if a row is a row.
        origin: For files that were made of others, two texts, with and without times of change,
            that stand for their names, sizes and footers in ``fingerprint``; None for others.
        excluded: The files, row groups and rows that `Excluding` leaves out. Rows of files that are
            left out as a whole are unknown, and so not among them.
    """

    listing: Listing
    file_num_bytes: NDArray[np.int64]
    file_mtime_ns: NDArray[np.int64]
    file_inode: NDArray[np.int64]
    file_digest: NDArray[np.int64]
    file_has_hidden_columns: NDArray[np.int64]
    file_num_rows: NDArray[np.int64]
    file_schema: NDArray[np.int64]
    schemas: tuple[tuple[Leaf, ...], ...]
    row_group_file: NDArray[np.int64]
    row_group_in_file: NDArray[np.int64]
    row_group_num_rows: NDArray[np.int64]
    row_group_num_bytes: NDArray[np.int64]
    row_group_first_row: NDArray[np.int64]
    fingerprint: str
    chunk_num_bytes: NDArray[np.int64] | None = None
    selection: RowSelection | None = None
    table: TableFacts | None = None
    packed: PackedRows | None = None
    origin: tuple[str, str] | None = None
    excluded: tuple[int, int, int] = (0, 0, 0)

    @property
    def files(self) -> tuple[str, ...]:
        """Absolute paths; URLs without credentials; names of files in memory: ``"<buffer>"``."""
        return self.listing.paths

    @property
    def root(self) -> str:
        """The deepest directory that holds all files; ``""`` for files in memory."""
        return self.listing.root

    @property
    def num_rows(self) -> int:
        """The rows of all files."""
        return int(self.row_group_num_rows.sum())

    @property
    def num_row_groups(self) -> int:
        """The row groups of all files, empty ones included."""
        return len(self.row_group_num_rows)

    @property
    def content_fingerprint(self) -> str:
        """Like ``fingerprint`` without times and ETags, so equal for copies of the same files."""
        return self.digest(with_times=False)

    @property
    def names(self) -> list[str]:
        """The names of the files below `root`."""
        prefix = len(self.root.rstrip("/")) + 1
        return list(self.files) if self.listing.memory else [file[prefix:] for file in self.files]

    def digest(self, *, with_times: bool = True) -> str:
        """Compute ``fingerprint``, with the length of each piece before the piece."""
        listing = self.listing
        names = [file.digest for file in listing.memory] or self.names
        # The dtype of a leaf may differ between releases for the same data.
        schemas = [[(leaf.path, leaf.kind, leaf.nullable) for leaf in s] for s in self.schemas]
        texts: list[Any] = [names, schemas]
        stamps = list(listing.stamps) if with_times and listing.store is not None else []
        if stamps or self.table is not None:
            texts.append(stamps)
        if self.table is not None:
            texts.append([self.table.identity, dict(self.table.keys)])
        arrays = [
            self.file_num_bytes,
            self.file_mtime_ns if with_times else np.zeros(len(self.files)),
            self.file_digest,
            self.file_schema,
            self.row_group_file,
            self.row_group_in_file,
            self.row_group_num_rows,
        ]
        if self.origin is not None:
            texts, arrays = [self.origin[not with_times]], arrays[-3:]
        digest = hashlib.blake2b(digest_size=16)
        for piece in (
            json.dumps(texts).encode(),
            *(array.astype("<i8").tobytes() for array in arrays),
            *(part.digest() for part in (self.selection, self.packed) if part is not None),
        ):
            digest.update(len(piece).to_bytes(8, "little"))
            digest.update(piece)
        return digest.hexdigest()

    @property
    def row_group_num_chunks(self) -> NDArray[np.int64]:
        """The number of column chunks of each row group, int64 ``[G]``."""
        num_leaves = np.array([len(stored) for stored in self._stored])
        return num_leaves[self.file_schema[self.row_group_file]]

    @property
    def _stored(self) -> list[list[str]]:
        """The paths of the leaves that files of each schema store."""
        return [[leaf.path for leaf in s if leaf.standing != "added"] for s in self.schemas]

    def bytes_of_columns(self, columns: Collection[str]) -> NDArray[np.int64]:
        """Return the compressed bytes that each row group has in the columns of these paths."""
        assert self.chunk_num_bytes is not None  # noqa: S101
        selected = [np.array([path in columns for path in stored]) for stored in self._stored]
        of_row_group = [selected[schema] for schema in self.file_schema[self.row_group_file]]
        chunk_bytes = np.where(np.concatenate(of_row_group), self.chunk_num_bytes, 0)
        ends = np.cumsum(self.row_group_num_chunks)
        totals = np.concatenate([[0], np.cumsum(chunk_bytes)])
        return np.diff(totals[ends], prepend=0)

    @property
    def partition_keys(self) -> dict[str, tuple[str | None, ...]]:
        """The [F] values of each key; ``NULL_KEY`` for null, None for a path that lacks the key."""
        if self.table is not None:
            return dict(self.table.keys)
        keys = [_partition_keys(file) for file in self.files]
        names = dict.fromkeys(key for of_file in keys for key in of_file)
        return {key: tuple(of_file.get(key) for of_file in keys) for key in names}

    def made_of(self, origin: tuple[str, str]) -> Manifest:
        """Return the manifest of the same files, which were made of others."""
        made = replace(self, origin=origin)
        return replace(made, fingerprint=made.digest())

    def keep(self, row_groups: NDArray[Any]) -> Manifest:
        """Return the manifest of the marked row groups; rows and files keep their numbers."""
        arrays: dict[str, Any]
        arrays = {name: frozen(getattr(self, name)[row_groups]) for name in _OF_ROW_GROUPS}
        if self.chunk_num_bytes is not None:
            of_kept = np.repeat(row_groups, self.row_group_num_chunks)
            arrays["chunk_num_bytes"] = frozen(self.chunk_num_bytes[of_kept])
        selection = None if self.selection is None else self.selection.keep(row_groups)
        packed = None if self.packed is None else self.packed.keep(row_groups)
        kept = replace(self, selection=selection, packed=packed, **arrays)
        return replace(kept, fingerprint=kept.digest())

    def between(self, row_groups: slice) -> Manifest:
        """Return the manifest of consecutive row groups; itself for all."""
        if row_groups == slice(0, self.num_row_groups):
            return self
        marked = np.zeros(self.num_row_groups, bool)
        marked[row_groups] = True
        return self.keep(marked)

    def select(self, selection: RowSelection) -> Manifest:
        """Return the manifest of the selected rows, without the row groups that have none."""
        left = selection.num_rows > 0
        if not selection.form[left].any():
            return self.keep(left)
        selected = replace(self, selection=selection, row_group_num_rows=frozen(selection.num_rows))
        return selected.keep(left)

    def pack(self, packed: PackedRows) -> Manifest:
        """Return the manifest of what rows become, without the row groups that have none."""
        num_units = packed.num_units
        made = replace(
            self,
            packed=packed,
            row_group_num_rows=frozen(num_units),
            row_group_first_row=frozen(np.cumsum(num_units) - num_units),
        )
        return made.keep(num_units > 0)

    def in_blocks(self, packed: PackedRows, num_bytes: NDArray[np.int64]) -> Manifest:
        """Return the manifest of blocks of samples, in place of row groups."""
        at = np.arange(len(num_bytes)) * self.num_row_groups // len(num_bytes)
        blocks = replace(self, selection=None, chunk_num_bytes=None).keep(at)
        return replace(blocks, row_group_num_bytes=frozen(num_bytes)).pack(packed)

    def repeating(self, row_groups: NDArray[np.int64], selection: RowSelection) -> Manifest:
        """Return the manifest of row groups, of which some may be there several times."""
        made = replace(self, selection=None, chunk_num_bytes=None).keep(row_groups)
        return replace(made, selection=selection, row_group_num_rows=frozen(selection.num_rows))

    def place_of(self, row_group: int, row: int) -> str:
        """Return in words where a row that a row group is to deliver is stored."""
        stored = self.stored_rows(row_group, np.array([row]))[0]
        return (
            f"{self.files[self.row_group_file[row_group]]!r}, row group "
            f"{self.row_group_in_file[row_group]}, row {stored}"
        )

    def stored_rows(self, row_group: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, among all rows of a row group, of rows that it is to deliver."""
        if self.selection is None or self.packed is not None:
            return rows
        return self.selection.stored_rows(row_group, rows)


def _partition_keys(path: str) -> dict[str, str]:
    directories = PurePath(path).parent.parts
    pairs = (directory.split("=", 1) for directory in directories if "=" in directory)
    return {unquote(key): unquote(value) for key, value in pairs}


def frozen(values: ArrayLike) -> NDArray[np.int64]:
    """Return a copy as int64 that nobody can change."""
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array


def _packed(mask: NDArray[np.bool_]) -> tuple[int, NDArray[np.uint64]]:
    """Return the form and the words of the marked rows."""
    if len(mask) >= _MAX_ROWS:
        raise ValueError(f"no rows can be selected in a row group of 2**32 or more: {len(mask)}")
    if mask.all():
        return _ALL, np.zeros(0, np.uint64)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    if len(edges) // 2 <= -(-len(mask) // _WORD_ROWS):
        return _RUNS, _words_of_runs(edges)
    padded = np.zeros(-(-len(mask) // _WORD_ROWS) * 8, np.uint8)
    bits = np.packbits(mask, bitorder="little")
    padded[: len(bits)] = bits
    return _BITS, padded.view(np.uint64)


def _words_of_runs(edges: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words of runs from the first row of each and the row after its last in turn."""
    left_out, rows = np.diff(edges, prepend=0).reshape(-1, 2).T
    is_longer = rows > 1
    numbers = np.concatenate([[len(rows)], 2 * left_out + is_longer, rows[is_longer] - 2])
    at = np.arange(_MAX_VARINT_BYTES)
    rest = numbers[:, None] >> 7 * at
    is_there = (rest > 0) | (at == 0)
    is_last = rest < 1 << 7
    content = (rest & 0x7F | np.where(is_last, 0, 0x80))[is_there].astype(np.uint8)
    return np.append(content, np.zeros(-len(content) % 8, np.uint8)).view(np.uint64)


def _num_runs(words: NDArray[np.uint64]) -> int:
    head = words[:1].view(np.uint8)
    return int(_numbers(head[: np.argmax(head < 1 << 7) + 1])[0])


def _numbers(content: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the varints of bytes."""
    is_last = content < 1 << 7
    first = np.append(0, np.flatnonzero(is_last)[:-1] + 1)
    of_byte: NDArray[np.int64] = np.cumsum(is_last) - is_last
    shifts = 7 * (np.arange(len(content)) - first[of_byte])
    numbers: NDArray[np.int64] = np.add.reduceat((content & 0x7F).astype(np.int64) << shifts, first)
    return numbers


def _edges(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the first row of each run and the row after its last in turn."""
    numbers = _numbers(words.view(np.uint8))
    heads, lengths = np.split(numbers[1:], numbers[:1])
    rows = 1 + (heads & 1)
    rows[rows > 1] += lengths[: np.count_nonzero(rows > 1)]
    return np.cumsum(np.stack([heads >> 1, rows], axis=1))
