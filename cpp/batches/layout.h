#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace torchparquet {

// One output tensor of a batch: [B], [B, width] for a group of columns, or [B,
// cell_items] if each value is an array of items. A field of variable length has the
// offsets of its rows here, [B + 1] of int64; JaggedItems has the rest. A keyed field has
// those of each of its columns in turn, [width, B + 1]. Once its batch is complete the
// lengths of all rows stand in their place, [width, B] of int32.
struct FieldSpec {
  int64_t item_bytes = 0;       // 1, 2, 4 or 8
  int64_t width = 1;            // cells of a row
  int64_t cell_items = 1;       // above 1 only for a width of 1
  bool has_valid = false;       // adds a bool tensor of one item per cell
  int64_t valid_items = 1;      // of that tensor per cell; above 1 if items are masked
  int64_t num_offsets = 0;      // levels of offsets; above 0: variable length
  bool has_item_valid = false;  // adds a bool tensor of one item per value
  double row_bytes = 0;         // likely bytes of a row's items, of all columns
  bool is_keyed = false;        // `width` columns of variable length, one after the other
  int64_t weighs = -1;          // of a keyed field: the field whose lengths it has too

  // Likely bytes of a row's items, of one column.
  double column_row_bytes() const { return row_bytes / static_cast<double>(width); }
  // The columns of variable length.
  int64_t num_jagged() const { return num_offsets > 0 ? width : 0; }
};

// A field with its place in a slab, in bytes from the slab's start.
struct FieldPlace : FieldSpec {
  int64_t values_offset = 0;
  int64_t valid_offset = -1;  // -1: the field has no valid tensor
  int64_t jagged_index = -1;  // among the fields of variable length; -1: not one
  int64_t first_jagged = -1;  // of its columns among all columns of variable length
  int64_t column_bytes = 0;   // from the offsets of one such column to those of the next

  // The place, in bytes, of a row of one of the field's columns.
  int64_t OffsetOf(int64_t row, int64_t element) const {
    if (num_offsets > 0) return values_offset + element * column_bytes + row * item_bytes;
    return values_offset + (row * width + element) * cell_items * item_bytes;
  }
};

// The layout of every slab of one reader: field after field in the given order, each
// with room for `capacity_rows` rows and aligned to kFieldAlignment.
struct BatchLayout {
  static constexpr int64_t kFieldAlignment = 64;

  int64_t capacity_rows = 0;
  int64_t slab_bytes = 0;
  std::vector<FieldPlace> fields;
  std::vector<int64_t> jagged_fields;  // numbers of the fields of variable length
  int64_t num_jagged = 0;              // their columns
};

// Throws Error(kInvalidArgument) for a capacity below 1, an impossible item size or
// width, or a slab beyond the address space.
BatchLayout MakeBatchLayout(const std::vector<FieldSpec>& fields, int64_t capacity_rows);

// A place in the stream of batches.
struct BatchPlace {
  int64_t batch = 0;
  int64_t row = 0;  // within the batch
};

// Consecutive rows of a share within one batch.
struct BatchRun {
  int64_t batch = 0;
  int64_t first_row = 0;  // within the batch
  int64_t num_rows = 0;
};

// Maps the rows of a share to batches: consecutive batches of a fixed size, or one batch
// per run of rows. With several shares, the lanes, each lane gives as many rows to every
// batch of a fixed size, side by side, while it has any. Threads may share it while it
// grows.
class BatchMap {
 public:
  // Throws Error(kInvalidArgument) for negative rows, and unless `batch_rows` is a
  // multiple of the number of lanes.
  static BatchMap Lanes(std::vector<int64_t> lane_rows, int64_t batch_rows);
  // One batch per entry, empty entries excepted.
  static BatchMap PerChunk(const std::vector<int64_t>& chunk_rows);
  // One batch per run of rows that is still to be appended: at most so many runs, of at
  // most so many rows each.
  static BatchMap Growing(int64_t max_batches, int64_t max_batch_rows);
  // Appends a batch of so many rows, where batches have no fixed size.
  void Append(int64_t num_rows);

  // Of one that grows, `num_batches` is the most that it may have, and `num_rows` is 0.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_batches() const { return num_batches_; }
  int64_t max_batch_rows() const { return max_batch_rows_; }

  // `row` counts the rows of the share or, with several, of the lane.
  BatchPlace Locate(int64_t row, int64_t lane = 0) const;
  // Cuts consecutive rows at the borders of batches.
  std::vector<BatchRun> Cut(int64_t row, int64_t num_rows, int64_t lane = 0) const;
  int64_t BatchBegin(int64_t batch) const;
  int64_t BatchRows(int64_t batch) const {
    return BatchBegin(batch + 1) - BatchBegin(batch);
  }

 private:
  BatchMap() = default;

  int64_t num_rows_ = 0;
  int64_t num_batches_ = 0;
  int64_t max_batch_rows_ = 0;
  int64_t step_rows_ = 0;           // of each lane in a batch; 0: see `begins_`
  std::vector<int64_t> lane_rows_;  // all rows of each lane
  // num_batches + 1 entries; the greatest number where nothing was appended yet.
  std::vector<std::atomic<int64_t>> begins_;
  size_t num_begins_ = 0;  // for who appends
};

}  // namespace torchparquet
