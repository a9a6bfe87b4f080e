#pragma once

#include <cstdint>
#include <vector>

#include "draws.h"

namespace torchparquet::testing {

// Appends `values` LSB first, bit by bit.
inline std::vector<uint8_t> PackBits(const std::vector<uint32_t>& values, int bit_width) {
  std::vector<uint8_t> bytes((values.size() * static_cast<size_t>(bit_width) + 7) / 8);
  size_t position = 0;
  for (const uint32_t value : values) {
    for (int bit = 0; bit < bit_width; ++bit, ++position) {
      const auto mask = static_cast<uint8_t>(((value >> bit) & 1) << (position % 8));
      bytes[position / 8] = static_cast<uint8_t>(bytes[position / 8] | mask);
    }
  }
  return bytes;
}

// Encodes hybrid runs as parquet-format's Encodings.md describes them.
class RleBitPackedEncoder {
 public:
  explicit RleBitPackedEncoder(int bit_width) : bit_width_(bit_width) {}

  void AppendRepeated(uint32_t value, int64_t count) {
    AppendHeader(static_cast<uint32_t>(count) << 1);
    for (int i = 0; i < (bit_width_ + 7) / 8; ++i) {
      bytes_.push_back(static_cast<uint8_t>(value >> (8 * i)));
    }
    values_.insert(values_.end(), static_cast<size_t>(count), value);
  }

  // The number of values must be a multiple of 8.
  void AppendPacked(const std::vector<uint32_t>& values) {
    AppendHeader(static_cast<uint32_t>(values.size() / 8) << 1 | 1);
    const std::vector<uint8_t> packed = PackBits(values, bit_width_);
    bytes_.insert(bytes_.end(), packed.begin(), packed.end());
    values_.insert(values_.end(), values.begin(), values.end());
  }

  // Random runs of at least `num_values` values below `bound`, empty runs among them.
  void AppendRandom(Draws& draws, int64_t num_values, int64_t bound) {
    const size_t wanted = values_.size() + static_cast<size_t>(num_values);
    const auto draw = [&] { return static_cast<uint32_t>(draws.Below(bound)); };
    while (values_.size() < wanted) {
      if (draws.OneIn(2)) {
        AppendRepeated(draw(), draws.Below(40));
      } else {
        std::vector<uint32_t> packed(static_cast<size_t>(8 * draws.Below(9)));
        for (uint32_t& value : packed) value = draw();
        AppendPacked(packed);
      }
    }
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  const std::vector<uint32_t>& values() const { return values_; }

 private:
  void AppendHeader(uint32_t header) {
    for (; header >= 0x80; header >>= 7) {
      bytes_.push_back(static_cast<uint8_t>(header | 0x80));
    }
    bytes_.push_back(static_cast<uint8_t>(header));
  }

  const int bit_width_;
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> values_;
};

}  // namespace torchparquet::testing
