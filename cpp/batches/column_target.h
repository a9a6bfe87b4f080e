#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/errors.h"
#include "batches/jagged.h"

namespace torchparquet {

// Consecutive rows of one batch, and where their values go.
struct Segment {
  uint8_t* values = nullptr;  // for a field of variable length, its offsets
  uint8_t* valid = nullptr;   // null if the field has no valid tensor
  int64_t num_rows = 0;
};

// The result of a null. kFill also serves "nan" (a fill value) and "mask" (a fill value
// and a valid tensor).
enum class NullPolicy { kError, kFill };

// The error for a null under kError. `row` is counted within its row group.
inline Error NullError(int64_t row) {
  return Error(ErrorKind::kNullValue, Text("null value, row ", row, " of its row group"))
      .WithRow(row);
}

// The place of one column's rows. A cell is one row's value: one item of the output type,
// or `cell_items` of them.
struct ColumnTarget {
  std::span<const Segment> segments;
  int64_t stride = 1;  // cells from row to row: 1, or a group's width
  int64_t item_bytes = 0;
  int64_t cell_items = 1;       // above 1 only for a stride of 1
  int64_t valid_items = 1;      // of a cell in the valid tensor
  bool has_item_valid = false;  // items of variable length have a mask
  // Values go to batches by streaming stores, since other columns are written before
  // anyone reads them. This takes 10 % less CPU for a pass over the click log of bench/,
  // including its consumer, and no more for batches of 1 MB.
  bool streaming = false;
  NullPolicy nulls = NullPolicy::kError;
  uint64_t fill_bits = 0;
};

// Is told of progress, segment by segment, on the decoding thread.
class DecodeProgress {
 public:
  virtual ~DecodeProgress() = default;
  // Returns memory for the items of the next segment, if they have variable length.
  virtual JaggedItems BeginItems() = 0;
  // Takes the items of the segment, before SegmentDone.
  virtual void EndItems(JaggedItems items) = 0;
  // All rows of the next segment are written. May throw to abandon the decoding.
  virtual void SegmentDone() = 0;
};

}  // namespace torchparquet
