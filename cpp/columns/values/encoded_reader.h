#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bridge/format.h"
#include "columns/values/value_reader.h"
#include "kernels/byte_array.h"

namespace torchparquet {

// Opens a page's values of one size in the encodings for numbers: the delta, split and
// run-length ones. `value_bytes` is the size of a stored value. Null for any other
// encoding, and for one that the type cannot have. Throws Error(kCorruptFile) if `bytes`
// cannot be values of that size. The viewed bytes must outlive the reader.
std::unique_ptr<StoredReader> OpenNumberReader(PhysicalType physical, int encoding,
                                               std::span<const uint8_t> bytes,
                                               int64_t value_bytes);

// Opens a page's values of different lengths in an encoding that stores them one by one:
// PLAIN and the two delta encodings. `encoding` is an Encoding::Number. Throws
// Error(kCorruptFile) for any other. The viewed bytes must outlive the reader.
std::unique_ptr<kernels::ByteArrayReader> OpenByteArrayReader(
    int encoding, std::span<const uint8_t> bytes, int64_t num_values);

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
