#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "batches/layout.h"

namespace torchparquet {

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
