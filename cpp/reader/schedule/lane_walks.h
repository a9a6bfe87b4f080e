#pragma once

#include <cstdint>

#include "batches/layout.h"
#include "reader/plan/share.h"
#include "reader/schedule/task_stream.h"

namespace torchparquet {

// The batches that rows of a lane are delivered to.
inline BatchRange BatchesOf(const BatchMap& batches, int64_t first_row, int64_t num_rows,
                            int64_t lane) {
  return {batches.Locate(first_row, lane).batch,
          batches.Locate(first_row + num_rows - 1, lane).batch + 1};
}
inline BatchRange BatchesOf(const BatchMap& batches, const Slice& slice) {
  return BatchesOf(batches, slice.share_row, slice.chunk.rows.num_rows, slice.lane);
}
inline BatchRange BatchesOf(const BatchMap& batches, const ChunkWindow& window) {
  const int64_t num_rows = window.window.end - window.window.begin;
  return BatchesOf(batches, window.share_row, num_rows, window.lane);
}

// Returns the walk, of those by lane, whose next slice or window begins in the first
// batch, or the first lane's if several do. Returns null when all have ended. Opening in
// this order means that the batch at the front never waits for a later one.
template <typename Walks>
auto* FirstWalk(const BatchMap& batches, Walks& walks) {
  decltype(&walks.front()) first = nullptr;
  int64_t first_batch = 0;
  for (auto& walk : walks) {
    if (!walk.next()) continue;
    const int64_t batch = BatchesOf(batches, *walk.next()).begin;
    if (first != nullptr && first_batch <= batch) continue;
    first = &walk;
    first_batch = batch;
  }
  return first;
}

}  // namespace torchparquet
