#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchparquet {

// The paths by which files store one column. Tables rename columns without touching
// files.
struct StoredColumn {
  // In most data sets one, for all files. Empty: no file stores the column.
  std::vector<std::string> paths = {};
  // For each planned file the number of its path, -1 if it lacks the column. Empty: the
  // first path is that of all files.
  std::vector<int32_t> path_of_file = {};

  // Null if the file lacks it.
  const std::string* In(int64_t file) const {
    if (paths.empty()) return nullptr;
    if (path_of_file.empty()) return &paths.front();
    const int32_t number = path_of_file[static_cast<size_t>(file)];
    return number < 0 ? nullptr : &paths[static_cast<size_t>(number)];
  }
};

}  // namespace torchparquet
