#pragma once

#include <cstdint>
#include <vector>

#include "batches/layout.h"
#include "reader/memory_plan.h"
#include "reader/plan/reader_spec.h"
#include "reader/plan/share.h"
#include "reader/schedule/task_stream.h"

namespace torchparquet {

// The decisions that follow from a reader's specification alone.

BatchMap MakeBatchMap(const ReaderSpec& spec);

// Throws Error(kInvalidArgument) when max_memory cannot hold what must be in flight.
MemoryPlan MakeMemoryPlan(const ReaderSpec& spec, const BatchLayout& layout,
                          const BatchMap& batches);

// How far chunks are cut for the threads, so that all have work up to the end. Not at all
// if a column could be read from its middle only by way of all that is before it.
WorkSplit MakeWorkSplit(const ReaderSpec& spec);

// The likely bytes of items per row, for each column of variable length.
std::vector<double> RowBytes(const ReaderSpec& spec);

// The bytes that items in flight may take: the rest after slabs and column readers.
int64_t MaxItemsBytes(const ReaderSpec& spec, const BatchLayout& layout,
                      const MemoryPlan& memory);

// The bytes that column readers may keep. Items of variable length take the other part
// of the rest.
int64_t MaxHeldBytes(const ReaderSpec& spec, const BatchLayout& layout,
                     const MemoryPlan& memory);

}  // namespace torchparquet
