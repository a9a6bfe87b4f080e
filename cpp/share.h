#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chunk_cursor.h"
#include "column_reader.h"

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
  Chunk chunk;               // its rows are the slice's
  int64_t share_row = 0;     // of its first row, counted over the share
  int64_t chunk_number = 0;  // of the chunk that it is a part of, counted from 0
  bool ends_chunk = false;   // no rows of that chunk are left behind it
};

// How a chunk is cut to slices.
struct SliceCut {
  int64_t max_rows = 1;    // of a slice, at least batch_rows
  int64_t batch_rows = 0;  // slices end where batches of this size do; 0: anywhere
};

// Walks a share in order, chunk by chunk as the cursor hands them out, each cut to
// slices. Empty chunks are passed over. One thread at a time.
class SliceWalk {
 public:
  SliceWalk(const Share* share, const SliceCut& cut);

  // The slice that Advance leads to next, or nothing at the end of the share.
  const std::optional<Slice>& next() const { return next_; }
  void Advance();

 private:
  void ClaimChunk();
  void CutSlice();

  const Share* share_;
  const SliceCut cut_;
  ChunkCursor cursor_;
  std::optional<Chunk> rest_;  // what is left of the claimed chunk
  int64_t share_row_ = 0;
  int64_t chunk_number_ = -1;
  std::optional<Slice> next_;
};

}  // namespace torchparquet
