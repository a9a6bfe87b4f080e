#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

#include "errors.h"
#include "kernels/placement.h"
#include "scratch.h"
#include "value_reader.h"

namespace torchparquet {

// Consecutive rows that belong to one batch, and where their values go.
struct Segment {
  uint8_t* values = nullptr;
  uint8_t* valid = nullptr;  // null where the field has no valid tensor
  int64_t num_rows = 0;
};

// What a null becomes. kFill also serves "nan" (a fill value) and "mask" (a fill
// value beside a valid tensor).
enum class NullPolicy { kError, kFill };

// Where the rows of one column go. Strides count items of the output type, for values
// and valid bytes alike: 1, or a group's width.
struct ColumnTarget {
  std::span<const Segment> segments;
  int64_t stride = 1;
  NullPolicy nulls = NullPolicy::kError;
  uint64_t fill_bits = 0;
};

// Hears of progress, segment by segment, on the decoding thread.
class DecodeProgress {
 public:
  virtual ~DecodeProgress() = default;
  // All rows of the next segment are written. May throw to abandon the decoding.
  virtual void SegmentDone() = 0;
};

// Writes a column's rows into its segments, one after the other, whatever the borders
// of the pages that they come from. T is the bit pattern of the output type.
template <typename T>
class SegmentWriter {
 public:
  SegmentWriter(const ColumnTarget& target, DecodeScratch* scratch, DecodeProgress* progress)
      : target_(target),
        fill_(static_cast<T>(target.fill_bits)),
        scratch_(scratch),
        progress_(progress) {
    SkipFullSegments();
  }

  // Takes the next `num_rows` values of `reader`, none of them null.
  void WriteValid(ValueReader<T>& reader, int64_t num_rows) {
    while (num_rows > 0) {
      const int64_t count = std::min(num_rows, RowsInBlock());
      if (target_.stride == 1) {
        reader.Read(values(), count);
      } else {
        T* block = scratch_->block.ReserveItems<T>(kBlockRows);
        reader.Read(block, count);
        kernels::ScatterStrided(block, count, target_.stride, values());
      }
      if (valid() != nullptr) {
        kernels::FillStrided<uint8_t>(1, count, target_.stride, valid());
      }
      Advance(count);
      num_rows -= count;
    }
  }

  // Takes `num_rows` rows, those with a value from `reader`, the others null. There is
  // one byte per row in `validity`. Throws Error(kNullValue) for a null under kError,
  // naming its row as `first_row` plus its index.
  void WriteNullable(ValueReader<T>& reader, const uint8_t* validity, int64_t num_rows,
                     int64_t first_row) {
    while (num_rows > 0) {
      const int64_t count = std::min({num_rows, RowsInSegment(), kBlockRows});
      // Block by block, so that the rows of earlier segments are delivered whatever
      // page or slice they share with the null.
      if (target_.nulls == NullPolicy::kError) CheckNoNull(validity, count, first_row);
      T* dense = scratch_->dense.ReserveItems<T>(kBlockRows);
      reader.Read(dense, std::accumulate(validity, validity + count, int64_t{0}));
      PlaceNullable(dense, validity, count);
      validity += count;
      first_row += count;
      Advance(count);
      num_rows -= count;
    }
  }

 private:
  static constexpr int64_t kBlockRows = 2048;

  T* values() const {
    // Fields are aligned to 64 bytes and hold items of T's size.
    return reinterpret_cast<T*>(target_.segments[segment_].values) + row_ * target_.stride;
  }
  uint8_t* valid() const {
    uint8_t* valid = target_.segments[segment_].valid;
    return valid == nullptr ? nullptr : valid + row_ * target_.stride;
  }
  int64_t RowsInSegment() const {
    if (segment_ == target_.segments.size()) {
      throw Error(ErrorKind::kInternal, "more rows were decoded than were planned");
    }
    return target_.segments[segment_].num_rows - row_;
  }
  int64_t RowsInBlock() const {
    return target_.stride == 1 ? RowsInSegment() : std::min(RowsInSegment(), kBlockRows);
  }

  void PlaceNullable(const T* dense, const uint8_t* validity, int64_t count) {
    if (target_.stride == 1) {
      kernels::ExpandNulls(dense, validity, count, fill_, values());
    } else {
      T* block = scratch_->block.ReserveItems<T>(kBlockRows);
      kernels::ExpandNulls(dense, validity, count, fill_, block);
      kernels::ScatterStrided(block, count, target_.stride, values());
    }
    if (valid() != nullptr) kernels::ScatterStrided(validity, count, target_.stride, valid());
  }

  static void CheckNoNull(const uint8_t* validity, int64_t num_rows, int64_t first_row) {
    const void* null = std::memchr(validity, 0, static_cast<size_t>(num_rows));
    if (null == nullptr) return;
    const int64_t row = first_row + (static_cast<const uint8_t*>(null) - validity);
    throw Error(ErrorKind::kNullValue,
                "null value where nulls='error'; read the column with Column(..., nulls=VALUE) "
                "to fill, nulls='nan' for floats, or nulls='mask' for a mask; row " +
                    std::to_string(row) + " of its row group");
  }

  void Advance(int64_t num_rows) {
    row_ += num_rows;
    SkipFullSegments();
  }
  void SkipFullSegments() {
    while (segment_ < target_.segments.size() &&
           row_ == target_.segments[segment_].num_rows) {
      ++segment_;
      row_ = 0;
      progress_->SegmentDone();
    }
  }

  const ColumnTarget target_;
  const T fill_;
  DecodeScratch* scratch_;
  DecodeProgress* progress_;
  size_t segment_ = 0;
  int64_t row_ = 0;  // next row within the segment
};

}  // namespace torchparquet
