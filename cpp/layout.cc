#include "layout.h"

#include <algorithm>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + BatchLayout::kFieldAlignment - 1) / BatchLayout::kFieldAlignment *
         BatchLayout::kFieldAlignment;
}

// Reserves an aligned array of rows x width x item_bytes at `*end`, which moves on.
int64_t Reserve(int64_t rows, int64_t width, int64_t item_bytes, int64_t* end) {
  constexpr int64_t kMaxSlabBytes = int64_t{1} << 46;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, width, &bytes) ||
      __builtin_mul_overflow(bytes, item_bytes, &bytes) || bytes > kMaxSlabBytes - *end) {
    throw Error(ErrorKind::kInvalidArgument,
                "a batch is too large to address: " + std::to_string(rows) +
                    " rows of width " + std::to_string(width));
  }
  const int64_t offset = *end;
  *end = AlignUp(offset + bytes);
  return offset;
}

}  // namespace

BatchLayout MakeBatchLayout(const std::vector<FieldSpec>& fields, int64_t capacity_rows) {
  if (capacity_rows < 1) {
    throw Error(ErrorKind::kInvalidArgument,
                "a batch must have at least one row: " + std::to_string(capacity_rows));
  }
  BatchLayout layout;
  layout.capacity_rows = capacity_rows;
  for (const FieldSpec& field : fields) {
    const bool known_size = field.item_bytes == 1 || field.item_bytes == 2 ||
                            field.item_bytes == 4 || field.item_bytes == 8;
    if (!known_size || field.width < 1) {
      throw Error(
          ErrorKind::kInvalidArgument,
          "a field needs items of 1, 2, 4 or 8 bytes and a width of at least 1: " +
              std::to_string(field.item_bytes) + ", " + std::to_string(field.width));
    }
    if (field.cell_items < 1 || (field.cell_items > 1 && field.width > 1)) {
      throw Error(ErrorKind::kInvalidArgument,
                  "only a field of width 1 can have cells of several items: " +
                      std::to_string(field.cell_items) + ", width " +
                      std::to_string(field.width));
    }
    FieldPlace place{.item_bytes = field.item_bytes,
                     .width = field.width,
                     .cell_items = field.cell_items,
                     .valid_items = field.valid_items,
                     .num_offsets = field.num_offsets};
    if (field.num_offsets > 0) {
      if (field.item_bytes != sizeof(int64_t) || field.width * field.cell_items != 1) {
        throw Error(ErrorKind::kInvalidArgument,
                    "a field of variable length has one offset of 8 bytes for each row");
      }
      place.jagged_index = static_cast<int64_t>(layout.jagged_fields.size());
      layout.jagged_fields.push_back(static_cast<int64_t>(layout.fields.size()));
    }
    // There is one offset more than rows.
    place.values_offset =
        Reserve(capacity_rows + (field.num_offsets > 0), field.width * field.cell_items,
                field.item_bytes, &layout.slab_bytes);
    if (field.has_valid) {
      place.valid_offset =
          Reserve(capacity_rows, field.width * field.valid_items, 1, &layout.slab_bytes);
    }
    layout.fields.push_back(place);
  }
  return layout;
}

BatchMap BatchMap::FixedSize(int64_t num_rows, int64_t batch_rows) {
  if (num_rows < 0 || batch_rows < 1) {
    throw Error(ErrorKind::kInvalidArgument,
                "a batch map needs num_rows >= 0 and batch_rows >= 1: " +
                    std::to_string(num_rows) + ", " + std::to_string(batch_rows));
  }
  BatchMap map;
  map.num_rows_ = num_rows;
  map.batch_rows_ = batch_rows;
  map.num_batches_ = num_rows / batch_rows + (num_rows % batch_rows != 0);
  map.max_batch_rows_ = std::min(num_rows, batch_rows);
  return map;
}

BatchMap BatchMap::PerChunk(const std::vector<int64_t>& chunk_rows) {
  BatchMap map;
  map.begins_.push_back(0);
  for (const int64_t rows : chunk_rows) {
    if (rows < 0) {
      throw Error(ErrorKind::kInvalidArgument,
                  "a chunk must have at least 0 rows: " + std::to_string(rows));
    }
    if (rows == 0) continue;
    map.begins_.push_back(map.begins_.back() + rows);
    map.max_batch_rows_ = std::max(map.max_batch_rows_, rows);
  }
  map.num_rows_ = map.begins_.back();
  map.num_batches_ = static_cast<int64_t>(map.begins_.size()) - 1;
  return map;
}

BatchPlace BatchMap::Locate(int64_t row) const {
  if (batch_rows_ > 0) return {row / batch_rows_, row % batch_rows_};
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), row);
  const int64_t batch = next - begins_.begin() - 1;
  return {batch, row - begins_[static_cast<size_t>(batch)]};
}

std::vector<BatchRun> BatchMap::Cut(int64_t row, int64_t num_rows) const {
  std::vector<BatchRun> runs;
  while (num_rows > 0) {
    const BatchPlace place = Locate(row);
    const int64_t count = std::min(num_rows, BatchRows(place.batch) - place.row);
    runs.push_back({place.batch, place.row, count});
    row += count;
    num_rows -= count;
  }
  return runs;
}

int64_t BatchMap::BatchBegin(int64_t batch) const {
  if (batch_rows_ > 0) return std::min(batch * batch_rows_, num_rows_);
  return begins_[static_cast<size_t>(batch)];
}

}  // namespace torchparquet
