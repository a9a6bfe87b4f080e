"""The callback that Lightning adds to each `Trainer` where torchparquet is installed.

It is a package of its own, so that a Trainer for other data does not load torchparquet. The
callback works by `torchparquet.frameworks.lightning` in programs that have imported torchparquet.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

_KEY = "torchparquet"


class _Hooks:
    """The hooks of a `ParquetCallback`, for either of Lightning's two packages."""

    _checkpoint: Mapping[str, Any] = {}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the states of loaders until the loaders exist."""
        loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        self._checkpoint = {
            "stateful": loop.get("combined_loader", []),
            "plain": checkpoint.get(_KEY, []),
        }

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Bring the data to the point where training resumes.

        Raises:
            ValueError: A state does not fit, or the checkpoint lacks one that is needed.
        """
        checkpoint, self._checkpoint = self._checkpoint, {}
        _act("begin_training", trainer, checkpoint)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Set the epoch when Lightning begins a new iteration, never during one."""
        _act("begin_epoch", trainer)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Save the states of data sets in plain DataLoaders, which Lightning does not save."""
        if states := _act("plain_states", trainer):
            checkpoint[_KEY] = states


def _act(action: str, *arguments: Any) -> Any:
    """Call a function of `frameworks.lightning`, if the program has imported torchparquet."""
    if "torchparquet" not in sys.modules:
        return None
    return getattr(importlib.import_module("torchparquet.frameworks.lightning"), action)(*arguments)


def callback_of(package: str, name: str, hooks: type) -> type:
    """Return a class of callbacks of `package` with the methods of `hooks`."""
    callback = importlib.import_module(package).Callback
    members = {"__doc__": hooks.__doc__, "package": package, "__reduce__": _reduced}
    return type(name, (hooks, callback), members)


def _reduced(self: Any) -> tuple[Any, ...]:
    # The class is made for the Lightning at hand, so a spawned process makes it too.
    kind = type(self)
    return _empty, (kind.package, kind.__name__, kind.__mro__[1]), self.__dict__


def _empty(package: str, name: str, hooks: type) -> Any:
    kind: Any = callback_of(package, name, hooks)
    return kind.__new__(kind)


def callbacks() -> list[Any]:
    """Return the callbacks of each `lightning` Trainer: one `ParquetCallback`."""
    return [callback_of("lightning.pytorch", "ParquetCallback", _Hooks)()]


def pytorch_lightning_callbacks() -> list[Any]:
    """Return the callbacks of each `pytorch_lightning` Trainer: one `ParquetCallback`."""
    return [callback_of("pytorch_lightning", "ParquetCallback", _Hooks)()]
