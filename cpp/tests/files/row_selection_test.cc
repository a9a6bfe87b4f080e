#include "files/row_selection.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;

TEST_CASE("runs and bits tell the same rows, by number and by index") {
  Draws draws(4);
  for (int trial = 0; trial < 60; ++trial) {
    const int64_t num_rows = draws.Between(1, draws.OneIn(3) ? 5000 : 200);
    const int64_t longest = draws.OneIn(2) ? 3 : 900;
    std::vector<bool> is_selected(static_cast<size_t>(num_rows));
    std::vector<uint64_t> runs;
    for (int64_t row = draws.Below(longest); row < num_rows;) {
      const int64_t end = std::min(num_rows, row + draws.Between(1, longest));
      runs.push_back(std::bit_cast<uint64_t>(std::array<uint32_t, 2>{
          static_cast<uint32_t>(row), static_cast<uint32_t>(end)}));
      std::fill(is_selected.begin() + row, is_selected.begin() + end, true);
      row = end + draws.Between(1, longest);
    }
    std::vector<kernels::BitWord> words(static_cast<size_t>(kernels::NumWords(num_rows)));
    for (const uint64_t run : runs) {
      const auto [begin, end] = std::bit_cast<std::array<uint32_t, 2>>(run);
      kernels::SetBits(begin, end, words.data());
    }
    ExactBuffer<uint64_t> exact_runs(runs);
    ExactBuffer<kernels::BitWord> exact_words(words);
    for (const RowSelection& selection : {RowSelection::OfRuns(exact_runs.span()),
                                          RowSelection::OfBits(exact_words.span())}) {
      int64_t index = 0;
      for (int64_t row = 0; row < num_rows; ++row) {
        CHECK(selection.IndexOf(row) == index);
        if (!is_selected[static_cast<size_t>(row)]) continue;
        CHECK(selection.RowAt(index) == row);
        ++index;
      }
      CHECK(selection.num_rows() == index);
      CHECK(selection.IndexOf(num_rows) == index);
      CHECK(selection.IndexOf(num_rows + 10000) == index);

      const int64_t from = draws.Below(num_rows);
      size_t near = static_cast<size_t>(draws.Below(std::ssize(runs) + 2));
      const RowRun run = selection.NextRun(from, &near);
      const auto first = std::find(is_selected.begin() + from, is_selected.end(), true);
      const bool has_none = first == is_selected.end();
      CHECK((run.num_rows() == 0) == has_none);
      if (!has_none) {
        CHECK(run.begin == first - is_selected.begin());
        CHECK(run.end ==
              std::find(first, is_selected.end(), false) - is_selected.begin());
      }

      const int64_t end = draws.Between(from, num_rows + 300);
      ExactBuffer<kernels::BitWord> bits(
          static_cast<size_t>(kernels::NumWords(end - from)));
      selection.CopyBits(from, end, bits.data());
      std::vector<kernels::BitWord> expected(bits.span().size());
      for (int64_t row = from; row < std::min(end, num_rows); ++row) {
        if (is_selected[static_cast<size_t>(row)]) {
          kernels::SetBits(row - from, row - from + 1, expected.data());
        }
      }
      CHECK(bits.Copy() == expected);
    }
  }
}

}  // namespace
}  // namespace torchparquet
