#pragma once

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
void RepackLevels(const BitPackedLevels& levels, uint8_t* out);

}  // namespace torchparquet::kernels
