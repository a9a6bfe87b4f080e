#include "batches/jagged.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Throws;

constexpr int64_t kPlenty = int64_t{1} << 40;

// Rows of lists of lists: at each level how many items each has, and the bytes of the
// values that the last level leads to.
struct Rows {
  std::vector<std::vector<int64_t>> lengths;
  std::vector<uint8_t> values;
};

Rows RandomRows(Draws& draws, int64_t num_rows, int64_t num_levels) {
  Rows rows;
  int64_t num_items = num_rows;
  for (int64_t level = 0; level < num_levels; ++level) {
    std::vector<int64_t> lengths(static_cast<size_t>(num_items));
    num_items = 0;
    for (int64_t& length : lengths) {
      length = draws.OneIn(3) ? 0 : draws.Below(draws.OneIn(10) ? 30 : 4);
      num_items += length;
    }
    rows.lengths.push_back(lengths);
  }
  rows.values = testing::RandomBytes(draws, num_items);
  return rows;
}

// The items at the next level of the items [begin, end) of each level.
std::pair<int64_t, int64_t> ItemsOf(const Rows& rows, size_t level,
                                    std::pair<int64_t, int64_t> range) {
  int64_t begin = 0;
  for (int64_t i = 0; i < range.first; ++i)
    begin += rows.lengths[level][static_cast<size_t>(i)];
  int64_t end = begin;
  for (int64_t i = range.first; i < range.second; ++i)
    end += rows.lengths[level][static_cast<size_t>(i)];
  return {begin, end};
}

void Append(kernels::ByteSink& sink, const void* data, size_t num_bytes) {
  uint8_t* room = sink.Extend(num_bytes);
  if (num_bytes > 0) std::memcpy(room, data, num_bytes);
}

// The part that a task makes of the rows [first, last), offsets from 0.
JaggedPart PartOf(const Rows& rows, int64_t first, int64_t last, int64_t* offsets,
                  JaggedItems items) {
  std::pair<int64_t, int64_t> range{first, last};
  for (size_t level = 0; level < rows.lengths.size(); ++level) {
    int64_t next = 0;
    for (int64_t i = range.first; i < range.second; ++i) {
      if (level == 0) {
        offsets[i] = next;
      } else {
        Append(*items.starts[level - 1], &next, sizeof(next));
      }
      next += rows.lengths[level][static_cast<size_t>(i)];
    }
    items.num_items[level] = next;
    range = ItemsOf(rows, level, range);
  }
  const auto num_values = static_cast<size_t>(range.second - range.first);
  Append(*items.values, rows.values.data() + range.first, num_values);
  std::vector<uint8_t> valid(rows.values.begin() + range.first,
                             rows.values.begin() + range.second);
  for (uint8_t& value : valid) value &= 1;
  Append(*items.valid, valid.data(), valid.size());
  return {.first_row = first, .num_rows = last - first, .items = std::move(items)};
}

std::vector<int64_t> Offsets(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> offsets{0};
  for (const int64_t length : lengths) offsets.push_back(offsets.back() + length);
  return offsets;
}

std::vector<int64_t> Starts(const kernels::ByteSink& sink) {
  std::vector<int64_t> starts(sink.size() / sizeof(int64_t));
  if (!starts.empty()) std::memcpy(starts.data(), sink.bytes().data(), sink.size());
  return starts;
}

std::vector<uint8_t> Bytes(const kernels::ByteSink& sink) {
  return {sink.bytes().begin(), sink.bytes().end()};
}

JaggedField FieldOf(JaggedColumn column) {
  JaggedField field;
  field.columns.push_back(std::move(column));
  return field;
}

TEST_CASE("parts in any order become the whole") {
  Draws draws(230);
  std::mt19937_64 engine(230);
  const auto pool = SinkPool::Make(1 << 20, kPlenty);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t num_rows = draws.Between(1, 60);
    const int64_t num_levels = draws.Between(1, 4);
    const Rows rows = RandomRows(draws, num_rows, num_levels);
    JaggedMemory memory({draws.OneIn(2) ? 0. : 100.}, kPlenty, pool);
    ExactBuffer<int64_t> offsets(static_cast<size_t>(num_rows) + 1);
    JaggedColumn column{.offsets = offsets.data()};
    for (int64_t row = 0; row < num_rows;) {
      const int64_t end =
          row + draws.Between(1, draws.OneIn(3) ? num_rows - row
                                                : std::min<int64_t>(7, num_rows - row));
      JaggedPart part = PartOf(rows, row, end, offsets.data(),
                               memory.Begin(0, end - row, num_levels, true));
      memory.Learn(0, part.num_rows, part.items);
      column.parts.push_back(std::move(part));
      row = end;
    }
    std::ranges::shuffle(column.parts, engine);
    std::vector<JaggedItems> joined;
    joined.push_back(JoinParts(FieldOf(std::move(column))));
    const JaggedItems& items = joined.front();
    CHECK(offsets.Copy() == Offsets(rows.lengths[0]));
    REQUIRE(std::ssize(items.starts) == num_levels - 1);
    for (size_t level = 1; level < rows.lengths.size(); ++level) {
      CHECK(Starts(*items.starts[level - 1].operator->()) ==
            Offsets(rows.lengths[level]));
    }
    CHECK(Bytes(*items.values.operator->()) == rows.values);
    std::vector<uint8_t> valid = rows.values;
    for (uint8_t& value : valid) value &= 1;
    CHECK(Bytes(*items.valid.operator->()) == valid);
    // The bytes of the parts are forgotten with the whole.
    CHECK(memory.num_bytes() ==
          items.num_bytes() - (num_levels - 1) * int64_t{sizeof(int64_t)});
    memory.Forget(joined);
    CHECK(memory.num_bytes() == 0);
  }
}

TEST_CASE("what the parts hold together is bounded too") {
  const auto pool = SinkPool::Make(1 << 20, 1000);
  JaggedMemory memory({1e300}, kPlenty, pool);  // as a footer may claim
  Rows rows{.lengths = {{600, 600}}, .values = std::vector<uint8_t>(1200)};
  int64_t offsets[3];
  JaggedColumn column{.offsets = offsets};
  for (const int64_t row : {0, 1}) {
    column.parts.push_back(
        PartOf(rows, row, row + 1, offsets, memory.Begin(0, 1, 1, true)));
  }
  CHECK(
      Throws(ErrorKind::kValuesTooLarge, [&] { JoinParts(FieldOf(std::move(column))); }));
}

TEST_CASE("room is made for what rows had before") {
  const auto pool = SinkPool::Make(0, kPlenty);
  JaggedMemory memory({10, 1000}, kPlenty, pool);
  CHECK(memory.Begin(0, 1000, 1, true).values->capacity() >= 10'000);
  CHECK(memory.Begin(0, 1000, 1, true).values->capacity() < 100'000);
  CHECK(memory.Begin(1, 1000, 1, true).values->capacity() >= 1'000'000);
  JaggedPart part{.num_rows = 10, .items = memory.Begin(0, 10, 3, true)};
  CHECK(part.items.starts.size() == 2);
  CHECK(part.items.num_items == std::vector<int64_t>{0, 0, 0});
  CHECK(part.items.values->size() == 0);
  part.items.values->Extend(5000);
  part.items.valid->Extend(70);
  part.items.starts[0]->Extend(16);
  part.items.starts[1]->Extend(8);
  CHECK(part.items.num_bytes() == 5094);
  memory.Learn(0, part.num_rows, part.items);
  CHECK(memory.num_bytes() == 5094);
  CHECK(memory.Begin(0, 1000, 1, true).values->capacity() >= 500'000);
  CHECK(memory.Begin(0, 1000, 1, true).values->capacity() < 1'000'000);
}

TEST_CASE("a sink's memory is used again, the smallest that is large enough") {
  const auto pool = SinkPool::Make(kPlenty, kPlenty);
  std::vector<const uint8_t*> memory;
  {
    std::vector<SinkPool::Lease> leases;
    for (const int64_t num_bytes : {20'000, 5000, 80'000}) {
      leases.push_back(pool->Acquire(num_bytes));
      CHECK(leases.back()->size() == 0);
      CHECK(leases.back()->capacity() >= static_cast<size_t>(num_bytes));
      memory.push_back(leases.back()->bytes().data());
    }
    CHECK(pool->idle_bytes() == 0);
  }
  const int64_t idle_bytes = pool->idle_bytes();
  CHECK(idle_bytes >= 105'000);
  SinkPool::Lease small = pool->Acquire(100);
  SinkPool::Lease large = pool->Acquire(6000);
  CHECK(small->bytes().data() == memory[1]);
  CHECK(large->bytes().data() == memory[0]);
  CHECK(pool->idle_bytes() == idle_bytes - static_cast<int64_t>(small->capacity()) -
                                  static_cast<int64_t>(large->capacity()));
  // If none is large enough, the largest grows.
  SinkPool::Lease huge = pool->Acquire(200'000);
  CHECK(huge->capacity() >= 200'000);
  CHECK(pool->idle_bytes() == 0);
  huge->Extend(10);
  small = std::move(huge);
  CHECK(small->size() == 10);
  CHECK(pool->idle_bytes() > 0);
  small = SinkPool::Lease();
  large = SinkPool::Lease();
  SinkPool::Lease again = pool->Acquire(150'000);
  CHECK(again->size() == 0);
}

TEST_CASE("idle memory is bounded, and so is one sink") {
  const auto pool = SinkPool::Make(10'000, 20'000);
  CHECK(pool->max_sink_bytes() == 20'000);
  {
    std::vector<SinkPool::Lease> leases;
    for (int i = 0; i < 5; ++i) leases.push_back(pool->Acquire(4000));
  }
  CHECK(pool->idle_bytes() > 4000);
  CHECK(pool->idle_bytes() <= 10'000);
  // Whatever is claimed to be likely.
  SinkPool::Lease lease = pool->Acquire(kPlenty);
  CHECK(lease->capacity() < 50'000);
  lease->Extend(20'000);
  CHECK(Throws(ErrorKind::kValuesTooLarge, [&] { lease->Extend(1); }));
  CHECK(pool->Acquire(-5)->size() == 0);
}

TEST_CASE("a lease outlives whoever made the pool") {
  auto pool = SinkPool::Make(kPlenty, kPlenty);
  const std::weak_ptr<SinkPool> watched = pool;
  SinkPool::Lease lease = pool->Acquire(100);
  pool.reset();
  lease->Extend(1000)[999] = 7;
  CHECK_FALSE(watched.expired());
  lease = SinkPool::Lease();
  CHECK(watched.expired());
}

TEST_CASE("a forked child gives leases back while the pool's lock is held") {
  const auto pool = SinkPool::Make(kPlenty, kPlenty);
  SinkPool::Lease lease = pool->Acquire(100);
  std::atomic<bool> stop{false};
  // So that most forks happen while it holds the lock.
  std::jthread holder([&] {
    while (!stop) static_cast<void>(pool->idle_bytes());
  });
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      lease = SinkPool::Lease();
      _exit(0);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
  }
  stop = true;
}

TEST_CASE("many threads acquire, fill, learn and return") {
  const auto pool = SinkPool::Make(1 << 20, kPlenty);
  JaggedMemory memory({8, 8}, kPlenty, pool);
  std::atomic<int64_t> num_wrong{0};
  std::vector<std::jthread> threads;
  for (int64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      Draws draws(static_cast<uint64_t>(number));
      for (int i = 0; i < 500; ++i) {
        const int64_t field = draws.Below(2);
        JaggedPart part{.num_rows = 10, .items = memory.Begin(field, 10, 2, true)};
        const auto num_bytes = static_cast<size_t>(draws.Below(3000));
        const auto mark = static_cast<uint8_t>(number + 1);
        std::memset(part.items.values->Extend(num_bytes), mark, num_bytes);
        part.items.starts[0]->Extend(80);
        memory.Learn(field, part.num_rows, part.items);
        const auto bytes = part.items.values->bytes();
        num_wrong += std::count(bytes.begin(), bytes.end(), mark) !=
                     static_cast<int64_t>(num_bytes);
        // As joined parts end.
        part.items.starts[0]->Extend(8);
        std::vector<JaggedItems> taken;
        taken.push_back(std::move(part.items));
        memory.Forget(taken);
      }
    });
  }
  threads.clear();
  CHECK(num_wrong == 0);
  CHECK(memory.num_bytes() == 0);
}

}  // namespace
}  // namespace torchparquet
