#include "kernels/partition.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet::kernels {
namespace {

using testing::Draws;
using testing::ExactBuffer;

template <typename T>
std::vector<T> Shuffled(Draws& draws, size_t count) {
  std::vector<T> numbers(count);
  std::iota(numbers.begin(), numbers.end(), T{0});
  for (size_t i = count; i > 1; --i) {
    std::swap(numbers[i - 1],
              numbers[static_cast<size_t>(draws.Below(static_cast<int64_t>(i)))]);
  }
  return numbers;
}

TEST_CASE_TEMPLATE("items come to their places, and from there to their rows", T, uint8_t,
                   uint16_t, uint32_t, uint64_t) {
  Draws draws(203);
  for (int trial = 0; trial < 200; ++trial) {
    const auto count = static_cast<size_t>(draws.Between(1, 300));
    ExactBuffer<T> items(count);
    for (T& item : items.span()) item = static_cast<T>(draws.Bits());
    const auto places = Shuffled<uint32_t>(draws, count);
    ExactBuffer<T> bucket(count);
    Partition<T>(items.data(), places, bucket.data());
    for (size_t i = 0; i < count; ++i) CHECK(bucket.data()[places[i]] == items.data()[i]);

    const auto order = Shuffled<uint16_t>(draws, count);
    const size_t stride = sizeof(T) * static_cast<size_t>(draws.Between(1, 3));
    ExactBuffer<uint8_t> rows((count - 1) * stride + sizeof(T));
    std::memset(rows.data(), 0xEE, rows.size());
    GatherBucket<T>(bucket.data(), order, bucket.data(), static_cast<int64_t>(stride),
                    rows.data());
    std::vector<uint8_t> expected(rows.size(), 0xEE);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(expected.data() + i * stride, bucket.data() + order[i], sizeof(T));
    }
    CHECK(rows.Copy() == expected);
  }
}

TEST_CASE("differences come to their places, and as items to their rows") {
  Draws draws(207);
  for (int trial = 0; trial < 200; ++trial) {
    const auto count = static_cast<size_t>(draws.Between(1, 300));
    const auto base = static_cast<uint64_t>(draws.Bits());
    ExactBuffer<uint64_t> items(count);
    for (uint64_t& item : items.span()) item = base + (draws.Bits() & 0xFFFFFFFF);
    const auto places = Shuffled<uint32_t>(draws, count);
    ExactBuffer<uint32_t> bucket(count);
    CHECK(PartitionDifferences(items.data(), places, base, bucket.data()));

    const auto order = Shuffled<uint16_t>(draws, count);
    const size_t stride = sizeof(uint64_t) * static_cast<size_t>(draws.Between(1, 3));
    ExactBuffer<uint8_t> rows((count - 1) * stride + sizeof(uint64_t));
    GatherDifferences(bucket.data(), order, bucket.data(), base,
                      static_cast<int64_t>(stride), rows.data());
    std::vector<uint64_t> placed(count);
    for (size_t i = 0; i < count; ++i) placed[places[i]] = items.data()[i];
    for (size_t i = 0; i < count; ++i) {
      uint64_t found;
      std::memcpy(&found, rows.data() + i * stride, sizeof(found));
      CHECK(found == placed[order[i]]);
    }

    const auto odd = static_cast<size_t>(draws.Below(static_cast<int64_t>(count)));
    items.data()[odd] = draws.OneIn(2) ? base - 1 : base + (uint64_t{1} << 32);
    CHECK_FALSE(PartitionDifferences(items.data(), places, base, bucket.data()));
  }
}

}  // namespace
}  // namespace torchparquet::kernels
