from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions

__all__: list[str] = [
    "BatchReader",
    "ColumnRequest",
    "ColumnSpec",
    "CostSums",
    "DataFiles",
    "Decryption",
    "DocumentPacker",
    "EPOCH_LEDGER_WORDS",
    "EpochOrder",
    "FetchOptions",
    "FieldPlace",
    "FieldSpec",
    "Footers",
    "KeptFooters",
    "LeafColumn",
    "PackRequest",
    "PageHeader",
    "ReaderMemory",
    "ReaderParts",
    "ReaderStats",
    "RemoteRequest",
    "RemoteStore",
    "RowGroups",
    "RowItems",
    "Selections",
    "Share",
    "SlabPiece",
    "SlabPool",
    "StoredColumn",
    "Transform",
    "Vocabulary",
    "await_gloo_threads",
    "begin_iteration",
    "bloom_filter_bytes",
    "cumulative_lengths",
    "digests_of_blocks",
    "documents_of",
    "epoch_of",
    "find_indexes",
    "gather_items",
    "gather_records",
    "has_libcurl",
    "hash_bytes",
    "instructions",
    "keyed_rows",
    "load_arrow",
    "locate_records",
    "map_bytes",
    "map_shared_words",
    "mark_cache_folder",
    "mark_sampled_rows",
    "may_hold",
    "num_iterations",
    "offer_libcurl",
    "offer_libdeflate",
    "pack_items",
    "pack_records",
    "page_bounds",
    "page_rows",
    "parse_page_header",
    "read_ahead",
    "read_footers",
    "set_epoch_of",
    "sort_random_keys",
    "tensor_bytes",
    "window_order",
    "window_row_bytes",
]

class Decryption:
    def __init__(self, of_files: collections.abc.Sequence[typing.Any]) -> None: ...

class KeptFooters:
    pass

class RemoteRequest:
    @property
    def file(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def num_bytes(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def refused(self) -> bool: ...

class FetchOptions:
    hedges: bool
    def __init__(self) -> None: ...
    @property
    def max_connections(self) -> int: ...
    @max_connections.setter
    def max_connections(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def max_seconds(self) -> float: ...
    @max_seconds.setter
    def max_seconds(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    @property
    def max_tries(self) -> int: ...
    @max_tries.setter
    def max_tries(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @num_threads.setter
    def num_threads(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class RemoteStore:
    footers: KeptFooters
    def __init__(
        self,
        *,
        paths: collections.abc.Sequence[str],
        num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        etags: collections.abc.Sequence[str],
        identities: collections.abc.Sequence[str],
        with_addresses: bool,
        options: FetchOptions,
        cache_folder: str | None = None,
        cache_limit: typing.SupportsInt | typing.SupportsIndex = 0,
    ) -> None: ...
    def close(self) -> None: ...
    def fail(self, request: RemoteRequest, kind: str, message: str) -> None: ...
    def give_address(
        self,
        request: RemoteRequest,
        url: str,
        headers: collections.abc.Sequence[str],
        renew_at: typing.SupportsFloat | typing.SupportsIndex,
        ca_file: str = "",
        remedy: str = "",
    ) -> None: ...
    def give_bytes(self, request: RemoteRequest, content: typing_extensions.Buffer) -> None: ...
    def next_request(self) -> RemoteRequest | None: ...
    def read(
        self,
        file: typing.SupportsInt | typing.SupportsIndex,
        places: collections.abc.Sequence[
            tuple[
                typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex
            ]
        ],
    ) -> list[bytes]: ...

class DataFiles:
    def __init__(
        self,
        *,
        paths: collections.abc.Sequence[str],
        num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        mtime_ns: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        inode: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        contents: collections.abc.Sequence[typing_extensions.Buffer],
        decryption: Decryption | None,
        remote: RemoteStore | None = None,
    ) -> None: ...

class LeafColumn:
    @property
    def dtype(self) -> str: ...
    @property
    def dtypes(self) -> list[str]: ...
    @property
    def field_id(self) -> int: ...
    @property
    def is_bytes(self) -> bool: ...
    @property
    def items(self) -> int | None: ...
    @property
    def kind(self) -> str: ...
    @property
    def list_length(self) -> int | None: ...
    @property
    def list_lengths(self) -> list[int]: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def num_lists(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def tensor_shape(self) -> str: ...

class Footers:
    def content(self, file: typing.SupportsInt | typing.SupportsIndex) -> bytes: ...
    def list_counts(
        self,
        file: typing.SupportsInt | typing.SupportsIndex,
        leaf: typing.SupportsInt | typing.SupportsIndex,
    ) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def chunk_num_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_digest(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_has_hidden_columns(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_inode(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_mtime_ns(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_num_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_num_row_groups(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_num_rows(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def file_schema(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def row_group_num_bytes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def row_group_num_rows(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @property
    def schema_leaf_bytes(self) -> list[list[float]]: ...
    @property
    def schemas(self) -> list[list[LeafColumn]]: ...

class PageHeader:
    @property
    def checksum(self) -> int | None: ...
    @property
    def compressed_bytes(self) -> int: ...
    @property
    def encoding(self) -> int: ...
    @property
    def header_bytes(self) -> int: ...
    @property
    def is_data(self) -> bool: ...
    @property
    def is_dictionary(self) -> bool: ...
    @property
    def num_values(self) -> int: ...

class Selections:
    def __init__(
        self,
        *,
        form: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
        begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        words: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
        num_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    ) -> None: ...

class FieldSpec:
    has_item_valid: bool
    has_valid: bool
    is_keyed: bool
    def __init__(self) -> None: ...
    @property
    def cell_items(self) -> int: ...
    @cell_items.setter
    def cell_items(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def item_bytes(self) -> int: ...
    @item_bytes.setter
    def item_bytes(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def num_offsets(self) -> int: ...
    @num_offsets.setter
    def num_offsets(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def row_bytes(self) -> float: ...
    @row_bytes.setter
    def row_bytes(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None: ...
    @property
    def valid_items(self) -> int: ...
    @valid_items.setter
    def valid_items(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def weighs(self) -> int: ...
    @weighs.setter
    def weighs(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def width(self) -> int: ...
    @width.setter
    def width(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class Transform:
    def __init__(
        self,
        *,
        steps: collections.abc.Sequence[
            tuple[
                str,
                typing.SupportsFloat | typing.SupportsIndex,
                typing.SupportsFloat | typing.SupportsIndex,
            ]
        ],
        borders: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex] | None,
        counts_equal: bool,
        num_buckets: typing.SupportsInt | typing.SupportsIndex,
        seed: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def apply(
        self, bits: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64]
    ) -> numpy.typing.NDArray[numpy.uint64]: ...
    def bucket_of(self, value: bytes) -> int: ...

class Vocabulary:
    @typing.overload
    def __init__(
        self,
        words: collections.abc.Sequence[bytes],
        unknown_code: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    @typing.overload
    def __init__(self, hash: Transform) -> None: ...

class PackRequest:
    def __init__(
        self,
        *,
        length: typing.SupportsInt | typing.SupportsIndex,
        strategy: str,
        has_separator: bool,
        window_documents: typing.SupportsInt | typing.SupportsIndex,
        multiple_of: typing.SupportsInt | typing.SupportsIndex,
        separator_bits: typing.SupportsInt | typing.SupportsIndex,
        padding_bits: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def num_sequences(
        self, lengths: typing.Annotated[numpy.typing.ArrayLike, numpy.int64]
    ) -> int: ...

class ColumnRequest:
    default_bytes: bytes | None
    dtype: str
    is_scalar: bool
    lengths_only: bool
    missing_is_null: bool
    null_rows_are_empty: bool
    pack: PackRequest | None
    path: str
    transform: Transform
    vocabulary: Vocabulary
    def __init__(self) -> None: ...
    @property
    def cell_items(self) -> int: ...
    @cell_items.setter
    def cell_items(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def default_bits(self) -> int | None: ...
    @default_bits.setter
    def default_bits(self, arg0: typing.SupportsInt | typing.SupportsIndex | None) -> None: ...
    @property
    def default_items(self) -> int | None: ...
    @default_items.setter
    def default_items(self, arg0: typing.SupportsInt | typing.SupportsIndex | None) -> None: ...
    @property
    def kinds(self) -> list[str]: ...
    @kinds.setter
    def kinds(self, arg0: collections.abc.Sequence[str]) -> None: ...
    @property
    def list_length(self) -> int: ...
    @list_length.setter
    def list_length(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def num_offsets(self) -> int: ...
    @num_offsets.setter
    def num_offsets(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def unit_nanoseconds(self) -> int: ...
    @unit_nanoseconds.setter
    def unit_nanoseconds(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class StoredColumn:
    def __init__(self) -> None: ...
    @property
    def path_of_file(self) -> list[int]: ...
    @path_of_file.setter
    def path_of_file(
        self, arg0: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]
    ) -> None: ...
    @property
    def paths(self) -> list[str]: ...
    @paths.setter
    def paths(self, arg0: collections.abc.Sequence[str]) -> None: ...

class ColumnSpec:
    nulls_are_errors: bool
    request: ColumnRequest
    stored: StoredColumn
    def __init__(self) -> None: ...
    @property
    def element(self) -> int: ...
    @element.setter
    def element(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def field(self) -> int: ...
    @field.setter
    def field(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def file_bits(self) -> list[int | None]: ...
    @file_bits.setter
    def file_bits(
        self, arg0: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex | None]
    ) -> None: ...
    @property
    def fill_bits(self) -> int: ...
    @fill_bits.setter
    def fill_bits(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class RowGroups:
    def __init__(
        self,
        *,
        file: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        in_file: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        first_row: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        num_sequences: typing.Annotated[numpy.typing.ArrayLike, numpy.int64] | None,
        are_selected: bool,
    ) -> None: ...

class EpochOrder:
    def __init__(
        self,
        *,
        row_groups: RowGroups,
        row_group: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        num_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    ) -> None: ...

class Share:
    is_claimed: bool
    def __init__(self, order: EpochOrder) -> None: ...
    def add_chunks(
        self,
        *,
        row_group: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        num_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        valid: typing.Annotated[numpy.typing.ArrayLike, numpy.bool],
    ) -> None: ...
    def add_windows(
        self,
        *,
        num_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        key: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
        begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        end: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        orders: collections.abc.Sequence[typing.Annotated[numpy.typing.ArrayLike, numpy.uint32]],
    ) -> None: ...
    @property
    def dealt_rows(self) -> int: ...
    @dealt_rows.setter
    def dealt_rows(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def rank(self) -> int: ...
    @rank.setter
    def rank(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def skipped_rows(self) -> int: ...
    @skipped_rows.setter
    def skipped_rows(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def world_size(self) -> int: ...
    @world_size.setter
    def world_size(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class ReaderParts:
    lent_slabs: bool
    rows_are_packed: bool
    share: Share
    @typing.overload
    def __init__(
        self,
        *,
        files: DataFiles,
        fields: collections.abc.Sequence[FieldSpec],
        columns: collections.abc.Sequence[ColumnSpec],
        selections: Selections | None,
    ) -> None: ...
    @typing.overload
    def __init__(self, parts: ReaderParts) -> None: ...
    @property
    def batch_rows(self) -> int: ...
    @batch_rows.setter
    def batch_rows(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def batch_sizes(self) -> numpy.typing.NDArray[numpy.int64]: ...
    @batch_sizes.setter
    def batch_sizes(self, arg1: typing.Annotated[numpy.typing.ArrayLike, numpy.int64]) -> None: ...
    @property
    def beside(self) -> list[Share]: ...
    @beside.setter
    def beside(self, arg0: collections.abc.Sequence[Share]) -> None: ...
    @property
    def max_memory_bytes(self) -> int: ...
    @max_memory_bytes.setter
    def max_memory_bytes(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def num_threads(self) -> int: ...
    @num_threads.setter
    def num_threads(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def row_id_field(self) -> int: ...
    @row_id_field.setter
    def row_id_field(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    @property
    def row_valid_field(self) -> int: ...
    @row_valid_field.setter
    def row_valid_field(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class ReaderMemory:
    def __init__(self) -> None: ...

class CostSums:
    @property
    def bytes_decompressed(self) -> int: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def decode_seconds(self) -> float: ...
    @property
    def decompress_seconds(self) -> float: ...
    @property
    def num_decompressed(self) -> int: ...
    @property
    def num_reads(self) -> int: ...
    @property
    def num_tasks(self) -> int: ...
    @property
    def open_seconds(self) -> float: ...
    @property
    def read_seconds(self) -> float: ...

class ReaderStats:
    @property
    def batches(self) -> int: ...
    @property
    def bytes_from_cache(self) -> int: ...
    @property
    def bytes_received(self) -> int: ...
    @property
    def bytes_wasted(self) -> int: ...
    @property
    def codecs(self) -> dict[str, CostSums]: ...
    @property
    def columns(self) -> list[CostSums]: ...
    @property
    def delivered_bytes(self) -> list[int]: ...
    @property
    def first_wait_seconds(self) -> float: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def held_lock_seconds(self) -> float: ...
    @property
    def idle_at_end_seconds(self) -> float: ...
    @property
    def is_http(self) -> bool: ...
    @property
    def num_complete(self) -> int: ...
    @property
    def num_hedges(self) -> int: ...
    @property
    def num_hedges_won(self) -> int: ...
    @property
    def num_in_flight(self) -> int: ...
    @property
    def num_requests(self) -> int: ...
    @property
    def num_retries(self) -> int: ...
    @property
    def num_waits(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def wait_for_bytes_seconds(self) -> float: ...
    @property
    def wait_for_lock_seconds(self) -> float: ...
    @property
    def wait_for_loop_seconds(self) -> float: ...
    @property
    def wait_for_memory_seconds(self) -> float: ...
    @property
    def wait_seconds(self) -> float: ...

class FieldPlace:
    @property
    def valid_offset(self) -> int: ...
    @property
    def values_offset(self) -> int: ...

class SlabPiece:
    def __init__(
        self,
        *,
        dtype: str,
        begin: typing.SupportsInt | typing.SupportsIndex,
        last: typing.SupportsInt | typing.SupportsIndex,
        row_bytes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...

class BatchReader:
    def __init__(self, *, parts: ReaderParts, memory: ReaderMemory) -> None: ...
    def announce(self, shares: collections.abc.Sequence[Share]) -> None: ...
    def claim(
        self,
        number: typing.SupportsInt | typing.SupportsIndex,
        position: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def end_claims(self, drops_last: bool) -> None: ...
    def lend(
        self,
        data: typing.SupportsInt | typing.SupportsIndex,
        token: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def next(
        self,
        max_batches: typing.SupportsInt | typing.SupportsIndex,
        pieces: collections.abc.Sequence[SlabPiece],
    ) -> (
        tuple[
            list[typing.Any],
            int,
            list[
                tuple[
                    list[numpy.typing.NDArray[numpy.int64]],
                    numpy.ndarray[typing.Any, numpy.dtype[typing.Any]],
                    numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None,
                ]
            ],
        ]
        | None
    ): ...
    def stats(self, num_unused: typing.SupportsInt | typing.SupportsIndex) -> ReaderStats: ...
    def stop(self) -> None: ...
    def stop_within(self, seconds: typing.SupportsFloat | typing.SupportsIndex) -> bool: ...
    @property
    def fields(self) -> list[FieldPlace]: ...
    @property
    def has_asked_for_all(self) -> bool: ...
    @property
    def max_slabs(self) -> int: ...
    @property
    def memory(self) -> ReaderMemory: ...
    @property
    def next_is_ready(self) -> bool: ...
    @property
    def num_batches(self) -> int: ...
    @property
    def num_claims(self) -> int: ...
    @property
    def num_taken(self) -> int: ...
    @property
    def slab_bytes(self) -> int: ...
    @property
    def wants_claim(self) -> bool: ...

class RowItems:
    def __init__(
        self,
        address: typing.SupportsInt | typing.SupportsIndex,
        bytes: typing.SupportsInt | typing.SupportsIndex,
        counts: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...

class SlabPool:
    def __init__(
        self,
        slab_bytes: typing.SupportsInt | typing.SupportsIndex,
        kept_bytes: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def acquire(self, pieces: collections.abc.Sequence[SlabPiece]) -> tuple[typing.Any, ...]: ...

class DocumentPacker:
    def __init__(self, pack: PackRequest) -> None: ...
    def add(self, lengths: typing.Annotated[numpy.typing.ArrayLike, numpy.int64]) -> None: ...
    def clear(self) -> int: ...
    def finish(self) -> None: ...
    def write(
        self,
        pack: PackRequest,
        values: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]],
        first_value: typing.SupportsInt | typing.SupportsIndex,
        out: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]],
        marks: numpy.ndarray[typing.Any, numpy.dtype[typing.Any]] | None,
    ) -> None: ...
    @property
    def num_sequences(self) -> int: ...

def await_gloo_threads() -> None: ...
def begin_iteration(
    words: numpy.typing.NDArray[numpy.int64],
    key: typing.SupportsInt | typing.SupportsIndex,
    worker: typing.SupportsInt | typing.SupportsIndex,
) -> int: ...
def bloom_filter_bytes(content: bytes) -> int | None: ...
def cumulative_lengths(
    marks: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
) -> numpy.typing.NDArray[numpy.int32]: ...
def digests_of_blocks(
    bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
    block_bytes: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.uint64]: ...
def documents_of(
    marks: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]: ...
def epoch_of(
    words: numpy.typing.NDArray[numpy.int64], iteration: typing.SupportsInt | typing.SupportsIndex
) -> int: ...
def find_indexes(footer: bytes) -> numpy.typing.NDArray[numpy.int64]: ...
def gather_items(
    rows: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    kinds: collections.abc.Sequence[RowItems],
) -> None: ...
def gather_records(
    records: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    record_bytes: typing.SupportsInt | typing.SupportsIndex,
    addresses: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    offsets: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
) -> None: ...
def has_libcurl() -> bool: ...
def hash_bytes(
    bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
    ends: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
) -> numpy.typing.NDArray[numpy.uint64]: ...
def instructions() -> str: ...
def keyed_rows(
    keys: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    num_rows: typing.SupportsInt | typing.SupportsIndex,
    begin: typing.SupportsInt | typing.SupportsIndex,
    count: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.int64]: ...
def load_arrow(path: str) -> str: ...
def locate_records(
    rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    firsts: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    bases: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    record_bytes: typing.SupportsInt | typing.SupportsIndex,
) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.uint64]]: ...
def map_bytes(
    descriptor: typing.SupportsInt | typing.SupportsIndex,
    num_bytes: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.uint8]: ...
def map_shared_words(
    descriptor: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.int64]: ...
def mark_cache_folder(path: str) -> None: ...
def mark_sampled_rows(
    marked: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    samples: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    first_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
) -> tuple[
    numpy.typing.NDArray[numpy.int64],
    numpy.typing.NDArray[numpy.uint64],
    numpy.typing.NDArray[numpy.uint32],
]: ...
def may_hold(bloom_filter: bytes, value: bytes) -> bool: ...
def num_iterations(words: numpy.typing.NDArray[numpy.int64]) -> int: ...
def offer_libcurl(path: str) -> None: ...
def offer_libdeflate(path: str) -> None: ...
def pack_items(
    kinds: collections.abc.Sequence[RowItems],
    num_rows: typing.SupportsInt | typing.SupportsIndex,
    out: typing.SupportsInt | typing.SupportsIndex,
) -> None: ...
def pack_records(
    addresses: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    offsets: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
    num_rows: typing.SupportsInt | typing.SupportsIndex,
    record_bytes: typing.SupportsInt | typing.SupportsIndex,
    records: typing.SupportsInt | typing.SupportsIndex,
) -> None: ...
def page_bounds(
    column_index: bytes,
) -> tuple[list[bool], list[bytes], list[bytes], list[int]] | None: ...
def page_rows(
    offset_index: bytes,
    chunk_offset: typing.SupportsInt | typing.SupportsIndex,
    chunk_bytes: typing.SupportsInt | typing.SupportsIndex,
    num_rows: typing.SupportsInt | typing.SupportsIndex,
) -> list[int] | None: ...
def parse_page_header(content: bytes) -> PageHeader | None: ...
def read_ahead(
    addresses: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
    num_bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
) -> None: ...
def read_footers(
    paths: collections.abc.Sequence[str],
    num_threads: typing.SupportsInt | typing.SupportsIndex,
    contents: collections.abc.Sequence[typing_extensions.Buffer],
    decryption: Decryption | None = None,
    with_chunk_sizes: bool = False,
    with_contents: bool = False,
    remote: RemoteStore | None = None,
) -> Footers: ...
def set_epoch_of(
    words: numpy.typing.NDArray[numpy.int64],
    iteration: typing.SupportsInt | typing.SupportsIndex,
    epoch: typing.SupportsInt | typing.SupportsIndex,
) -> None: ...
def sort_random_keys(
    keys: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
) -> numpy.typing.NDArray[numpy.uint32]: ...
def tensor_bytes(
    fields: collections.abc.Sequence[FieldSpec], num_rows: typing.SupportsInt | typing.SupportsIndex
) -> float: ...
def window_order(
    key: typing.SupportsInt | typing.SupportsIndex,
    num_rows: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.uint32]: ...
def window_row_bytes(
    fields: collections.abc.Sequence[FieldSpec],
    batch_rows: typing.SupportsInt | typing.SupportsIndex,
    has_orders: bool = False,
) -> float: ...

EPOCH_LEDGER_WORDS: int = 50178
