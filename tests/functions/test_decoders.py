"""Columns of images, audio and other bytes, decoded row by row."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torchparquet import Ahead, Column, NullValueError, ParquetDataset, TransformError

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 9, 7, 3), np.uint8)


def png(pixels: np.ndarray[Any, Any], mode: str = "RGB") -> bytes:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(pixels).convert(mode).save(file, "png")
    return file.getvalue()


def write_images(folder: Path, images: Sequence[bytes | None]) -> None:
    """Write images as Hugging Face's data sets store them."""
    rows = [None if image is None else {"bytes": image, "path": None} for image in images]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"image": pa.array(rows, kind), "label": range(len(rows))})
    pq.write_table(table, folder / "a.parquet", row_group_size=5)


def parsed(data: bytes) -> Any:
    return torch.tensor(json.loads(data))


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("image", {}),
        ("image.bytes", {}),
        ("image", {"transform": Ahead(threads=2)}),
        ("image", {"transform": Ahead(processes=1)}),
    ],
    ids=["loop", "bytes", "threads", "processes"],
)
def test_images_are_decoded(tmp_path: Path, source: str, options: dict[str, Any]) -> None:
    write_images(tmp_path, [png(pixels) for pixels in PIXELS])
    columns: Any = {"pixels": Column(source, decode="image", stack=True), "label": "label"}
    dataset = ParquetDataset(tmp_path, batch_size=5, columns=columns, **options)
    batches = list(dataset)
    assert [list(batch) for batch in batches] == [["pixels", "label"]] * 3
    found = torch.cat([batch["pixels"] for batch in batches])
    assert torch.equal(found, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    dataset.close()


def test_images_of_any_size_and_mode(tmp_path: Path) -> None:
    images = [png(PIXELS[0]), png(PIXELS[1][:4, :5], "RGBA"), png(PIXELS[2], "L")]
    write_images(tmp_path, images)
    columns = {"image": Column("image", decode="image")}
    (batch,) = ParquetDataset(tmp_path, batch_size=5, columns=columns)
    assert [list(image.shape) for image in batch["image"]] == [[3, 9, 7], [3, 4, 5], [3, 9, 7]]
    assert all(image.dtype == torch.uint8 for image in batch["image"])
    assert torch.equal(batch["image"][1], torch.from_numpy(PIXELS[1][:4, :5]).permute(2, 0, 1))
    columns = {"image": Column("image", decode="image", stack=True)}
    with pytest.raises(
        TransformError,
        match=r"one shape; got \[3, 9, 7\] of uint8, then \[3, 4, 5\] of uint8.*row 1",
    ):
        list(ParquetDataset(tmp_path, batch_size=5, columns=columns))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": Ahead(threads=2)},
        pytest.param({"transform": Ahead(processes=1)}, marks=pytest.mark.long),
    ],
    ids=["loop", "threads", "processes"],
)
def test_a_value_that_cannot_be_decoded_is_named(tmp_path: Path, options: dict[str, Any]) -> None:
    values = [json.dumps([row, 1]).encode() for row in range(12)]
    values[8] = b"[8, "
    pq.write_table(pa.table({"v": values}), tmp_path / "a.parquet", row_group_size=5)
    columns = {"v": Column("v", decode=parsed, stack=True)}
    dataset = ParquetDataset(tmp_path, batch_size=4, columns=columns, **options)
    with pytest.raises(
        TransformError,
        match=r"column 'v' cannot be decoded: 4 bytes: JSONDecodeError.*given was row 0 of batch 2 "
        r"of epoch 0, rank 0 of 1: row 3 of row group 1 of '.*a\.parquet'",
    ) as caught:
        list(dataset)
    if getattr(options.get("transform"), "processes", None) is None:
        assert isinstance(caught.value.__cause__, json.JSONDecodeError)
    dataset.close()
    columns = {"v": Column("v", decode=parsed, stack=True, on_error="flag")}
    dataset = ParquetDataset(tmp_path, batch_size=4, columns=columns, **options)
    batches = list(dataset)
    assert [batch["v.valid"].tolist() for batch in batches[1:]] == [
        [True] * 4,
        [False] + [True] * 3,
    ]
    assert batches[2]["v"].tolist() == [[0, 0], [9, 1], [10, 1], [11, 1]]
    dataset.close()


def test_nulls_and_lists(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [b"[1]", None, b"[2, 3]"]}), tmp_path / "a.parquet")
    flagged = {"v": Column("v", decode=json.loads, on_error="flag")}
    (batch,) = ParquetDataset(tmp_path, batch_size=4, columns=flagged)
    assert batch["v"] == [[1], None, [2, 3]]
    assert batch["v.valid"].tolist() == [True, False, True]
    # A null is no bytes of length 0, which could be decoded.
    flagged = {"v": Column("v", decode=len, stack=True, on_error="flag")}
    (batch,) = ParquetDataset(tmp_path, batch_size=4, columns=flagged)
    assert batch["v"].tolist() == [3, 0, 6]
    assert batch["v.valid"].tolist() == [True, False, True]
    with pytest.raises(NullValueError):
        list(ParquetDataset(tmp_path, batch_size=4, columns={"v": Column("v", decode=parsed)}))


def test_processors_get_decoded_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": [b"[1]", b"[2]"]}), tmp_path / "a.parquet")
    columns = {"v": Column("v", decode=parsed, stack=True)}
    dataset = ParquetDataset(
        tmp_path, batch_size=1, columns=columns, processors={"v": lambda v: v * 10}
    )
    assert [batch["v"].tolist() for batch in dataset] == [[[10]], [[20]]]
    rows = list(ParquetDataset(tmp_path, batch_size=2, columns=columns).unbatched())
    assert [row["v"].tolist() for row in rows] == [[1], [2]]
    # A state within the batch leads to the same rows.
    dataset = ParquetDataset(tmp_path, batch_size=2, columns=columns)
    dataset.load_state_dict(dataset.state_dict() | {"legs": [[1, 1, 2, 0, 1]]})
    assert [batch["v"].tolist() for batch in dataset] == [[[2]]]


def test_audio_is_decoded(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    samples = np.linspace(-0.5, 0.5, 400, dtype=np.float32).reshape(200, 2)
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="FLOAT")
    pq.write_table(pa.table({"a": [file.getvalue()]}), tmp_path / "a.parquet")
    columns = {"a": Column("a", decode="audio")}
    (batch,) = ParquetDataset(tmp_path, batch_size=1, columns=columns)
    assert list(batch) == ["a", "a.sample_rate"]
    assert torch.equal(batch["a"][0], torch.from_numpy(samples.T.copy()))
    assert batch["a.sample_rate"].tolist() == [16_000]


@pytest.mark.parametrize(
    ("decode", "on_error", "message"),
    [
        (lambda data: None if data == b"b" else 1, "raise", r"decode returned None.*row 1"),
        (bytes.decode, "raise", r"1 bytes: TypeError.*row 0"),
        (parsed, "flag", "no value of the batch can be decoded"),
    ],
)
def test_values_that_cannot_be_stacked(
    tmp_path: Path, decode: Any, on_error: Any, message: str
) -> None:
    pq.write_table(pa.table({"v": [b"a", b"b"]}), tmp_path / "a.parquet")
    columns = {"v": Column("v", decode=decode, stack=True, on_error=on_error)}
    with pytest.raises(TransformError, match=message):
        list(ParquetDataset(tmp_path, batch_size=4, columns=columns))


def test_names_that_columns_have_too(tmp_path: Path) -> None:
    table = pa.table({"a": [b"x"], "a.sample_rate": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    columns: Any = {"a": Column("a", decode="audio"), "a.sample_rate": "a.sample_rate"}
    pytest.importorskip("soundfile")
    with pytest.raises(ValueError, match="decode adds keys that columns have too"):
        ParquetDataset(tmp_path, batch_size=1, columns=columns)
