#pragma once

#include <cstdint>

namespace torchparquet {

// The facts that decide how much memory a reader may hold. The caller sets all of them.
struct MemoryDemand {
  int64_t slab_bytes = 0;
  int64_t batch_rows = 0;      // capacity of a slab
  int64_t lane_rows = 0;       // of those that each share brings; 0: all
  int64_t max_chunk_rows = 0;  // of the largest chunk of the share
  int64_t num_batches = 0;     // of the whole share
  int64_t num_tasks = 0;       // per slice: columns, and row ids and the like
  int64_t num_threads = 1;
  int64_t max_memory_bytes = 0;
};

// The limits that keep the reader within its bound: at most `max_slabs` batches in
// flight, slices of at most `max_slice_rows` rows, and a limit on the memory that column
// readers keep between two slices. Columns of shuffle windows are staged before they go
// to batches: at most `max_columns` of them at once.
struct MemoryPlan {
  int64_t max_slabs = 0;
  int64_t max_slice_rows = 0;
  int64_t max_held_bytes = 0;
  int64_t max_columns = 0;
};

// Throws Error(kInvalidArgument) when the bound cannot hold two batches.
MemoryPlan PlanMemory(const MemoryDemand& demand);

// The same for shuffle windows, which are opened with all of their batches.
struct WindowDemand {
  int64_t slab_bytes = 0;
  int64_t batch_bytes = 0;        // a slab, the items and the places of its rows
  int64_t column_bytes = 0;       // of the largest column of the largest window, staged
  int64_t num_columns = 0;        // that keep all threads at work
  int64_t window_batches = 0;     // of the largest window
  int64_t in_flight_batches = 0;  // of the largest that follow each other
  int64_t max_memory_bytes = 0;
};

// Spends the bound on these in turn, as far as it goes: the batches of one window; two
// staged columns; as many more as keep all threads at work; the batches of further
// windows, which are decoded while the first is consumed; further columns. Throws
// Error(kInvalidArgument) if the batches of the largest window do not fit.
MemoryPlan PlanWindows(const WindowDemand& demand);

}  // namespace torchparquet
