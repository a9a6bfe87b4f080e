#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "columns/column_reader.h"
#include "tasks/chunk_cursor.h"

namespace torchparquet {

// A contiguous row range of one row group, as the plan ordered it.
struct Chunk {
  int64_t file = 0;
  RowRange rows;
  // The global number, in file order, of the range's first row or, if some rows of the
  // row group are selected, of the row group's.
  int64_t first_row_id = 0;
  bool valid = true;       // false: repeats rows that were delivered before
  int64_t selection = -1;  // the number of its row group in Selections; -1: all rows
  // rows.begin and rows.num_rows before the chunk was cut.
  int64_t planned_begin = 0;
  int64_t planned_rows = 0;
  // Packed sequences of the whole row group; -1: not known.
  int64_t row_group_sequences = -1;
};

// Consecutive chunks whose rows, counted over all of them, are permuted together: by
// kernels::Permutation of that key.
struct Window {
  int64_t num_chunks = 0;
  uint64_t key = 0;
  // The positions that are delivered, in order.
  int64_t begin = 0;
  int64_t end = 0;
};

// One rank's part of an epoch. Chunk k stands at position k * world_size + rank of the
// sequence that the cursor walks.
struct Share {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::vector<Chunk> chunks;
  std::vector<Window> windows = {};  // of all chunks; none: rows stand as in the files
};

// A share's chunks and windows as its maker has them: field by field, one entry for each
// chunk or window.
struct ChunkArrays {
  std::span<const int64_t> file, row_group, begin, num_rows, first_row_id;
  std::span<const bool> valid;
  std::span<const int64_t> selection = {};            // empty: all rows of all chunks
  std::span<const int64_t> row_group_sequences = {};  // empty: not known
};
struct WindowArrays {
  std::span<const int64_t> num_chunks;
  std::span<const uint64_t> key;
  std::span<const int64_t> begin, end;
};

// Throws Error(kInvalidArgument) where arrays differ in length, and as CheckShare does.
Share MakeShare(int64_t rank, int64_t world_size, const ChunkArrays& chunks,
                const WindowArrays& windows);

// Throws Error(kInvalidArgument) for a rank that is none, for numbers below 0, and unless
// the windows, if there are any, hold all chunks, and each of them the positions that it
// is to deliver.
void CheckShare(const Share& share);

// Rows that the share delivers.
int64_t NumRows(const Share& share);

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

// Walks a share in order, window by window, as the cursor hands out their chunks. Windows
// that deliver nothing are passed over. One thread at a time.
class WindowWalk {
 public:
  explicit WindowWalk(const Share* share, const WorkSplit& split = {}, int64_t lane = 0);

  // The window that Advance leads to next, or nothing at the end of the share.
  const std::optional<ChunkWindow>& next() const { return next_; }
  void Advance();

 private:
  const Share* share_;
  const WorkSplit split_;
  const int64_t lane_;
  ChunkCursor cursor_;
  size_t number_ = 0;
  int64_t share_row_ = 0;
  std::optional<ChunkWindow> next_;
};

// Walks a share in order, chunk by chunk as the cursor hands them out, each cut to
// slices. Empty chunks are passed over. One thread at a time.
class SliceWalk {
 public:
  SliceWalk(const Share* share, const SliceCut& cut, int64_t lane = 0);

  // The slice that Advance leads to next, or nothing at the end of the share.
  const std::optional<Slice>& next() const { return next_; }
  void Advance();

 private:
  void ClaimChunk();
  void CutSlice();
  int64_t MaxRows() const;

  const Share* share_;
  const SliceCut cut_;
  const int64_t lane_;
  const int64_t num_rows_;  // of the share
  ChunkCursor cursor_;
  std::optional<Chunk> rest_;  // what is left of the claimed chunk
  int64_t share_row_ = 0;
  int64_t chunk_number_ = -1;
  std::optional<Slice> next_;
};

}  // namespace torchparquet
