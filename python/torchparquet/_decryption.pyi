from pyarrow.parquet import (  # type: ignore[import-untyped, unused-ignore]
    FileDecryptionProperties,
)
from typing_extensions import CapsuleType

def capsule_of(properties: FileDecryptionProperties) -> CapsuleType: ...
