"""Keys of encrypted files: pyarrow's decryption properties, for each file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyarrow.parquet import FileDecryptionProperties

    from torchparquet._impl.native import Decryption

DecryptionArgument: TypeAlias = (
    "FileDecryptionProperties | Callable[[str], FileDecryptionProperties | None] | None"
)


class FileKeys:
    """The keys of files, remembered once footers are read. A copy in another process asks again."""

    def __init__(self, properties: DecryptionArgument) -> None:
        """Check the argument, without asking for a key."""
        if not _is_properties(properties) and not callable(properties):
            raise TypeError(
                "decryption_properties must be pyarrow's FileDecryptionProperties, a function that "
                f"returns those of a path, or None; got {properties!r}"
            )
        self._given = properties
        self.native: Decryption | None = None  # once footers are read

    def of_file(self, path: str) -> FileDecryptionProperties | None:
        """Return the properties of a file; None if it is not encrypted."""
        properties = self._given(path) if callable(self._given) else self._given
        if properties is not None and not _is_properties(properties):
            raise TypeError(
                "decryption_properties must return pyarrow's FileDecryptionProperties or None; for "
                f"{path!r} it returned {properties!r}"
            )
        return properties

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the keys."""
        if _is_properties(self._given):
            raise TypeError(
                "pyarrow's FileDecryptionProperties cannot be sent to another process; give "
                "decryption_properties a function, at the top level of a module, that makes them "
                "from a path"
            )
        return {"_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin without keys."""
        self.__dict__.update(state, native=None)


def _is_properties(value: object) -> bool:
    # Imported here, because only encryption needs this part of pyarrow.
    from pyarrow.parquet import FileDecryptionProperties

    return isinstance(value, FileDecryptionProperties)
