#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace torchparquet {

// How long the consumer has waited in all, with the wait under way. One writer at a time,
// any number of readers.
class ConsumerWait {
 public:
  using Clock = std::chrono::steady_clock;

  void Begin(Clock::time_point now);
  void End(Clock::time_point now);
  std::chrono::nanoseconds Total(Clock::time_point now) const;

 private:
  // Twice the nanoseconds that were waited; while a wait is under way these less its
  // begin, and one. A single word, so that readers never see half of a change.
  std::atomic<int64_t> word_{0};
};

// How long decode threads have waited for room, told apart by what the consumer did
// meanwhile. Where it waited too, room is what was missing: batches in flight held all
// the memory that they may, and none was complete. Where it did not, the threads were
// ahead of it. To be used under one lock.
class RoomWaits {
 public:
  using Clock = ConsumerWait::Clock;

  explicit RoomWaits(const ConsumerWait* consumer) : consumer_(consumer) {}

  // Of one thread, which waits once at a time.
  void Begin(Clock::time_point now) { Count(now, 1); }
  void End(Clock::time_point now) { Count(now, -1); }

  struct Sums {
    std::chrono::nanoseconds for_consumer{0};
    std::chrono::nanoseconds for_memory{0};
  };
  // Of all threads, with the waits under way.
  Sums Total(Clock::time_point now) const;

 private:
  void Count(Clock::time_point now, int64_t begun);

  const ConsumerWait* consumer_;
  int64_t num_waiting_ = 0;
  // Of waits that have ended their length, of those under way less their begin: by the
  // clock, and by what the consumer has waited.
  std::chrono::nanoseconds all_{0};
  std::chrono::nanoseconds beside_{0};
};

}  // namespace torchparquet
