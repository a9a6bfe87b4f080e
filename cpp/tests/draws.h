#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "split_mix.h"

namespace torchparquet::testing {

// Reproducible random input: the same on every platform, as no standard distribution
// is.
class Draws {
 public:
  explicit Draws(uint64_t seed) : words_(seed) {}
  // Takes its draws from `bytes`, as few for each as it needs, and after them from a
  // seed. A fuzzer that changes the bytes changes single draws.
  explicit Draws(std::span<const uint8_t> bytes) : words_(bytes.size()), bytes_(bytes) {}

  uint64_t Bits() { return Take(sizeof(uint64_t)); }
  int64_t Below(int64_t bound) {
    const size_t num_bytes = bound <= 1 << 8 ? 1 : bound <= 1 << 16 ? 2 : 8;
    return static_cast<int64_t>(Take(num_bytes) % static_cast<uint64_t>(bound));
  }
  // In [low, high], both included.
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  uint64_t Take(size_t num_bytes) {
    if (bytes_.empty()) return words_.Next();
    uint64_t value = 0;
    const std::span<const uint8_t> taken =
        bytes_.first(std::min(num_bytes, bytes_.size()));
    for (const uint8_t byte : taken) value = value << 8 | byte;
    bytes_ = bytes_.subspan(taken.size());
    return value;
  }

  SplitMix64 words_;
  std::span<const uint8_t> bytes_;
};

inline std::vector<uint8_t> RandomBytes(Draws& draws, int64_t num_bytes) {
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(num_bytes));
  while (std::ssize(bytes) < num_bytes) {
    bytes.push_back(static_cast<uint8_t>(draws.Below(1 << 8)));
  }
  return bytes;
}

}  // namespace torchparquet::testing
