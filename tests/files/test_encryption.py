"""Encrypted files, read with pyarrow's decryption properties, and refused without."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from torch.utils.data import DataLoader

from tests.fixtures.encrypted_files import (
    LAYOUTS,
    FooterKeysOnly,
    LocalKeys,
    WrongColumnKeys,
    WrongKeys,
    decryption,
    decryption_of,
    write_encrypted,
)
from tests.fixtures.pyarrow_release import MAJOR, needs_pyarrow
from torchparquet import Column, CorruptFileError, EncryptedFileError, Jagged, ParquetDataset

NUM_ROWS = 500


def example(num_rows: int = NUM_ROWS, first: int = 0) -> pa.Table:
    rows = range(first, first + num_rows)
    return pa.table(
        {
            "plain": list(rows),
            "secret": pa.array([None if i % 7 == 3 else i * 1.5 for i in rows]),
            "words": [f"word {i % 40}" for i in rows],
            "items": [list(range(i % 5)) for i in rows],
        }
    )


def rows_of(paths: Any, **options: Any) -> dict[str, list[Any]]:
    """All rows of one rank; nulls as None."""
    options = {"batch_size": 77, "rank": 0, "world_size": 1, **options}
    columns = options.pop(
        "columns",
        {n: Column(n, nulls="mask") for n in ("secret", "words", "items")} | {"plain": "plain"},
    )
    rows: dict[str, list[Any]] = {}
    for batch in ParquetDataset(paths, columns=columns, **options):
        for name in columns:
            values = batch[name]
            if name == "words":
                listed = values.to_str()
            elif isinstance(values, Jagged):
                listed = values.to_list()
            else:
                listed = values.tolist()
            valid = batch.get(f"{name}.valid")
            rows.setdefault(name, []).extend(
                listed
                if valid is None
                else [v if k else None for v, k in zip(listed, valid.tolist(), strict=True)]
            )
    return rows


UNREAD_BEFORE_26 = ("plaintext footer", "AES_GCM_CTR_V1")


@pytest.mark.parametrize("options", [{}, {"max_memory": 20_000, "num_threads": 3}], ids=str)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_pyarrow_encrypts_is_read(
    tmp_path: Path, layout: Any, algorithm: str, version: str, options: dict[str, Any]
) -> None:
    if MAJOR < 26 and (layout, algorithm) == UNREAD_BEFORE_26:
        pytest.skip("pyarrow before 26 does not read these files that it writes")
    table = example()
    path = write_encrypted(
        tmp_path / "a.parquet",
        table,
        LAYOUTS[layout],
        algorithm,
        row_group_size=300,
        data_page_version=version,
        data_page_size=200,
        write_batch_size=20,
        compression="zstd" if version == "1.0" else "none",
        write_page_checksum=True,
    )
    found = rows_of(path, decryption_properties=decryption(), **options)
    assert found == table.to_pydict()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_without_keys(tmp_path: Path, layout: Any) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS[layout])
    if layout != "plaintext footer":
        with pytest.raises(EncryptedFileError, match=r"encrypted.*give decryption_properties") as e:
            ParquetDataset(path, batch_size=10)
        assert path in str(e.value)
        return
    with pytest.raises(EncryptedFileError, match=r"encrypted.*give decryption_properties") as e:
        rows_of(path, columns={"secret": "secret"})
    assert path in str(e.value)
    assert "row group 0, column 'secret'" in str(e.value)
    assert rows_of(path, columns={"plain": "plain"})["plain"] == list(range(NUM_ROWS))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_wrong_keys(tmp_path: Path, layout: Any) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS[layout])
    with pytest.raises(EncryptedFileError, match="decryption_properties") as caught:
        ParquetDataset(path, batch_size=10, decryption_properties=decryption(WrongKeys))
    assert path in str(caught.value)


@pytest.mark.parametrize("layout", ["encrypted footer", "plaintext footer"])
@pytest.mark.parametrize(
    ("keys", "reason"),
    [(FooterKeysOnly, "you may not use the master key 'column'"), (WrongColumnKeys, "decrypt")],
)
def test_a_column_without_its_key_is_refused_and_the_others_are_read(
    tmp_path: Path, layout: str, keys: Any, reason: str
) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS[layout])
    options: dict[str, Any] = {"decryption_properties": decryption(keys)}
    assert rows_of(path, columns={"plain": "plain"}, **options)["plain"] == list(range(NUM_ROWS))
    with pytest.raises(EncryptedFileError, match=reason) as caught:
        rows_of(path, columns={"words": "words"}, **options)
    assert path in str(caught.value)
    assert "row group 0, column 'words'" in str(caught.value)


def test_key_management_is_not_asked_while_rows_are_read(tmp_path: Path) -> None:
    path = write_encrypted(
        tmp_path / "a.parquet", example(), LAYOUTS["encrypted footer"], row_group_size=50
    )
    dataset = ParquetDataset(
        path, batch_size=60, columns=["plain", "words"], decryption_properties=decryption()
    )
    before = LocalKeys.num_unwrapped
    assert before > 0
    for _ in range(2):
        assert sum(len(batch["plain"]) for batch in dataset) == NUM_ROWS
    assert LocalKeys.num_unwrapped == before


def test_files_of_which_some_are_encrypted(tmp_path: Path) -> None:
    write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS["uniform"])
    pq.write_table(example(first=NUM_ROWS), tmp_path / "plain.parquet")
    asked = []

    def properties_of(path: Path) -> Any:
        asked.append(path)
        return decryption_of(path)

    found = rows_of(tmp_path, decryption_properties=properties_of)
    assert found == example(2 * NUM_ROWS).to_pydict()
    assert asked == [str(tmp_path / "a.parquet"), str(tmp_path / "plain.parquet")]  # type: ignore[comparison-overlap]


@needs_pyarrow(25, "does not encrypt by a key alone")
def test_a_key_given_directly(tmp_path: Path) -> None:
    """Also whether files that are not encrypted are read is as the properties say."""
    key = b"0123456789abcdef"
    path = str(tmp_path / "a.parquet")
    properties = pe.create_encryption_properties(key)
    pq.write_table(example(), path, encryption_properties=properties)
    found = rows_of(path, decryption_properties=pe.create_decryption_properties(key))
    assert found == example().to_pydict()
    with pytest.raises(EncryptedFileError, match=r"a\.parquet"):
        rows_of(path, decryption_properties=pe.create_decryption_properties(key[::-1]))
    plain = str(tmp_path / "plain.parquet")
    pq.write_table(example(), plain)
    with pytest.raises(EncryptedFileError, match=r"does not fit decryption_properties.*plain\."):
        rows_of(plain, decryption_properties=pe.create_decryption_properties(key))
    allowed = pe.create_decryption_properties(key, allow_plaintext_files=True)
    assert rows_of([path, plain], decryption_properties=allowed)["plain"] == [*range(NUM_ROWS)] * 2


def test_no_parquet_at_all_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(CorruptFileError, match=r"a\.parquet"):
        ParquetDataset(path, batch_size=1, decryption_properties=decryption())


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
def test_changed_pages_are_corrupt(tmp_path: Path, algorithm: str) -> None:
    """By what authenticates them or, where nothing does, by the checksum."""
    table = pa.table({"plain": np.arange(5000)})
    path = write_encrypted(
        tmp_path / "a.parquet",
        table,
        LAYOUTS["uniform"],
        algorithm,
        use_dictionary=False,
        compression="none",
        write_page_checksum=True,
    )
    content = bytearray(Path(path).read_bytes())
    content[20_000] ^= 1
    Path(path).write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"a\.parquet.*row group 0, column 'plain'"):
        rows_of(path, columns={"plain": "plain"}, decryption_properties=decryption())


def test_in_memory(tmp_path: Path) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS["encrypted footer"])
    content = Path(path).read_bytes()
    assert rows_of(content, decryption_properties=decryption()) == example().to_pydict()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_filters_and_shuffling(tmp_path: Path, layout: Any) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS[layout], row_group_size=100)
    found = rows_of(
        path,
        decryption_properties=decryption(),
        filters="plain >= 250 and length(words) > 6",
        shuffle=True,
        shuffle_window=2,
    )
    assert found["plain"] != sorted(found["plain"])
    table = example().to_pydict()
    assert sorted(found["plain"]) == [n for n in range(250, 500) if len(table["words"][n]) > 6]
    assert {n: [v[i] for i in found["plain"]] for n, v in table.items()} == found


@pytest.mark.parametrize(
    ("layout", "keys"), [("plaintext footer", None), ("encrypted footer", FooterKeysOnly)]
)
def test_filters_without_all_keys(tmp_path: Path, layout: str, keys: Any) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS[layout])
    properties = None if keys is None else decryption(keys)
    with pytest.raises(
        EncryptedFileError, match=r"filters must have the key .*'words'.*a\.parquet"
    ):
        rows_of(path, filters=[("words", "==", "word 1")], decryption_properties=properties)
    # Keys of paths need no others.
    folder = tmp_path / "day=1"
    folder.mkdir()
    Path(path).rename(folder / "a.parquet")
    options: dict[str, Any] = {"columns": ["plain"], "decryption_properties": properties}
    assert rows_of(folder, **options) == rows_of(folder, filters="day = 1", **options)


@pytest.mark.parametrize(
    ("context", "properties"),
    [
        ("fork", None),
        ("fork", decryption_of),
        pytest.param("spawn", decryption_of, marks=pytest.mark.long),
    ],
    ids=["fork", "fork, function", "spawn, function"],
)
def test_loader_workers(tmp_path: Path, context: str, properties: Any) -> None:
    write_encrypted(
        tmp_path / "a.parquet", example(), LAYOUTS["encrypted footer"], row_group_size=100
    )
    dataset = ParquetDataset(
        tmp_path,
        batch_size=50,
        columns=["plain"],
        rank=0,
        world_size=1,
        decryption_properties=properties or decryption(),
    )
    loader = DataLoader(dataset, None, num_workers=2, multiprocessing_context=context)
    assert sorted(row for batch in loader for row in batch["plain"].tolist()) == [*range(NUM_ROWS)]


def test_what_cannot_be_sent(tmp_path: Path) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS["uniform"])
    options: dict[str, Any] = {"batch_size": 10, "columns": ["plain"]}
    dataset = ParquetDataset(path, decryption_properties=decryption(), **options)
    with pytest.raises(TypeError, match=r"cannot be sent.*a function"):
        pickle.dumps(dataset)
    dataset = ParquetDataset(path, decryption_properties=decryption_of, **options)
    copied = pickle.loads(pickle.dumps(dataset))
    assert next(iter(copied))["plain"].tolist() == list(range(10))


@pytest.mark.parametrize("properties", ["key", b"0123456789abcdef", lambda _: "key"])
def test_arguments_of_other_types(tmp_path: Path, properties: Any) -> None:
    path = write_encrypted(tmp_path / "a.parquet", example(), LAYOUTS["uniform"])
    with pytest.raises(TypeError, match="decryption_properties must"):
        ParquetDataset(path, batch_size=10, decryption_properties=properties)
