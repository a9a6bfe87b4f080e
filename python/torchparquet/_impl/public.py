"""The public names; their modules import torch."""

from torchparquet._impl.batches.fields import Field
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.functions.batch_seed import batch_seed
from torchparquet._impl.metrics.read_metrics import (
    CodecMetrics,
    ColumnMetrics,
    Metrics,
    Ring,
    SlowestRank,
)
from torchparquet._impl.plan.epoch_plan import EpochPlan
from torchparquet._impl.plan.plan_options import Topology
from torchparquet._impl.ranks.distribution import ShardDistribution
from torchparquet._impl.reading.waits import Waits
from torchparquet.audit import ShardAudit, verify_no_shard_overlap
from torchparquet.column import Column
from torchparquet.dataset import ParquetDataset
from torchparquet.errors import (
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
from torchparquet.jagged import Jagged
from torchparquet.keyed_jagged import KeyedJagged
from torchparquet.mix import MixedDataset, mix
from torchparquet.options import (
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
from torchparquet.unbatched import UnbatchedDataset

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
