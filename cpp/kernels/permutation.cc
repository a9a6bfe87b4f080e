#include "kernels/permutation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "errors.h"
#include "kernels/instructions.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torchparquet::kernels {
namespace {

constexpr int kNumRounds = Permutation::kNumRounds;

struct Cipher {
  uint64_t n;
  uint32_t a;
  uint32_t b;
  std::array<uint32_t, kNumRounds> keys;
};

enum class Direction { kPositions, kRows };

// In [0, bound), bound <= 65536.
uint32_t Round(uint32_t value, uint32_t key, uint32_t bound) {
  uint32_t hash = value + key;
  hash ^= hash >> 16;
  hash *= 0x7feb352d;
  hash ^= hash >> 15;
  hash *= 0x846ca68b;
  hash ^= hash >> 16;
  return ((hash >> 16) * bound) >> 16;
}

uint32_t AddModulo(uint32_t one, uint32_t two, uint32_t modulus) {
  const uint32_t sum = one + two;
  return sum >= modulus ? sum - modulus : sum;
}

template <Direction kDirection>
uint32_t Walk(const Cipher& cipher, uint32_t start) {
  uint64_t x = start;
  do {
    auto low = static_cast<uint32_t>(x % cipher.a);
    auto high = static_cast<uint32_t>(x / cipher.a);
    for (int step = 0; step < kNumRounds; ++step) {
      constexpr bool kForward = kDirection == Direction::kPositions;
      const int i = kForward ? step : kNumRounds - 1 - step;
      const uint32_t key = cipher.keys[static_cast<size_t>(i)];
      const bool is_even = i % 2 == 0;
      uint32_t& changed = is_even ? low : high;
      const uint32_t modulus = is_even ? cipher.a : cipher.b;
      const uint32_t added = Round(is_even ? high : low, key, modulus);
      changed = AddModulo(changed, kForward ? added : modulus - added, modulus);
    }
    x = uint64_t{high} * cipher.a + low;
  } while (x >= cipher.n);
  return static_cast<uint32_t>(x);
}

template <Direction kDirection>
void PlainBlock(const Cipher& cipher, int64_t first, int64_t count, uint32_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = Walk<kDirection>(cipher, static_cast<uint32_t>(first + i));
  }
}

#if defined(__x86_64__)

constexpr int64_t kLanes = 8;

__attribute__((target("avx2"), always_inline)) inline __m256i RoundAvx2(__m256i value,
                                                                        uint32_t key,
                                                                        __m256i bound) {
  __m256i hash = _mm256_add_epi32(value, _mm256_set1_epi32(static_cast<int>(key)));
  hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 16));
  hash = _mm256_mullo_epi32(hash, _mm256_set1_epi32(0x7feb352d));
  hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 15));
  hash = _mm256_mullo_epi32(hash, _mm256_set1_epi32(static_cast<int>(0x846ca68b)));
  hash = _mm256_xor_si256(hash, _mm256_srli_epi32(hash, 16));
  return _mm256_srli_epi32(_mm256_mullo_epi32(_mm256_srli_epi32(hash, 16), bound), 16);
}

// Of a sum or a difference that is beyond the modulus by less than that, or below zero:
// as an unsigned number, the wrong one of the two candidates is the greater.
template <Direction kDirection>
__attribute__((target("avx2"), always_inline)) inline __m256i StepAvx2(__m256i value,
                                                                       __m256i by,
                                                                       __m256i modulus) {
  if constexpr (kDirection == Direction::kPositions) {
    const __m256i sum = _mm256_add_epi32(value, by);
    return _mm256_min_epu32(sum, _mm256_sub_epi32(sum, modulus));
  } else {
    const __m256i difference = _mm256_sub_epi32(value, by);
    return _mm256_min_epu32(difference, _mm256_add_epi32(difference, modulus));
  }
}

// Eight at once; those few that are to be put in again go the plain way.
template <Direction kDirection>
__attribute__((target("avx2"))) void Avx2Block(const Cipher& cipher, int64_t first,
                                               int64_t count, uint32_t* out) {
  const __m256i a = _mm256_set1_epi32(static_cast<int>(cipher.a));
  const __m256i b = _mm256_set1_epi32(static_cast<int>(cipher.b));
  const __m256i last = _mm256_set1_epi32(static_cast<int>(cipher.n - 1));
  std::array<uint32_t, kLanes> lows;
  std::array<uint32_t, kLanes> highs;
  for (size_t i = 0; i < kLanes; ++i) {
    lows[i] = static_cast<uint32_t>((static_cast<uint64_t>(first) + i) % cipher.a);
    highs[i] = static_cast<uint32_t>((static_cast<uint64_t>(first) + i) / cipher.a);
  }
  // The intrinsics take unaligned bytes by the types of the registers, here and below.
  __m256i next_low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lows.data()));
  __m256i next_high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(highs.data()));
  int64_t done = 0;
  for (; done + kLanes <= count; done += kLanes) {
    __m256i low = next_low;
    __m256i high = next_high;
    for (int step = 0; step < kNumRounds; ++step) {
      const int i = kDirection == Direction::kPositions ? step : kNumRounds - 1 - step;
      const uint32_t key = cipher.keys[static_cast<size_t>(i)];
      if (i % 2 == 0) {
        low = StepAvx2<kDirection>(low, RoundAvx2(high, key, a), a);
      } else {
        high = StepAvx2<kDirection>(high, RoundAvx2(low, key, b), b);
      }
    }
    const __m256i x = _mm256_add_epi32(_mm256_mullo_epi32(high, a), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + done), x);
    const __m256i fits = _mm256_cmpeq_epi32(_mm256_max_epu32(x, last), last);
    auto beyond = static_cast<uint32_t>(~_mm256_movemask_ps(_mm256_castsi256_ps(fits)));
    for (beyond &= 0xFF; beyond != 0; beyond &= beyond - 1) {
      uint32_t& again = out[done + __builtin_ctz(beyond)];
      again = Walk<kDirection>(cipher, again);
    }
    // a is at least kLanes, so that one step passes one multiple of it at most.
    next_low = _mm256_add_epi32(next_low, _mm256_set1_epi32(kLanes));
    const __m256i wraps = _mm256_cmpeq_epi32(_mm256_max_epu32(next_low, a), next_low);
    next_low = _mm256_sub_epi32(next_low, _mm256_and_si256(wraps, a));
    next_high = _mm256_sub_epi32(next_high, wraps);
  }
  PlainBlock<kDirection>(cipher, first + done, count - done, out + done);
}

#endif

template <Direction kDirection>
void Block(const Cipher& cipher, int64_t first, int64_t count, uint32_t* out) {
#if defined(__x86_64__)
  if (ChosenInstructions() >= Instructions::kAvx2 && cipher.a >= kLanes) {
    Avx2Block<kDirection>(cipher, first, count, out);
    return;
  }
#endif
  PlainBlock<kDirection>(cipher, first, count, out);
}

uint64_t SplitMix64(uint64_t* state) {
  *state += 0x9E3779B97F4A7C15;
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The root of n, rounded up.
uint32_t CeilRoot(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (root * root >= n && root > 0) --root;
  while (root * root < n) ++root;
  return static_cast<uint32_t>(root);
}

}  // namespace

Permutation::Permutation(uint64_t key, int64_t n)
    : n_(static_cast<uint64_t>(n)), a_(0), b_(0), keys_{} {
  if (n < 1 || n > int64_t{1} << 32) {
    throw Error(ErrorKind::kInvalidArgument,
                "at least one row and at most 2^32 can be permuted together: " +
                    std::to_string(n));
  }
  a_ = CeilRoot(n_);
  b_ = static_cast<uint32_t>((n_ + a_ - 1) / a_);
  for (uint32_t& round_key : keys_) {
    round_key = static_cast<uint32_t>(SplitMix64(&key) >> 32);
  }
}

void Permutation::Positions(int64_t first, int64_t count, uint32_t* out) const {
  Block<Direction::kPositions>({n_, a_, b_, keys_}, first, count, out);
}

void Permutation::Rows(int64_t first, int64_t count, uint32_t* out) const {
  Block<Direction::kRows>({n_, a_, b_, keys_}, first, count, out);
}

void Permutation::PlainPositions(int64_t first, int64_t count, uint32_t* out) const {
  PlainBlock<Direction::kPositions>({n_, a_, b_, keys_}, first, count, out);
}

void Permutation::PlainRows(int64_t first, int64_t count, uint32_t* out) const {
  PlainBlock<Direction::kRows>({n_, a_, b_, keys_}, first, count, out);
}

}  // namespace torchparquet::kernels
