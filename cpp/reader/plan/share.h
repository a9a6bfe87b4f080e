#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "columns/column_reader.h"
#include "reader/plan/chunk_cursor.h"

namespace torchparquet {

// A contiguous row range of one row group, as the plan ordered it.
struct Chunk {
  int64_t file = 0;
  RowRange rows;
  // The number, over all files in order, of `rows.begin`. With a selection, of the first
  // row of the row group.
  int64_t first_row_id = 0;
  bool valid = true;       // false: repeats rows that were delivered before
  int64_t selection = -1;  // the number of its row group in Selections; -1: all rows
  // rows.begin and rows.num_rows before the chunk was cut for threads.
  int64_t planned_begin = 0;
  int64_t planned_rows = 0;
  // Packed sequences of the whole row group; -1: not known.
  int64_t row_group_sequences = -1;

  void DropFirst(int64_t num_rows);
};

// The row groups of a data set, by their number over all files.
struct RowGroups {
  std::vector<int64_t> file, in_file, first_row;
  std::vector<int64_t> num_sequences;  // packed ones; empty: not known
  bool are_selected = false;           // rows count among those selected, of Selections

  // Throws Error(kInvalidArgument) unless the rows are those of one of the row groups.
  Chunk ChunkOf(int64_t row_group, int64_t begin, int64_t num_rows,
                bool valid = true) const;
};

// The chunks of an epoch in order, those of all ranks: nothing has divided them.
struct EpochOrder {
  std::shared_ptr<const RowGroups> row_groups;
  std::vector<int64_t> row_group, begin, num_rows;

  int64_t size() const { return std::ssize(row_group); }
  // Throws Error(kInvalidArgument) for a position that is none.
  Chunk At(int64_t position) const;
};

// Rows that follow each other in a share, and are put in order together: by
// kernels::Permutation of that key, or as `order` says.
struct Window {
  int64_t num_rows = 0;
  uint64_t key = 0;
  // The positions that are delivered, in order.
  int64_t begin = 0;
  int64_t end = 0;
  // The row at each position, which may stand at several of them or at none. Null: every
  // row once, by key.
  std::shared_ptr<const std::vector<uint32_t>> order = nullptr;

  int64_t num_positions() const {
    return order == nullptr ? num_rows : std::ssize(*order);
  }
};

// One rank's part of an epoch: what a cursor hands out of the order, and what a policy
// moves there from other ranks' parts or repeats.
struct Share {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::shared_ptr<const EpochOrder> order = nullptr;  // null: none
  // Rows that the share keeps of the chunks dealt to it: the first ones. Chunks after
  // those need not be of the row groups.
  int64_t dealt_rows = std::numeric_limits<int64_t>::max();
  // Chunks after those. They stand after the order, where the remainder of a position
  // is the rank too.
  std::vector<Chunk> chunks = {};
  int64_t skipped_rows = 0;          // the first ones, which were delivered before
  std::vector<Window> windows = {};  // of all other rows; none: rows stand as in files
  // In place of the positions by remainder. Such a share has no further chunks and no
  // windows.
  std::shared_ptr<Claims> claims = nullptr;
};

// Throws Error(kInvalidArgument) for a rank that is none, for numbers below 0, and unless
// the windows, if there are any, hold all rows, and each of them the positions that it is
// to deliver; all of them have an order, or none. Calls `check` for each chunk, and
// returns what NumRows does.
int64_t CheckShare(const Share& share,
                   const std::function<void(const Chunk&)>& check = nullptr);

// Rows that the share delivers. Of claims, those of the whole order.
int64_t NumRows(const Share& share);

// Walks the chunks of a share that have rows, cut as the share delivers them, in the
// order in which the cursor hands them out. One thread at a time.
class ChunkWalk {
 public:
  explicit ChunkWalk(const Share* share);

  // Returns the next chunk. Returns nothing at the end, of claims also until more are
  // added.
  std::optional<Chunk> Next();
  // The same, cut to at most so many rows; the rest comes next.
  std::optional<Chunk> Next(int64_t max_rows);
  bool has_ended() const { return !rest_ && cursor_.has_ended(); }

 private:
  std::optional<Chunk> Claimed();

  const Share* share_;
  ChunkCursor cursor_;
  int64_t dealt_left_;
  int64_t skipped_left_;
  std::optional<Chunk> rest_;  // of a chunk that was cut
};

// Visits the chunks of a share, or with claims those that it may have. A list of them
// would take longer to fill than to walk.
void VisitChunks(const Share& share, const std::function<void(const Chunk&)>& visit);

// Part of a chunk, small enough for its batches to fit the memory bound together.
struct Slice {
  Chunk chunk;               // its rows are the slice's
  int64_t lane = 0;          // of its share, among those that are read at once
  int64_t share_row = 0;     // of its first row, counted over the share
  int64_t chunk_number = 0;  // of the chunk that it is a part of, counted from 0
  bool ends_chunk = false;   // no rows of that chunk come after it
};

// Cuts rows so that all threads find work where few columns are read.
struct WorkSplit {
  int64_t num_parts = 1;   // of all rows; fewer where they would be too short
  int64_t least_rows = 1;  // of a part

  // Of one part of `num_rows` rows.
  int64_t MaxRows(int64_t num_rows) const;
};

// How a chunk is cut to slices.
struct SliceCut {
  int64_t max_rows = 1;    // of a slice, at least batch_rows
  int64_t batch_rows = 0;  // slices end where batches of this size do; 0: anywhere
  WorkSplit split = {};    // of the share's rows from a slice's first one on
};

// A window with its chunks, cut so that threads find work, and those without rows left
// out.
struct ChunkWindow {
  Window window;
  std::vector<Chunk> chunks;
  int64_t lane = 0;       // of its share, among those that are read at once
  int64_t share_row = 0;  // of the first row that it delivers, counted over the share
};

// Walks a share in order, window by window. Windows that deliver nothing are passed over.
// One thread at a time.
class WindowWalk {
 public:
  explicit WindowWalk(const Share* share, const WorkSplit& split = {}, int64_t lane = 0);

  // The window that Advance leads to next, or nothing at the end of the share.
  const std::optional<ChunkWindow>& next() const { return next_; }
  void Advance();
  bool has_ended() const { return !next_; }

 private:
  const Share* share_;
  const WorkSplit split_;
  const int64_t lane_;
  ChunkWalk chunks_;
  size_t number_ = 0;
  int64_t share_row_ = 0;
  std::optional<ChunkWindow> next_;
};

// Walks a share in order, chunk by chunk, each cut to slices. One thread at a time.
class SliceWalk {
 public:
  SliceWalk(const Share* share, const SliceCut& cut, int64_t lane = 0);

  // The slice that Advance leads to next. Nothing at the end of the share, or where more
  // is to be claimed: then another Advance looks again.
  const std::optional<Slice>& next() const { return next_; }
  void Advance();
  bool has_ended() const { return !next_ && !rest_ && chunks_.has_ended(); }

 private:
  void CutSlice();
  int64_t MaxRows() const;

  const SliceCut cut_;
  const int64_t lane_;
  const int64_t num_rows_;  // of the share; -1: not known, or no matter
  ChunkWalk chunks_;
  std::optional<Chunk> rest_;  // what is left of the claimed chunk
  int64_t share_row_ = 0;
  int64_t chunk_number_ = -1;
  std::optional<Slice> next_;
};

}  // namespace torchparquet
