#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace torchparquet::testing {

// Reproducible random input: the same on every platform, as no standard distribution
// is.
class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}

  uint64_t Bits() { return engine_(); }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  // In [low, high], both included.
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

inline std::vector<uint8_t> RandomBytes(Draws& draws, int64_t num_bytes) {
  std::vector<uint8_t> bytes(static_cast<size_t>(num_bytes));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draws.Bits());
  return bytes;
}

}  // namespace torchparquet::testing
