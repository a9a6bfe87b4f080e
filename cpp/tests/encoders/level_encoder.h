#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "draws.h"
#include "encoders/rle_bit_packed_encoder.h"

namespace torchparquet::testing {

inline int LevelWidth(int max_level) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(max_level)));
}

// As writers do it: longer runs of one level repeated, the rest packed. The last group
// may have more levels than there are.
inline std::vector<uint8_t> EncodeLevels(Draws& draws, const std::vector<uint8_t>& levels,
                                         int max_level) {
  RleBitPackedEncoder encoder(LevelWidth(max_level));
  for (size_t i = 0; i < levels.size();) {
    size_t end = i;
    while (end < levels.size() && levels[end] == levels[i]) ++end;
    if (end - i >= 8 || draws.OneIn(6)) {
      if (draws.OneIn(4)) end = i + (end - i + 1) / 2;  // in two runs
      encoder.AppendRepeated(levels[i], static_cast<int64_t>(end - i));
      i = end;
      continue;
    }
    std::vector<uint32_t> packed;
    for (int64_t left = 8 * draws.Between(1, 5); left > 0; --left, ++i) {
      packed.push_back(i < levels.size() ? levels[i] : 0);
    }
    encoder.AppendPacked(packed);
  }
  return encoder.bytes();
}

// The deprecated encoding: all bits from the highest to the lowest, into bytes from the
// highest bit on.
inline std::vector<uint8_t> PackHighestFirst(const std::vector<uint8_t>& levels,
                                             int width) {
  std::vector<uint8_t> bytes;
  int free = 0;
  for (const uint8_t level : levels) {
    for (int bit = width - 1; bit >= 0; --bit) {
      if (free == 0) {
        bytes.push_back(0);
        free = 8;
      }
      --free;
      bytes.back() = static_cast<uint8_t>(bytes.back() | ((level >> bit) & 1) << free);
    }
  }
  return bytes;
}

}  // namespace torchparquet::testing
