#include "kernels/count_bytes.h"

#include <algorithm>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

#if defined(__x86_64__)

// `matches` returns 16 bytes, all ones for each byte that counts. Each of 16 one-byte
// counters takes up to 255 of them. Left to itself, a compiler widens every byte to 64
// bits.
template <typename Matches, typename IsMatch>
int64_t CountBytes(const uint8_t* bytes, int64_t num_bytes, Matches matches,
                   IsMatch is_match) {
  constexpr int64_t kWidth = 16;
  constexpr int64_t kMostSteps = 255;
  int64_t count = 0;
  while (num_bytes >= kWidth) {
    const int64_t num_steps = std::min(num_bytes / kWidth, kMostSteps);
    __m128i counters = _mm_setzero_si128();
    for (int64_t i = 0; i < num_steps; ++i) {
      const auto* block = reinterpret_cast<const __m128i*>(bytes + i * kWidth);
      counters = _mm_sub_epi8(counters, matches(_mm_loadu_si128(block)));
    }
    const __m128i sums = _mm_sad_epu8(counters, _mm_setzero_si128());
    count += _mm_cvtsi128_si64(sums) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums));
    bytes += num_steps * kWidth;
    num_bytes -= num_steps * kWidth;
  }
  return count + std::count_if(bytes, bytes + num_bytes, is_match);
}

#endif

}  // namespace

int64_t CountEqual(const uint8_t* bytes, int64_t num_bytes, uint8_t value) {
#if defined(__x86_64__)
  const __m128i values = _mm_set1_epi8(static_cast<char>(value));
  return CountBytes(
      bytes, num_bytes, [&](__m128i block) { return _mm_cmpeq_epi8(block, values); },
      [&](uint8_t byte) { return byte == value; });
#else
  return std::count(bytes, bytes + num_bytes, value);
#endif
}

int64_t CountAtLeast(const uint8_t* bytes, int64_t num_bytes, uint8_t least) {
#if defined(__x86_64__)
  const __m128i leasts = _mm_set1_epi8(static_cast<char>(least));
  return CountBytes(
      bytes, num_bytes,
      [&](__m128i block) { return _mm_cmpeq_epi8(_mm_max_epu8(block, leasts), block); },
      [&](uint8_t byte) { return byte >= least; });
#else
  return std::count_if(bytes, bytes + num_bytes,
                       [&](uint8_t byte) { return byte >= least; });
#endif
}

}  // namespace torchparquet::kernels
