#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "batches/layout.h"

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

// Kept by the ring, the queue and the pool of a batch in flight, beside its slab. It is
// more than the slab if a batch has a few rows of a few columns.
constexpr int64_t kBookkeepingBytes = 256;

// Memory of shuffle windows. A row of a window stands in a batch. Beside that it has a
// place, and the columns that are being put in order are staged.

// Columns of a window that are staged at once however small the bound is, so that a
// thread that ends one leaves another for the rest.
constexpr int64_t kLeastStagedColumns = 2;

// Bytes of a row where one column of the field is staged; of items of variable length
// those that are likely. Nothing for cells that go straight to their batches, as those of
// windows without an order may.
std::optional<double> StagedRowBytes(const FieldSpec& field, bool has_order = false);

// Bytes of so many rows in a batch, without items of variable length. Each tensor is
// aligned.
double TensorBytes(const std::vector<FieldSpec>& fields, int64_t num_rows);

// Bytes of max_memory for each row of a window that goes to batches of `batch_rows` rows,
// where the least columns are staged. Rows are counted with the batches that the window
// touches.
double WindowRowBytes(const std::vector<FieldSpec>& fields, int64_t batch_rows,
                      bool has_orders = false);

}  // namespace torchparquet
