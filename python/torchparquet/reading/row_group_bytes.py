"""What reading a row group costs: the compressed bytes of the columns that are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torchparquet.batches.fields import Field
    from torchparquet.files.manifest import Manifest
    from torchparquet.plan.plan_options import Int64Array


def column_bytes(manifest: Manifest, fields: Sequence[Field]) -> Int64Array:
    """Return the compressed bytes of the columns of `fields`, int64 `[G]`; reads footers again."""
    # Imported here, as it is needed for balance="bytes" alone.
    import pyarrow.parquet as pq

    sources = {source for field in fields for source in field.sources}
    costs = np.zeros(manifest.num_row_groups, dtype=np.int64)
    for file in np.flatnonzero(np.bincount(manifest.row_group_file)).tolist():
        content = manifest.memory[file].content if manifest.memory else None
        footer = pq.read_metadata(manifest.files[file] if content is None else content)
        leaves = manifest.schemas[int(manifest.file_schema[file])]
        read = [index for index, leaf in enumerate(leaves) if leaf.path in sources]
        for place in np.flatnonzero(manifest.row_group_file == file).tolist():
            row_group = footer.row_group(int(manifest.row_group_in_file[place]))
            costs[place] = sum(row_group.column(index).total_compressed_size for index in read)
    return costs
