#pragma once

#include <cstdint>
#include <vector>

#include "batches/layout.h"
#include "reader/memory_plan.h"
#include "tasks/reader_spec.h"
#include "tasks/share.h"
#include "tasks/task_stream.h"

namespace torchparquet {

// What follows from a reader's specification alone.

BatchMap MakeBatchMap(const ReaderSpec& spec);

// Throws Error(kInvalidArgument) when max_memory cannot hold what must be in flight.
MemoryPlan MakeMemoryPlan(const ReaderSpec& spec, const BatchLayout& layout,
                          const BatchMap& batches);

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
