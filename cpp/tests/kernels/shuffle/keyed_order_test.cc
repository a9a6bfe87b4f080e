#include "kernels/shuffle/keyed_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/errors.h"
#include "draws.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;

std::vector<uint64_t> Keys(Draws& draws) {
  std::vector<uint64_t> keys(8);
  for (uint64_t& key : keys) key = static_cast<uint64_t>(draws.Between(0, INT64_MAX - 1));
  return keys;
}

TEST_CASE("every row is at one position, whatever parts are asked for") {
  Draws draws(1);
  for (int64_t n = 1; n < 300; ++n) {
    const std::vector<uint64_t> keys = Keys(draws);
    std::vector<int64_t> rows(static_cast<size_t>(n));
    KeyedRows(keys, n, 0, rows);
    std::vector<int64_t> parts;
    while (std::ssize(parts) < n) {
      const auto begin = std::ssize(parts);
      std::vector<int64_t> part(static_cast<size_t>(draws.Between(1, n - begin)));
      KeyedRows(keys, n, begin, part);
      parts.insert(parts.end(), part.begin(), part.end());
    }
    CHECK(parts == rows);
    std::vector<int64_t> all(rows.size());
    std::iota(all.begin(), all.end(), 0);
    CHECK(std::ranges::is_permutation(rows, all));
  }
}

TEST_CASE("the largest order has rows of its whole range") {
  Draws draws(2);
  const int64_t n = int64_t{1} << 62;
  std::vector<int64_t> rows(1000);
  KeyedRows(Keys(draws), n, n - 1000, rows);
  CHECK(std::ranges::all_of(rows, [&](int64_t row) { return row >= 0 && row < n; }));
  const auto low = std::ranges::count_if(rows, [&](int64_t row) { return row < n / 2; });
  CHECK(low > 400);
  CHECK(low < 600);
}

TEST_CASE("positions outside of the order are refused") {
  std::vector<int64_t> rows(3);
  const std::vector<uint64_t> keys(8);
  CHECK_THROWS_AS(KeyedRows(keys, 5, 3, rows), Error);
  CHECK_THROWS_AS(KeyedRows(keys, 5, -1, rows), Error);
  CHECK_THROWS_AS(KeyedRows(keys, 5, 6, {}), Error);
}

}  // namespace
}  // namespace torchparquet::kernels
