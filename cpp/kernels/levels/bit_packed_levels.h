#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace torchparquet::kernels {

// Levels in the deprecated BIT_PACKED encoding: `num_values` values of `width` bits, end
// to end. Values and bytes are filled from the highest bit to the lowest; every other
// encoding starts at the lowest.
struct BitPackedLevels {
  std::span<const uint8_t> bytes;  // at least NumBytes() of them
  int width = 1;                   // 1 to 8
  int64_t num_values = 0;

  int64_t NumBytes() const { return (num_values * width + 7) / 8; }
  // The same levels as one packed run of the RLE/bit-packing hybrid.
  int64_t NumRunBytes() const { return kRunHeaderBytes + (num_values + 7) / 8 * width; }

  static constexpr int64_t kRunHeaderBytes = 5;
};

// Writes the levels as one packed run, of NumRunBytes() bytes, to `out`.
inline void RepackLevels(const BitPackedLevels& levels, uint8_t* out) {
  // A varint of its maximal length, so that the length is known.
  const int64_t header = (levels.num_values + 7) / 8 << 1 | 1;
  for (int64_t i = 0; i < BitPackedLevels::kRunHeaderBytes; ++i) {
    const int more = i + 1 < BitPackedLevels::kRunHeaderBytes ? 0x80 : 0;
    *out++ = static_cast<uint8_t>((header >> (7 * i) & 0x7F) | more);
  }
  std::fill_n(out, levels.NumRunBytes() - BitPackedLevels::kRunHeaderBytes, uint8_t{0});
  const int64_t num_bits = levels.num_values * levels.width;
  for (int64_t bit = 0; bit < num_bits; ++bit) {
    const int value = levels.bytes[static_cast<size_t>(bit / 8)] >> (7 - bit % 8) & 1;
    // The highest bit of the value comes first here and last in the run.
    const int64_t place =
        bit / levels.width * levels.width + levels.width - 1 - bit % levels.width;
    out[place / 8] |= static_cast<uint8_t>(value << (place % 8));
  }
}

}  // namespace torchparquet::kernels
