"""A compiled, parallel Parquet reader with a thin PyTorch face.

    from torchparquet import ParquetDataset

    for batch in ParquetDataset("data/train", batch_size=8192, shuffle=True):
        ...  # dict[str, torch.Tensor], this rank's exact share

See `ParquetDataset` for everything else.
"""

from importlib.metadata import version

from torchparquet._impl.start import prepare_for_groups_and_forks

prepare_for_groups_and_forks()

from torchparquet._impl.batches.fields import Field  # noqa: E402
from torchparquet._impl.files.manifest import Manifest  # noqa: E402
from torchparquet._impl.functions.batch_seed import batch_seed  # noqa: E402
from torchparquet._impl.metrics.read_metrics import (  # noqa: E402
    CodecMetrics,
    ColumnMetrics,
    Metrics,
    Ring,
    SlowestRank,
)
from torchparquet._impl.plan.epoch_plan import EpochPlan  # noqa: E402
from torchparquet._impl.plan.plan_options import Topology  # noqa: E402
from torchparquet._impl.ranks.distribution import ShardDistribution  # noqa: E402
from torchparquet._impl.reading.waits import Waits  # noqa: E402
from torchparquet.audit import ShardAudit, verify_no_shard_overlap  # noqa: E402
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
from torchparquet.keyed_jagged import KeyedJagged  # noqa: E402
from torchparquet.mix import MixedDataset, mix  # noqa: E402
from torchparquet.options import (  # noqa: E402
    Ahead,
    Balanced,
    ByLength,
    Excluding,
    Order,
    Pack,
    Ranks,
    Shuffle,
    Split,
    Unique,
    Weights,
    Window,
)
from torchparquet.unbatched import UnbatchedDataset  # noqa: E402

__all__ = [
    "Ahead",
    "Balanced",
    "ByLength",
    "CastError",
    "CodecMetrics",
    "Column",
    "ColumnMetrics",
    "CorruptFileError",
    "EncryptedFileError",
    "EpochPlan",
    "Excluding",
    "Field",
    "FileChangedError",
    "Jagged",
    "KeyedJagged",
    "ListLengthError",
    "Manifest",
    "Metrics",
    "MixedDataset",
    "NullValueError",
    "Order",
    "Pack",
    "ParquetDataset",
    "RankMismatchError",
    "Ranks",
    "Ring",
    "SchemaMismatchError",
    "ShardAudit",
    "ShardDistribution",
    "Shuffle",
    "SlowestRank",
    "Split",
    "Topology",
    "TransformError",
    "UnbatchedDataset",
    "Unique",
    "UnsupportedColumnError",
    "Waits",
    "Weights",
    "Window",
    "batch_seed",
    "mix",
    "verify_no_shard_overlap",
]
__version__ = version("torchparquet")


def __dir__() -> list[str]:
    """Return the public names: what is not among them may change."""
    return [*__all__, "__version__"]
