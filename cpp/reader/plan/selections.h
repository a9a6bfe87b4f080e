#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "files/row_selection.h"

namespace torchparquet {

// The selected rows of many row groups, as their maker keeps them. Immutable,
// thread-safe.
class Selections {
 public:
  enum class Form : uint8_t { kAll = 0, kRuns = 1, kBits = 2 };

  // Views, which must outlive the selections.
  struct Arrays {
    std::span<const uint8_t> form;    // of each row group
    std::span<const int64_t> begin;   // of its words in `words`, and the end of the last
    std::span<const uint64_t> words;  // runs: pairs of uint32; bits: 64 rows each
    std::span<const int64_t> num_rows;  // selected ones of each row group
  };
  // Throws Error(kInvalidArgument) where the arrays contradict each other.
  explicit Selections(const Arrays& arrays);

  int64_t num_row_groups() const { return std::ssize(arrays_.form); }
  int64_t num_rows(int64_t row_group) const {
    return arrays_.num_rows[static_cast<size_t>(row_group)];
  }
  // Null for all rows. Costs a pass over the row group's words.
  std::shared_ptr<const RowSelection> Of(int64_t row_group) const;

 private:
  RowSelection Made(size_t row_group) const;
  std::span<const uint64_t> WordsOf(size_t row_group) const;

  const Arrays arrays_;
};

}  // namespace torchparquet
