#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chunk_cursor.h"
#include "column_decoder.h"

namespace torchparquet {

// A contiguous row range of one row group, as the plan ordered it.
struct Chunk {
  int64_t file = 0;
  RowRange rows;
  int64_t first_row_id = 0;  // global number, in file order, of the range's first row
  bool valid = true;         // false: repeats rows that were delivered before
};

// One rank's part of an epoch. Chunk k stands at position k * world_size + rank of the
// sequence that the cursor walks.
struct Share {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::vector<Chunk> chunks;
};

// Part of a chunk, small enough for its batches to fit the memory bound together.
struct Slice {
  Chunk chunk;            // its rows are the slice's
  int64_t share_row = 0;  // of its first row, counted over the share
};

// Walks a share in order, chunk by chunk as the cursor hands them out, each cut to
// slices of at most `max_slice_rows`. Empty chunks are passed over. One thread at a
// time.
class SliceWalk {
 public:
  SliceWalk(const Share* share, int64_t max_slice_rows);

  // The slice that Advance leads to next, or nothing at the end of the share.
  const std::optional<Slice>& next() const { return next_; }
  void Advance();

 private:
  void ClaimChunk();
  void CutSlice();

  const Share* share_;
  const int64_t max_slice_rows_;
  ChunkCursor cursor_;
  std::optional<Chunk> rest_;  // what is left of the claimed chunk
  int64_t share_row_ = 0;
  std::optional<Slice> next_;
};

}  // namespace torchparquet
