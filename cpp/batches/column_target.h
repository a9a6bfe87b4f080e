#pragma once

#include <cstdint>
#include <span>

#include "batches/jagged.h"
#include "errors.h"

namespace torchparquet {

// Consecutive rows that belong to one batch, and where their values go.
struct Segment {
  uint8_t* values = nullptr;  // in a field of variable length: where its offsets go
  uint8_t* valid = nullptr;   // null where the field has no valid tensor
  int64_t num_rows = 0;
};

// What a null becomes. kFill also serves "nan" (a fill value) and "mask" (a fill
// value beside a valid tensor).
enum class NullPolicy { kError, kFill };

// For a null under kError; `row` is counted within its row group.
Error NullError(int64_t row);

// Where the rows of one column go. A cell is one row's value: an item of the output type,
// or `cell_items` of them.
struct ColumnTarget {
  std::span<const Segment> segments;
  int64_t stride = 1;  // from row to row in cells: 1, or a group's width
  int64_t item_bytes = 0;
  int64_t cell_items = 1;       // above 1 only for a stride of 1
  int64_t valid_items = 1;      // of a cell in the valid tensor; as cell_items
  bool has_item_valid = false;  // whether items of variable length have a mask
  // Whether values are stored past the cache, as those of a batch are, whose other
  // columns come before anybody reads it: that takes 10 % less CPU for a pass of bench/'s
  // click log, its consumer's included, and no more for batches of 1 MB.
  bool streaming = false;
  NullPolicy nulls = NullPolicy::kError;
  uint64_t fill_bits = 0;
};

// Hears of progress, segment by segment, on the decoding thread.
class DecodeProgress {
 public:
  virtual ~DecodeProgress() = default;
  // Memory for the next segment's items, where they are of variable length.
  virtual JaggedItems BeginItems() = 0;
  // The segment's items, before SegmentDone.
  virtual void EndItems(JaggedItems items) = 0;
  // All rows of the next segment are written. May throw to abandon the decoding.
  virtual void SegmentDone() = 0;
};

}  // namespace torchparquet
