#pragma once

#include <cstdint>

namespace torchparquet {

// Bytes for positional reads by several threads.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Reads exactly `num_bytes` at `offset`, or throws.
  virtual void ReadAt(int64_t offset, int64_t num_bytes, uint8_t* out) const = 0;

 protected:
  ByteSource() = default;
  ByteSource(const ByteSource&) = default;
  ByteSource& operator=(const ByteSource&) = default;
};

}  // namespace torchparquet
