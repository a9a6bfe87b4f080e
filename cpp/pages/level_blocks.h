#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "kernels/count_bytes.h"
#include "kernels/levels/level_reader.h"

namespace torchparquet {

// Consecutive entries of a page: values, or what stands for a null or an empty list.
struct LevelBlock {
  const uint8_t* repetition = nullptr;  // null: each entry is a row
  const uint8_t* definition = nullptr;  // null: each entry is a value
  int64_t size = 0;

  LevelBlock First(int64_t num_entries) const {
    return {repetition, definition, num_entries};
  }
  // How many entries begin a row.
  int64_t NumRows() const;
  // The index of the entry that begins row number `row` of the block's, counted from 0;
  // there must be that many.
  int64_t RowBegin(int64_t row) const;

  // Calls on_row(entry) for each entry that begins a row, in order. Of 64 entries at
  // once, since how many of them begin one is not foreseen.
  template <typename OnRow>
  void ForEachRow(OnRow on_row) const {
    constexpr int64_t kEntries = 64;
    int64_t i = 0;
    for (; i + kEntries <= size; i += kEntries) {
      uint64_t rows = kernels::ZeroBytes(repetition + i);
      for (; rows != 0; rows &= rows - 1) on_row(i + std::countr_zero(rows));
    }
    for (; i < size; ++i) {
      if (repetition[i] == 0) on_row(i);
    }
  }
};

// What a page's levels are read by.
struct PageLevels {
  int max_repetition = 0;
  int max_definition = 0;
  std::span<const uint8_t> repetition = {};  // in the hybrid encoding
  std::span<const uint8_t> definition = {};
  int64_t num_entries = 0;
};

// The levels of one page after the other, as blocks of bytes that stay in the L1 cache.
// Definition levels are not read where a run says that every entry is a value.
class LevelBlocks {
 public:
  LevelBlocks() = default;  // of no page
  // Begins with a page, whose levels must stay valid.
  void Open(const PageLevels& page);

  // The next entries, some or all of them, until Take; empty at the page's end. Throws
  // Error(kCorruptFile) where the page has fewer levels than entries.
  LevelBlock Peek();
  // Passes over the first entries of what Peek returned.
  void Take(int64_t num_entries);

 private:
  static constexpr int64_t kMaxEntries = 2048;

  void ReadBlock();

  int max_repetition_ = 0;
  int max_definition_ = 0;
  kernels::LevelReader repetition_reader_;
  kernels::LevelReader definition_reader_;
  int64_t num_left_ = 0;  // in the page, behind the block
  std::array<uint8_t, kMaxEntries> repetition_;
  std::array<uint8_t, kMaxEntries> definition_;
  bool all_values_ = false;
  int64_t position_ = 0;  // within the block
  int64_t size_ = 0;
};

}  // namespace torchparquet
