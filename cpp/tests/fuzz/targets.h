#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "draws.h"

namespace torchparquet::testing {

// Code that reads bytes of a file. An execution makes hostile bytes of its draws, has
// them read, and returns true if they were refused. A broken contract throws Finding.
struct FuzzTarget {
  std::string name;
  bool (*run)(Draws& draws);
  int64_t num_executions = 0;
  int64_t num_refused = 0;
};

// Compressed blocks, alone and in pairs.
std::vector<FuzzTarget> CodecTargets();
// Levels, runs and indices of dictionaries.
std::vector<FuzzTarget> RunTargets();
// Encodings of values, and conversions of what they hold.
std::vector<FuzzTarget> ValueTargets();
// Pages: headers, levels in blocks, strings and their numbers in a vocabulary.
std::vector<FuzzTarget> PageTargets();
// Column chunks of files, by all readers of columns.
std::vector<FuzzTarget> ColumnTargets();
// The target of that name; all for an empty name.
std::vector<FuzzTarget> TargetsNamed(std::string_view name);

// Beyond the sizes of all blocks that kernels read by.
inline int64_t RandomCount(Draws& draws) {
  return draws.OneIn(8) ? draws.Below(1300) : draws.Below(140);
}

}  // namespace torchparquet::testing
