#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "value_reader.h"

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

}  // namespace torchparquet
