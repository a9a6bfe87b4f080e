#include "kernels/shuffle/partition.h"

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

    std::vector<uint32_t> any(count);
    for (uint32_t& row : any) {
      row = static_cast<uint32_t>(draws.Below(static_cast<int64_t>(count)));
    }
    GatherItems<T>(items.data(), any, static_cast<int64_t>(stride), rows.data());
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(expected.data() + i * stride, items.data() + any[i], sizeof(T));
    }
    CHECK(rows.Copy() == expected);
  }
}

// A strip of random shape, and the places that its order says.
struct RandomStrip {
  explicit RandomStrip(Draws& draws) {
    strip.run_items = draws.OneIn(2) ? 8 : int64_t{1} << draws.Between(0, 5);
    strip.num_runs = int64_t{1} << draws.Between(0, 5);
    strip.turn = static_cast<uint32_t>(draws.Below(strip.num_runs));
    strip.block_items = 3 * strip.run_items;
    strip.first = draws.Between(0, 2) * strip.run_items;
    strip.stride = 5 * strip.block_items + draws.Between(0, 9);
    for (int64_t bucket = 0; bucket < strip.num_runs; ++bucket) {
      block_places.push_back(static_cast<uint16_t>(draws.Below(5)));
    }
    strip.block_places = block_places.data();
    order = Shuffled<uint16_t>(draws, strip.size());
    strip.order = order.data();
    places.resize(order.size());
    for (int64_t bucket = 0; bucket < strip.num_runs; ++bucket) {
      for (int64_t i = 0; i < strip.run_items; ++i) {
        const int64_t run = bucket ^ strip.turn;
        places[order[static_cast<size_t>(run * strip.run_items + i)]] =
            static_cast<uint32_t>(
                bucket * strip.stride + strip.first +
                block_places[static_cast<size_t>(bucket)] * strip.block_items + i);
      }
    }
  }

  size_t num_places() const { return static_cast<size_t>(strip.num_runs * strip.stride); }

  StripOrder strip;
  std::vector<uint16_t> order;
  std::vector<uint16_t> block_places;
  std::vector<uint32_t> places;
};

TEST_CASE_TEMPLATE("a strip's items come to their places in runs", T, uint8_t, uint16_t,
                   uint32_t, uint64_t) {
  Draws draws(209);
  for (int trial = 0; trial < 200; ++trial) {
    const RandomStrip random(draws);
    ExactBuffer<T> items(random.places.size());
    for (T& item : items.span()) item = static_cast<T>(draws.Bits());
    ExactBuffer<T> found(random.num_places());
    std::memset(found.data(), 0xEE, random.num_places() * sizeof(T));
    std::vector<T> expected(found.data(), found.data() + random.num_places());
    for (size_t i = 0; i < random.places.size(); ++i) {
      expected[random.places[i]] = items.data()[i];
    }
    Partition<T>(items.data(), random.strip, found.data());
    CHECK(std::vector<T>(found.data(), found.data() + random.num_places()) == expected);
  }
}

TEST_CASE("a strip's differences come to their places in runs") {
  Draws draws(210);
  for (int trial = 0; trial < 200; ++trial) {
    const RandomStrip random(draws);
    const uint64_t base = draws.Bits();
    ExactBuffer<uint64_t> items(random.places.size());
    for (uint64_t& item : items.span()) item = base + (draws.Bits() & 0xFFFFFFFF);
    ExactBuffer<uint32_t> found(random.num_places());
    CHECK(PartitionDifferences(items.data(), random.strip, base, found.data()));
    bool is_right = true;
    for (size_t i = 0; i < random.places.size(); ++i) {
      is_right &= base + found.data()[random.places[i]] == items.data()[i];
    }
    CHECK(is_right);
    const auto odd =
        static_cast<size_t>(draws.Below(static_cast<int64_t>(random.places.size())));
    items.data()[odd] = draws.OneIn(2) ? base - 1 : base + (uint64_t{1} << 32);
    CHECK_FALSE(PartitionDifferences(items.data(), random.strip, base, found.data()));
  }
}

TEST_CASE("differences come to their places, and as items to their rows") {
  Draws draws(207);
  for (int trial = 0; trial < 200; ++trial) {
    const auto count = static_cast<size_t>(draws.Between(1, 300));
    const uint64_t base = draws.Bits();
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
