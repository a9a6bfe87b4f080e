"""The packed sequences of each row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchparquet._impl.reading.reader_arguments import pack_request
from torchparquet._impl.sequences.length_pass import Counted, LengthPass, RowGroupLengths

if TYPE_CHECKING:
    from torchparquet._impl.batches.fields import Field
    from torchparquet._impl.files.manifest import Manifest


def pack_rows(length_pass: LengthPass, fields: Sequence[Field]) -> Manifest:
    """Return the manifest of the sequences that the lists of packed fields become."""
    first = fields[0]
    pack, length, request = first.pack, first.length, pack_request(first)
    assert pack is not None and length is not None and request is not None  # noqa: PT018, S101
    has_separator = pack.separator is not None

    def count(row_group: RowGroupLengths) -> Counted:
        lengths = row_group.lengths
        num_documents = int(np.count_nonzero(lengths))
        num_sequences = request.num_sequences(lengths)
        num_tokens = int(lengths.sum()) + has_separator * num_documents
        return Counted(num_sequences, num_tokens, num_sequences * length, num_documents)

    def count_totals(num_items: int, num_documents: int) -> Counted:
        num_tokens = num_items + has_separator * num_documents
        num_sequences = -(-num_tokens // length)
        return Counted(num_sequences, num_tokens, num_sequences * length, num_documents)

    is_concat = pack.strategy == "concat"
    window = pack.window if pack.strategy == "best_fit" else None
    rules = [length, pack.strategy, has_separator, window]
    packed = length_pass.count(
        fields, "sequence", rules, count, count_totals if is_concat else None
    )
    return length_pass.manifest.pack(packed)
