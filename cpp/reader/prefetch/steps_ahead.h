#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "columns/column_reader.h"
#include "files/parquet_files.h"
#include "files/row_selection.h"
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

// Steps that are read at once, column by column if there are several. Nothing at the end,
// and none where more may come later.
using NextSteps = std::function<std::optional<std::vector<ReadStep>>()>;

// The steps to come. Asks for their footers and offset indexes, since each takes a round
// trip. Used by one thread at a time.
class StepsAhead {
 public:
  StepsAhead(std::shared_ptr<ReaderFiles> files, std::shared_ptr<RemoteBlocks> blocks,
             std::vector<StoredColumn> columns, NextSteps next_steps);

  // The next steps, as NextSteps tells.
  std::optional<std::vector<ReadStep>> Take();
  // The chunks that a step reads, whose footer and indexes it lets go. Empty if its file
  // is none. May wait for a footer.
  std::vector<ChunkBytes> Chunks(const ReadStep& step);

 private:
  using GroupPlace = std::pair<int64_t, int64_t>;  // file and row group

  void AskForFooter(int64_t file);
  void AskForIndexes(const ReadStep& step);

  const std::shared_ptr<ReaderFiles> files_;
  const std::shared_ptr<RemoteBlocks> blocks_;
  const std::vector<StoredColumn> columns_;
  const NextSteps next_steps_;
  std::deque<std::vector<ReadStep>> upcoming_;
  std::map<int64_t, RemoteBlocks::Pin> footers_;     // by file
  std::map<GroupPlace, RemoteBlocks::Pin> indexes_;  // of row groups
  bool is_at_end_ = false;
};

}  // namespace torchparquet
