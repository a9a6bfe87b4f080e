#pragma once

#include <cstdint>
#include <cstring>

namespace torchparquet::kernels {

// Parquet packs values LSB first in groups of eight: a group of `width`-bit values is
// `width` bytes long for every width.
constexpr int kGroupValues = 8;

// Bytes that must be readable from the start of a group for any kernel to load from it.
constexpr int64_t GroupReadableBytes(int width) { return width + 16; }

inline uint64_t Load64Bits(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Number of values that one 64-bit load can serve: the largest power of two for
// which every aligned run of that many values lies within a word.
template <int kWidth>
constexpr int ValuesPerWord() {
  for (int values = 8; values > 1; values /= 2) {
    bool fits = true;
    for (int first = 0; first < 8; first += values) {
      fits = fits && (first * kWidth) % 8 + values * kWidth <= 64;
    }
    if (fits) return values;
  }
  return 1;
}

// Calls sink(i, value) for the eight values of the group at `in`. Reads at most
// GroupReadableBytes(kWidth) bytes.
template <int kWidth, typename Sink>
inline void UnpackGroup(const uint8_t* in, Sink&& sink) {
  static_assert(kWidth >= 0 && kWidth <= 32);
  constexpr int kPerWord = ValuesPerWord<kWidth>();
  constexpr uint64_t kMask = (uint64_t{1} << kWidth) - 1;
  for (int first = 0; first < kGroupValues; first += kPerWord) {
    const uint64_t word = Load64Bits(in + first * kWidth / 8) >> (first * kWidth % 8);
    for (int i = 0; i < kPerWord; ++i) {
      sink(first + i, static_cast<uint32_t>((word >> (i * kWidth)) & kMask));
    }
  }
}

// As UnpackGroup, for a width known at run time only (0 to 32).
inline void UnpackGroup(const uint8_t* in, int width, uint32_t* out) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  for (int i = 0; i < kGroupValues; ++i) {
    const int bit = i * width;
    out[i] = static_cast<uint32_t>((Load64Bits(in + bit / 8) >> (bit % 8)) & mask);
  }
}

// Writes the bits [begin, begin + num_values) of `bits`, LSB first, as bytes 0 and 1.
// Reads only the bytes that hold those bits.
void UnpackBits(const uint8_t* bits, int64_t begin, int64_t num_values, uint8_t* out);

}  // namespace torchparquet::kernels
