"""Ports a streaming data set of row dicts: per-field processors, part files, epochs by callback.

    python examples/port_row_stream.py reviews
    torchrun --standalone --nproc-per-node 2 examples/port_row_stream.py reviews
    python examples/port_row_stream.py reviews --batches

Each run trains on every row of each epoch once, whatever the number of processes. The reviews are
written first if there are none.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from job import ending_process_group
from torchparquet import Jagged, ParquetDataset, UnbatchedDataset

NUM_ROWS = 3_001
BUCKETS = 512
WORDS = ["awful", "bad", "dull", "fair", "fine", "good", "great", "odd", "plain", "superb"]


def write_reviews(file_dir: Path) -> None:
    """Write 3,001 reviews to `part-*.parquet`: an id, a text, stars from 1 to 5."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, len(WORDS), (NUM_ROWS, 6))
    stars = 1 + (words.mean(axis=1) / len(WORDS) * 5).astype(np.int8)
    texts = [" ".join(WORDS[word] for word in row) for row in words]
    table = pa.table({"id": np.arange(NUM_ROWS), "text": texts, "stars": stars})
    file_dir.mkdir(parents=True)
    for number, begin in enumerate(range(0, NUM_ROWS, 700)):
        path = file_dir / f"part-{number:05}.parquet"
        pq.write_table(table.slice(begin, 700), path, row_group_size=250)


def buckets_of(text: str) -> Tensor:
    """Return the number of each word's bucket, int64 `[n]`."""
    return torch.tensor([sum(word.encode()) % BUCKETS for word in text.split()])


def to_label(stars: Tensor) -> Tensor:
    """Return classes from 0, of one row or of a batch."""
    return stars.long() - 1


def open_rows(
    file_dir: str, processors: dict[str, Callable[[Any], Any]], *, shuffle_shards: bool = True
) -> UnbatchedDataset:
    """Return rows as the old data set gave them, with its arguments."""
    dataset = ParquetDataset(
        f"{file_dir}/part-*.parquet",
        batch_size=1024,  # rows that are read at once; the DataLoader makes the batches
        columns=["id", "text", "stars"],
        shuffle=shuffle_shards,
        shuffle_window=0,  # shards only; leave it out to permute rows too
    )
    return dataset.unbatched(processors=processors)


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a batch of rows, as the old `collate_fn` did."""
    lengths = torch.tensor([0, *(len(row["text"]) for row in rows)])
    return {
        "id": torch.stack([row["id"] for row in rows]),
        "text": Jagged(torch.cat([row["text"] for row in rows]), lengths.cumsum(0)),
        "stars": torch.stack([row["stars"] for row in rows]),
    }


def bucket_texts(texts: Jagged) -> Jagged:
    """Return what `buckets_of` does, of all texts of a batch."""
    return Jagged.from_lists([buckets_of(text).tolist() for text in texts.to_str()])


def open_batches(file_dir: str, batch_size: int) -> ParquetDataset:
    """Return the same in batches, when the row-wise pipeline is no longer needed."""
    return ParquetDataset(
        f"{file_dir}/part-*.parquet",
        batch_size=batch_size,
        columns=["id", "text", "stars"],
        shuffle=True,
        processors={"text": bucket_texts, "stars": to_label},
    )


class SetEpoch:
    """The callback that tells the data which epoch begins, as trainers call it."""

    def __init__(self, dataset: Any) -> None:
        """Take anything with `set_epoch`."""
        self._dataset = dataset

    def on_epoch_begin(self, epoch: int) -> None:
        """Begin another order, the same on all ranks."""
        self._dataset.set_epoch(epoch)


class Classifier(nn.Module):
    """Sums of embeddings, and a layer over them."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.embedding = nn.EmbeddingBag(BUCKETS, 16, mode="sum", include_last_offset=True)
        self.classes = nn.Linear(16, 5)

    def forward(self, text: Jagged) -> Tensor:
        """Return scores of 5 classes, `[B, 5]`."""
        return self.classes(self.embedding(text.values, text.offsets))


def train(loader: Iterable[dict[str, Any]], callback: SetEpoch) -> None:
    """Train two epochs, and say what each rank read."""
    torch.manual_seed(0)
    model: nn.Module = Classifier()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        num_rows, last_loss = 0, 0.0
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["text"]), batch["stars"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            num_rows, last_loss = num_rows + len(batch["id"]), loss.item()
        rank = os.environ.get("RANK", "0")
        print(f"epoch {epoch}, rank {rank}: {num_rows} rows, loss {last_loss:.3f}", flush=True)


def main() -> None:
    """Train on the reviews of a directory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file_dir")
    parser.add_argument("--batches", action="store_true", help="batches instead of rows")
    parser.add_argument("--num-workers", type=int, default=0)
    arguments = parser.parse_args()
    if os.environ.get("LOCAL_RANK", "0") == "0" and not Path(arguments.file_dir).exists():
        write_reviews(Path(arguments.file_dir))
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        dist.barrier()  # until the reviews are written
    with ending_process_group():
        if arguments.batches:
            dataset = open_batches(arguments.file_dir, batch_size=32)
            train(dataset, SetEpoch(dataset))
        else:
            rows = open_rows(arguments.file_dir, {"text": buckets_of, "stars": to_label})
            workers = {"num_workers": arguments.num_workers}
            loader = DataLoader(rows, batch_size=32, collate_fn=collate, **workers)
            train(loader, SetEpoch(rows))


if __name__ == "__main__":
    main()
