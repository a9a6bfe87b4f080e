"""Options of a DataLoader that a data set has in the loader's place."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_OPTIONS = ("shuffle", "sampler", "batch_sampler")
_LOADERS = ("DataLoader.__init__", "StatefulDataLoader.__init__")
# Between a look at `__class__` and the loader there is `ABCMeta.__instancecheck__`.
_MAX_FRAMES = 3


class LoaderChecked:
    """A data set that says what to write if a DataLoader is to shuffle or sample it.

    torch refuses that with a message about the loader alone. A loader under construction asks for
    nothing of a data set but its class: whether it is one of torch's pipes.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The type."""
        frame: FrameType | None = sys._getframe(1)
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            if frame.f_code.co_qualname in _LOADERS:
                _refuse(frame.f_locals)
                break
            frame = frame.f_back
        return type(self)


def _refuse(given: dict[str, Any]) -> None:
    for option in _OPTIONS:
        if given.get(option):
            raise ValueError(
                "the data set orders its rows, not the DataLoader: give shuffle=True, or filters=, "
                "rows= and split=, to the data set (mix draws some rows more often), and the "
                f"loader batch_size=None without {option}="
            )
