"""The facts that all streams of a data set share: its files, and the tensors of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import batch_names, slab_order
from torchparquet._impl.files.schemas import NANOSECONDS, stored_path
from torchparquet._impl.files.store_reading import StoreReading
from torchparquet._impl.native import ColumnSpec, DataFiles, Vocabulary, load_bridge
from torchparquet._impl.reading.reader_arguments import (
    bit_pattern,
    bit_patterns,
    field_spec,
    native_row_groups,
    native_selections,
    pack_request,
)

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.leaf import Leaf
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.native import Decryption

ROW_ID = "row.id"
ROW_VALID = "row.valid"


def with_row_fields(fields: Sequence[Field], *, row_ids: bool, row_valid: bool) -> list[Field]:
    """Return the fields, and after them `row.id` and `row.valid` if they are wanted."""
    extra = [Field(ROW_ID, (), (), "int64", None, "error", 0)] if row_ids else []
    extra += [Field(ROW_VALID, (), (), "bool", None, "error", 0)] if row_valid else []
    return [*fields, *extra]


class StreamParts:
    """The facts that all streams of a data set share, as the native reader takes them.

    A forked child must not use it, because the files have a lock.

    Attributes:
        fields: The fields in slab order, with `row.id` and `row.valid` if they are wanted.
        task_names: The column of each of a chunk's tasks, in the reader's order.
    """

    def __init__(
        self,
        manifest: Manifest,
        fields: Sequence[Field],
        *,
        row_ids: bool,
        row_valid: bool,
        decryption: Decryption | None = None,
        num_workers: int = 1,
    ) -> None:
        """Prepare to read; reads nothing."""
        self.manifest = manifest
        self.is_encrypted = decryption is not None
        self.reading = None
        options: dict[str, Any] = {}
        if manifest.listing.store is not None:
            self.reading = StoreReading(manifest.listing, num_workers=num_workers)
            options["remote"] = self.reading.native
        self.files = DataFiles(
            paths=list(manifest.files),
            num_bytes=manifest.file_num_bytes,
            mtime_ns=manifest.file_mtime_ns,
            inode=manifest.file_inode,
            contents=[file.content for file in manifest.listing.memory],
            decryption=decryption,
            **options,
        )
        self.row_groups = native_row_groups(manifest)
        self.selections = native_selections(manifest)
        given = with_row_fields(fields, row_ids=row_ids, row_valid=row_valid)
        self.names = batch_names(given)
        self.fields = slab_order(given)
        places = {field.name: index for index, field in enumerate(self.fields)}
        load_bridge()
        self.task_names = [source for field in self.fields for source in field.sources]
        self.task_names += [ROW_ID] * row_ids + [ROW_VALID] * row_valid
        self.field_specs = [field_spec(field) for field in self.fields]
        self.column_specs = _column_specs(self.fields, manifest)
        self.row_id_field = places[ROW_ID] if row_ids else -1
        self.row_valid_field = places[ROW_VALID] if row_valid else -1

    def close(self) -> None:
        """End the threads that bring bytes of a store. All streams must have ended."""
        if self.reading is not None:
            self.reading.close()


def _stored_paths(
    manifest: Manifest, by_path: Sequence[Mapping[str, Leaf]], source: str
) -> tuple[list[str], list[int]]:
    """Return the paths by which files store a column, and for each file the number of its path.

    Both are empty if all files store it by its own.
    """
    table = manifest.table
    if table is not None:
        if not any(source in stored for stored in table.stored):
            return [], []
        of_schema = [table.stored_path(number, source) for number in range(len(manifest.schemas))]
    else:
        of_schema = [stored_path(leaves, source) for leaves in by_path]
        if all(path in ("", source) for path in of_schema):
            return [], []
    paths = list(dict.fromkeys(of_schema))
    number = np.array([paths.index(path) if path else -1 for path in of_schema])
    return paths, number[manifest.file_schema].tolist()


def _column_specs(fields: Sequence[Field], manifest: Manifest) -> list[ColumnSpec]:
    specs = []
    by_path = [{leaf.path: leaf for leaf in schema} for schema in manifest.schemas]
    for index, field in enumerate(fields):
        vocabulary = _vocabulary(field)
        values_of = field.file_values or [()] * len(field.sources)
        stored = [_stored_paths(manifest, by_path, source) for source in field.sources]
        specs += [
            ColumnSpec(
                path=source,
                kinds=list(kinds),
                dtype=field.dtype,
                cell_items=field.items or 1,
                num_offsets=field.num_offsets,
                list_length=1 if field.lengths_only else field.length or 0,
                vocabulary=vocabulary,
                field=index,
                element=element,
                nulls_are_errors=fill is None,
                fill_bits=bit_pattern(0 if fill is None else fill, field.dtype),
                default_bits=_default_bits(field),
                default_bytes=_default_bytes(field),
                default_items=len(field.default) if isinstance(field.default, tuple) else None,
                unit_nanoseconds=NANOSECONDS[field.unit] if field.unit else 0,
                missing_is_null=field.missing_is_null,
                file_bits=_file_bits(values, field.dtype),
                stored_paths=paths,
                path_of_file=path_of_file,
                pack=pack_request(field),
                lengths_only=field.lengths_only,
            )
            for element, (source, kinds, values, fill, (paths, path_of_file)) in enumerate(
                zip(field.sources, field.kinds, values_of, field.source_fills, stored, strict=True)
            )
        ]
    return specs


def _default_bits(field: Field) -> int | None:
    if field.default is None or isinstance(field.default, (bytes, tuple)):
        return None
    return bit_pattern(field.default, field.dtype)


def _default_bytes(field: Field) -> bytes | None:
    if not isinstance(field.default, tuple):
        return field.default if isinstance(field.default, bytes) else None
    size = getattr(torch, field.dtype).itemsize
    patterns = bit_patterns(field.default, field.dtype)
    return b"".join(pattern.to_bytes(size, "little") for pattern in patterns)


def _file_bits(values: Sequence[int | float | None], dtype: str) -> list[int | None]:
    patterns = bit_patterns([0 if value is None else value for value in values], dtype)
    return [None if value is None else bits for value, bits in zip(values, patterns, strict=True)]


def _vocabulary(field: Field) -> Vocabulary | None:
    if field.words is None:
        return None
    # The core's codes are int64, which have the same bits as uint64.
    unknown = field.unknown - 2**64 if field.unknown >= 2**63 else field.unknown
    return Vocabulary(list(field.words), unknown)
