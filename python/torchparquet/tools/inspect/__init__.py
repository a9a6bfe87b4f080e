"""`torchparquet inspect`: the contents of files, their tensors, and advice.

`column_chunks` reads footers, and `pages` the headers of pages. `tensors` describes the tensor of
each column, `advice` the changes that would help.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.opening import opened
from torchparquet.tools.inspect.advice import Advice, Findings, Use, advise
from torchparquet.tools.inspect.column_chunks import ColumnFacts, FooterFacts, read_facts
from torchparquet.tools.inspect.pages import PageFacts, page_headers
from torchparquet.tools.inspect.tensors import TensorFacts, tensors_of

_MAX_SAMPLED_CHUNKS = 512


def sampled_row_groups(manifest: Manifest) -> set[int]:
    """Return evenly spread row groups whose column chunks are few enough to look at."""
    most_columns = max(map(len, manifest.schemas))
    count = min(manifest.num_row_groups, max(1, _MAX_SAMPLED_CHUNKS // max(1, most_columns)))
    return set(np.linspace(0, manifest.num_row_groups - 1, count).astype(int).tolist())


def look_at(
    manifest: Manifest, *, all_pages: bool, advance: Callable[[int], None]
) -> tuple[FooterFacts, dict[str, PageFacts]]:
    """Read footers, and the headers of pages."""
    wanted = set(range(manifest.num_row_groups)) if all_pages else sampled_row_groups(manifest)
    footers = read_facts(manifest, wanted, advance)
    pages = {name: PageFacts() for name in footers.columns}
    for path, places in groupby(footers.places, key=lambda place: place.path):
        with opened(path, manifest.remote) as file:
            for place in places:
                pages[place.column].add(page_headers(place, file))
    return footers, pages


def inspect_files(
    manifest: Manifest,
    use: Use,
    *,
    all_pages: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Return a report on the files as JSON values."""
    footers, pages = look_at(manifest, all_pages=all_pages, advance=advance)
    tensors = tensors_of(footers.columns, manifest)
    findings = Findings(
        manifest,
        footers,
        pages,
        {name: tensor for name, (tensor, _) in tensors.items()},
        tuple(field for _, field in tensors.values() if field is not None),
        use,
    )
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
        "column_chunks_looked_at": sum(facts.num_chunks for facts in pages.values()),
        "columns": [
            _column(facts, pages[name], tensors[name][0]) for name, facts in footers.columns.items()
        ],
        "advice": [_advice(advice) for advice in advise(findings)],
    }


def _spread(values: ArrayLike) -> dict[str, int]:
    array = np.asarray(values)
    return {"min": int(array.min()), "median": int(np.median(array)), "max": int(array.max())}


def _column(facts: ColumnFacts, pages: PageFacts, tensor: TensorFacts) -> dict[str, Any]:
    return {
        "name": facts.name,
        "kinds": facts.kinds,
        "physical_types": sorted(facts.physical_types),
        "tensor": vars(tensor),
        "values": facts.num_values,
        "nulls": facts.null_count,
        "compressed_bytes": facts.compressed_bytes,
        "uncompressed_bytes": facts.uncompressed_bytes,
        "codecs": sorted(facts.codecs),
        "encodings": sorted(pages.encodings or facts.encodings),
        "with_dictionary": pages.with_dictionary > 0,
        "dictionary_fallback": pages.fallbacks > 0,
        "most_words": pages.most_words,
        "page_checksums": pages.has_checksums,
    }


def _advice(advice: Advice) -> dict[str, Any]:
    return {"rule": advice.rule, "text": advice.text, "columns": list(advice.columns)}
