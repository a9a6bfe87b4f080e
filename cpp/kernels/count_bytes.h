#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace torchparquet::kernels {

// Count the bytes, mostly levels, that are `value`, or at least `least`.
int64_t CountEqual(const uint8_t* bytes, int64_t num_bytes, uint8_t value);
int64_t CountAtLeast(const uint8_t* bytes, int64_t num_bytes, uint8_t least);

// Writes 1 for each byte that is `value`, else 0.
inline void MarkEqual(const uint8_t* bytes, int64_t num_bytes, uint8_t value,
                      uint8_t* __restrict marks) {
  for (int64_t i = 0; i < num_bytes; ++i) marks[i] = bytes[i] == value;
}

// Bit i is set if byte i of 64 is `value`.
inline uint64_t EqualBytes(const uint8_t* bytes, uint8_t value) {
  uint64_t equal = 0;
#if defined(__x86_64__)
  for (int i = 0; i < 64; i += 16) {
    const __m128i block = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + i));
    const int mask =
        _mm_movemask_epi8(_mm_cmpeq_epi8(block, _mm_set1_epi8(static_cast<char>(value))));
    equal |= uint64_t{static_cast<uint32_t>(mask)} << i;
  }
#else
  for (int i = 0; i < 64; ++i) equal |= uint64_t{bytes[i] == value} << i;
#endif
  return equal;
}

}  // namespace torchparquet::kernels
