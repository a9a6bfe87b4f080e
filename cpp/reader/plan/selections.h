#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

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
    std::span<const uint64_t> words;  // bits: 64 rows each; runs: see Runs()
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
  std::span<const uint64_t> WordsOf(size_t row_group) const;

  const Arrays arrays_;
};

// The runs of a row group, as RowSelection takes them, from the varints that its words
// hold: how many runs there are; for each, twice the rows left out before it, plus 1 if
// it is longer than one row; for each of these, its rows less 2.
std::vector<uint64_t> Runs(std::span<const uint64_t> words);

}  // namespace torchparquet
