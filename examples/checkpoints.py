"""Checkpoints of model, optimizer and data together, with torch.distributed.checkpoint.

Parameters may be sharded (FSDP2) or not (DDP). A checkpoint fits any number of ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer


class TrainState:
    """Model, optimizer and the number of steps, as torch.distributed.checkpoint takes them."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Begin at step 0."""
        self.model = model
        self.optimizer = optimizer
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return all that is to be saved."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was saved."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def save(directory: str, state: TrainState, dataset: Stateful) -> None:
    """Save what belongs to this step; all ranks call it.

    A data set, or a loader, is saved as it is: it has `state_dict` and `load_state_dict`.
    """
    path = Path(directory) / f"step-{state.step:06d}"
    dcp.save({"train": state, "data": dataset}, checkpoint_id=path)
    if dist.get_rank() == 0:
        print(f"saved {path}", flush=True)


def load_latest(directory: str, state: TrainState, dataset: Stateful) -> None:
    """Go on from the latest checkpoint, if there is one; all ranks call it."""
    # The metadata is written last: without it a run was stopped while it saved.
    saved = [path.parent for path in Path(directory).glob("step-*/.metadata")]
    if saved:
        dcp.load({"train": state, "data": dataset}, checkpoint_id=max(saved))
