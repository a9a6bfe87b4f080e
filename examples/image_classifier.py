"""A small image classifier, fed by threads that decode ahead of the loop.

    python examples/image_classifier.py --write pictures
    python examples/image_classifier.py pictures

Pictures are PNG files in a column, as Hugging Face stores them. Decoding and augmentation run on
threads; the loop, on a GPU if there is one, gets batches of one shape. Needs Pillow.
"""

from __future__ import annotations

import io
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from torchparquet import Ahead, Column, ParquetDataset, batch_seed

CLASSES, SIZE = 3, 32


def decoded(data: bytes) -> Tensor:
    """Return a picture in one size, uint8 `[3, SIZE, SIZE]`."""
    with Image.open(io.BytesIO(data)) as picture:
        pixels = np.array(picture.convert("RGB").resize((SIZE, SIZE)))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def augmented(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the batch with half of its pictures mirrored, the same ones after a resume."""
    generator = torch.Generator().manual_seed(batch_seed())
    is_mirrored = torch.rand(len(batch["label"]), generator=generator) < 0.5
    image = batch["image"]
    image = torch.where(is_mirrored[:, None, None, None], image.flip(-1), image)
    return batch | {"image": image}


def open_pictures(folder: str, *, epochs: int) -> ParquetDataset:
    """Return batches of decoded pictures and their labels."""
    return ParquetDataset(
        folder,
        batch_size=32,
        columns={"image": Column("image", decode=decoded, stack=True), "label": "label"},
        transform=Ahead(augmented, threads=2),
        shuffle=True,
        num_epochs=epochs,
    )


def train(folder: str, epochs: int) -> list[float]:
    """Train, and return the mean loss of each epoch."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, CLASSES)),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    dataset = open_pictures(folder, epochs=epochs)
    losses: list[list[float]] = [[] for _ in range(epochs)]
    for batch in dataset:
        pictures = batch["image"].to(device, non_blocking=True).float() / 255
        loss = nn.functional.cross_entropy(model(pictures), batch["label"].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[dataset.epoch].append(loss.item())
    dataset.close()
    return [sum(of_epoch) / len(of_epoch) for of_epoch in losses]


def write_pictures(folder: str) -> None:
    """Write pictures of stripes: lying, standing, or both."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:40, :48]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in range(3):
        labels = rng.integers(0, CLASSES, 200)
        files = []
        for label in labels:
            width = rng.integers(3, 6)
            lying, standing = rows // width % 2, columns // width % 2
            stripes = (lying, standing, lying ^ standing)[label]
            pixels = stripes[..., None] * 120 + rng.integers(0, 100, (40, 48, 3))
            file = io.BytesIO()
            Image.fromarray(pixels.astype(np.uint8)).save(file, "png")
            files.append({"bytes": file.getvalue(), "path": None})
        table = pa.table({"image": files, "label": labels})
        pq.write_table(table, Path(folder) / f"{number}.parquet", row_group_size=50)


def main() -> None:
    """Write the pictures, or train on them."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.write:
        write_pictures(arguments.data)
        return
    for epoch, loss in enumerate(train(arguments.data, arguments.epochs)):
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
