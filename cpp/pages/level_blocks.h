#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/count_bytes.h"
#include "kernels/levels/level_reader.h"

namespace torchparquet {

// Consecutive entries of a page. An entry is a value, a null or an empty list.
struct LevelBlock {
  const uint8_t* repetition = nullptr;  // null: each entry is a row
  const uint8_t* definition = nullptr;  // null: each entry is a value
  int64_t size = 0;

  LevelBlock First(int64_t num_entries) const {
    return {repetition, definition, num_entries};
  }
  // The number of entries that begin a row.
  int64_t NumRows() const;
  // The index of the entry that begins row number `row` of the block, counted from 0. The
  // block must have that many.
  int64_t RowBegin(int64_t row) const;

  // Calls on_row(entry) for each entry that begins a row, in order. Looks at 64 entries
  // at once, since branch prediction cannot foresee which entries begin rows.
  template <typename OnRow>
  void ForEachRow(OnRow on_row) const {
    constexpr int64_t kEntries = 64;
    int64_t i = 0;
    for (; i + kEntries <= size; i += kEntries) {
      uint64_t rows = kernels::EqualBytes(repetition + i, 0);
      for (; rows != 0; rows &= rows - 1) on_row(i + std::countr_zero(rows));
    }
    for (; i < size; ++i) {
      if (repetition[i] == 0) on_row(i);
    }
  }
};

// The levels of a page.
struct PageLevels {
  int max_repetition = 0;
  int max_definition = 0;
  std::span<const uint8_t> repetition = {};  // in the RLE/bit-packing hybrid
  std::span<const uint8_t> definition = {};
  int64_t num_entries = 0;

  // Rows that begin in the page, where there are repetition levels.
  int64_t NumRows() const;
  // True if the first entry continues a row.
  bool begins_in_row() const;
};

// The levels of one page after another, as blocks of bytes that stay in the L1 cache.
// Definition levels are not read if a run says that every entry is a value.
class LevelBlocks {
 public:
  LevelBlocks() = default;  // of no page
  // Begins a page. Its levels must stay valid.
  void Open(const PageLevels& page);

  // Returns some or all of the next entries, valid until Take; an empty block at the end
  // of the page. Throws Error(kCorruptFile) if the page has fewer levels than entries.
  LevelBlock Peek();
  // Skips the first entries that Peek returned.
  void Take(int64_t num_entries);

  // Of a block with levels.
  static constexpr int64_t kMaxEntries = 2048;

 private:
  void ReadBlock();

  int max_repetition_ = 0;
  int max_definition_ = 0;
  kernels::LevelReader repetition_reader_;
  kernels::LevelReader definition_reader_;
  int64_t num_left_ = 0;  // in the page, after the block
  std::array<uint8_t, kMaxEntries> repetition_;
  std::array<uint8_t, kMaxEntries> definition_;
  bool all_values_ = false;
  int64_t position_ = 0;  // within the block
  int64_t size_ = 0;
};

}  // namespace torchparquet
