// Feeds hostile bytes to the kernels and to what stands on them, in buffers of exactly
// their size: values or an Error must come of it, whatever the steps in which they are
// read.
//
//   kernel_fuzz [executions] [seed] [first execution] [target]
//
// To be built with the sanitizers, and run with ASAN_OPTIONS=max_allocation_size_mb=64 to
// find what is allocated by claims alone. A finding ends the run and says how to
// repeat it.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "draws.h"
#include "fuzz/targets.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace torchparquet::testing {
namespace {

// The running execution, for the report if the process ends.
struct {
  const char* target = "";
  uint64_t seed = 0;
  int64_t execution = 0;
  bool is_only = false;  // the one target that was asked for
} current;

void SayCurrent() {
  std::fprintf(stderr, "found in %s; repeat by: kernel_fuzz 1 %llu %lld%s%s%s\n",
               current.target, static_cast<unsigned long long>(current.seed),
               static_cast<long long>(current.execution), current.is_only ? " '" : "",
               current.is_only ? current.target : "", current.is_only ? "'" : "");
}

// Returns whether the contract was kept.
bool RunOne(std::vector<FuzzTarget>* targets, uint64_t seed, int64_t execution) {
  // Far apart for each seed, and each execution a state of its own.
  Draws draws(seed * 0x9E3779B97F4A7C15 + static_cast<uint64_t>(execution));
  FuzzTarget& target = (*targets)[static_cast<size_t>(draws.Below(std::ssize(*targets)))];
  current = {target.name.c_str(), seed, execution, targets->size() == 1};
  ++target.num_executions;
  try {
    target.num_refused += target.run(draws);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    SayCurrent();
    return false;
  }
}

int Run(int64_t num_executions, uint64_t seed, int64_t first, std::string_view name) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(&SayCurrent);
#endif
  std::vector<FuzzTarget> targets = TargetsNamed(name);
  if (targets.empty()) {
    std::fprintf(stderr, "no target has that name\n");
    return 2;
  }
  for (int64_t i = first; i < first + num_executions; ++i) {
    if (!RunOne(&targets, seed, i)) return 1;
  }
  for (const FuzzTarget& target : targets) {
    std::printf("%-28s %10lld executions, %10lld refused\n", target.name.c_str(),
                static_cast<long long>(target.num_executions),
                static_cast<long long>(target.num_refused));
  }
  return 0;
}

}  // namespace
}  // namespace torchparquet::testing

int main(int argc, char** argv) {
  const auto argument = [&](int index, int64_t otherwise) -> int64_t {
    return argc > index ? std::strtoll(argv[index], nullptr, 10) : otherwise;
  };
  return torchparquet::testing::Run(argument(1, 20'000),
                                    static_cast<uint64_t>(argument(2, 1)), argument(3, 0),
                                    argc > 4 ? argv[4] : "");
}
