from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions

__all__: list[str] = [
    "BatchReader",
    "ColumnSpec",
    "CostSums",
    "DataFiles",
    "Decryption",
    "EPOCH_LEDGER_WORDS",
    "EpochOrder",
    "FieldPlace",
    "FieldSpec",
    "Footers",
    "KeptFooters",
    "LeafColumn",
    "PackRequest",
    "PageHeader",
    "ReaderMemory",
    "ReaderSpec",
    "ReaderStats",
    "RemoteRequest",
    "RemoteStore",
    "RowGroups",
    "Selections",
    "Share",
    "SlabPiece",
    "Transform",
    "Vocabulary",
    "await_gloo_threads",
    "begin_iteration",
    "bloom_filter_bytes",
    "cumulative_lengths",
    "documents_of",
    "epoch_of",
    "find_indexes",
    "has_libcurl",
    "has_libdeflate",
    "hash_bytes",
    "instructions",
    "load_arrow",
    "map_shared_words",
    "may_hold",
    "num_iterations",
    "offer_libcurl",
    "offer_libdeflate",
    "page_bounds",
    "page_rows",
    "parse_page_header",
    "read_footers",
    "set_epoch_of",
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
        max_tries: typing.SupportsInt | typing.SupportsIndex = 10,
        max_seconds: typing.SupportsFloat | typing.SupportsIndex = 180.0,
        max_connections: typing.SupportsInt | typing.SupportsIndex = 64,
        hedges: bool = True,
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
    def stats(self) -> dict[str, typing.Any]: ...

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
    def __init__(
        self,
        *,
        item_bytes: typing.SupportsInt | typing.SupportsIndex,
        width: typing.SupportsInt | typing.SupportsIndex,
        cell_items: typing.SupportsInt | typing.SupportsIndex,
        has_valid: bool,
        valid_items: typing.SupportsInt | typing.SupportsIndex,
        num_offsets: typing.SupportsInt | typing.SupportsIndex,
        has_item_valid: bool,
        row_bytes: typing.SupportsFloat | typing.SupportsIndex,
        is_keyed: bool,
        weighs: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...

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

class ColumnSpec:
    def __init__(
        self,
        *,
        path: str,
        kinds: collections.abc.Sequence[str],
        dtype: str,
        cell_items: typing.SupportsInt | typing.SupportsIndex,
        num_offsets: typing.SupportsInt | typing.SupportsIndex,
        list_length: typing.SupportsInt | typing.SupportsIndex,
        transform: Transform | None,
        vocabulary: Vocabulary | None,
        field: typing.SupportsInt | typing.SupportsIndex,
        element: typing.SupportsInt | typing.SupportsIndex,
        nulls_are_errors: bool,
        fill_bits: typing.SupportsInt | typing.SupportsIndex,
        default_bits: typing.SupportsInt | typing.SupportsIndex | None,
        default_bytes: bytes | None,
        default_items: typing.SupportsInt | typing.SupportsIndex | None,
        unit_nanoseconds: typing.SupportsInt | typing.SupportsIndex,
        missing_is_null: bool,
        file_bits: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex | None],
        stored_paths: collections.abc.Sequence[str],
        path_of_file: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        pack: PackRequest | None,
        lengths_only: bool,
        is_scalar: bool,
        null_rows_are_empty: bool,
    ) -> None: ...

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
    def __init__(
        self,
        *,
        order: EpochOrder,
        rank: typing.SupportsInt | typing.SupportsIndex,
        world_size: typing.SupportsInt | typing.SupportsIndex,
        dealt_rows: typing.SupportsInt | typing.SupportsIndex,
        skipped_rows: typing.SupportsInt | typing.SupportsIndex,
        row_group: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        num_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        valid: typing.Annotated[numpy.typing.ArrayLike, numpy.bool],
        window_rows: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        window_key: typing.Annotated[numpy.typing.ArrayLike, numpy.uint64],
        window_begin: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        window_end: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        is_claimed: bool,
    ) -> None: ...

class ReaderSpec:
    def __init__(
        self,
        *,
        files: DataFiles,
        share: Share,
        beside: collections.abc.Sequence[Share],
        batch_rows: typing.SupportsInt | typing.SupportsIndex,
        batch_sizes: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
        fields: collections.abc.Sequence[FieldSpec],
        columns: collections.abc.Sequence[ColumnSpec],
        row_id_field: typing.SupportsInt | typing.SupportsIndex,
        row_valid_field: typing.SupportsInt | typing.SupportsIndex,
        num_threads: typing.SupportsInt | typing.SupportsIndex,
        max_memory_bytes: typing.SupportsInt | typing.SupportsIndex,
        lent_slabs: bool,
        selections: Selections | None,
        rows_are_packed: bool,
    ) -> None: ...

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
    def __init__(self, *, spec: ReaderSpec, memory: ReaderMemory) -> None: ...
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
    def capacity_rows(self) -> int: ...
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
def documents_of(
    marks: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
) -> tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int32]]: ...
def epoch_of(
    words: numpy.typing.NDArray[numpy.int64], iteration: typing.SupportsInt | typing.SupportsIndex
) -> int: ...
def find_indexes(footer: bytes) -> numpy.typing.NDArray[numpy.int64]: ...
def has_libcurl() -> bool: ...
def has_libdeflate() -> bool: ...
def hash_bytes(
    bytes: typing.Annotated[numpy.typing.ArrayLike, numpy.uint8],
    ends: typing.Annotated[numpy.typing.ArrayLike, numpy.int64],
) -> numpy.typing.NDArray[numpy.uint64]: ...
def instructions() -> str: ...
def load_arrow(path: str) -> str: ...
def map_shared_words(
    descriptor: typing.SupportsInt | typing.SupportsIndex,
) -> numpy.typing.NDArray[numpy.int64]: ...
def may_hold(bloom_filter: bytes, value: bytes) -> bool: ...
def num_iterations(words: numpy.typing.NDArray[numpy.int64]) -> int: ...
def offer_libcurl(path: str) -> None: ...
def offer_libdeflate(path: str) -> None: ...
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
) -> float: ...

EPOCH_LEDGER_WORDS: int = 50178
