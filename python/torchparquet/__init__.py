"""A compiled, parallel Parquet reader with a thin PyTorch face.

    from torchparquet import ParquetDataset

    for batch in ParquetDataset("data/train", batch_size=8192, shuffle=True):
        ...  # dict[str, torch.Tensor], this rank's exact share

See `ParquetDataset` for everything else.
"""

from importlib.metadata import version as _version

from torchparquet._impl.bridge import find_bridge

find_bridge()  # Before anything that takes long: it may raise.

from torchparquet._impl.functions.batch_seed import batch_seed  # noqa: E402
from torchparquet._impl.mixing.mixed_dataset import MixedDataset, mix  # noqa: E402
from torchparquet._impl.mixing.unbatched import UnbatchedDataset  # noqa: E402
from torchparquet._impl.ranks.group_lifetime import import_torch_functions_without_group  # noqa: E402
from torchparquet.audit import verify_no_shard_overlap  # noqa: E402
from torchparquet.column import Column  # noqa: E402
from torchparquet.dataset import ParquetDataset  # noqa: E402
from torchparquet.errors import (  # noqa: E402
    CastError,
    CorruptFileError,
    EncryptedFileError,
    FileChangedError,
    ListLengthError,
    NullValueError,
    RankMismatchError,
    SchemaMismatchError,
    TransformError,
    UnsupportedColumnError,
)
from torchparquet.jagged import Jagged  # noqa: E402
from torchparquet.options import Ahead, ByLength, Order, Pack, Ranks, Split  # noqa: E402

import_torch_functions_without_group()

__all__ = [
    "Ahead",
    "ByLength",
    "CastError",
    "Column",
    "CorruptFileError",
    "EncryptedFileError",
    "FileChangedError",
    "Jagged",
    "ListLengthError",
    "MixedDataset",
    "NullValueError",
    "Order",
    "Pack",
    "ParquetDataset",
    "RankMismatchError",
    "Ranks",
    "SchemaMismatchError",
    "Split",
    "TransformError",
    "UnbatchedDataset",
    "UnsupportedColumnError",
    "batch_seed",
    "mix",
    "verify_no_shard_overlap",
]
__version__ = _version("torchparquet")
