#pragma once

#include <cstdint>

namespace torchparquet {

// Readable bytes after every view of bytes of a file, for kernels that load whole words.
inline constexpr int64_t kPaddingBytes = 64;

struct ByteRange {
  int64_t offset = 0;
  int64_t num_bytes = 0;

  int64_t end() const { return offset + num_bytes; }
  bool contains(const ByteRange& other) const {
    return other.offset >= offset && other.end() <= end();
  }
  bool operator==(const ByteRange&) const = default;
};

}  // namespace torchparquet
