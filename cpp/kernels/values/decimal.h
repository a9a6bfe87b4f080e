#pragma once

#include <cstdint>
#include <string>

namespace torchparquet::kernels {

// Types of the compiler, beyond the standard.
__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

std::string DigitsOf(Int128 value);

// The double nearest to unscaled / 10^scale; of two, the even one.
double NearestDouble(Int128 unscaled, int32_t scale);

}  // namespace torchparquet::kernels
