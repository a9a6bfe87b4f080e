"""The input of the native reader: shares of the plan, and the facts that all streams share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchparquet._impl import native
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.batches.tensors import batch_names, slab_order
from torchparquet._impl.files.schemas import NANOSECONDS, stored_path
from torchparquet._impl.files.store_reading import StoreReading
from torchparquet._impl.native import DataFiles, FieldSpec, PackRequest, Vocabulary, filled
from torchparquet.features import applied, native_transform

if TYPE_CHECKING:
    from torchparquet._impl.files.footers.leaf import Leaf
    from torchparquet._impl.files.manifest import Manifest
    from torchparquet._impl.plan.share import Share

ROW_ID = "row.id"
ROW_VALID = "row.valid"
# The tensors that no column of the files has.
ROW_ID_FIELD = Field(ROW_ID, (), (), "int64", None, "error", 0)
ROW_VALID_FIELD = Field(ROW_VALID, (), (), "bool", None, "error", 0)


def native_shares(row_groups: native.RowGroups, shares: Sequence[Share]) -> list[native.Share]:
    """Return shares of the plan as the native reader's, with one order for all."""
    orders: dict[int, native.EpochOrder] = {}
    return [_native_share(row_groups, share, orders) for share in shares]


def _native_share(
    row_groups: native.RowGroups, share: Share, orders: dict[int, native.EpochOrder]
) -> native.Share:
    order, further = share.order, share.further
    if id(order) not in orders:
        orders[id(order)] = native.EpochOrder(
            row_groups=row_groups,
            row_group=order.row_group,
            begin=order.row_begin,
            num_rows=order.num_rows,
        )
    made = filled(
        native.Share(orders[id(order)]),
        rank=share.index,
        world_size=share.num_shares,
        dealt_rows=share.dealt_rows,
        skipped_rows=share.skipped_rows,
        is_claimed=share.claims is not None,
    )
    made.add_chunks(
        row_group=further.row_group,
        begin=further.row_begin,
        num_rows=further.num_rows,
        valid=further.valid,
    )
    windows = share.windows
    if windows is not None:
        made.add_windows(
            num_rows=windows.stored_rows,
            key=windows.key,
            begin=windows.begin,
            end=windows.end,
            orders=share.orders,
        )
    return made


def field_spec(field: Field, weighs: int = -1) -> FieldSpec:
    """Return a tensor of a batch as the native reader's field; `weighs` another by number."""
    if field.num_offsets:
        # The slab holds the offsets of rows; the values are outside of it.
        return filled(
            FieldSpec(),
            item_bytes=8,
            width=len(field.sources) if field.keyed else 1,
            has_valid=field.nulls == "mask",
            num_offsets=field.num_offsets,
            has_item_valid=field.nulls == "mask" and field.has_lists,
            row_bytes=field.row_bytes,
            is_keyed=field.keyed,
            weighs=weighs,
        )
    return filled(
        FieldSpec(),
        item_bytes=getattr(torch, field.dtype).itemsize,
        width=field.width or 1,
        cell_items=(field.length or 1) * (field.items or 1),
        has_valid=field.has_mask,
        valid_items=field.length or 1,
    )


def pack_request(field: Field) -> PackRequest | None:
    """Return how the native reader packs a field; None if it does not."""
    pack = field.pack
    if pack is None:
        return None
    assert field.length is not None  # noqa: S101
    return PackRequest(
        length=field.length,
        strategy=pack.strategy,
        has_separator=pack.separator is not None,
        window_documents=pack.window,
        multiple_of=pack.pad_documents_to,
        separator_bits=bit_pattern(pack.separator or 0, field.dtype),
        padding_bits=bit_pattern(pack.padding, field.dtype),
    )


def bit_pattern(value: float, dtype: str) -> int:
    """Return the bytes of `value` as `dtype`, as an unsigned little-endian number."""
    return bit_patterns([value], dtype)[0]


def bit_patterns(values: Sequence[float], dtype: str) -> list[int]:
    """Return the bytes of each value as `dtype`, as unsigned little-endian numbers."""
    # Without torch, which would abort the program if a daemon thread were here at exit.
    if dtype == "bfloat16":
        single = np.array(values, dtype=np.float32)
        bits = single.view(np.uint32).astype(np.uint64)
        # To the nearest, ties to even, in the upper half.
        stored = np.where(np.isnan(single), 0x7FC0, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
        stored = stored.astype(np.uint16)
    else:
        stored = np.array(values, dtype=dtype)
    patterns: list[int] = stored.view(f"<u{stored.itemsize}").tolist()
    return patterns


class StreamParts:
    """The facts that all streams of a data set share. Files have a lock: not for a forked child."""

    def __init__(
        self,
        manifest: Manifest,
        tensors: Sequence[Field],
        *,
        decryption: native.Decryption | None = None,
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
        native.load_bridge()
        files = DataFiles(
            paths=list(manifest.files),
            num_bytes=manifest.file_num_bytes,
            mtime_ns=manifest.file_mtime_ns,
            inode=manifest.file_inode,
            contents=[file.content for file in manifest.listing.memory],
            decryption=decryption,
            **options,
        )
        packed, selections, selection = manifest.packed, None, manifest.selection
        self.row_groups = native.RowGroups(
            file=manifest.row_group_file,
            in_file=manifest.row_group_in_file,
            first_row=manifest.row_group_first_row,
            num_sequences=None if packed is None else packed.num_units,
            are_selected=selection is not None,
        )
        if selection is not None:
            selections = native.Selections(
                form=selection.form,
                begin=selection.begin,
                words=selection.words,
                num_rows=selection.num_rows,
            )
        self.names = batch_names(tensors)
        self.fields = slab_order(tensors)
        # The column of each of a chunk's tasks, in the reader's order.
        self.task_names = [source for field in self.fields for source in field.sources]
        places = {one.name: at for at, one in enumerate(self.fields) if not one.sources}
        self.task_names += [name for name in (ROW_ID, ROW_VALID) if name in places]
        numbers: dict[str | None, int] = {one.name: at for at, one in enumerate(self.fields)}
        made = native.ReaderParts(
            files=files,
            fields=[field_spec(one, numbers.get(one.weighs, -1)) for one in self.fields],
            columns=_column_specs(self.fields, manifest),
            selections=selections,
        )
        self.native = filled(
            made,
            row_id_field=places.get(ROW_ID, -1),
            row_valid_field=places.get(ROW_VALID, -1),
            rows_are_packed=packed is not None,
        )

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


def _column_specs(fields: Sequence[Field], manifest: Manifest) -> list[native.ColumnSpec]:
    specs = []
    by_path = [{leaf.path: leaf for leaf in schema} for schema in manifest.schemas]
    for index, field in enumerate(fields):
        transforms = _transforms(field)
        vocabularies = _vocabularies(field, transforms)
        values_of = field.file_values or [()] * len(field.sources)
        stored = [_stored_paths(manifest, by_path, source) for source in field.sources]
        specs += [
            filled(
                native.ColumnSpec(),
                request=filled(
                    native.ColumnRequest(),
                    path=source,
                    kinds=list(kinds),
                    dtype=field.dtype,
                    unit_nanoseconds=NANOSECONDS[field.unit] if field.unit else 0,
                    cell_items=field.items or 1,
                    num_offsets=field.num_offsets,
                    list_length=1 if field.lengths_only else field.length or 0,
                    pack=pack_request(field),
                    lengths_only=field.lengths_only,
                    is_scalar=field.keyed and field.scalars[element],
                    null_rows_are_empty=field.keyed and field.empty_nulls[element],
                    transform=transforms[element],
                    vocabulary=vocabularies[element],
                    missing_is_null=field.missing_is_null,
                    **_default(field, element),
                ),
                stored=filled(native.StoredColumn(), paths=paths, path_of_file=path_of_file),
                field=index,
                element=element,
                nulls_are_errors=fill is None,
                fill_bits=bit_pattern(0 if fill is None else fill, field.dtype),
                file_bits=_file_bits(values, field.dtype),
            )
            for element, (source, kinds, values, fill, (paths, path_of_file)) in enumerate(
                zip(field.sources, field.kinds, values_of, field.source_fills, stored, strict=True)
            )
        ]
    return specs


def _default(field: Field, element: int) -> dict[str, Any]:
    """Return the value of rows of a file that lacks a source, as bits, bytes or items."""
    default: Any = field.default
    if default is not None and field.transforms and field.transforms[element]:
        made = applied(field.transforms[element], default)
        default = tuple(made.tolist()) if made.ndim else made.item()
    bits, content, items = None, None, None
    if isinstance(default, tuple):
        size, items = getattr(torch, field.dtype).itemsize, len(default)
        patterns = bit_patterns(default, field.dtype)
        content = b"".join(pattern.to_bytes(size, "little") for pattern in patterns)
    elif isinstance(default, bytes):
        content = default
    elif default is not None:
        bits = bit_pattern(default, field.dtype)
    return {"default_bits": bits, "default_bytes": content, "default_items": items}


def _file_bits(values: Sequence[int | float | None], dtype: str) -> list[int | None]:
    patterns = bit_patterns([0 if value is None else value for value in values], dtype)
    return [None if value is None else bits for value, bits in zip(values, patterns, strict=True)]


def _transforms(field: Field) -> list[native.Transform | None]:
    """Return what the values of each source go through."""
    of = field.transforms or ((),) * len(field.sources)
    return [native_transform(one) if one else None for one in of]


def _vocabularies(
    field: Field, transforms: Sequence[native.Transform | None]
) -> list[Vocabulary | None]:
    """Return what numbers the strings of each source."""
    if field.words is None:
        are_texts = field.hashes_texts or (False,) * len(field.sources)
        pairs = zip(transforms, are_texts, strict=True)
        return [Vocabulary(one) if one is not None and is_text else None for one, is_text in pairs]
    # The core's codes are int64, which have the same bits as uint64.
    unknown = field.unknown - 2**64 if field.unknown >= 2**63 else field.unknown
    return [Vocabulary(list(field.words), unknown)] * len(field.sources)
