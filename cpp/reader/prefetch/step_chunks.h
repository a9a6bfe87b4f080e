#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/byte_range.h"
#include "files/parquet_files.h"
#include "files/row_selection.h"
#include "files/stored_column.h"
#include "reader/prefetch/fetch_plan.h"
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// Rows of one row group that are read together.
struct ReadStep {
  StepPlace place() const { return {file, row_group, begin}; }

  int64_t file = 0;
  int64_t row_group = 0;
  int64_t num_rows = 0;
  int64_t begin = 0;  // of the planned rows, which may be read in several steps
  // From the first row to the last, as they are stored; empty for the whole row group.
  RowRun rows = {};
  std::shared_ptr<const RowSelection> selection = nullptr;  // of them; null for all
};

// The chunks of these columns that the step reads, and which parts of them, as far as
// offset indexes tell that were read before or, with `reads_indexes`, are read now.
// Nothing where that cannot be told: its tasks find the error again, and name its place.
// May wait for a footer.
std::optional<std::vector<ChunkBytes>> ChunksOf(const ReadStep& step, ReaderFiles* files,
                                                const std::vector<StoredColumn>& columns,
                                                bool reads_indexes);

// The bytes of the offset indexes that ChunksOf would read, if they lie close together;
// else, or if there are none, an empty range. May wait for a footer.
ByteRange IndexesOf(const ReadStep& step, ReaderFiles* files,
                    const std::vector<StoredColumn>& columns);

}  // namespace torchparquet
