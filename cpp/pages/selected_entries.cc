#include "pages/selected_entries.h"

#include <algorithm>

namespace torchparquet {

using kernels::BitWord;
using kernels::kWordBits;

int64_t SelectedEntries::Take(const LevelBlock& block, int max_definition,
                              const RowSelection& selection, int64_t row,
                              int64_t max_rows) {
  constexpr int64_t kLeastRows = 4;
  has_repetition_ = block.repetition != nullptr;
  has_definition_ = block.definition != nullptr;
  num_rows_ = std::min(block.size, kMaxEntries);
  if (has_repetition_) {
    if (block.size == 0 || block.size > kMaxEntries || block.repetition[0] != 0) return 0;
    int64_t num_begun = 0;
    block.ForEachRow([&](int64_t entry) {
      row_begins_[static_cast<size_t>(num_begun++)] = static_cast<uint16_t>(entry);
    });
    num_rows_ = num_begun - 1;
  }
  if (num_rows_ < kLeastRows) return 0;
  selection.CopyBits(row, row + num_rows_, row_bits_.data());
  int64_t num_taken = kernels::CountOnes(row_bits_.data(), 0, num_rows_);
  if (num_taken == 0 || num_taken == num_rows_) return 0;
  num_taken = std::min(num_taken, max_rows);
  num_rows_ = kernels::EndOfOnes(row_bits_.data(), 0, num_rows_, num_taken);
  if (has_repetition_) {
    TakeLists(block, max_definition);
  } else {
    TakeCells(block, max_definition);
  }
  return num_taken;
}

// Each entry is a row.
void SelectedEntries::TakeCells(const LevelBlock& block, int max_definition) {
  num_entries_ = num_rows_;
  num_kept_ = 0;
  if (!has_definition_) {
    num_kept_ = kernels::CountOnes(row_bits_.data(), 0, num_rows_);
    num_values_ = num_rows_;
    std::ranges::copy(row_bits_, value_bits_.begin());
    return;
  }
  value_bits_.fill(0);
  num_values_ = 0;
  for (int64_t i = 0; i < num_rows_; ++i) {
    const auto word = static_cast<size_t>(i / kWordBits);
    const BitWord is_taken = row_bits_[word] >> (i % kWordBits) & 1;
    const BitWord is_value = block.definition[i] == max_definition;
    definition_[static_cast<size_t>(num_kept_)] = block.definition[i];
    num_kept_ += static_cast<int64_t>(is_taken);
    value_bits_[static_cast<size_t>(num_values_ / kWordBits)] |=
        (is_taken & is_value) << (num_values_ % kWordBits);
    num_values_ += static_cast<int64_t>(is_value);
  }
}

void SelectedEntries::TakeLists(const LevelBlock& block, int max_definition) {
  num_entries_ = row_begins_[static_cast<size_t>(num_rows_)];
  num_kept_ = 0;
  num_values_ = has_definition_ ? 0 : num_entries_;
  value_bits_.fill(0);
  int64_t next = 0;  // entry whose values are not counted yet
  kernels::ForOnes(row_bits_.data(), 0, num_rows_, [&](int64_t row) {
    const int64_t begin = row_begins_[static_cast<size_t>(row)];
    const int64_t end = row_begins_[static_cast<size_t>(row) + 1];
    const auto kept = static_cast<size_t>(num_kept_);
    std::copy(block.repetition + begin, block.repetition + end, &repetition_[kept]);
    num_kept_ += end - begin;
    if (!has_definition_) return kernels::SetBits(begin, end, value_bits_.data());
    std::copy(block.definition + begin, block.definition + end, &definition_[kept]);
    for (; next < begin; ++next) num_values_ += block.definition[next] == max_definition;
    const int64_t first_value = num_values_;
    for (; next < end; ++next) num_values_ += block.definition[next] == max_definition;
    kernels::SetBits(first_value, num_values_, value_bits_.data());
  });
}

LevelBlock SelectedEntries::block() const {
  return {.repetition = has_repetition_ ? repetition_.data() : nullptr,
          .definition = has_definition_ ? definition_.data() : nullptr,
          .size = num_kept_};
}

std::span<const BitWord> SelectedEntries::value_bits() const {
  return {value_bits_.data(), static_cast<size_t>(kernels::NumWords(num_values_))};
}

}  // namespace torchparquet
