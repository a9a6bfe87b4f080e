#include "fuzz/targets.h"

#include <utility>

namespace torchparquet::testing {

std::vector<FuzzTarget> TargetsNamed(std::string_view name) {
  std::vector<FuzzTarget> found;
  for (auto* some :
       {&CodecTargets, &RunTargets, &ValueTargets, &PageTargets, &ColumnTargets}) {
    for (FuzzTarget& target : some()) {
      if (name.empty() || name == target.name) found.push_back(std::move(target));
    }
  }
  return found;
}

}  // namespace torchparquet::testing
