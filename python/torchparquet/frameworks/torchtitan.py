"""torchtitan: a dataloader of packed tokens, finite or not, that resumes on other ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchtitan.components.dataloader import BaseDataLoader

from torchparquet import Pack, ParquetDataset
from torchparquet.frameworks import Source
from torchparquet.frameworks.next_tokens import next_tokens

# torchtitan's IGNORE_INDEX, which the module of its losses has.
_IGNORED = -100
_STATE = "torchparquet"


class ParquetDataLoader(BaseDataLoader):
    """Loads tokens from Parquet files, packed into sequences, for torchtitan's `Trainer`.

    Put its `Config` into the `dataloader` of a `Trainer.Config`, or of a `Validator.Config`. Items
    are `({"input", "positions"}, labels)`, int64 `[B, L]` each: tokens, their places in their
    documents, and the next tokens of the documents, -100 where there is none.

    The state is the same on every rank and fits any number of ranks and any `local_batch_size`: the
    rows that nobody has trained on are divided anew. Finite data end on all ranks at the same step.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """The data, and their order.

        Attributes:
            dataset_path: The `paths` of a `ParquetDataset`: a file, a folder, a pattern or a URL.
            column: The column of tokens, lists of integers.
            loss_column: A column of bools or numbers for each token, in step with `column`: whether
                it is to be predicted, such as answers and not prompts. None for all tokens.
            strategy: How documents become sequences, as `Pack` says.
            add_eos: The tokenizer's end of text ends each document.
            filters: A condition on documents in SQL, as `ParquetDataset` takes it.
            shuffle: Another order in each epoch.
            seed: Its key.
            infinite: Epoch after epoch; else one, after which training ends.
            drop_last: Drop a last batch that is not full.
        """

        column: str = "tokens"
        loss_column: str | None = None
        strategy: str = "concat"
        add_eos: bool = False
        filters: str | None = None
        shuffle: bool = True
        seed: int = 0
        infinite: bool = True
        drop_last: bool = True

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: Any,
        seq_len: int,
        local_batch_size: int,
        **_: Any,
    ) -> None:
        """Open the data, as `config.build(...)` of torchtitan's Trainer calls it.

        Args:
            config: What to read.
            dp_world_size: The ranks that get data of their own: torchtitan's batch degree.
            dp_rank: This one of them.
            tokenizer: Its `eos_id` is the end of text.
            seq_len: L.
            local_batch_size: B.

        Raises:
            ValueError: `dataset` is given, `dataset_path` is not, or the tokenizer has no `eos_id`
                for `add_eos`; or what `ParquetDataset` and `Pack` raise.
        """
        if config.dataset or not config.dataset_path:
            raise ValueError(
                "ParquetDataLoader reads the files of dataset_path, and needs no name of a data "
                f"set: got dataset={config.dataset!r}, dataset_path={config.dataset_path!r}"
            )
        separator = getattr(tokenizer, "eos_id", None) if config.add_eos else None
        if config.add_eos and separator is None:
            raise ValueError(
                "add_eos needs a tokenizer with an eos_id: add_eos=False takes documents as they "
                "are stored"
            )
        self._column, self._loss_column = config.column, config.loss_column
        self._is_infinite = config.infinite
        names = [name for name in (config.column, config.loss_column) if name is not None]
        # One more, for the label of the last one.
        pack = Pack(names, seq_len + 1, config.strategy, separator)  # type: ignore[arg-type]
        self.dataset = self.open_dataset(
            config,
            batch_size=local_batch_size,
            pack=pack,
            columns=names,
            filters=config.filters,
            shuffle=config.shuffle,
            seed=config.seed,
            drop_last=config.drop_last,
            rank=dp_rank,
            world_size=dp_world_size,
        )

    def open_dataset(self, config: Config, **options: Any) -> Source:
        """Return the data set; subclasses may add options, or make a mix of several.

        Args:
            config: What to read.
            options: Arguments of `ParquetDataset` that follow from it.
        """
        assert config.dataset_path is not None  # noqa: S101
        return ParquetDataset(config.dataset_path, **options)

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """Yield the rest of the epoch that a state began, or the next one, and further ones."""
        while True:
            is_empty = True
            for batch in self.dataset:
                is_empty = False
                yield self._item(batch)
            if not self._is_infinite:
                return
            if is_empty:
                raise ValueError(
                    "an epoch must have a batch for each rank, and these data have too few "
                    "sequences: give a smaller local_batch_size, or drop_last=False"
                )

    def _item(self, batch: dict[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
        labels, counts = next_tokens(batch, self._column, self._loss_column)
        labels = torch.where(counts, labels, _IGNORED)
        positions = batch[f"{self._column}.position"]
        found = [of[:, :-1].long() for of in (batch[self._column], positions, labels)]
        return {"input": found[0], "positions": found[1]}, found[2]

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last batch: one text, so that ranks save it once."""
        return {_STATE: json.dumps(self.dataset.state_dict())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the last batch of a state, also on another number of ranks.

        Raises:
            ValueError: The state is that of another loader, or of other data.
        """
        if not state_dict:
            return
        if _STATE not in state_dict:
            raise ValueError(
                "the state must be that of a ParquetDataLoader: leave the dataloader out of the "
                "checkpoint that is loaded (checkpoint.exclude_from_loading), or go on with the "
                f"loader that saved it. Got {sorted(state_dict)}"
            )
        self.dataset.load_state_dict(json.loads(state_dict[_STATE]))
