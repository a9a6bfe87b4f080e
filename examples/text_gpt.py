"""A small GPT on raw text, tokenised and packed on the way, under torchrun.

    python examples/text_gpt.py --write texts
    torchrun --standalone --nproc-per-node 2 examples/text_gpt.py texts checkpoints

The first run tokenises the texts into `texts/tokens`, its ranks dividing the files; later runs read
the tokens. A run that was stopped goes on after its latest checkpoint when the same command is
given again. The number of ranks may be another one that divides 4: batches, and so losses, are the
same. The model and its loop are those of `packed_gpt.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch.distributed as dist
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from packed_gpt import GLOBAL_BATCH, LENGTH, MOST_RANKS, VOCABULARY, main
from torchparquet import Order, Pack, ParquetDataset

END_OF_TEXT = "<|endoftext|>"
WORDS = [
    ["the", "a", "this", "some", "every"],
    ["red", "blue", "old", "small", "wise"],
    ["fox", "dog", "bird", "house", "river"],
    ["sees", "likes", "finds", "leaves", "paints"],
]


def open_texts(folder: str) -> ParquetDataset:
    """Return packed sequences, in the same global batches for every number of ranks."""
    pack = Pack(
        "tokens",
        LENGTH,
        "best_fit",
        separator=END_OF_TEXT,
        tokenizer=f"{folder}/tokenizer.json",
        token_cache=f"{folder}/tokens",
    )
    return ParquetDataset(
        f"{folder}/*.parquet",
        batch_size=GLOBAL_BATCH // dist.get_world_size(),
        columns={"tokens": "text"},
        filters="language = 'en'",
        pack=pack,
        shuffle=True,
        drop_last=True,
        order=Order(canonical_world_size=MOST_RANKS),
    )


def write_texts(folder: str) -> None:
    """Write texts of a small grammar, and a tokenizer that is trained on some of them."""
    rng = np.random.default_rng(0)
    Path(folder).mkdir(parents=True, exist_ok=True)
    texts: list[str] = []
    for number in range(4):
        texts = []
        for _ in range(600):
            kinds = [0, 1, 2, 3, 0, 1, 2] * int(1 + rng.exponential(3))
            texts.append(" ".join(WORDS[kind][rng.integers(5)] for kind in kinds))
        language = ["en" if row % 8 else "xx" for row in range(len(texts))]
        table = pa.table({"text": texts, "language": language})
        pq.write_table(table, Path(folder) / f"{number}.parquet", row_group_size=200)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END_OF_TEXT], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(f"{folder}/tokenizer.json")


if __name__ == "__main__":
    main(write_texts, open_texts)
