#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/byte_sink.h"

namespace torchparquet::kernels {

// Reads the BYTE_ARRAY values of one data page, in order. Each encoding has one class.
// Both functions throw Error(kCorruptFile) if the page holds fewer values or its lengths
// cannot be right. After an error the reader must not be used, and the bytes that were
// appended to the sink are unspecified.
class ByteArrayReader {
 public:
  virtual ~ByteArrayReader() = default;

  // Appends the next `num_values` values to `sink`, end to end, and writes the length of
  // each to `lengths`. Lengths are checked before their bytes are allocated or copied.
  virtual void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) = 0;
  virtual void Skip(int64_t num_values) = 0;
  // Passes over end - begin values and reads those whose bit is set, as in BitWord:
  // `begin` is the next value's. Returns false, and does nothing, if the encoding has no
  // way to single values.
  virtual bool PickOnes(const uint64_t*, int64_t /*begin*/, int64_t /*end*/, uint32_t*,
                        ByteSink*) {
    return false;
  }
};

// Values per block: the lengths of a block are checked before room is made for its
// values. Few enough that the values are still in the cache when they are copied.
inline constexpr int64_t kByteArrayBlock = 512;

// Copies `num_bytes` bytes. Short values, which are most of them, are copied by a copy of
// fixed size, which writes up to ByteSink::kSlackBytes bytes after `out` + `num_bytes`.
// Reads no byte at or after `readable_end`. `in` may lie before `out` in the same memory.
inline void CopyBytes(const uint8_t* in, const uint8_t* readable_end, size_t num_bytes,
                      uint8_t* out) {
  constexpr size_t kShort = ByteSink::kSlackBytes;
  if (num_bytes > kShort || readable_end - in < static_cast<int64_t>(kShort)) {
    if (num_bytes > 0) std::memcpy(out, in, num_bytes);
    return;
  }
  // Through registers, because bytes read after the value may be bytes written here.
  std::array<uint8_t, kShort> bytes;
  std::memcpy(bytes.data(), in, kShort);
  std::memcpy(out, bytes.data(), kShort);
}

}  // namespace torchparquet::kernels
