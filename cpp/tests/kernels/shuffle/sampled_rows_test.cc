#include "kernels/shuffle/sampled_rows.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/errors.h"
#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::Throws;

std::vector<int64_t> FirstRows(Draws& draws) {
  std::vector<int64_t> first_rows{0};
  for (int64_t i = draws.Between(1, 12); i > 0; --i) {
    const int64_t most = draws.OneIn(4) ? 2000 : 70;
    first_rows.push_back(first_rows.back() + draws.Between(0, most));
  }
  return first_rows;
}

TEST_CASE("each sample has the place of its row among the sorted marked ones") {
  Draws draws(217);
  for (int trial = 0; trial < 400; ++trial) {
    const std::vector<int64_t> first_rows = FirstRows(draws);
    const int64_t num_rows = first_rows.back();
    if (num_rows == 0) continue;
    std::vector<int64_t> marked(static_cast<size_t>(draws.Between(1, 300)));
    for (int64_t& row : marked) row = draws.Below(num_rows);
    std::vector<int64_t> samples(static_cast<size_t>(draws.Between(0, 300)));
    for (int64_t& row : samples) {
      row = marked[static_cast<size_t>(draws.Below(std::ssize(marked)))];
    }
    std::vector<uint32_t> places(samples.size());
    const SampledRows found = MarkSampledRows(marked, samples, first_rows, places.data());

    const std::set<int64_t> sorted(marked.begin(), marked.end());
    for (size_t i = 0; i < samples.size(); ++i) {
      CHECK(places[i] == std::distance(sorted.begin(), sorted.find(samples[i])));
    }
    std::vector<int64_t> rows;
    size_t word = 0;
    for (const int64_t group : found.row_groups) {
      const int64_t first = first_rows[static_cast<size_t>(group)];
      const int64_t end = first_rows[static_cast<size_t>(group) + 1];
      for (int64_t row = first; row < end; ++row) {
        const int64_t bit = row - first;
        const uint64_t bits = found.words[word + static_cast<size_t>(bit / 64)];
        if ((bits >> bit % 64 & 1) != 0) rows.push_back(row);
      }
      word += static_cast<size_t>((end - first + 63) / 64);
    }
    CHECK(word == found.words.size());
    CHECK(rows == std::vector<int64_t>(sorted.begin(), sorted.end()));
  }
}

TEST_CASE("rows that are none, and samples that are not marked, are refused") {
  const std::vector<int64_t> first_rows{0, 10, 10, 30};
  const std::vector<int64_t> marked{3, 12};
  uint32_t place = 0;
  for (const int64_t row : {-1, 30, 4, 13, 29}) {
    CAPTURE(row);
    CHECK(Throws(ErrorKind::kInvalidArgument,
                 [&] { MarkSampledRows(marked, {{row}}, first_rows, &place); }));
  }
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [&] { MarkSampledRows({{30}}, {}, first_rows, &place); }));
}

TEST_CASE("keys are in order, and equal ones in their own, however many are equal") {
  Draws draws(218);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<uint64_t> some(static_cast<size_t>(draws.Between(1, 400)));
    for (uint64_t& key : some) key = draws.Bits() >> (draws.OneIn(3) ? 60 : 0);
    std::vector<uint64_t> keys(static_cast<size_t>(draws.Between(0, 3000)));
    for (uint64_t& key : keys) {
      key = draws.OneIn(2) ? draws.Bits()
                           : some[static_cast<size_t>(draws.Below(std::ssize(some)))];
    }
    std::vector<uint32_t> order(keys.size());
    SortRandomKeys(keys, order.data());
    std::vector<uint32_t> expected(keys.size());
    std::iota(expected.begin(), expected.end(), 0U);
    std::ranges::stable_sort(expected, {}, [&](uint32_t i) { return keys[i]; });
    CHECK(order == expected);
  }
}

}  // namespace
}  // namespace torchparquet::kernels
