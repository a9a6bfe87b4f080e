#include "kernels/permutation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "caught.h"
#include "draws.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::Throws;

// The definition, in 64 bits and with remainders, for one row.
uint64_t PositionOf(uint64_t key, uint64_t n, uint64_t row) {
  uint64_t a = 1;
  while (a * a < n) ++a;
  const uint64_t b = (n + a - 1) / a;
  uint64_t keys[6];
  for (uint64_t& round_key : keys) {
    key += 0x9E3779B97F4A7C15;
    uint64_t z = key;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    round_key = (z ^ (z >> 31)) >> 32;
  }
  const auto round = [&](uint64_t value, int i, uint64_t bound) {
    constexpr uint64_t kLow = 0xFFFFFFFF;
    uint64_t h = (value + keys[i]) & kLow;
    h ^= h >> 16;
    h = h * 0x7feb352d & kLow;
    h ^= h >> 15;
    h = h * 0x846ca68b & kLow;
    h ^= h >> 16;
    return ((h >> 16) * bound) >> 16;
  };
  uint64_t x = row;
  do {
    uint64_t low = x % a;
    uint64_t high = x / a;
    for (int i = 0; i < 6; i += 2) {
      low = (low + round(high, i, a)) % a;
      high = (high + round(low, i + 1, b)) % b;
    }
    x = high * a + low;
  } while (x >= n);
  return x;
}

std::vector<uint32_t> Positions(const Permutation& permutation, int64_t first,
                                int64_t count) {
  std::vector<uint32_t> positions(static_cast<size_t>(count));
  permutation.Positions(first, count, positions.data());
  return positions;
}

TEST_CASE("positions that must never change") {
  using Values = std::vector<uint32_t>;
  CHECK(Positions(Permutation(0, 10), 0, 10) == Values{5, 1, 2, 0, 9, 6, 3, 7, 4, 8});
  CHECK(Positions(Permutation(0x0123456789ABCDEF, 1000), 0, 8) ==
        Values{285, 618, 782, 426, 802, 82, 264, 792});
  CHECK(Positions(Permutation(42, 2'000'000), 0, 8) ==
        Values{1412957, 321214, 167303, 829208, 1715187, 1221946, 959796, 574216});
  const int64_t most = int64_t{1} << 32;
  const Permutation all(0xFFFFFFFFFFFFFFFF, most);
  CHECK(Positions(all, 0, 8) == Values{4121920334, 1314627035, 3663600011, 1295583020,
                                       4254304449, 2163218159, 3185247453, 1444132115});
  CHECK(Positions(all, most - 1, 1) == Values{2183834027});
}

TEST_CASE("every row has a position of its own, by the definition, and back") {
  Draws draws(201);
  std::vector<int64_t> sizes{1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 81, 1000, 4096, 10'007};
  for (int i = 0; i < 40; ++i) sizes.push_back(draws.Between(1, 3000));
  for (const int64_t n : sizes) {
    CAPTURE(n);
    const uint64_t key = draws.Bits();
    const Permutation permutation(key, n);
    REQUIRE(permutation.size() == n);
    const std::vector<uint32_t> positions = Positions(permutation, 0, n);
    std::vector<uint32_t> rows(static_cast<size_t>(n), 0xFFFFFFFF);
    bool is_right = true;
    for (int64_t row = 0; row < n; ++row) {
      const uint32_t position = positions[static_cast<size_t>(row)];
      is_right &= position ==
                  PositionOf(key, static_cast<uint64_t>(n), static_cast<uint64_t>(row));
      rows.at(position) = static_cast<uint32_t>(row);
    }
    CHECK(is_right);
    std::vector<uint32_t> found(static_cast<size_t>(n));
    permutation.Rows(0, n, found.data());
    CHECK(found == rows);
  }
}

TEST_CASE("any block is what the whole has there, by every variant") {
  Draws draws(202);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t n = draws.OneIn(2)   ? draws.Between(1, 500)
                      : draws.OneIn(2) ? draws.Between(1, int64_t{1} << 32)
                                       : draws.Between(60'000, 3'000'000);
    const Permutation permutation(draws.Bits(), n);
    CAPTURE(n);
    const int64_t count = std::min(n, draws.Between(0, 300));
    const int64_t first = draws.Between(0, n - count);
    const std::vector<uint32_t> positions = Positions(permutation, first, count);
    std::vector<uint32_t> plain(static_cast<size_t>(count));
    permutation.PlainPositions(first, count, plain.data());
    CHECK(positions == plain);
    std::vector<uint32_t> rows(static_cast<size_t>(count));
    permutation.Rows(first, count, rows.data());
    permutation.PlainRows(first, count, plain.data());
    CHECK(rows == plain);
    bool is_inverse = true;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t back = 0;
      permutation.Rows(positions[static_cast<size_t>(i)], 1, &back);
      is_inverse &= back == static_cast<uint32_t>(first + i);
    }
    CHECK(is_inverse);
  }
}

TEST_CASE("what cannot be permuted is refused") {
  CHECK(Throws(ErrorKind::kInvalidArgument, [] { Permutation(1, 0); }));
  CHECK(Throws(ErrorKind::kInvalidArgument,
               [] { Permutation(1, (int64_t{1} << 32) + 1); }));
}

}  // namespace
}  // namespace torchparquet::kernels
