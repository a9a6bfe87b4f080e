#pragma once

#include <cstdint>
#include <span>

#include "kernels/byte_array.h"

namespace torchparquet::kernels {

// PLAIN: each value follows its length of four bytes.
class PlainByteArrayReader : public ByteArrayReader {
 public:
  // `bytes` must outlive the reader.
  explicit PlainByteArrayReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  void Read(int64_t num_values, uint32_t* lengths, ByteSink* sink) override;
  void Skip(int64_t num_values) override;

 private:
  int64_t ReadShort(int64_t num_values, uint32_t* lengths, ByteSink* sink);
  uint32_t TakeValue();

  std::span<const uint8_t> bytes_;
};

}  // namespace torchparquet::kernels
