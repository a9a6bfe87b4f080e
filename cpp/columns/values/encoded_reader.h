#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "columns/values/value_reader.h"
#include "kernels/byte_array.h"

namespace torchparquet {

// The encodings that our kernels decode to stored values.
enum class KernelEncoding { kDeltaBinaryPacked, kByteStreamSplit, kRleBool };

// Opens a page's values in such an encoding. `value_bytes` is the size of a stored value:
// 4 or 8 for kDeltaBinaryPacked, any for kByteStreamSplit, 1 for kRleBool. Throws
// Error(kCorruptFile) if `bytes` cannot be values of that size. The viewed bytes must
// outlive the reader.
std::unique_ptr<StoredReader> OpenEncodedReader(KernelEncoding encoding,
                                                std::span<const uint8_t> bytes,
                                                int64_t value_bytes);

// Opens a page's values of different lengths in an encoding that stores them one by one:
// PLAIN and the two delta encodings. `encoding` is an Encoding::Number. Throws
// Error(kCorruptFile) for any other. The viewed bytes must outlive the reader.
std::unique_ptr<kernels::ByteArrayReader> OpenByteArrayReader(
    int encoding, std::span<const uint8_t> bytes, int64_t num_values);

}  // namespace torchparquet
