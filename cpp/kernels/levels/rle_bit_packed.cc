#include "kernels/levels/rle_bit_packed.h"

#include <string>

#include "base/errors.h"

namespace torchparquet::kernels {

RleBitPackedReader::RleBitPackedReader(std::span<const uint8_t> bytes, int bit_width)
    : bytes_(bytes), bit_width_(bit_width) {
  if (bit_width < 0 || bit_width > 32) {
    throw CorruptFile("bit width must be 0 to 32: ", bit_width);
  }
}

uint32_t RleBitPackedReader::ReadLongHeader() {
  uint64_t header = 0;
  for (int shift = 0; shift < 35; shift += 7) {
    if (bytes_.empty()) throw CorruptFile("run header is cut short");
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    header |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) {
      if (header > UINT32_MAX) break;
      return static_cast<uint32_t>(header);
    }
  }
  throw CorruptFile("run header is longer than 32 bits");
}

uint32_t RleBitPackedReader::ReadWideValue() {
  const size_t num_bytes = (static_cast<size_t>(bit_width_) + 7) / 8;
  if (bytes_.size() < num_bytes) throw CorruptFile("repeated run is cut short");
  uint32_t value = 0;
  for (size_t i = 0; i < num_bytes; ++i) value |= uint32_t{bytes_[i]} << (8 * i);
  bytes_ = bytes_.subspan(num_bytes);
  return value;
}

}  // namespace torchparquet::kernels
