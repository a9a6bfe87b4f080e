"""The extension as Python sees it: the only module that imports `_core`."""

from importlib.util import find_spec
from pathlib import Path

from torchparquet._impl._core import (
    EPOCH_LEDGER_WORDS,
    BatchReader,
    ColumnSpec,
    DataFiles,
    Decryption,
    FieldPlace,
    FieldSpec,
    Footers,
    LeafColumn,
    PackRequest,
    PageHeader,
    ReaderMemory,
    ReaderSpec,
    ReaderStats,
    RemoteRequest,
    RemoteStore,
    Selections,
    Share,
    Vocabulary,
    await_gloo_threads,
    begin_iteration,
    bloom_filter_bytes,
    cumulative_lengths,
    documents_of,
    epoch_of,
    find_indexes,
    has_http,
    has_libdeflate,
    hash_bytes,
    instructions,
    load_arrow,
    map_shared_words,
    may_hold,
    num_iterations,
    offer_libdeflate,
    page_bounds,
    page_rows,
    parse_page_header,
    read_footers,
    set_epoch_of,
    tensor_bytes,
    window_order,
    window_row_bytes,
)
from torchparquet._impl.bridge import find_bridge

__all__ = [
    "EPOCH_LEDGER_WORDS",
    "PYARROW_RELEASE",
    "BatchReader",
    "ColumnSpec",
    "DataFiles",
    "Decryption",
    "FieldPlace",
    "FieldSpec",
    "Footers",
    "LeafColumn",
    "PackRequest",
    "PageHeader",
    "ReaderMemory",
    "ReaderSpec",
    "ReaderStats",
    "RemoteRequest",
    "RemoteStore",
    "Selections",
    "Share",
    "Vocabulary",
    "await_gloo_threads",
    "begin_iteration",
    "bloom_filter_bytes",
    "cumulative_lengths",
    "documents_of",
    "epoch_of",
    "find_indexes",
    "has_http",
    "has_libdeflate",
    "hash_bytes",
    "instructions",
    "map_shared_words",
    "may_hold",
    "num_iterations",
    "page_bounds",
    "page_rows",
    "parse_page_header",
    "read_footers",
    "set_epoch_of",
    "tensor_bytes",
    "window_order",
    "window_row_bytes",
]


# Of the bridge in use, as in "26.0". Decoding calls Arrow through it.
PYARROW_RELEASE = load_arrow(str(find_bridge()))


def _offer_libdeflate() -> None:
    """Let gzip pages be read by the libdeflate in the wheel of `deflate`, if that is installed."""
    spec = find_spec("deflate")
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in Path(folder).glob("_deflate*.so"):
            offer_libdeflate(str(library))


_offer_libdeflate()
