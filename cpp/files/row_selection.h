#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/levels/selected.h"

namespace torchparquet {

// Consecutive rows of a row group, as they are stored.
struct RowRun {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t num_rows() const { return end - begin; }
};

// The rows of one row group that are delivered. A row has a number in the row group and
// an index among the selected rows. Immutable. It views memory that must outlive it.
class RowSelection {
 public:
  // Each word has begin and end of a run, as uint32 in this order in memory: ascending,
  // and no run empty.
  static RowSelection OfRuns(std::span<const uint64_t> runs);
  // Rows after the last word are not selected.
  static RowSelection OfBits(std::span<const kernels::BitWord> words);

  int64_t num_rows() const { return num_rows_; }
  // The number of selected rows before `row`.
  int64_t IndexOf(int64_t row) const;
  // The row with that index, which must be less than num_rows().
  int64_t RowAt(int64_t index) const;
  // The first run of selected rows at or after `row`, which may begin within a longer
  // one. Empty if there is none. `near` is kept for the next call, whose row is best a
  // little further on; 0 at first.
  RowRun NextRun(int64_t row, size_t* near) const;
  RowRun NextRun(int64_t row) const {
    size_t near = 0;
    return NextRun(row, &near);
  }
  // Writes the bits of rows [begin, end) from bit 0 of `out` on; the rest of the last
  // word is zero.
  void CopyBits(int64_t begin, int64_t end, kernels::BitWord* out) const;

 private:
  // Of a run: its rows and those of the runs before. Of a block of words: the rows
  // before.
  using Counts = std::vector<int64_t>;
  static constexpr int64_t kBlockWords = 16;
  static constexpr int64_t kBlockRows = kBlockWords * kernels::kWordBits;

  size_t FirstRunAfter(int64_t row, size_t near = 0) const;
  RowRun RunOf(size_t number) const {
    const auto bounds = std::bit_cast<std::array<uint32_t, 2>>(runs_[number]);
    return {bounds[0], bounds[1]};
  }
  int64_t end_of_bits() const { return std::ssize(words_) * kernels::kWordBits; }

  std::span<const uint64_t> runs_;
  std::span<const kernels::BitWord> words_;  // instead of runs
  bool has_bits_ = false;
  Counts counts_;
  int64_t num_rows_ = 0;
};

}  // namespace torchparquet
