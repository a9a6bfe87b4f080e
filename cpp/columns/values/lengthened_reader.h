#pragma once

#include <cstdint>
#include <memory>

#include "columns/values/value_reader.h"
#include "kernels/byte_array.h"

namespace torchparquet {

// Values that each have their length in front, and that have one size once they are
// converted. Our kernels read them, so memory is bounded by the bytes of the page.

// BYTE_ARRAY decimals, as 16 bytes each, lowest first.
std::unique_ptr<StoredReader> OpenDecimals(
    std::unique_ptr<kernels::ByteArrayReader> values);

// FIXED_LEN_BYTE_ARRAY values of that size in an encoding of strings. A value of another
// length throws Error(kCorruptFile).
std::unique_ptr<StoredReader> OpenFixedBytes(
    std::unique_ptr<kernels::ByteArrayReader> values, int64_t value_bytes);

}  // namespace torchparquet
