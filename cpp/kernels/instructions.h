#pragma once

#include <string_view>

namespace torchparquet::kernels {

// What kernels may use of the processor. Each set has all of those before it.
enum class Instructions {
  kBaseline,  // what every processor of the architecture has
  kAvx2,      // AVX2, PCLMULQDQ, POPCNT
};

// The best that this processor has, or less where the environment says so, by a name
// in TORCHPARQUET_INSTRUCTIONS. Chosen once. Throws Error(kInvalidArgument) for a name
// of no set, or of one that this processor lacks.
Instructions ChosenInstructions();

// As in the environment: "baseline" or "avx2".
std::string_view NameOf(Instructions instructions);

}  // namespace torchparquet::kernels
