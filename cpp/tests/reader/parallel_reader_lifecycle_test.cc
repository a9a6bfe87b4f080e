#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "await_sleep.h"
#include "caught.h"
#include "draws.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "recipes/window_cutting.h"
#include "tried.h"

namespace torchparquet {
namespace {

using std::chrono::milliseconds;
using testing::Consumer;
using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;
using testing::Throws;

constexpr milliseconds kLong{60'000};

FileRecipe Recipe() {
  return {.columns = {{"id", "int64"},
                      {"label", "bool", StoredAs::kPlain, 4},
                      {"price", "float32", StoredAs::kDictionary, 7}},
          .row_group_rows = {200, 400},
          .page_rows = 100};
}

// A specification under which the threads wait for the consumer most of the time.
ReaderParts TightSpec(const DataSet& data, int64_t num_threads) {
  ReaderParts spec = data.Spec(32, num_threads);
  spec.max_memory_bytes = testing::MemoryFor(spec, 3);
  return spec;
}

bool NextThrowsStopped(ParallelReader& reader) {
  return Throws(ErrorKind::kStopped, [&] { reader.Next(kLong); });
}

TEST_CASE("Stop after any number of batches") {
  const DataSet data(Recipe(), 2);
  for (const int64_t num_threads : testing::Tried({1, 4, 64})) {
    for (const bool tight : {false, true}) {
      const ReaderParts spec =
          tight ? TightSpec(data, num_threads) : data.Spec(32, num_threads);
      const int64_t num_batches = (data.num_rows() + 31) / 32;
      for (int64_t stop_after = 0; stop_after <= num_batches; stop_after += 3) {
        Consumer consumer(data, spec);
        for (int64_t i = 0; i < stop_after; ++i) REQUIRE(consumer.TakeOne());
        consumer.reader().Stop();
        CHECK(consumer.num_mismatches() == 0);
        CHECK(NextThrowsStopped(consumer.reader()));
        consumer.reader().Stop();
        CHECK(NextThrowsStopped(consumer.reader()));
      }
    }
  }
}

TEST_CASE("a reader may be destroyed unused, stopped unused, and while it runs") {
  const DataSet data(Recipe(), 2);
  {
    const ParallelReader unused(ReaderSpec{data.Spec(32, 2)});
  }
  {
    ParallelReader reader(ReaderSpec{data.Spec(32, 2)});
    reader.Stop();
    CHECK(NextThrowsStopped(reader));
  }
  for (int64_t taken = 0; taken < 12; ++taken) {
    Consumer consumer(data, taken % 2 == 0 ? TightSpec(data, 3) : data.Spec(32, 3));
    consumer.reader().Next(milliseconds(0));  // starts the threads, and waits for nothing
    CHECK(consumer.reader().stats().consumer_wait < std::chrono::seconds(10));
  }
}

TEST_CASE("a batch outlives its reader") {
  const DataSet data(Recipe(), 1);
  BatchRing::TakeResult taken{BatchRing::TakeStatus::kEnded, {}};
  int64_t offset = -1;
  {
    ParallelReader reader(ReaderSpec{data.Spec(32, 2)});
    taken = reader.Next(kLong);
    offset = reader.layout().fields[3].values_offset;
  }
  REQUIRE(taken.status == BatchRing::TakeStatus::kTaken);
  // Fields are aligned to 64 bytes.
  const auto* row_ids = reinterpret_cast<const int64_t*>(taken.memory.data + offset);
  for (int64_t row = 0; row < 32; ++row) CHECK(row_ids[row] == row);
}

TEST_CASE("Stop from another thread ends a Next that waits") {
  const DataSet data(Recipe(), 1);
  for (int64_t trial = 0; trial < testing::NumTried(10); ++trial) {
    ReaderParts spec = data.Spec(32, 2);
    spec.lent_slabs = true;  // and none is lent, so that Next can only wait
    ParallelReader reader(ReaderSpec{spec});
    const pid_t consumer = gettid();
    std::jthread stopper([&] {
      if (trial % 2 == 0) testing::AwaitSleep(consumer);
      reader.Stop();
    });
    CHECK(NextThrowsStopped(reader));
  }
}

TEST_CASE("Next times out while nothing is lent, and goes on when something is") {
  const DataSet data(Recipe(), 1);
  ReaderParts spec = data.Spec(32, 2);
  spec.max_memory_bytes = testing::MemoryFor(spec, 3);
  spec.lent_slabs = true;
  ParallelReader reader(ReaderSpec{spec});
  CHECK(reader.Next(milliseconds(20)).status == BatchRing::TakeStatus::kTimedOut);
  std::vector<testing::ExactBuffer<uint8_t>> slabs;
  for (int64_t token = 0; token < 3; ++token) {
    slabs.emplace_back(static_cast<size_t>(reader.layout().slab_bytes));
    reader.Lend(slabs.back().data(), token);
  }
  for (int64_t token = 0; token < 3; ++token) {
    const auto taken = reader.Next(kLong);
    REQUIRE(taken.status == BatchRing::TakeStatus::kTaken);
    CHECK(taken.memory.lent_token == token);
  }
  CHECK(reader.Next(milliseconds(20)).status == BatchRing::TakeStatus::kTimedOut);
}

TEST_CASE("several threads may stop one reader at once") {
  const DataSet data(Recipe(), 1);
  for (int64_t trial = 0; trial < testing::NumTried(10); ++trial) {
    Consumer consumer(data, TightSpec(data, 4));
    REQUIRE(consumer.TakeOne());
    std::vector<std::jthread> stoppers;
    for (int i = 0; i < 4; ++i) stoppers.emplace_back([&] { consumer.reader().Stop(); });
    stoppers.clear();
    CHECK(NextThrowsStopped(consumer.reader()));
  }
}

// Runs one schedule. It draws the set-up, how far the reader is read, and how it ends.
void RunSchedule(const DataSet& data, int64_t num_threads, testing::Draws& draws) {
  ReaderParts spec = data.Spec(draws.Between(20, 90), num_threads);
  if (draws.OneIn(2)) {
    spec.max_memory_bytes = testing::MemoryFor(spec, draws.Between(2, 6));
  } else if (draws.OneIn(2)) {
    testing::SetWindows(&spec.share, draws.Between(1, 4));
  }
  spec.lent_slabs = draws.OneIn(3);
  Consumer consumer(data, spec);
  const int64_t num_batches = consumer.reader().num_batches();
  int64_t left = draws.OneIn(4) ? num_batches : draws.Below(num_batches);
  // Another thread stops the reader when so many batches are left, or earlier.
  const int64_t left_at_stop = draws.OneIn(2) ? left : draws.Below(left + 1);
  std::latch is_to_stop(1);
  std::optional<std::jthread> stopper;
  if (draws.OneIn(3)) {
    stopper.emplace([&consumer, &is_to_stop] {
      is_to_stop.wait();
      consumer.reader().Stop();
    });
  } else if (draws.OneIn(2)) {
    stopper.emplace([&consumer] { static_cast<void>(consumer.reader().stats()); });
  }
  const auto error = testing::Caught([&] {
    if (left == left_at_stop) is_to_stop.count_down();
    while (left > 0 && consumer.TakeOne()) {
      if (--left == left_at_stop) is_to_stop.count_down();
    }
  });
  if (!is_to_stop.try_wait()) is_to_stop.count_down();  // after an error
  if (error) CHECK(error->kind() == ErrorKind::kStopped);
  if (!error) CHECK(left == 0);
  CHECK(consumer.num_mismatches() == 0);
  stopper.reset();
  if (draws.OneIn(2)) consumer.reader().Stop();
}

TEST_CASE("schedules of starting, reading and stopping") {
  const DataSet data(Recipe(), 2);
  testing::Draws draws(testing::SeedTried(70));
  for (int64_t schedule = 0; schedule < testing::NumTried(300); ++schedule) {
    CAPTURE(schedule);
    RunSchedule(data, draws.Between(1, 8), draws);
  }
}

TEST_CASE("schedules of sixty-four threads") {
  const DataSet data(Recipe(), 5);
  testing::Draws draws(testing::SeedTried(71));
  for (int64_t schedule = 0; schedule < testing::NumTried(30); ++schedule) {
    CAPTURE(schedule);
    RunSchedule(data, 64, draws);
  }
}

TEST_CASE("in a forked child an inherited reader raises and lets itself be destroyed") {
  const DataSet data(Recipe(), 1);
  auto reader = std::make_unique<ParallelReader>(ReaderSpec{TightSpec(data, 3)});
  REQUIRE(reader->Next(kLong).status == BatchRing::TakeStatus::kTaken);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    const bool raised = NextThrowsStopped(*reader) &&
                        Throws(ErrorKind::kStopped, [&] { reader->Lend(nullptr, 0); });
    const bool uncounted = reader->stats().batches == 0;
    reader->Stop();
    reader.reset();
    _exit(raised && uncounted ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(reader->Next(kLong).status == BatchRing::TakeStatus::kTaken);
}

}  // namespace
}  // namespace torchparquet
