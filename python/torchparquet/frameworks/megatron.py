"""Megatron-Core: packed tokens as micro-batches, read once for each data-parallel rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor

from torchparquet import Pack, ParquetDataset
from torchparquet._impl.batches.tensors import Batch
from torchparquet._impl.checks import checked_int
from torchparquet.frameworks.next_tokens import next_tokens
from torchparquet.options import Strategy

_WAYS_OUT = {
    "batch_size": "micro_batch_size= is the batch of a rank",
    "columns": "column= and loss_column= name the columns that are read",
    "num_epochs": "training ends by its iterations, and data go on epoch after epoch",
    "pack": "length=, strategy= and separator= say how documents are packed",
    **dict.fromkeys(
        ("rank", "world_size", "ranks"), "group= names the data-parallel ranks, and this one"
    ),
    **dict.fromkeys(
        ("sampler", "batch_sampler", "dataloader_type"),
        "shuffle=, seed= and filters= order and choose samples, consumed_samples= skips some",
    ),
}


class ParquetDataLoader:
    """Iterates over micro-batches of packed tokens, with the keys that Megatron's loops take.

    A micro-batch has `tokens`, `labels` and `position_ids`, int64 `[b, s]`, `loss_mask`, float32
    `[b, s]`, and one of these:

    - `attention_mask`, bool `[b, 1, s, s]`, True where a token must not look: at later ones, and at
      other documents; not with `attention_mask=False`.
    - with `packed=True` all rows are one, `[1, b * s]`, and `packed_seq_params`, a
      `PackedSeqParams` in the format "thd", has the documents. For NeMo so do `cu_seqlens`, int32
      `[1, N + 1]`, `cu_seqlens_argmin`, its valid length, and `max_seqlen`; with padded documents
      also `cu_seqlens_unpadded` and its `cu_seqlens_unpadded_argmin`.

    A label is the next token of the document. `loss_mask` is 0 where there is none, in padding, and
    where `loss_column` says so. All ranks that differ only in tensor, context or pipeline
    parallelism read the same, so nothing is broadcast.
    """

    def __init__(
        self,
        paths: Any,
        *,
        length: int,
        micro_batch_size: int,
        column: str = "tokens",
        loss_column: str | None = None,
        strategy: Strategy = "best_fit",
        separator: int | None = None,
        packed: bool = False,
        attention_mask: bool = True,
        consumed_samples: int = 0,
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        """Open the data; read nothing but footers, and lengths where `Pack` needs them.

        Args:
            paths: As for `ParquetDataset`.
            length: s, the tokens of a sequence.
            micro_batch_size: b, the sequences of a micro-batch.
            column: The column of tokens, lists of integers.
            loss_column: A column of bools or numbers in step with it: whether to predict a token.
            strategy: How documents become sequences, as `Pack` says.
            separator: The token that ends each document.
            packed: Deliver `packed_seq_params`. With context parallelism each document is padded to
                a multiple of twice its ranks.
            attention_mask: Without `packed`, deliver a mask; False if the attention kernel makes a
                causal one by itself, which looks at the documents before too.
            consumed_samples: The sequences that all ranks together have trained on, as Megatron's
                checkpoints count them: reading begins after these, if data, options, ranks and
                `micro_batch_size` are those of then. A `state_dict` fits other ranks too.
            group: The data-parallel ranks, without context parallelism; None for
                `parallel_state.get_data_parallel_group()`.
            options: Other arguments of `ParquetDataset`, such as `shuffle`, `seed` and `filters`.

        Raises:
            TypeError: An option is one that follows from these arguments.
            ValueError: Model parallelism is not initialised and `group` is None, `group` is none of
                data-parallel ranks, or `consumed_samples` is no multiple of a step of all ranks; or
                what `ParquetDataset` and `Pack` raise.
        """
        for name in options:
            if name in _WAYS_OUT:
                raise TypeError(f"ParquetDataLoader takes no {name}: {_WAYS_OUT[name]}")
        group = _data_parallel_group(group)
        self._column, self._loss_column = column, loss_column
        self._is_packed, self._makes_mask = packed, attention_mask and not packed
        names = [name for name in (column, loss_column) if name is not None]
        multiple = _num_context_ranks()
        self.dataset = ParquetDataset(
            paths,
            batch_size=checked_int("micro_batch_size", micro_batch_size, 1, 2**31),
            columns=names,
            pack=Pack(
                names,
                length,
                strategy,
                separator,
                boundaries="both" if packed else "tokens",
                pad_documents_to=2 * multiple if packed and multiple > 1 else 1,
            ),
            num_epochs=None,
            ranks=group,
            **{"drop_last": True} | options,
        )
        self._skip(checked_int("consumed_samples", consumed_samples, 0, 2**62), micro_batch_size)

    def _skip(self, consumed_samples: int, micro_batch_size: int) -> None:
        num_ranks = self.dataset.topology().world_size
        steps, rest = divmod(consumed_samples, micro_batch_size * num_ranks)
        if rest:
            raise ValueError(
                "consumed_samples must be a multiple of the samples of one micro-batch of all "
                f"ranks, {micro_batch_size} * {num_ranks}: to go on with other ranks or another "
                "micro_batch_size, save state_dict() with the checkpoint and load that. Got "
                f"{consumed_samples}"
            )
        if steps:
            epoch, step = divmod(steps, len(self.dataset))
            self.dataset.set_epoch(epoch)
            self.dataset.seek(step)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield micro-batches, epoch after epoch."""
        return map(self._made, self.dataset)

    def _made(self, batch: Batch) -> dict[str, Any]:
        labels, counts = next_tokens(batch, self._column, self._loss_column)
        made: dict[str, Any] = {
            "tokens": batch[self._column].long(),
            "labels": torch.where(counts, labels, 0).long(),
            "loss_mask": counts.float(),
            "position_ids": batch[f"{self._column}.position"].long(),
        }
        if not self._is_packed:
            document = batch[f"{self._column}.document"]
            return made | ({"attention_mask": _mask(document)} if self._makes_mask else {})
        made = {name: tensor.view(1, -1) for name, tensor in made.items()}
        ends, lengths = batch["cu_seqlens"], batch.get("seqlens")
        made |= _named_ends("cu_seqlens", ends)
        made["max_seqlen"] = torch.tensor([batch["max_seqlen"]], dtype=torch.int32)
        params = PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=ends,
            cu_seqlens_kv=ends,
            max_seqlen_q=batch["max_seqlen"],
            max_seqlen_kv=batch["max_seqlen"],
        )
        if lengths is not None:
            params.cu_seqlens_q_padded = params.cu_seqlens_kv_padded = ends
            without = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            params.cu_seqlens_q = params.cu_seqlens_kv = without
            made |= _named_ends("cu_seqlens_unpadded", without)
        return made | {"packed_seq_params": params}

    def state_dict(self) -> dict[str, Any]:
        """Return the place after the last micro-batch; the same on all ranks at the same step."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after a state, also on other ranks; see `ParquetDataset.load_state_dict`."""
        self.dataset.load_state_dict(state)


def _named_ends(name: str, ends: Tensor) -> dict[str, Tensor]:
    return {name: ends[None], f"{name}_argmin": torch.tensor([len(ends)])}


def _mask(document: Tensor) -> Tensor:
    """Return where a token must not look, bool `[b, 1, s, s]`, of the documents of tokens."""
    length = document.shape[1]
    may_look = torch.ones(length, length, dtype=torch.bool).tril()
    # Padding looks at padding, so that no row is without a token.
    return ~(may_look & (document[:, :, None] == document[:, None, :]))[:, None]


def _num_context_ranks() -> int:
    if not parallel_state.model_parallel_is_initialized():
        return 1
    return int(parallel_state.get_context_parallel_world_size())


def _data_parallel_group(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group of the data-parallel ranks."""
    if not parallel_state.model_parallel_is_initialized():
        if group is None:
            raise ValueError(
                "the data-parallel ranks must be known: call "
                "parallel_state.initialize_model_parallel() first, or give group="
            )
        return group
    own: dist.ProcessGroup = parallel_state.get_data_parallel_group()
    if group is None:
        return own
    ranks, expected = map(dist.get_process_group_ranks, (group, own))
    if ranks != expected:
        raise ValueError(
            "group must be that of the data-parallel ranks without context parallelism, since "
            "context-parallel ranks read the same sequences: leave group= out, or give "
            f"parallel_state.get_data_parallel_group(). Got ranks {ranks}, expected {expected}"
        )
    return own
