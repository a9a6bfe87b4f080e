#pragma once

#include <cstdint>

#include "batches/layout.h"
#include "reader/plan/share.h"
#include "reader/schedule/task_stream.h"

namespace torchparquet {

// The batches that a slice or a window delivers rows to.
BatchRange BatchesOf(const BatchMap& batches, const Slice& slice);
BatchRange BatchesOf(const BatchMap& batches, const ChunkWindow& window);

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
