"""Encrypted files: refused by an error that names encryption; what is not encrypted is read."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from torchparquet import ParquetDataset


class LocalKeys(pe.KmsClient):
    """Wraps keys by putting the master key's name before them."""

    def __init__(self, config: pe.KmsConnectionConfig) -> None:
        super().__init__()
        del config

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(master_key_identifier.encode() + b":" + key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key).removeprefix(master_key_identifier.encode() + b":")


def write_encrypted(path: Path, *, plaintext_footer: bool) -> str:
    """Rows of `plain` and `secret`, of which `secret` is encrypted."""
    config = pe.EncryptionConfiguration(
        footer_key="footer",
        column_keys={"column": ["secret"]},
        plaintext_footer=plaintext_footer,
        cache_lifetime=timedelta(minutes=5),
    )
    factory = pe.CryptoFactory(LocalKeys)
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    table = pa.table({"plain": list(range(100)), "secret": list(range(100))})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return str(path)


def test_an_encrypted_footer_is_refused(tmp_path):
    path = write_encrypted(tmp_path / "a.parquet", plaintext_footer=False)
    with pytest.raises(NotImplementedError, match="encrypted") as caught:
        ParquetDataset(path, batch_size=10)
    assert path in str(caught.value)


def test_an_encrypted_column_is_refused_and_the_others_are_read(tmp_path):
    path = write_encrypted(tmp_path / "a.parquet", plaintext_footer=True)
    with pytest.raises(NotImplementedError, match="encrypted") as caught:
        list(ParquetDataset(path, batch_size=10, columns=["secret"]))
    assert path in str(caught.value)
    assert "'secret'" in str(caught.value)
    readable = ParquetDataset(path, batch_size=None, columns=["plain"])
    assert [batch["plain"].tolist() for batch in readable] == [list(range(100))]
