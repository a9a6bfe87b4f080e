#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/byte_sink.h"

namespace torchparquet::kernels {

// Reads the BYTE_ARRAY values of one data page, in order. There is one class per
// encoding. Both functions throw Error(kCorruptFile) when the page holds fewer values or
// what it says of them cannot be; after an error the reader is of no more use, and what
// the sink has been extended by is unspecified.
class ByteArrayReader {
 public:
  virtual ~ByteArrayReader() = default;

  // Appends the next `num_values` values to `sink`, end to end, and writes the length of
  // each to `lengths`. Lengths are checked before their bytes are allocated or copied.
  virtual void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) = 0;
  virtual void Skip(int64_t num_values) = 0;
};

// Values whose lengths are checked before room is made for all of them: so few that they
// are still in the cache when they are copied.
inline constexpr int64_t kByteArrayBlock = 512;

// Copies `num_bytes` bytes, of which most values have few: those by a copy of fixed size,
// which writes up to ByteSink::kSlackBytes bytes behind `out` + `num_bytes`. Reads no
// further than `readable_end`. `in` may lie before `out` in the same memory.
inline void CopyBytes(const uint8_t* in, const uint8_t* readable_end, size_t num_bytes,
                      uint8_t* out) {
  constexpr size_t kShort = ByteSink::kSlackBytes;
  if (num_bytes > kShort || readable_end - in < static_cast<int64_t>(kShort)) {
    if (num_bytes > 0) std::memcpy(out, in, num_bytes);
    return;
  }
  // By way of registers, as what is read beyond the value may be what is written.
  std::array<uint8_t, kShort> bytes;
  std::memcpy(bytes.data(), in, kShort);
  std::memcpy(out, bytes.data(), kShort);
}

}  // namespace torchparquet::kernels
