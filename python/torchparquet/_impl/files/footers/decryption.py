"""Keys of encrypted files: pyarrow's decryption properties, for each file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileDecryptionProperties

    from torchparquet._impl.native import Decryption, Footers

PropertiesOfFile: TypeAlias = "Callable[[str], FileDecryptionProperties | None]"
DecryptionArgument: TypeAlias = "FileDecryptionProperties | PropertiesOfFile | None"


class FileKeys:
    """The keys of the files of a data set.

    Threads of this process ask for keys while they read footers. The keys are remembered, so
    decoding asks nobody. A copy in another process asks again.
    """

    def __init__(self, properties: DecryptionArgument) -> None:
        """Check the argument, without asking for a key.

        Args:
            properties: pyarrow's `FileDecryptionProperties` for all files, or a function that
                takes a path and returns its properties, or None if the file is not encrypted.
        """
        if not _is_properties(properties) and not callable(properties):
            raise TypeError(
                "decryption_properties must be pyarrow's FileDecryptionProperties, a function that "
                f"returns those of a path, or None; got {properties!r}"
            )
        self._given = properties
        self._native: Decryption | None = None

    def of_file(self, path: str) -> FileDecryptionProperties | None:
        """Return the properties of a file; None if it is not encrypted."""
        if _is_properties(self._given):
            return self._given
        assert callable(self._given)  # noqa: S101
        properties = self._given(path)
        if properties is not None and not _is_properties(properties):
            raise TypeError(
                "decryption_properties must return pyarrow's FileDecryptionProperties or None; for "
                f"{path!r} it returned {properties!r}"
            )
        return properties

    def read_footers(
        self,
        files: Sequence[str],
        num_threads: int,
        contents: Sequence[pa.Buffer],
        options: Mapping[str, Any],
    ) -> Footers:
        """Read the footers of ``files`` and remember their keys."""
        from torchparquet._impl.native import Decryption, load_bridge, read_footers

        load_bridge()

        native = Decryption([self.of_file(path) for path in files])
        footers = read_footers(list(files), num_threads, list(contents), native, **options)
        self._native = native
        return footers

    @property
    def is_read(self) -> bool:
        """True if the keys are remembered."""
        return self._native is not None

    def native(
        self,
        files: Sequence[str],
        num_threads: int,
        contents: Sequence[pa.Buffer],
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Decryption:
        """Return the keys of the files; a copy reads the footers first."""
        if self._native is None:
            self.read_footers(files, num_threads, contents, options)
        assert self._native is not None  # noqa: S101
        return self._native

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
        """Restore the attributes, without keys."""
        self.__dict__.update(state)
        self._native = None


def file_keys(properties: DecryptionArgument) -> FileKeys | None:
    """Return the keys; None if no properties are given."""
    return None if properties is None else FileKeys(properties)


def _is_properties(value: object) -> bool:
    # Imported here, because only encryption needs this part of pyarrow.
    from pyarrow.parquet import FileDecryptionProperties

    return isinstance(value, FileDecryptionProperties)
