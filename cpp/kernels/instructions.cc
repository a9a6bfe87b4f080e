#include "kernels/instructions.h"

#include <array>
#include <cstdlib>
#include <string>

#include "base/errors.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace torchparquet::kernels {
namespace {

constexpr std::array kAll = {Instructions::kBaseline, Instructions::kAvx2};
constexpr const char* kVariable = "TORCHPARQUET_INSTRUCTIONS";

#if defined(__x86_64__)
// Not by __builtin_cpu_supports, which some compilers do not let ask for it.
bool HasF16c() {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

Instructions Best() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("pclmul") &&
      __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi") &&
      __builtin_cpu_supports("bmi2") && HasF16c()) {
    return Instructions::kAvx2;
  }
#endif
  return Instructions::kBaseline;
}

Instructions Choose() {
  const char* name = std::getenv(kVariable);
  const Instructions best = Best();
  if (name == nullptr || *name == '\0') return best;
  for (const Instructions one : kAll) {
    if (name != NameOf(one)) continue;
    if (one <= best) return one;
    throw InvalidArgument(kVariable, ": this processor lacks the instructions ", name);
  }
  throw InvalidArgument(kVariable, " must be baseline or avx2, got ", Printable(name));
}

}  // namespace

Instructions ChosenInstructions() {
  static const Instructions chosen = Choose();
  return chosen;
}

std::string_view NameOf(Instructions instructions) {
  return instructions == Instructions::kBaseline ? "baseline" : "avx2";
}

}  // namespace torchparquet::kernels
