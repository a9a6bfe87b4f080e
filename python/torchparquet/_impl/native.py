"""The extension as Python sees it: the only module that imports `_core`."""

import functools
from importlib.util import find_spec
from pathlib import Path

from torchparquet._impl.bridge import find_bridge

try:
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
        RowGroups,
        Selections,
        Sequence,
        Share,
        SlabPiece,
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
except ModuleNotFoundError as error:
    if error.name != "torchparquet._impl._core":
        raise
    raise ImportError(
        "torchparquet is not built: its extension _core is missing; in a checkout run: "
        "pip install ."
    ) from None

__all__ = [
    "EPOCH_LEDGER_WORDS",
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
    "RowGroups",
    "Selections",
    "Sequence",
    "Share",
    "SlabPiece",
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
    "load_bridge",
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


@functools.cache
def load_bridge() -> str:
    """Load the bridge to Arrow; return its release, as in "26.0". Whoever reads files calls it.

    Gzip pages are read by the libdeflate in the wheel of `deflate`, if that is installed.
    """
    release: str = load_arrow(str(find_bridge()))
    spec = find_spec("deflate")
    for folder in (spec and spec.submodule_search_locations) or ():
        for library in Path(folder).glob("_deflate*.so"):
            offer_libdeflate(str(library))
    return release
