"""The packed sequences of each row group, counted by one pass over the lengths of its lists."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torchparquet.batches.fields import Field, lengths_of
from torchparquet.errors import ListLengthError, one_line
from torchparquet.files.cache_file import CacheArgument, CacheFile
from torchparquet.files.remote.storage import StorageArguments
from torchparquet.files.row_selection import PackedRows
from torchparquet.plan.epoch_plan import EpochPlan
from torchparquet.plan.plan_options import PlanOptions
from torchparquet.reading.reader_arguments import pack_request
from torchparquet.reading.streams import StreamOpener

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchparquet.files.decryption import FileKeys
    from torchparquet.files.manifest import Manifest
    from torchparquet.reading.read_options import ReadOptions

_FORMAT = "torchparquet packed sequences 1"
_COUNTS = ("num_sequences", "num_tokens", "num_documents")


def pack_rows(
    manifest: Manifest,
    fields: Sequence[Field],
    options: ReadOptions,
    keys: FileKeys | None,
    cache: CacheArgument,
    storage: StorageArguments,
) -> Manifest:
    """Return the manifest of the sequences that the lists of packed fields become.

    The lengths of all lists are read once: their levels, not their values. With a cache the answer
    is kept in a file beside it, by files and packing. One rank reads files of a store for all.

    Args:
        manifest: The files, and which of their rows are read.
        fields: All of them packed.
        options: Of reading.
        keys: Keys of encrypted files.
        cache: The manifest cache.
        storage: Of the store that the files are of; its `share` asks one rank for all.

    Raises:
        CorruptFileError: A file cannot be read.
        ListLengthError: A row's lists differ in length.
        ValueError: All lists are empty.
    """
    first = fields[0]
    shape = [first.length, *_shape(first), [field.sources for field in fields]]
    packing = json.dumps(shape)
    key = hashlib.blake2b(f"{manifest.fingerprint} {packing}".encode(), digest_size=16).hexdigest()

    def work() -> bytes:
        count = _Counting(manifest, fields, packing, options, keys).content
        return count() if cache is None else _through(_file(cache, key, manifest, storage), count)

    # Without keys, which only their owner may use.
    share = None if keys is not None else storage.share
    content = work() if share is None else share(json.dumps(["packed", key]), work)
    packed = _packed(content)
    if packed.packing != packing or len(packed.num_sequences) != manifest.num_row_groups:
        raise RuntimeError("the ranks run different versions of torchparquet")
    if not packed.num_sequences.any():
        raise ValueError(f"all lists of {first.name!r} are empty: {manifest.num_rows} rows")
    return manifest.pack(packed)


def _shape(field: Field) -> list[Any]:
    """Return what the sequences depend on, the lengths of lists aside."""
    assert field.pack is not None  # noqa: S101
    pack = field.pack
    window = pack.window if pack.strategy == "best_fit" else None
    return [pack.strategy, pack.separator is not None, window]


class _Counting:
    """Counts the sequences of row groups, one after the other."""

    def __init__(
        self,
        manifest: Manifest,
        fields: Sequence[Field],
        packing: str,
        options: ReadOptions,
        keys: FileKeys | None,
    ) -> None:
        """Prepare to read."""
        self._manifest = manifest
        self._fields = fields
        self._packing = packing
        self._options = options
        self._keys = keys

    def content(self) -> bytes:
        """Return the counts as bytes."""
        file = io.BytesIO()
        arrays = dict(zip(_COUNTS, self._counts(), strict=True))
        np.savez(file, format=np.array(_FORMAT), packing=np.array(self._packing), **arrays)
        return file.getvalue()

    def _counts(self) -> NDArray[np.int64]:
        """Return int64 `[3, G]`."""
        manifest, first = self._manifest, self._fields[0]
        request = pack_request(first)
        assert request is not None  # noqa: S101
        assert first.pack is not None  # noqa: S101
        has_separator = first.pack.separator is not None
        counts = np.zeros((len(_COUNTS), manifest.num_row_groups), np.int64)
        opener = StreamOpener(
            manifest,
            tuple(lengths_of(field) for field in self._fields),
            self._options,
            row_ids=False,
            row_valid=False,
            keys=self._keys,
        )
        plan = EpochPlan(manifest.row_group_num_rows, PlanOptions(batch_size=None))
        try:
            stream = opener.open([plan.share(0)], 1)
            for row_group in np.flatnonzero(manifest.row_group_num_rows).tolist():
                lengths = next(stream)
                self._check_in_step(row_group, lengths)
                of_first = lengths[first.name].numpy()
                num_documents = int(np.count_nonzero(of_first))
                counts[0, row_group] = request.num_sequences(of_first)
                counts[1, row_group] = int(of_first.sum()) + has_separator * num_documents
                counts[2, row_group] = num_documents
            stream.close()
        finally:
            opener.forget()
        return counts

    def _check_in_step(self, row_group: int, lengths: dict[str, Any]) -> None:
        """Raise if a row's lists differ in length."""
        first, *others = (field.name for field in self._fields)
        for other in others:
            differing = (lengths[first] != lengths[other]).nonzero()
            if len(differing) == 0:
                continue
            manifest, row = self._manifest, differing[0].item()
            stored = manifest.stored_rows(row_group, np.array([row]))[0]
            raise ListLengthError(
                "columns that are packed in step must have lists of one length in each row: "
                f"{manifest.files[manifest.row_group_file[row_group]]!r}, row group "
                f"{manifest.row_group_in_file[row_group]}, row {stored}: {first!r} has "
                f"{lengths[first][row]}, {other!r} has {lengths[other][row]}"
            )


def _file(cache: Any, key: str, manifest: Manifest, storage: StorageArguments) -> CacheFile:
    paths = manifest.files if manifest.remote is not None else ()
    return CacheFile(f"{os.fspath(cache)}.{key}.packed", storage, paths)


def _through(file: CacheFile, count: Callable[[], bytes]) -> bytes:
    """Return what the file has; if it has none, count and write it."""
    content = file.read()
    if content is not None:
        try:
            _packed(content)
        except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
            warnings.warn(
                f"a cache of packed sequences is damaged ({one_line(error)}), it is written anew: "
                f"{file.shown!r}",
                stacklevel=2,
            )
        else:
            return content
    content = count()
    file.write(content)
    return content


def _packed(content: bytes) -> PackedRows:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        if str(stored["format"]) != _FORMAT:
            raise ValueError("it has another format")
        arrays = {name: stored[name] for name in _COUNTS}
        return PackedRows(str(stored["packing"]), **arrays)
