#include "batches/layout.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + BatchLayout::kFieldAlignment - 1) / BatchLayout::kFieldAlignment *
         BatchLayout::kFieldAlignment;
}

// Reserves an aligned array of rows x width x item_bytes at `*end` and moves `*end` past
// it.
int64_t Reserve(int64_t rows, int64_t width, int64_t item_bytes, int64_t* end) {
  constexpr int64_t kMaxSlabBytes = int64_t{1} << 46;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, width, &bytes) ||
      __builtin_mul_overflow(bytes, item_bytes, &bytes) || bytes > kMaxSlabBytes - *end) {
    throw InvalidArgument("a batch is too large to address: ", rows, " rows of width ",
                          width);
  }
  const int64_t offset = *end;
  *end = AlignUp(offset + bytes);
  return offset;
}

}  // namespace

BatchLayout MakeBatchLayout(const std::vector<FieldSpec>& fields, int64_t capacity_rows) {
  if (capacity_rows < 1) {
    throw InvalidArgument("a batch must have at least one row: ", capacity_rows);
  }
  BatchLayout layout;
  layout.capacity_rows = capacity_rows;
  for (const FieldSpec& field : fields) {
    const bool known_size = field.item_bytes == 1 || field.item_bytes == 2 ||
                            field.item_bytes == 4 || field.item_bytes == 8;
    if (!known_size || field.width < 1) {
      throw InvalidArgument(
          "a field needs items of 1, 2, 4 or 8 bytes and a width of at least 1: ",
          field.item_bytes, ", ", field.width);
    }
    if (field.cell_items < 1 || (field.cell_items > 1 && field.width > 1)) {
      throw InvalidArgument("only a field of width 1 can have cells of several items: ",
                            field.cell_items, ", width ", field.width);
    }
    FieldPlace place{field};
    if (field.num_offsets > 0) {
      if (field.item_bytes != sizeof(int64_t) || field.cell_items != 1 ||
          (field.width != 1 && !field.is_keyed)) {
        throw InvalidArgument(
            "a field of variable length has one offset of 8 bytes for each row");
      }
      if (field.is_keyed && (field.num_offsets > 1 || field.has_valid)) {
        throw InvalidArgument(
            "a keyed field has one level of offsets and no valid tensor");
      }
      place.jagged_index = static_cast<int64_t>(layout.jagged_fields.size());
      place.first_jagged = layout.num_jagged;
      place.column_bytes = (capacity_rows + 1) * field.item_bytes;
      layout.jagged_fields.push_back(static_cast<int64_t>(layout.fields.size()));
      layout.num_jagged += field.width;
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

BatchMap BatchMap::Lanes(std::vector<int64_t> lane_rows, int64_t batch_rows) {
  const int64_t num_lanes = std::ssize(lane_rows);
  if (batch_rows < 1 || batch_rows % num_lanes != 0) {
    throw InvalidArgument("each lane must give as many rows to a batch: ", batch_rows,
                          " rows, ", num_lanes, " lanes");
  }
  BatchMap map;
  map.step_rows_ = batch_rows / num_lanes;
  for (const int64_t rows : lane_rows) {
    if (rows < 0) throw InvalidArgument("a lane must have at least 0 rows: ", rows);
    map.num_rows_ += rows;
    map.max_batch_rows_ += std::min(rows, map.step_rows_);
    map.num_batches_ =
        std::max(map.num_batches_, rows / map.step_rows_ + (rows % map.step_rows_ != 0));
  }
  map.lane_rows_ = std::move(lane_rows);
  return map;
}

BatchMap BatchMap::PerChunk(const std::vector<int64_t>& chunk_rows) {
  int64_t num_batches = 0;
  int64_t num_rows = 0;
  int64_t most = 0;
  for (const int64_t rows : chunk_rows) {
    if (rows < 0) throw InvalidArgument("a chunk must have at least 0 rows: ", rows);
    num_batches += rows > 0;
    num_rows += rows;
    most = std::max(most, rows);
  }
  BatchMap map = Growing(num_batches, most);
  map.num_rows_ = num_rows;
  for (const int64_t rows : chunk_rows) map.Append(rows);
  return map;
}

BatchMap BatchMap::Growing(int64_t max_batches, int64_t max_batch_rows) {
  BatchMap map;
  map.num_batches_ = max_batches;
  map.max_batch_rows_ = max_batch_rows;
  map.begins_ = std::vector<std::atomic<int64_t>>(static_cast<size_t>(max_batches) + 1);
  for (auto& begin : map.begins_) begin = std::numeric_limits<int64_t>::max();
  map.begins_[map.num_begins_++] = 0;
  return map;
}

void BatchMap::Append(int64_t num_rows) {
  if (num_rows == 0 || step_rows_ > 0) return;
  begins_[num_begins_] = begins_[num_begins_ - 1] + num_rows;
  ++num_begins_;
}

BatchPlace BatchMap::Locate(int64_t row, int64_t lane) const {
  if (step_rows_ > 0) {
    BatchPlace place{row / step_rows_, row % step_rows_};
    for (int64_t before = 0; before < lane; ++before) {
      const int64_t left =
          lane_rows_[static_cast<size_t>(before)] - place.batch * step_rows_;
      place.row += std::clamp<int64_t>(left, 0, step_rows_);
    }
    return place;
  }
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), row);
  const int64_t batch = next - begins_.begin() - 1;
  return {batch, row - begins_[static_cast<size_t>(batch)]};
}

std::vector<BatchRun> BatchMap::Cut(int64_t row, int64_t num_rows, int64_t lane) const {
  std::vector<BatchRun> runs;
  while (num_rows > 0) {
    const BatchPlace place = Locate(row, lane);
    const int64_t room = step_rows_ > 0 ? step_rows_ - row % step_rows_
                                        : BatchRows(place.batch) - place.row;
    const int64_t count = std::min(num_rows, room);
    runs.push_back({place.batch, place.row, count});
    row += count;
    num_rows -= count;
  }
  return runs;
}

int64_t BatchMap::BatchBegin(int64_t batch) const {
  if (step_rows_ == 0) return begins_[static_cast<size_t>(batch)];
  int64_t begin = 0;
  for (const int64_t rows : lane_rows_) begin += std::min(batch * step_rows_, rows);
  return begin;
}

}  // namespace torchparquet
