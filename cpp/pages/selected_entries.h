#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "files/row_selection.h"
#include "kernels/levels/selected.h"
#include "pages/level_blocks.h"

namespace torchparquet {

// Some rows of a block of entries, as if it held no others.
class SelectedEntries {
 public:
  // Takes selected rows from the front of `block`, whose first entry begins row `row`: at
  // most `max_rows`, and none that may go on after the block. Returns how many; 0 where
  // the rows are all selected, or none is, or they are few.
  int64_t Take(const LevelBlock& block, int max_definition, const RowSelection& selection,
               int64_t row, int64_t max_rows);

  // Their entries.
  LevelBlock block() const;
  // Of the values of all rows that were looked at, those of the rows taken.
  std::span<const kernels::BitWord> value_bits() const;
  int64_t num_values() const { return num_values_; }
  // Rows and entries that were looked at, up to the last row taken.
  int64_t num_rows() const { return num_rows_; }
  int64_t num_entries() const { return num_entries_; }
  // The row, counted from the first one, that was taken as number `index`.
  int64_t RowAt(int64_t index) const { return kernels::FindOne(row_bits_.data(), index); }

 private:
  static constexpr int64_t kMaxEntries = LevelBlocks::kMaxEntries;
  using Bits = std::array<kernels::BitWord, kernels::NumWords(kMaxEntries)>;

  void TakeLists(const LevelBlock& block, int max_definition);
  void TakeCells(const LevelBlock& block, int max_definition);

  Bits row_bits_;
  Bits value_bits_;
  std::array<uint8_t, kMaxEntries> repetition_;
  std::array<uint8_t, kMaxEntries> definition_;
  std::array<uint16_t, kMaxEntries + 1> row_begins_;
  bool has_repetition_ = false;
  bool has_definition_ = false;
  int64_t num_kept_ = 0;
  int64_t num_values_ = 0;
  int64_t num_rows_ = 0;
  int64_t num_entries_ = 0;
};

}  // namespace torchparquet
