#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace torchparquet::kernels {

// Types of the compiler, beyond the standard.
__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

std::string DigitsOf(Int128 value);

// The double nearest to unscaled / 10^scale; of two, the even one.
double NearestDoubleOfAny(Int128 unscaled, int32_t scale);

// The same, faster for most numbers.
inline double NearestDouble(Int128 unscaled, int32_t scale) {
  static constexpr std::array<double, 23> kPowers = {
      1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  constexpr Int128 kExactLimit = Int128{1} << 53;
  if (unscaled <= kExactLimit && unscaled >= -kExactLimit && scale >= 0 &&
      scale < static_cast<int32_t>(kPowers.size())) {
    // Both are exact, so the quotient is rounded once.
    return static_cast<double>(static_cast<int64_t>(unscaled)) /
           kPowers[static_cast<size_t>(scale)];
  }
  return NearestDoubleOfAny(unscaled, scale);
}

}  // namespace torchparquet::kernels
