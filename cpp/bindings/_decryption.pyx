"""The C++ object that pyarrow's FileDecryptionProperties holds, by pyarrow's own declarations."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libcpp.memory cimport shared_ptr

from pyarrow._parquet cimport CFileDecryptionProperties, FileDecryptionProperties

# As in file_keys.cc.
cdef const char* CAPSULE_NAME = "torchparquet.FileDecryptionProperties"


cdef void _release(object capsule) noexcept:
    held = <shared_ptr[CFileDecryptionProperties]*>PyCapsule_GetPointer(capsule, CAPSULE_NAME)
    del held


def capsule_of(FileDecryptionProperties properties not None):
    """Return a capsule with a pointer to a shared pointer, which it owns."""
    return PyCapsule_New(
        new shared_ptr[CFileDecryptionProperties](properties.unwrap()), CAPSULE_NAME, _release
    )
