"""The pages of columns as pyarrow writes them, one kind of content each."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from generated.click_log import ClickLogOptions, row_groups
from torchparquet._impl.native import parse_page_header

_NUM_WORDS = 5000


def _text(rng: np.random.Generator, num_rows: int) -> pa.Array:
    """Sentences of words with Zipf-like frequencies."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(_NUM_WORDS)]
    weights = 1 / np.arange(1, _NUM_WORDS + 1)
    drawn = rng.choice(_NUM_WORDS, (num_rows, 16), p=weights / weights.sum())
    return pa.array([" ".join(words[i] for i in row) for row in drawn.tolist()])


def _columns(rng: np.random.Generator, num_rows: int) -> dict[str, Callable[[], pa.Array]]:
    def integers(low: int, high: int) -> pa.Array:
        return pa.array(rng.integers(low, high, num_rows))

    return {
        "int32, small": lambda: integers(0, 1000).cast(pa.int32()),
        "int64, sorted": lambda: pa.array(10**12 + np.cumsum(rng.integers(0, 100, num_rows))),
        "int64, one after another": lambda: pa.array(np.arange(num_rows)),
        "int64, small": lambda: integers(0, 1000),
        "int64, large": lambda: integers(-(1 << 40), 1 << 40),
        "float64": lambda: pa.array(rng.random(num_rows)),
        "float64, two digits": lambda: pa.array(np.round(rng.lognormal(3, 1, num_rows), 2)),
        "text": lambda: _text(rng, num_rows // 32),
        "dictionary indices, even": lambda: integers(0, 5000),
        "dictionary indices, skewed": lambda: pa.array(np.minimum(rng.zipf(1.3, num_rows), 3000)),
        "incompressible": lambda: pa.array(rng.integers(-(1 << 63), (1 << 63) - 1, num_rows)),
    }


def _pages(table: pa.Table, use_dictionary: bool) -> Iterator[tuple[bool, bytes]]:
    """Yields whether a page has data, and its bytes, for each page of the only row group."""
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        compression="none",
        use_dictionary=use_dictionary,
        row_group_size=len(table),
    )
    content = file.getvalue()
    row_group = pq.read_metadata(file).row_group(0)
    for index in range(row_group.num_columns):
        chunk = row_group.column(index)
        offset = chunk.dictionary_page_offset or chunk.data_page_offset
        end = offset + chunk.total_compressed_size
        while offset < end:
            header = parse_page_header(content[offset : offset + (1 << 12)])
            assert header is not None
            body = offset + header.header_bytes
            offset = body + header.compressed_bytes
            yield header.is_data, content[body:offset]


def kinds_of_pages(num_rows: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yields the name of each kind, and its pages, not compressed."""
    rng = np.random.default_rng(0)
    for name, make in _columns(rng, num_rows).items():
        is_indices = name.startswith("dictionary")
        pages = _pages(pa.table({"x": make()}), is_indices)
        yield name, [page for is_data, page in pages if is_data or not is_indices]
    options = ClickLogOptions(num_rows=250_000)
    click_log = pa.concat_tables(list(row_groups(options)))
    yield "click log", [page for _, page in _pages(click_log, True)]
