#pragma once

#include <cstdint>

namespace torchparquet {

// Rounds up. Requires value >= 0 and divisor > 0, with a sum that fits.
constexpr int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace torchparquet
