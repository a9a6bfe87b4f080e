#pragma once

#include <cstdint>

namespace torchparquet {

// Rounds up. Both are above 0, or `value` is 0, and their sum is a number.
constexpr int64_t CeilDivide(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

}  // namespace torchparquet
