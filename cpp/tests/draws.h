#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace torchparquet::testing {

// Reproducible random input: the same on every platform, as no standard distribution
// is.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}
  // Takes its draws from `bytes`, as few for each as it needs, and after them from a
  // seed. A fuzzer that changes the bytes changes single draws.
  explicit Draws(std::span<const uint8_t> bytes) : engine_(bytes.size()), bytes_(bytes) {}

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
    if (bytes_.empty()) return engine_();
    uint64_t value = 0;
    const std::span<const uint8_t> taken =
        bytes_.first(std::min(num_bytes, bytes_.size()));
    for (const uint8_t byte : taken) value = value << 8 | byte;
    bytes_ = bytes_.subspan(taken.size());
    return value;
  }

  std::mt19937_64 engine_;
  std::span<const uint8_t> bytes_;
};

inline std::vector<uint8_t> RandomBytes(Draws& draws, int64_t num_bytes) {
  std::vector<uint8_t> bytes(static_cast<size_t>(num_bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draws.Below(1 << 8));
  return bytes;
}

}  // namespace torchparquet::testing
