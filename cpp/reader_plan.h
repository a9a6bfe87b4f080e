#pragma once

#include <cstdint>
#include <vector>

#include "layout.h"
#include "memory_plan.h"
#include "reader_spec.h"
#include "share.h"
#include "task_source.h"

namespace torchparquet {

// What follows from a reader's specification alone.

BatchMap MakeBatchMap(const ReaderSpec& spec);

// Throws Error(kInvalidArgument) when max_memory cannot hold what must be in flight.
MemoryPlan MakeMemoryPlan(const ReaderSpec& spec, const BatchLayout& layout,
                          const BatchMap& batches);

// The batches that a slice or a window delivers rows to.
BatchRange BatchesOf(const BatchMap& batches, const Slice& slice);
BatchRange BatchesOf(const BatchMap& batches, const ChunkWindow& window);

// The walk, of those by lane, whose next slice or window begins in the first batch, and
// of several the one of the first lane; null where all have ended. So what the batch at
// the front lacks is opened before all that comes behind it.
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

// Bits of a row in the slots of shuffle windows.
int RowBits(const BatchLayout& layout);

// What rows are likely to have of items, by field of variable length.
std::vector<double> RowBytes(const ReaderSpec& spec);

// What items in flight may take: what slabs and column readers leave.
int64_t MaxItemsBytes(const ReaderSpec& spec, const BatchLayout& layout,
                      const MemoryPlan& memory);

// What column readers may keep: with items of variable length, the share of the rest that
// is not for those.
int64_t MaxHeldBytes(const ReaderSpec& spec, const BatchLayout& layout,
                     const MemoryPlan& memory);

}  // namespace torchparquet
