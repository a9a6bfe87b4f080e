#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/byte_array.h"
#include "values/value_reader.h"

namespace torchparquet {

// The encodings whose values our kernels deliver as they are stored.
enum class KernelEncoding { kDeltaBinaryPacked, kByteStreamSplit, kRleBool };

// Opens a page's values in such an encoding. `value_bytes` is the size of a stored value:
// 4 or 8 for kDeltaBinaryPacked, any for kByteStreamSplit, 1 for kRleBool. Throws
// Error(kCorruptFile) for bytes that cannot be values of that size. What `bytes` views
// must outlive the reader.
std::unique_ptr<StoredReader> OpenEncodedReader(KernelEncoding encoding,
                                                std::span<const uint8_t> bytes,
                                                int64_t value_bytes);

// Opens a page's values that each have a length of their own, in one of the encodings
// that store them one by one: PLAIN and the two delta encodings. `encoding` is a
// parquet::Encoding::type. Throws Error(kCorruptFile) for any other. What `bytes` views
// must outlive the reader.
std::unique_ptr<kernels::ByteArrayReader> OpenByteArrayReader(
    int encoding, std::span<const uint8_t> bytes, int64_t num_values);

}  // namespace torchparquet
