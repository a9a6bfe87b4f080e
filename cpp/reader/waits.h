#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace torchparquet {

// The time that the consumer has waited, including a wait under way. One writer at a
// time, any number of readers.
class ConsumerWait {
 public:
  using Clock = std::chrono::steady_clock;

  void Begin(Clock::time_point now);
  void End(Clock::time_point now);
  std::chrono::nanoseconds Total(Clock::time_point now) const;

 private:
  // 2 x nanoseconds waited; during a wait, 2 x (total - start) + 1. A single word, so
  // readers never see half of a change.
  std::atomic<int64_t> word_{0};
};

// The time that decode threads have waited for room, split by what the consumer did
// meanwhile. While the consumer waited too, room was missing: batches in flight held all
// the memory they may, and none was complete. While it did not, the threads were ahead of
// it. Used under one lock.
class RoomWaits {
 public:
  using Clock = ConsumerWait::Clock;

  explicit RoomWaits(const ConsumerWait* consumer) : consumer_(consumer) {}

  // Both are called for one thread, which waits once at a time.
  void Begin(Clock::time_point now) { Count(now, 1); }
  void End(Clock::time_point now) { Count(now, -1); }

  struct Sums {
    std::chrono::nanoseconds for_consumer{0};
    std::chrono::nanoseconds for_memory{0};

    std::chrono::nanoseconds all() const { return for_consumer + for_memory; }
  };
  // The sums over all threads, including waits under way.
  Sums Total(Clock::time_point now) const;

 private:
  void Count(Clock::time_point now, int64_t begun);

  const ConsumerWait* consumer_;
  int64_t num_waiting_ = 0;
  // The length of ended waits, minus the start of waits under way: by the clock, and by
  // the time that the consumer has waited.
  std::chrono::nanoseconds all_{0};
  std::chrono::nanoseconds beside_{0};
};

// The time between the end of each decode thread and that of the last one, or the moment
// at which they were told to stop. Used under one lock.
class ThreadEnds {
 public:
  using Clock = ConsumerWait::Clock;

  // End allocates nothing, so that a thread without memory can end.
  void Begin();
  void End(Clock::time_point now) noexcept;
  // Threads that end from now on do not count.
  void Stop(Clock::time_point now);
  // The sum over all threads that have ended, up to `now` if others have not.
  std::chrono::nanoseconds Idle(Clock::time_point now) const;

 private:
  int64_t num_running_ = 0;
  std::vector<Clock::time_point> ends_;
  std::optional<Clock::time_point> stop_;
};

// The time of decode threads on the lock under which tasks are dealt out. Guarded by it.
struct LockTimes {
  std::chrono::nanoseconds waited{0};
  std::chrono::nanoseconds held{0};
};

// Takes that lock, and lets it go, by the clock.
class TimedLock {
 public:
  using Clock = ConsumerWait::Clock;

  TimedLock(std::mutex* mutex, LockTimes* times);
  ~TimedLock();
  TimedLock(const TimedLock&) = delete;
  TimedLock& operator=(const TimedLock&) = delete;

  void Lock();
  void Unlock();
  // Lets go until it is notified. That time counts neither as held nor as waited.
  void Wait(std::condition_variable* changed);

 private:
  std::unique_lock<std::mutex> lock_;
  LockTimes* times_;
  Clock::time_point since_;
};

// The decode threads that have found no task. A change wakes one of them, and each that
// finds a task the next: n new tasks wake n + 1 threads at most.
//
//   change --Wake--> a thread looks --a task is found--> WakeNext, for another thread
//                                   \--none is---------> Wait, until the next change
//
// Threads are alike: if one finds no task, no other would. So a thread that makes a
// change and then looks itself need only note it. The spare thread waits for the
// consumer instead, apart from the others. Used under the reader's lock, but for
// WakeNext.
class IdleThreads {
 public:
  // There may be a task, or more to ask for, for the thread that calls.
  void NoteChange() { may_find_ = true; }
  // There may be for a thread that waits.
  void Wake();
  // A thread has found a task, and there may be another one for a thread that waits. Best
  // called without the lock, which the woken thread takes at once.
  void WakeNext() { work_.notify_one(); }
  // The stream has ended or failed.
  void WakeAll();
  // True if a thread waits that may find a task.
  bool has_waiting() const { return num_waiting_ > 0 && may_find_; }
  // There was no task.
  void Wait(TimedLock* lock);

  // The spare thread waits for the consumer to have less before it.
  void WaitAsSpare(TimedLock* lock);
  bool spare_waits() const { return spare_waits_; }
  void WakeSpare() { spare_.notify_one(); }

 private:
  std::condition_variable work_;
  std::condition_variable spare_;
  int64_t num_waiting_ = 0;
  bool may_find_ = false;
  bool spare_waits_ = false;
};

}  // namespace torchparquet
