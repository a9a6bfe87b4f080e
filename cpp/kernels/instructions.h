#pragma once

#include <string_view>

namespace torchparquet::kernels {

// Instruction sets for kernels. Each set includes all sets before it.
enum class Instructions {
  kBaseline,  // on every processor of the architecture
  kAvx2,      // AVX2, BMI, BMI2, F16C, PCLMULQDQ, POPCNT
};

// The best set of this processor, or the one named in the environment variable
// TORCHPARQUET_INSTRUCTIONS. Chosen once. Throws Error(kInvalidArgument) for an unknown
// name, or for a set that this processor lacks.
Instructions ChosenInstructions();

// As in the environment: "baseline" or "avx2".
std::string_view NameOf(Instructions instructions);

}  // namespace torchparquet::kernels
