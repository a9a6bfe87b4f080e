// The targets of kernel_fuzz, led by coverage: libFuzzer changes the draws of which an
// execution makes its input, and keeps those that reach new code.
//
//   TORCHPARQUET_FUZZ_TARGET=NAME guided_fuzz [options of libFuzzer] [corpus]
//
// Without the variable, the first draw chooses the target.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <span>
#include <vector>

#include "draws.h"
#include "fuzz/targets.h"

namespace torchparquet::testing {
namespace {

std::vector<FuzzTarget> MadeTargets() {
  const char* name = std::getenv("TORCHPARQUET_FUZZ_TARGET");
  std::vector<FuzzTarget> targets = TargetsNamed(name == nullptr ? "" : name);
  if (targets.empty()) {
    std::fprintf(stderr, "no target has that name: %s\n", name);
    std::exit(2);
  }
  return targets;
}

const std::vector<FuzzTarget>& Targets() {
  static const std::vector<FuzzTarget> targets = MadeTargets();
  return targets;
}

}  // namespace
}  // namespace torchparquet::testing

// Targets write files at their first execution, which would look like a slow input.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace torchparquet::testing;
  for (const FuzzTarget& target : Targets()) {
    Draws draws(1);
    target.run(draws);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace torchparquet::testing;
  const std::vector<FuzzTarget>& targets = Targets();
  Draws draws(std::span(data, num_bytes));
  const int64_t number = draws.Below(std::ssize(targets));
  try {
    targets[static_cast<size_t>(number)].run(draws);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", targets[static_cast<size_t>(number)].name.c_str(),
                 error.what());
    std::abort();
  }
  return 0;
}
