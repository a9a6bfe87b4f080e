#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "files/reader_files.h"
#include "files/stored_column.h"
#include "prefetch/fetch_plan.h"

namespace torchparquet {

// Rows of one row group that are read together.
struct ReadStep {
  int64_t file = 0;
  int64_t row_group = 0;
  int64_t num_rows = 0;
};

// The chunks of these columns that the step reads. Nothing where that cannot be told: its
// tasks find the error again, and name its place. May wait for a footer.
std::optional<std::vector<ChunkBytes>> ChunksOf(const ReadStep& step, ReaderFiles* files,
                                                const std::vector<StoredColumn>& columns);

}  // namespace torchparquet
