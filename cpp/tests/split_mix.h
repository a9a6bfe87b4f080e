#pragma once

#include <cstdint>

namespace torchparquet::testing {

// The finaliser of SplitMix64: a permutation of all words.
inline uint64_t Mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

// Words of SplitMix64. Its state is one word, so that a generator for a single value
// costs nothing; std::mt19937_64 begins with 312.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return Mix(state_ += 0x9E3779B97F4A7C15); }

 private:
  uint64_t state_;
};

}  // namespace torchparquet::testing
