"""`torchparquet inspect`: the contents of files, their tensors, and advice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from torchparquet._impl.files.manifest import Manifest
from torchparquet.tools.advice import Use, advise
from torchparquet.tools.footers import ColumnFacts, read_facts, sampled_row_groups
from torchparquet.tools.tensors import tensors_of


def inspect_files(
    manifest: Manifest, use: Use, *, all_pages: bool, advance: Callable[[int], None]
) -> dict[str, Any]:
    """Return a report on the files as JSON values."""
    every = range(manifest.num_row_groups)
    footers = read_facts(manifest, every if all_pages else sampled_row_groups(manifest), advance)
    columns = footers.columns
    tensors = tensors_of(columns, manifest)
    return {
        "files": [
            {"path": path, "bytes": int(num_bytes), "rows": int(rows), "row_groups": int(groups)}
            for path, num_bytes, rows, groups in zip(
                manifest.files,
                manifest.file_num_bytes,
                manifest.file_num_rows,
                np.bincount(manifest.row_group_file, minlength=len(manifest.files)),
                strict=True,
            )
        ],
        "writers": dict(footers.writers),
        "rows": manifest.num_rows,
        "bytes": int(manifest.file_num_bytes.sum()),
        "row_groups": {
            "count": manifest.num_row_groups,
            "rows": _spread(manifest.row_group_num_rows),
            "compressed_bytes": _spread(manifest.row_group_num_bytes),
            "uncompressed_bytes": _spread(footers.row_group_bytes),
        },
        "column_chunks_looked_at": sum(facts.pages.num_chunks for facts in columns.values()),
        "columns": [_column(facts, tensors[name][0]) for name, facts in columns.items()],
        "advice": [advice._asdict() for advice in advise(manifest, columns, tensors, use)],
    }


def _spread(values: ArrayLike) -> dict[str, int]:
    array = np.asarray(values)
    return {"min": int(array.min()), "median": int(np.median(array)), "max": int(array.max())}


def _column(facts: ColumnFacts, tensor: dict[str, Any]) -> dict[str, Any]:
    pages = facts.pages
    return {
        "name": facts.name,
        "kinds": facts.kinds,
        "physical_types": sorted(facts.physical_types),
        "tensor": tensor,
        "values": facts.num_values,
        "nulls": facts.null_count,
        "compressed_bytes": facts.compressed_bytes,
        "uncompressed_bytes": facts.uncompressed_bytes,
        "codecs": sorted(facts.codecs),
        "encodings": sorted(pages.encodings or facts.encodings),
        "with_dictionary": pages.with_dictionary > 0,
        "dictionary_fallback": pages.fallbacks > 0,
        "most_words": pages.most_words,
        "page_checksums": 0 < pages.num_pages == pages.num_checksums,
    }
