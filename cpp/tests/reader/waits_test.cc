#include "reader/waits.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace torchparquet {
namespace {

using std::chrono::nanoseconds;

ConsumerWait::Clock::time_point At(int64_t time) {
  return ConsumerWait::Clock::time_point(nanoseconds(time));
}

TEST_CASE("a consumer's waits add up, with the one under way") {
  ConsumerWait wait;
  CHECK(wait.Total(At(5)) == nanoseconds(0));
  wait.Begin(At(10));
  CHECK(wait.Total(At(13)) == nanoseconds(3));
  wait.End(At(20));
  CHECK(wait.Total(At(100)) == nanoseconds(10));
  wait.Begin(At(100));
  CHECK(wait.Total(At(101)) == nanoseconds(11));
  wait.End(At(105));
  CHECK(wait.Total(At(1000)) == nanoseconds(15));
}

TEST_CASE("threads wait for the consumer, or beside it for memory") {
  ConsumerWait consumer;
  RoomWaits waits(&consumer);
  waits.Begin(At(0));
  waits.Begin(At(10));
  CHECK(waits.Total(At(20)).for_consumer == nanoseconds(30));
  consumer.Begin(At(20));
  CHECK(waits.Total(At(25)).for_consumer == nanoseconds(30));
  CHECK(waits.Total(At(25)).for_memory == nanoseconds(10));
  waits.End(At(30));
  consumer.End(At(40));
  waits.End(At(50));
  const RoomWaits::Sums sums = waits.Total(At(500));
  CHECK(sums.for_consumer == nanoseconds(20 + 10 + 10));
  CHECK(sums.for_memory == nanoseconds(10 + 20));
}

TEST_CASE("another thread sees a total that never falls") {
  ConsumerWait wait;
  std::atomic<int64_t> now{0};
  std::atomic<bool> is_done{false};
  std::thread consumer([&] {
    for (int64_t i = 0; i < 20'000; ++i) {
      wait.Begin(At(now++));
      wait.End(At(now++));
    }
    is_done = true;
  });
  nanoseconds last(0);
  bool has_fallen = false;
  while (!is_done) {
    // Of a moment at which no wait is under way: those after it would count from then on.
    const nanoseconds total = wait.Total(At(1'000'000'000));
    if (total > nanoseconds(20'000)) continue;
    has_fallen |= total < last;
    last = total;
  }
  consumer.join();
  CHECK_FALSE(has_fallen);
  CHECK(wait.Total(At(0)) == nanoseconds(20'000));
}

TEST_CASE("threads are idle from their end to the last one's") {
  ThreadEnds ends;
  for (int thread = 0; thread < 3; ++thread) ends.Begin();
  CHECK(ends.Idle(At(5)) == nanoseconds(0));
  ends.End(At(10));
  CHECK(ends.Idle(At(15)) == nanoseconds(5));
  ends.End(At(20));
  CHECK(ends.Idle(At(30)) == nanoseconds(20 + 10));
  ends.End(At(40));
  CHECK(ends.Idle(At(500)) == nanoseconds(30 + 20));
  ends.Stop(At(600));
  CHECK(ends.Idle(At(700)) == nanoseconds(30 + 20));
}

TEST_CASE("threads that are told to stop are not idle") {
  ThreadEnds ends;
  for (int thread = 0; thread < 3; ++thread) ends.Begin();
  ends.End(At(10));
  ends.Stop(At(15));
  ends.End(At(20));
  CHECK(ends.Idle(At(30)) == nanoseconds(5));
  ends.End(At(1'000));
  CHECK(ends.Idle(At(2'000)) == nanoseconds(5));
}

}  // namespace
}  // namespace torchparquet
