"""Encrypted files by pyarrow, and key management that tests can watch."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

# How a file is encrypted: options of pyarrow's EncryptionConfiguration.
LAYOUTS = {
    "encrypted footer": {"column_keys": {"column": ["secret", "words", "items.list.element"]}},
    "plaintext footer": {
        "column_keys": {"column": ["secret", "words", "items.list.element"]},
        "plaintext_footer": True,
    },
    "uniform": {"uniform_encryption": True},
}


class LocalKeys(pe.KmsClient):
    """Wraps keys by putting the master key's name before them; counts what it unwraps."""

    num_unwrapped = 0

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()
        del config

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + b":" + key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        LocalKeys.num_unwrapped += 1
        return base64.b64decode(wrapped_key).removeprefix(master_key_identifier.encode() + b":")


class WrongKeys(LocalKeys):
    """Gives other keys than those that the files were written with."""

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return super().unwrap_key(wrapped_key, master_key_identifier)[::-1]


class FooterKeysOnly(LocalKeys):
    """Refuses the keys of columns."""

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        if master_key_identifier != "footer":
            raise PermissionError(f"you may not use the master key {master_key_identifier!r}")
        return super().unwrap_key(wrapped_key, master_key_identifier)


class WrongColumnKeys(LocalKeys):
    """Gives the right keys of footers, and wrong ones of columns."""

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        key = super().unwrap_key(wrapped_key, master_key_identifier)
        return key if master_key_identifier == "footer" else key[::-1]


def write_encrypted(
    path: Path, table: pa.Table, encryption: dict, algorithm: str = "AES_GCM_V1", **options
) -> str:
    """Write ``table`` to ``path``; ``options`` are pyarrow's, of a writer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    configuration = pe.EncryptionConfiguration(
        footer_key="footer",
        encryption_algorithm=algorithm,
        cache_lifetime=timedelta(minutes=5),
        **encryption,
    )
    properties = pe.CryptoFactory(LocalKeys).file_encryption_properties(
        pe.KmsConnectionConfig(), configuration
    )
    pq.write_table(table, path, encryption_properties=properties, **options)
    return str(path)


def decryption(keys: type[LocalKeys] = LocalKeys) -> pq.FileDecryptionProperties:
    """What reads such files."""
    return pe.CryptoFactory(keys).file_decryption_properties(pe.KmsConnectionConfig())


def decryption_of(path: str) -> pq.FileDecryptionProperties | None:
    """That of each file but those that are called plain."""
    return None if Path(path).name.startswith("plain") else decryption()
