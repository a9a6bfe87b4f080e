"""A column of texts as one of lists of tokens, which are those of `Pack(tokenizer=...)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.checks import listed
from torchparquet._impl.text.tokenizer import TOKENS, Tokenizer


@dataclass(frozen=True)
class TextColumn:
    """A column of strings, and what makes tokens of them; one thread uses it at a time."""

    name: str
    tokenizer: Tokenizer

    def schema(self, schema: Any) -> Any:
        """Return the schema of rows with tokens; raise unless the column has strings."""
        at = schema.get_field_index(self.name)
        if at < 0:
            raise ValueError(
                f"--pack must name one column of the files: {self.name!r} is none of "
                f"{listed(schema.names)}"
            )
        field = schema.field(at)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if kind not in (pa.string(), pa.large_string(), pa.string_view()):
            raise ValueError(
                "--pack of rewrite takes a column of strings, whose texts become tokens: "
                f"{self.name!r} is {field.type}"
            )
        return schema.set(at, field.with_type(TOKENS[0].type))

    def columns(self, batch: Any, place_of: Callable[[int], str]) -> list[Any]:
        """Return the columns of a batch, with tokens for texts; null for null."""
        at = batch.schema.get_field_index(self.name)
        try:
            made = self._tokens(batch.column(at))
        except Exception as error:
            row = next((row for row in range(len(batch)) if self._fails(batch, at, row)), 0)
            error.add_note(f"while it was tokenised: {place_of(row)}, column {self.name!r}")
            raise
        return [*batch.columns[:at], made, *batch.columns[at + 1 :]]

    def _tokens(self, column: Any) -> pa.ListArray:
        try:
            texts = column.to_pylist()
        except UnicodeDecodeError:
            raise ValueError("a text is not UTF-8: write it anew") from None
        is_null = np.array([text is None for text in texts], bool)
        given = [text for text in texts if text is not None]
        made = self.tokenizer.tokens(self.tokenizer.make(given)).column(0)
        lengths = np.zeros(len(texts), np.int32)
        lengths[~is_null] = np.diff(made.offsets.to_numpy())
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        mask = pa.array(is_null) if is_null.any() else None
        return pa.ListArray.from_arrays(pa.array(offsets), made.values, mask=mask)

    def _fails(self, batch: Any, at: int, row: int) -> bool:
        try:
            self._tokens(batch.column(at).slice(row, 1))
        except Exception:  # whatever the tokenizer raises
            return True
        return False
