#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/errors.h"
#include "batches/column_target.h"
#include "columns/values/value_reader.h"
#include "files/row_selection.h"
#include "kernels/levels/level_reader.h"
#include "kernels/streaming_stores.h"
#include "kernels/values/expand.h"
#include "pages/decode_scratch.h"

namespace torchparquet {

// Writes a column's rows into its segments, one after another, across the borders of
// pages. T is the bit pattern of the output type.
template <typename T>
class SegmentWriter {
 public:
  // Messages name rows as they are stored: rows of `selection` are counted without
  // others.
  SegmentWriter(const ColumnTarget& target, DecodeScratch* scratch,
                DecodeProgress* progress, const RowSelection* selection = nullptr)
      : target_(target),
        fill_(static_cast<T>(target.fill_bits)),
        expand_(kernels::ChooseExpand<T>(target.streaming && target.stride == 1
                                             ? kernels::Stores::kStreaming
                                             : kernels::Stores::kCached)),
        scratch_(scratch),
        progress_(progress),
        selection_(selection) {
    SkipFullSegments();
  }

  // Writes the next `num_rows` values of `reader`, without nulls. Here and below, an
  // error about a value counts it as a row.
  void WriteValid(ValueReader<T>& reader, int64_t num_rows) {
    WriteAll(reader, num_rows, /*validity=*/1);
  }

  // Writes the same item to all cells, or nulls if `bits` is empty. For nulls under
  // kError, throws Error(kNullValue) that names `first_row`.
  void WriteConstant(std::optional<uint64_t> bits, int64_t num_rows, int64_t first_row) {
    if (!bits && target_.nulls == NullPolicy::kError) {
      throw NullError(selection_ == nullptr ? first_row : selection_->RowAt(first_row));
    }
    Constant constant(static_cast<T>(bits.value_or(target_.fill_bits)),
                      target_.cell_items);
    WriteAll(constant, num_rows, /*validity=*/bits.has_value());
  }

 private:
  class Constant : public ValueReader<T> {
   public:
    Constant(T item, int64_t cell_items) : item_(item), cell_items_(cell_items) {}
    void Read(T* out, int64_t num_values) override {
      std::fill_n(out, num_values * cell_items_, item_);
    }
    void Skip(int64_t) override {}

   private:
    const T item_;
    const int64_t cell_items_;
  };

  void WriteAll(ValueReader<T>& reader, int64_t num_rows, uint8_t validity) {
    int64_t done = 0;
    ReadParts(done, [&] {
      while (done < num_rows) {
        const int64_t count = std::min(num_rows - done, RowsInBlock());
        WriteRowsOfBlock(reader, count);
        if (valid() != nullptr) {
          kernels::FillStrided<uint8_t>(validity, count * target_.valid_items,
                                        target_.stride, valid());
        }
        done += count;
        Advance(count);
      }
    });
  }

  void WriteRowsOfBlock(ValueReader<T>& reader, int64_t num_rows) {
    if (target_.stride == 1 && target_.streaming) {
      reader.ReadStreaming(values(), num_rows);
    } else if (target_.stride == 1) {
      reader.Read(values(), num_rows);
    } else {
      T* block = scratch_->block.ReserveItems<T>(kBlockRows);
      reader.Read(block, num_rows);
      kernels::ScatterStrided(block, num_rows, target_.stride, values());
    }
  }

 public:
  // Writes the next `num_rows` rows of `validity`: valid rows from `reader`, the others
  // as null. For a null under kError, throws Error(kNullValue) that names its row as
  // `first_row` plus its index, after the rows of earlier segments are delivered.
  void WriteNullable(ValueReader<T>& reader, kernels::LevelReader& validity,
                     int64_t num_rows, int64_t first_row) {
    int64_t done = 0;
    ReadParts(done, [&] {
      while (done < num_rows) {
        const int64_t left = num_rows - done;
        // A long run without nulls goes straight to its place; a shorter one is not
        // worth it.
        const int64_t run_rows = std::min(left, validity.ValidRun());
        int64_t count = run_rows;
        if (run_rows >= std::min(left, kMinRunRows)) {
          validity.Skip(run_rows);
          WriteValid(reader, run_rows);
        } else {
          count = std::min({left, RowsInSegment(), BlockRows()});
          WriteBlock(reader, validity, count, first_row + done);
        }
        done += count;
      }
    });
  }

 private:
  static constexpr int64_t kBlockRows = 2048;
  static constexpr int64_t kMinRunRows = 256;

  T* values() const {
    // Fields are aligned to 64 bytes and hold items of T's size.
    return reinterpret_cast<T*>(target_.segments[segment_].values) +
           row_ * target_.stride * target_.cell_items;
  }
  uint8_t* valid() const {
    uint8_t* valid = target_.segments[segment_].valid;
    return valid == nullptr ? nullptr
                            : valid + row_ * target_.stride * target_.valid_items;
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

  // Rows of a block that values pass through.
  int64_t BlockRows() const {
    return std::max<int64_t>(1, kBlockRows / target_.cell_items);
  }

  // Rows of one segment, at most BlockRows().
  void WriteBlock(ValueReader<T>& reader, kernels::LevelReader& validity,
                  int64_t num_rows, int64_t first_row) {
    uint8_t* bytes = scratch_->validity.Reserve(kBlockRows);
    const int64_t num_valid = validity.ReadValidity(num_rows, bytes);
    if (num_valid == num_rows) {
      WriteValid(reader, num_rows);
      return;
    }
    if (target_.nulls == NullPolicy::kError) {
      const int64_t row = first_row + (std::find(bytes, bytes + num_rows, 0) - bytes);
      throw NullError(selection_ == nullptr ? row : selection_->RowAt(row));
    }
    T* dense = scratch_->dense.ReserveItems<T>(std::max(kBlockRows, target_.cell_items) +
                                               kernels::kExpandReadableItems<T>);
    try {
      reader.Read(dense, num_valid);
    } catch (const Error& error) {
      if (error.value() < 0) throw;
      throw error.WithValue(RowOfValue(bytes, error.value()));
    }
    PlaceNullable(dense, bytes, num_rows);
    Advance(num_rows);
  }

  // The valid row that has so many valid ones before it.
  static int64_t RowOfValue(const uint8_t* validity, int64_t value) {
    int64_t row = 0;
    while (!validity[row] || value-- > 0) ++row;
    return row;
  }

  void PlaceNullable(const T* dense, const uint8_t* validity, int64_t count) {
    if (target_.cell_items > 1) {
      kernels::ExpandCells(dense, validity, count, target_.cell_items, fill_, values());
    } else if (target_.stride == 1) {
      expand_(dense, validity, count, fill_, values());
    } else {
      T* block = scratch_->block.ReserveItems<T>(kBlockRows);
      expand_(dense, validity, count, fill_, block);
      kernels::ScatterStrided(block, count, target_.stride, values());
    }
    if (valid() != nullptr)
      kernels::ScatterStrided(validity, count, target_.stride, valid());
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
      if (target_.streaming) kernels::EndStreamingStores();
      progress_->SegmentDone();
    }
  }

  const ColumnTarget target_;
  const T fill_;
  const kernels::ExpandFunction<T> expand_;
  DecodeScratch* scratch_;
  DecodeProgress* progress_;
  const RowSelection* selection_;  // null for all rows
  size_t segment_ = 0;
  int64_t row_ = 0;  // next row within the segment
};

}  // namespace torchparquet
