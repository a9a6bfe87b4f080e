"""A compiled, parallel Parquet reader with a thin PyTorch face.

    from torchparquet import ParquetDataset

    for batch in ParquetDataset("data/train", batch_size=8192, shuffle=True):
        ...  # dict[str, torch.Tensor], this rank's exact share

See `ParquetDataset` for everything else.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("torchparquet")

_PUBLIC = "torchparquet._impl.public"

# Tasks that prepare files import this package without torch, which takes over a second. Where torch
# is, the public names are here at once.
if TYPE_CHECKING or "torch" in sys.modules:
    from torchparquet._impl.public import *  # noqa: F403
    from torchparquet._impl.public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """Import the public names, and torch with them, when the first one is asked for."""
        if not name.startswith("_") or name == "__all__":
            public = import_module(_PUBLIC)
            globals().update({of: getattr(public, of) for of in ("__all__", *public.__all__)})
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    """Return the public names: what is not among them may change."""
    return [*import_module(_PUBLIC).__all__, "__version__"]
