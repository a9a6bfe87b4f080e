"""Fine-tunes a small Llama on packed conversations with Hugging Face's Trainer.

    python examples/sft_trainer.py conversations --write
    torchrun --standalone --nproc-per-node 2 examples/sft_trainer.py conversations checkpoints

Only the tokens of answers have a loss. A run that was stopped goes on after its latest checkpoint
when the same command is given again.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from job import ending_process_group
from torchparquet import Order, Pack, ParquetDataset
from torchparquet.frameworks.transformers import ParquetTrainerMixin

VOCABULARY, LENGTH = 64, 64
MOST_RANKS, GLOBAL_BATCH = 4, 16
NO_LOSS = -100  # as torch's cross_entropy ignores it


class SftTrainer(ParquetTrainerMixin, Trainer):
    """A Trainer that takes batches as the data set makes them."""


def to_model(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the arguments of a causal language model, which shifts the labels itself."""
    tokens, position = batch["tokens"].long(), batch["tokens.position"].long()
    # No token of another document predicts the first one of a document.
    has_loss = batch["has_loss"] & (position > 0)
    made = {
        "input_ids": tokens,
        "position_ids": position,  # begins anew in each document: attention stays within
        "labels": tokens.masked_fill(~has_loss, NO_LOSS),
    }
    if "row.valid" in batch:  # of an evaluation: which sequences another rank has too
        made["row.valid"] = batch["row.valid"]
    return made


def open_conversations(folder: str, *, batch_size: int, shuffle: bool) -> ParquetDataset:
    """Return packed conversations; without shuffling, to evaluate on."""
    return ParquetDataset(
        folder,
        batch_size=batch_size,
        pack=Pack(["tokens", "has_loss"], LENGTH, "best_fit"),
        shuffle=shuffle,
        drop_last=shuffle,
        # The same global batches on 1, 2 or 4 ranks.
        order=Order(canonical_world_size=MOST_RANKS) if shuffle else None,
        transform=to_model,
    )


def train(arguments: Namespace) -> None:
    """Train the epochs that are left, and evaluate."""
    batch_size = GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1"))
    settings = TrainingArguments(
        arguments.checkpoints,
        use_cpu=True,
        num_train_epochs=2,
        max_steps=arguments.stop_after,
        per_device_train_batch_size=batch_size,  # for the Trainer's log alone
        learning_rate=0.01,
        lr_scheduler_type="constant",
        save_steps=10,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
    )
    folder = arguments.data
    trainer = SftTrainer(
        LlamaForCausalLM(config),
        settings,
        train_dataset=open_conversations(f"{folder}/train", batch_size=batch_size, shuffle=True),
        eval_dataset=open_conversations(f"{folder}/validation", batch_size=5, shuffle=False),
    )
    checkpoints = Path(arguments.checkpoints)
    last = get_last_checkpoint(arguments.checkpoints) if checkpoints.exists() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.evaluate()
    trainer.save_model()
    trainer.save_state()


def write_conversations(folder: str) -> None:
    """Write conversations: a prompt says by which step its answer counts on."""
    rng = np.random.default_rng(0)
    for part, number in (("train", 1_200), ("validation", 103)):
        tokens, has_loss = [], []
        for _ in range(number):
            step, prompt, answer = rng.integers(1, [8, 12, 24])
            places = np.arange(prompt + answer)
            tokens.append(step * places % VOCABULARY)
            has_loss.append(places >= prompt)
        lists = {"tokens": pa.array(tokens, pa.list_(pa.int32())), "has_loss": has_loss}
        path = Path(folder) / part / "0.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(lists), path, row_group_size=300)


def main() -> None:
    """Write the data, or be one process of the job."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("checkpoints", nargs="?", default="checkpoints")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--stop-after", type=int, default=-1, metavar="STEP")
    arguments = parser.parse_args()
    if arguments.write:
        write_conversations(arguments.data)
        return
    with ending_process_group():
        train(arguments)


if __name__ == "__main__":
    main()
