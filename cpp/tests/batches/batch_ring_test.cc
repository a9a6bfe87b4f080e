#include "batches/batch_ring.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "await_sleep.h"
#include "caught.h"

namespace torchparquet {
namespace {

using std::chrono::milliseconds;
using testing::Caught;
using testing::Throws;
using TakeStatus = BatchRing::TakeStatus;

constexpr milliseconds kNoWait{0};
constexpr milliseconds kLong{30'000};

// Opens a batch that carries `token` and lacks `num_cells` cells.
InFlightBatch& Open(BatchRing& ring, int64_t token, int64_t num_cells = 1) {
  return ring.Open({.data = nullptr, .slab = {}, .lent_token = token}, token + 100,
                   num_cells);
}

Error Failure(const std::string& message) {
  return Error(ErrorKind::kCorruptFile, message);
}

TEST_CASE("batches leave in plan order, whatever the order of completion") {
  std::array<size_t, 4> order{0, 1, 2, 3};
  do {
    BatchRing ring(4, 4);
    std::vector<InFlightBatch*> batches;
    for (int64_t i = 0; i < 4; ++i) {
      CHECK(ring.num_opened() == i);
      batches.push_back(&Open(ring, i));
    }
    std::array<bool, 4> complete{};
    int64_t num_taken = 0;
    for (const size_t next : order) {
      ring.CountDown(*batches[next], 1);
      complete[next] = true;
      while (num_taken < 4 && complete[static_cast<size_t>(num_taken)]) {
        const auto taken = ring.Take(kNoWait);
        REQUIRE(taken.status == TakeStatus::kTaken);
        CHECK(taken.memory.lent_token == num_taken);
        CHECK(taken.num_rows == num_taken + 100);
        ++num_taken;
      }
      if (num_taken < 4) CHECK(ring.Take(kNoWait).status == TakeStatus::kTimedOut);
    }
    CHECK(ring.num_opened() == 4);
    for (int i = 0; i < 2; ++i) CHECK(ring.Take(kNoWait).status == TakeStatus::kEnded);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("a batch is complete with its last cell") {
  BatchRing ring(1, 1);
  InFlightBatch& batch = Open(ring, 0, 10);
  for (const int64_t cells : {3, 6}) {
    ring.CountDown(batch, cells);
    CHECK(ring.Take(kNoWait).status == TakeStatus::kTimedOut);
  }
  ring.CountDown(batch, 1);
  CHECK(ring.Take(kNoWait).status == TakeStatus::kTaken);
}

TEST_CASE("complete batches are counted from their last cell until they are taken") {
  BatchRing ring(3, 3);
  CHECK(ring.num_complete() == 0);
  InFlightBatch& first = Open(ring, 0, 2);
  InFlightBatch& second = Open(ring, 1);
  InFlightBatch& third = Open(ring, 2);
  CHECK(ring.num_complete() == 0);
  ring.CountDown(third, 1);
  ring.CountDown(first, 1);
  CHECK(ring.num_complete() == 1);
  CHECK(ring.Take(kNoWait).status == TakeStatus::kTimedOut);
  CHECK(ring.num_complete() == 1);
  ring.CountDown(first, 1);
  CHECK(ring.num_complete() == 2);
  REQUIRE(ring.Take(kNoWait).status == TakeStatus::kTaken);
  CHECK(ring.num_complete() == 1);
  ring.CountDown(second, 1);
  for (const int64_t left : {1, 0}) {
    REQUIRE(ring.Take(kNoWait).status == TakeStatus::kTaken);
    CHECK(ring.num_complete() == left);
  }
  CHECK(ring.Take(kNoWait).status == TakeStatus::kEnded);
  CHECK(ring.num_complete() == 0);
}

TEST_CASE("batches that are ready leave together, as far as they have as many rows") {
  // Token n has n % 100 + 100 rows.
  const std::vector<int64_t> tokens{0, 100, 200, 1, 101, 201};
  for (int64_t num_complete = 0; num_complete <= 6; ++num_complete) {
    for (int64_t most = 0; most <= 4; ++most) {
      BatchRing ring(6, 6);
      for (const int64_t token : tokens) {
        InFlightBatch& batch = ring.Open(
            {.data = nullptr, .slab = {}, .lent_token = token}, token % 100 + 100, 1);
        if (ring.num_opened() <= num_complete) ring.CountDown(batch, 1);
      }
      ring.Fail({2, 0, 0}, Failure("later"));
      const auto taken = ring.TakeReady(100, most);
      REQUIRE(std::ssize(taken) == std::min({num_complete, most, int64_t{3}}));
      for (size_t i = 0; i < taken.size(); ++i) {
        CHECK(taken[i].status == TakeStatus::kTaken);
        CHECK(taken[i].memory.lent_token == tokens[i]);
        CHECK(taken[i].num_rows == 100);
      }
      CHECK(ring.num_taken() == std::ssize(taken));
      CHECK(ring.num_complete() == num_complete - std::ssize(taken));
      ring.Stop();
      CHECK(ring.TakeReady(100, most).empty());
    }
  }
}

TEST_CASE("an empty stream has ended from the start") {
  BatchRing ring(0, 2);
  CHECK(ring.Take(kLong).status == TakeStatus::kEnded);
}

TEST_CASE("room is what is not in flight") {
  BatchRing ring(10, 3);
  CHECK(ring.HasRoom(0));
  CHECK(ring.HasRoom(3));
  CHECK_FALSE(ring.HasRoom(4));
  InFlightBatch& first = Open(ring, 0);
  Open(ring, 1);
  CHECK(ring.HasRoom(1));
  CHECK_FALSE(ring.HasRoom(2));
  ring.CountDown(first, 1);
  CHECK_FALSE(ring.HasRoom(2));  // complete, but still here
  REQUIRE(ring.Take(kNoWait).status == TakeStatus::kTaken);
  CHECK(ring.HasRoom(2));
  CHECK_FALSE(ring.HasRoom(3));
}

TEST_CASE("a wait lasts its timeout and no longer than needed") {
  using Clock = std::chrono::steady_clock;
  BatchRing ring(1, 1);
  const auto begin = Clock::now();
  CHECK(ring.Take(milliseconds(30)).status == TakeStatus::kTimedOut);
  CHECK(Clock::now() - begin >= milliseconds(30));
  InFlightBatch& batch = Open(ring, 0);
  const pid_t consumer = gettid();
  std::jthread producer([&] {
    testing::AwaitSleep(consumer);
    ring.CountDown(batch, 1);
  });
  CHECK(ring.Take(kLong).status == TakeStatus::kTaken);
  CHECK(Clock::now() - begin < kLong);
}

TEST_CASE("the least failure is raised, in whatever order they are recorded") {
  std::vector<std::pair<FailureKey, std::string>> failures{{{1, 0, 2}, "least"},
                                                           {{1, 1, 0}, "later slice"},
                                                           {{1, 1, 1}, "later column"},
                                                           {{2, 0, 0}, "later batch"}};
  std::sort(failures.begin(), failures.end());
  do {
    BatchRing ring(3, 3);
    InFlightBatch& first = Open(ring, 0);
    for (const auto& [key, message] : failures) ring.Fail(key, Failure(message));
    ring.CountDown(first, 1);
    ring.Close();
    REQUIRE(ring.Take(kNoWait).status == TakeStatus::kTaken);
    const auto error = Caught([&] { ring.Take(kNoWait); });
    REQUIRE(error);
    CHECK(std::string(error->what()) == "least");
  } while (std::next_permutation(failures.begin(), failures.end()));
}

TEST_CASE("of two failures at one place the first recorded stays") {
  BatchRing ring(1, 1);
  ring.Fail({0, 0, 0}, Failure("one"));
  ring.Fail({0, 0, 0}, Failure("two"));
  ring.Close();
  CHECK(std::string(Caught([&] { ring.Take(kNoWait); })->what()) == "one");
}

TEST_CASE("a failure waits for Close and for the batches before it, then stays") {
  BatchRing ring(4, 4);
  InFlightBatch& first = Open(ring, 0);
  InFlightBatch& second = Open(ring, 1);
  InFlightBatch& third = Open(ring, 2);
  Open(ring, 3);
  ring.Fail({3, 0, 0}, Failure("bad page"));
  CHECK(ring.Take(kNoWait).status == TakeStatus::kTimedOut);
  ring.CountDown(first, 1);
  CHECK(ring.Take(kNoWait).status == TakeStatus::kTaken);
  ring.CountDown(third, 1);
  ring.CountDown(second, 1);
  ring.Close();
  CHECK(ring.Take(kNoWait).memory.lent_token == 1);
  CHECK(ring.Take(kNoWait).memory.lent_token == 2);
  for (int i = 0; i < 3; ++i) {
    const auto error = Caught([&] { ring.Take(kLong); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kCorruptFile);
    CHECK(std::string(error->what()) == "bad page");
  }
}

TEST_CASE("Close wakes the consumer that waits for a failed batch") {
  BatchRing ring(1, 1);
  Open(ring, 0);
  const pid_t consumer = gettid();
  std::jthread producer([&] {
    testing::AwaitSleep(consumer);
    ring.Fail({0, 0, 0}, Failure("bad"));
    ring.Close();
  });
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { ring.Take(kLong); }));
}

TEST_CASE("Stop wakes the consumer, and every later wait ends at once") {
  BatchRing ring(2, 2);
  InFlightBatch& batch = Open(ring, 0);
  const pid_t consumer = gettid();
  std::jthread stopper([&] {
    testing::AwaitSleep(consumer);
    ring.Stop();
  });
  CHECK(Throws(ErrorKind::kStopped, [&] { ring.Take(kLong); }));
  stopper.join();
  ring.CountDown(batch, 1);  // a thread that had not yet noticed
  for (int i = 0; i < 2; ++i) {
    CHECK(Throws(ErrorKind::kStopped, [&] { ring.Take(kLong); }));
  }
  ring.Stop();
}

TEST_CASE("a failure that was raised outlives Stop") {
  BatchRing ring(1, 1);
  ring.Fail({0, 0, 0}, Failure("bad"));
  ring.Close();
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { ring.Take(kNoWait); }));
  ring.Stop();
  CHECK(Throws(ErrorKind::kCorruptFile, [&] { ring.Take(kNoWait); }));
}

TEST_CASE("slabs travel with their batch and return to the pool") {
  const auto pool = SlabPool::Make(4096, int64_t{1} << 30);
  BatchRing ring(1, 1);
  BatchMemory memory;
  memory.slab = pool->Acquire();
  memory.data = memory.slab.data();
  uint8_t* data = memory.data;
  const int64_t num_idle = pool->num_idle();
  ring.CountDown(ring.Open(std::move(memory), 1, 1), 1);
  {
    const auto taken = ring.Take(kNoWait);
    CHECK(taken.memory.data == data);
    CHECK(pool->num_idle() == num_idle);
  }
  CHECK(pool->num_idle() == num_idle + 1);
}

// Each of `num_threads` threads writes its cell of every batch; a batch has one per
// thread.
TEST_CASE("what many threads write is whole when the consumer takes it") {
  constexpr int64_t kNumBatches = 500;
  constexpr int64_t kNumThreads = 4;
  constexpr int64_t kInFlight = 5;
  BatchRing ring(kNumBatches, kNumBatches);
  std::vector<std::array<int64_t, kNumThreads>> cells(kNumBatches);
  std::vector<InFlightBatch*> batches;
  for (int64_t i = 0; i < kNumBatches; ++i)
    batches.push_back(&Open(ring, i, kNumThreads));
  std::vector<std::jthread> threads;
  for (int64_t number = 0; number < kNumThreads; ++number) {
    threads.emplace_back([&, number] {
      for (int64_t i = 0; i < kNumBatches; ++i) {
        // Threads go through each stretch in orders of their own.
        const int64_t stretch = i / kInFlight * kInFlight;
        const auto batch = static_cast<size_t>(stretch + (i + number) % kInFlight);
        cells[batch][static_cast<size_t>(number)] =
            static_cast<int64_t>(batch) * 10 + number;
        ring.CountDown(*batches[batch], 1);
      }
    });
  }
  int64_t mismatches = 0;
  for (int64_t i = 0; i < kNumBatches; ++i) {
    const auto taken = ring.Take(kLong);
    REQUIRE(taken.status == TakeStatus::kTaken);
    mismatches += taken.memory.lent_token != i;
    for (int64_t number = 0; number < kNumThreads; ++number) {
      mismatches +=
          cells[static_cast<size_t>(i)][static_cast<size_t>(number)] != i * 10 + number;
    }
  }
  CHECK(mismatches == 0);
  CHECK(ring.Take(kNoWait).status == TakeStatus::kEnded);
  threads.clear();
  CHECK(ring.num_complete() == 0);
}

// A part of rows of `num_bytes` bytes each.
JaggedPart PartOf(SinkPool& pool, int64_t first_row, int64_t num_rows, int64_t num_bytes,
                  int64_t* offsets) {
  JaggedPart part;
  part.first_row = first_row;
  part.num_rows = num_rows;
  part.items.values = pool.Acquire(0);
  for (int64_t row = first_row; row < first_row + num_rows; ++row) {
    offsets[row] = static_cast<int64_t>(part.items.values->size());
    std::fill_n(part.items.values->Extend(static_cast<size_t>(num_bytes)), num_bytes,
                static_cast<uint8_t>(row));
  }
  part.items.num_items = {num_rows * num_bytes};
  return part;
}

// Opens a batch of fields of variable length.
InFlightBatch& OpenJagged(BatchRing& ring, int64_t num_rows, int64_t num_cells,
                          const std::vector<int64_t*>& offsets) {
  std::vector<JaggedField> fields(offsets.size());
  for (size_t i = 0; i < offsets.size(); ++i) {
    fields[i].columns.push_back({.offsets = offsets[i]});
  }
  return ring.Open({}, num_rows, num_cells, std::move(fields));
}

TEST_CASE("parts of fields of variable length are joined, whichever comes last") {
  const auto pool = SinkPool::Make(1 << 20, 1 << 20);
  constexpr int64_t kNumBatches = 100;
  constexpr int64_t kNumParts = 6;
  constexpr int64_t kPartRows = 4;
  constexpr int64_t kRows = kNumParts * kPartRows;
  BatchRing ring(kNumBatches, kNumBatches);
  std::vector<std::array<int64_t, kRows + 1>> offsets(2 * kNumBatches);
  std::vector<InFlightBatch*> batches;
  for (size_t i = 0; i < kNumBatches; ++i) {
    batches.push_back(&OpenJagged(ring, kRows, 2 * kRows,
                                  {offsets[2 * i].data(), offsets[2 * i + 1].data()}));
  }
  std::vector<std::jthread> threads;
  for (int64_t number = 0; number < kNumParts; ++number) {
    threads.emplace_back([&, number] {
      for (size_t i = 0; i < kNumBatches; ++i) {
        for (const int64_t field : {0, 1}) {
          batches[i]->AddPart(field, 0,
                              PartOf(*pool, number * kPartRows, kPartRows, 3 + field,
                                     offsets[2 * i + static_cast<size_t>(field)].data()),
                              "");
          ring.CountDown(*batches[i], kPartRows);
        }
      }
    });
  }
  int64_t num_wrong = 0;
  for (size_t i = 0; i < kNumBatches; ++i) {
    const auto taken = ring.Take(kLong);
    REQUIRE(taken.status == TakeStatus::kTaken);
    REQUIRE(taken.items.size() == 2);
    for (size_t field = 0; field < 2; ++field) {
      const auto row_bytes = static_cast<int64_t>(3 + field);
      const auto values = taken.items[field].values->bytes();
      num_wrong += std::ssize(values) != kRows * row_bytes;
      for (int64_t row = 0; row <= kRows; ++row) {
        num_wrong += offsets[2 * i + field][static_cast<size_t>(row)] != row * row_bytes;
      }
      for (int64_t item = 0; item < std::ssize(values); ++item) {
        num_wrong += values[static_cast<size_t>(item)] != item / row_bytes;
      }
    }
  }
  CHECK(num_wrong == 0);
}

// Opens a batch of keyed fields of `num_columns` columns each, whose offsets stand in
// `slabs`. The second field weighs the first.
InFlightBatch& OpenKeyed(BatchRing& ring, JaggedMemory& memory, int64_t num_rows,
                         int64_t num_columns, std::array<int64_t*, 2> slabs) {
  std::vector<JaggedField> fields(2);
  for (size_t i = 0; i < 2; ++i) {
    for (int64_t column = 0; column < num_columns; ++column) {
      fields[i].columns.push_back({.offsets = slabs[i] + column * (num_rows + 1)});
    }
    fields[i].is_keyed = true;
    fields[i].memory = &memory;
  }
  fields[1].weighs = 0;
  return ring.Open({}, num_rows, 2 * num_columns * num_rows, std::move(fields));
}

std::vector<int32_t> LengthsIn(const int64_t* slab, int64_t count) {
  std::vector<int32_t> lengths(static_cast<size_t>(count));
  std::memcpy(lengths.data(), slab, lengths.size() * sizeof(int32_t));
  return lengths;
}

TEST_CASE("columns of a keyed field are joined in order, whichever comes last") {
  const auto pool = SinkPool::Make(1 << 20, 1 << 20);
  JaggedMemory memory(std::vector<double>(5, 3.0), 1 << 20, pool);
  constexpr int64_t kNumBatches = 60;
  constexpr int64_t kNumColumns = 5;
  constexpr int64_t kNumParts = 3;
  constexpr int64_t kPartRows = 7;
  constexpr int64_t kRows = kNumParts * kPartRows;
  constexpr int64_t kSlab = kNumColumns * (kRows + 1);
  BatchRing ring(kNumBatches, kNumBatches);
  std::vector<std::array<int64_t, kSlab>> slabs(2 * kNumBatches);
  std::vector<InFlightBatch*> batches;
  for (size_t i = 0; i < kNumBatches; ++i) {
    batches.push_back(&OpenKeyed(ring, memory, kRows, kNumColumns,
                                 {slabs[2 * i].data(), slabs[2 * i + 1].data()}));
  }
  std::vector<std::jthread> threads;
  for (int64_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      // Each thread brings its parts in an order of its own.
      std::vector<int64_t> parts;
      for (int64_t i = number; i < 2 * kNumColumns * kNumParts; i += 4)
        parts.push_back(i);
      std::mt19937_64 engine(static_cast<uint64_t>(number));
      for (size_t i = 0; i < kNumBatches; ++i) {
        std::ranges::shuffle(parts, engine);
        for (const int64_t part : parts) {
          const int64_t field = part % 2;
          const int64_t column = part / 2 % kNumColumns;
          const int64_t first = part / 2 / kNumColumns * kPartRows;
          int64_t* offsets =
              slabs[2 * i + static_cast<size_t>(field)].data() + column * (kRows + 1);
          batches[i]->AddPart(field, column,
                              PartOf(*pool, first, kPartRows, column + 1, offsets), "");
          ring.CountDown(*batches[i], kPartRows);
        }
      }
    });
  }
  std::vector<int32_t> lengths;
  std::vector<uint8_t> values;
  std::vector<int64_t> begins{0};
  for (int32_t column = 0; column < kNumColumns; ++column) {
    for (int64_t row = 0; row < kRows; ++row) {
      lengths.push_back(column + 1);
      values.insert(values.end(), static_cast<size_t>(column) + 1,
                    static_cast<uint8_t>(row));
    }
    begins.push_back(std::ssize(values));
  }
  int64_t num_wrong = 0;
  for (size_t i = 0; i < kNumBatches; ++i) {
    const auto taken = ring.Take(kLong);
    REQUIRE(taken.status == TakeStatus::kTaken);
    for (size_t field = 0; field < 2; ++field) {
      const auto found = taken.items[field].values->bytes();
      num_wrong += !std::ranges::equal(found, values);
      num_wrong += LengthsIn(slabs[2 * i + field].data(), kNumColumns * kRows) != lengths;
      std::vector<int64_t> starts(begins.size());
      const auto bytes = taken.items[field].starts.front()->bytes();
      REQUIRE(bytes.size() == starts.size() * sizeof(int64_t));
      std::memcpy(starts.data(), bytes.data(), bytes.size());
      num_wrong += starts != begins;
    }
  }
  CHECK(num_wrong == 0);
}

TEST_CASE("a keyed field of a batch that is cut has the lengths of its rows") {
  const auto pool = SinkPool::Make(1 << 20, 1 << 20);
  JaggedMemory memory({3.0, 3.0}, 1 << 20, pool);
  BatchRing ring(5, 5);
  std::array<std::array<int64_t, 22>, 2> slabs;
  InFlightBatch& batch =
      OpenKeyed(ring, memory, 10, 2, {slabs[0].data(), slabs[1].data()});
  for (const int64_t field : {0, 1}) {
    for (const int64_t column : {1, 0}) {
      int64_t* offsets = slabs[static_cast<size_t>(field)].data() + column * 11;
      batch.AddPart(field, column, PartOf(*pool, 0, 4, 2 + column, offsets), "");
      ring.CountDown(batch, 4);
    }
  }
  ring.EndAfter(1, 4, 4);
  const auto taken = ring.Take(kLong);
  REQUIRE(taken.status == TakeStatus::kTaken);
  CHECK(taken.num_rows == 4);
  CHECK(LengthsIn(slabs[0].data(), 8) == std::vector<int32_t>{2, 2, 2, 2, 3, 3, 3, 3});
}

TEST_CASE("weights that do not have the lengths of their values fail") {
  const auto pool = SinkPool::Make(1 << 20, 1 << 20);
  JaggedMemory memory({3.0, 3.0}, 1 << 20, pool);
  BatchRing ring(1, 1);
  std::array<std::array<int64_t, 22>, 2> slabs;
  InFlightBatch& batch =
      OpenKeyed(ring, memory, 10, 2, {slabs[0].data(), slabs[1].data()});
  for (const int64_t field : {0, 1}) {
    for (const int64_t column : {0, 1}) {
      int64_t* offsets = slabs[static_cast<size_t>(field)].data() + column * 11;
      const int64_t last = field * column;  // of the last rows: one more weight
      batch.AddPart(field, column, PartOf(*pool, 0, 6, 2, offsets), "ids");
      batch.AddPart(field, column, PartOf(*pool, 6, 4, 2 + last, offsets), "ids");
      ring.CountDown(batch, 10);
    }
  }
  ring.Close();
  for (int i = 0; i < 2; ++i) {
    const auto error = Caught([&] { ring.Take(kLong); });
    REQUIRE(error.has_value());
    CHECK(error->kind() == ErrorKind::kListLength);
    CHECK(
        testing::Mentions(*error, "3 weights for 2 values of 'ids', row 6 of the batch"));
  }
}

TEST_CASE("a column that cannot be joined is named, whichever thread joins it") {
  const auto pool = SinkPool::Make(1 << 20, 1 << 20);
  JaggedMemory memory({3.0, 3.0}, 1 << 20, pool);
  for (const bool last_is_long : {true, false}) {
    BatchRing ring(1, 1);
    std::array<std::array<int64_t, 22>, 2> slabs;
    InFlightBatch& batch =
        OpenKeyed(ring, memory, 10, 2, {slabs[0].data(), slabs[1].data()});
    const auto bring = [&](int64_t field, int64_t column, bool is_long) {
      int64_t* offsets = slabs[static_cast<size_t>(field)].data() + column * 11;
      JaggedPart part = PartOf(*pool, 0, 10, 2, offsets);
      if (is_long) part.items.num_items.front() += int64_t{1} << 31;
      CHECK_NOTHROW(batch.AddPart(field, column, std::move(part),
                                  column == 0 ? "first" : "second"));
      ring.CountDown(batch, 10);
    };
    // The second column waits for the first, so what brings the first joins both.
    for (const int64_t field : {0, 1}) {
      bring(field, 1, last_is_long);
      bring(field, 0, !last_is_long);
    }
    for (int i = 0; i < 2; ++i) {
      const auto error = Caught([&] { ring.Take(kNoWait); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kListLength);
      CHECK(
          testing::Mentions(*error, last_is_long ? "column 'second'" : "column 'first'"));
      CHECK(testing::Mentions(*error, "longer than an int32 holds: 2147483650"));
    }
  }
}

TEST_CASE("parts that are too large together fail alike, whichever comes last") {
  const auto pool = SinkPool::Make(1 << 20, 1000);
  std::vector<std::string> messages;
  for (const std::array<int64_t, 3> order :
       {std::array<int64_t, 3>{0, 1, 2}, {2, 1, 0}}) {
    BatchRing ring(2, 2);
    std::array<std::array<int64_t, 4>, 2> offsets;
    const auto fill = [&](size_t number, const std::array<int64_t, 3>& sizes) {
      InFlightBatch& batch = OpenJagged(ring, 3, 3, {offsets[number].data()});
      for (const int64_t row : order) {
        batch.AddPart(0, 0,
                      PartOf(*pool, row, 1, sizes[static_cast<size_t>(row)],
                             offsets[number].data()),
                      "words");
        ring.CountDown(batch, 1);
      }
    };
    fill(0, {500, 200, 300});
    fill(1, {500, 202, 300});
    CHECK(ring.Take(kNoWait).status == TakeStatus::kTaken);
    for (int i = 0; i < 2; ++i) {
      const auto error = Caught([&] { ring.Take(kNoWait); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kValuesTooLarge);
      CHECK(testing::Mentions(*error, "column 'words'"));
      CHECK(testing::Mentions(*error, "1002 bytes of 1000"));
      messages.push_back(error->what());
    }
  }
  CHECK(messages == std::vector(4, messages.front()));
}

}  // namespace
}  // namespace torchparquet
