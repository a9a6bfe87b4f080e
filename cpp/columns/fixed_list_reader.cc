#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/errors.h"
#include "columns/readers.h"
#include "columns/row_walk.h"
#include "kernels/streaming_stores.h"

namespace torchparquet {
namespace {

// Out is the bit pattern of an item.
template <typename Out>
class FixedListReader : public RowWalk {
 public:
  FixedListReader(const ColumnRequest& column, ColumnStart start,
                  ColumnBuffers buffers_to_use)
      : RowWalk(column, std::move(start), std::move(buffers_to_use)),
        length_(column.list_length),
        cell_items_(column.cell_items),
        values_(MakeRequestedValues<Out>(column, leaf(), buffers())) {}

 private:
  EntryValues& values() override { return *values_; }

  void WriteRows(const ColumnTarget& target, DecodeProgress* progress) override {
    if (target.item_bytes != sizeof(Out) || target.cell_items != length_ * cell_items_) {
      throw Error(ErrorKind::kInternal, "a field's cells do not have its column's size");
    }
    fails_on_null_ = target.nulls == NullPolicy::kError;
    streaming_ = target.streaming;
    fill_ = static_cast<Out>(target.fill_bits);
    for (const Segment& segment : target.segments) {
      // Fields are aligned to 64 bytes and hold items of this size.
      out_ = reinterpret_cast<Out*>(segment.values);
      valid_ = segment.valid;
      num_items_ = 0;
      num_rows_ = 0;
      TakeRows(segment.num_rows);
      CheckRowEnds(stored_row());
      if (streaming_) kernels::EndStreamingStores();
      progress->SegmentDone();
    }
  }

  void WriteEntries(const LevelBlock& block, int64_t row) override {
    block_values_ = 0;
    if (block.definition == nullptr) {
      WriteFullLists(block, row);
    } else {
      WriteLists(block, row);
    }
  }

  // Takes entries that are values.
  void WriteFullLists(const LevelBlock& block, int64_t row) {
    if (block.size == 0) return;
    if (block.repetition[0] != 0 && !in_list_) ThrowGoesOn();
    in_list_ = true;
    const int64_t first_item = num_items_;
    block.ForEachRow([&](int64_t i) {
      num_items_ = first_item + i;
      CheckRowEnds(row++);
      ++num_rows_;
    });
    num_items_ = first_item;
    WriteValues(block.size, row);
  }

  // A null in place of a list is a list of nulls.
  void WriteLists(const LevelBlock& block, int64_t row) {
    const int element_level = leaf().element_levels.front();
    const int max_level = leaf().max_level;
    int64_t num_pending = 0;  // consecutive values that are not read yet
    for (int64_t i = 0; i < block.size; ++i) {
      const int defined = block.definition[i];
      if (block.repetition[i] == 0) {
        CheckRowEnds(row++, num_pending);
        ++num_rows_;
      } else if (!in_list_ && FillsNull(defined, last_defined_, element_level)) {
        continue;
      } else if (!in_list_ || defined < element_level) {
        ThrowGoesOn();
      }
      in_list_ = defined >= element_level;
      last_defined_ = defined;
      if (defined == max_level) {
        ++num_pending;
        continue;
      }
      // The end of an empty list shows its length.
      if (defined == element_level - 1) continue;
      if (fails_on_null_) throw NullError(StoredRow(row - 1));
      WriteValues(num_pending, row);
      num_pending = 0;
      WriteNulls(defined >= element_level ? 1 : length_, row);
    }
    WriteValues(num_pending, row);
  }

  void WriteValues(int64_t num_values, int64_t next_row) {
    if (num_values == 0) return;
    const int64_t first_item = num_items_;
    Out* out = Take(num_values, next_row);
    ReadParts(block_values_, [&] {
      if (streaming_) {
        values_->reader().ReadStreaming(out, num_values);
      } else {
        values_->reader().Read(out, num_values);
      }
    });
    block_values_ += num_values;
    if (valid_ != nullptr) {
      std::memset(valid_ + first_item, 1, static_cast<size_t>(num_values));
    }
  }

  void WriteNulls(int64_t num_values, int64_t next_row) {
    const int64_t first_item = num_items_;
    std::fill_n(Take(num_values, next_row), num_values * cell_items_, fill_);
    if (valid_ != nullptr) {
      std::memset(valid_ + first_item, 0, static_cast<size_t>(num_values));
    }
  }

  // Room for the next values of rows before `next_row`.
  Out* Take(int64_t num_values, int64_t next_row) {
    if (num_values > num_rows_ * length_ - num_items_) {
      ThrowLength(next_row - 1, num_values, /*is_whole=*/false);
    }
    Out* out = out_ + num_items_ * cell_items_;
    num_items_ += num_values;
    return out;
  }

  // Throws unless the rows before `next_row` have all their values. Some of the values
  // may not be read yet.
  void CheckRowEnds(int64_t next_row, int64_t num_pending = 0) const {
    if (num_items_ + num_pending != num_rows_ * length_) {
      ThrowLength(next_row - 1, num_pending, /*is_whole=*/true);
    }
  }

  // `num_more` values of the row are not written. It may have more of them unless it is
  // whole.
  [[noreturn]] void ThrowLength(int64_t row, int64_t num_more, bool is_whole) const {
    const int64_t found = num_items_ + num_more - (num_rows_ - 1) * length_;
    const Error error(
        ErrorKind::kListLength,
        Text("list of ", found, is_whole ? "" : " or more",
             " is not of the length that Column(..., length=", length_,
             ") or the Arrow schema in the files says; length=\"any\" reads lists of any "
             "length; row ",
             StoredRow(row), " of its row group"));
    throw error.WithRow(StoredRow(row));
  }

  const int64_t length_;
  const int64_t cell_items_;  // of a value
  const std::unique_ptr<PageValues<Out>> values_;
  bool streaming_ = false;
  bool fails_on_null_ = false;
  Out fill_ = 0;
  bool in_list_ = false;      // the last entry is an element of a list
  int last_defined_ = 0;      // the definition level of that entry
  int64_t block_values_ = 0;  // of the block, so far
  // Of the current segment.
  Out* out_ = nullptr;
  uint8_t* valid_ = nullptr;  // one byte per value; null if no mask is wanted
  int64_t num_items_ = 0;     // values so far
  int64_t num_rows_ = 0;      // begun
};

}  // namespace

std::unique_ptr<ColumnReader> MakeFixedListReader(const ColumnRequest& column,
                                                  ColumnStart start,
                                                  ColumnBuffers buffers) {
  return MakeForItems<FixedListReader>(column, std::move(start), std::move(buffers));
}

}  // namespace torchparquet
