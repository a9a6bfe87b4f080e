#include "prefetch/step_chunks.h"

#include <cstddef>
#include <string>

#include "errors.h"

namespace torchparquet {

std::optional<std::vector<ChunkBytes>> ChunksOf(
    const ReadStep& step, ReaderFiles* files, const std::vector<StoredColumn>& columns) {
  std::vector<ChunkBytes> chunks;
  try {
    const auto file = files->Open(step.file);
    for (size_t i = 0; i < columns.size(); ++i) {
      const std::string* path = columns[i].In(step.file);
      if (path == nullptr) continue;
      const int leaf = file->FindLeaf(*path);
      if (leaf < 0) continue;
      chunks.push_back({static_cast<int64_t>(i), file->ChunkRange(step.row_group, leaf)});
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return chunks;
}

}  // namespace torchparquet
