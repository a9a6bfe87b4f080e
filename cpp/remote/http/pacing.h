#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace torchparquet {

// When a fetch whose requests fail is tried again. Used by one thread.
class RetryPolicy {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Failure {
    Time now;
    double retry_after_seconds = 0;  // as the store wishes
    double draw = 0;                 // random, in [0, 1)
    bool is_busy = false;            // the store only asks to come back later
  };

  // No try begins later than `max_seconds` after the first failure. A busy store is asked
  // again kBusyTries times as often as one that fails, but never if there is one try:
  // when thousands of ranks begin together, it refuses most of what they ask for.
  RetryPolicy(int64_t max_tries, double max_seconds)
      : max_tries_(max_tries), max_seconds_(max_seconds) {}

  int64_t num_tries() const { return num_tries_; }
  void BeginTry() { ++num_tries_; }

  // Returns when the next try may begin; nothing if there is none. Waits for a random
  // part of a span that doubles with each failure, so that clients do not come back
  // together.
  std::optional<Time> After(const Failure& failure);

 private:
  static constexpr int64_t kBusyTries = 10;

  int64_t max_tries_;
  double max_seconds_;
  int64_t num_tries_ = 0;
  int64_t num_failures_ = 0;
  int64_t num_busy_ = 0;
  Time first_failure_ = {};
};

// How many requests may be in flight: a quarter of the most at first, and one more with
// each that ends well, so that the first bytes, for which a loop waits, come before
// others. It is halved when the store is overloaded, and from then on grows by one with
// each quiet round, in which every allowed request has its turn. Used by one thread.
class ConnectionBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ConnectionBudget(int64_t max_connections)
      : max_(std::max<int64_t>(max_connections, 1)),
        allowed_(std::max<int64_t>(max_ / 4, 1)) {}

  int64_t allowed() const { return allowed_; }

  // A request ended well.
  void Completed() {
    if (++round_requests_ < allowed_ && !is_new_) return;
    round_requests_ = 0;
    allowed_ = std::min(max_, allowed_ + 1);
  }

  // The store asked to slow down, or a request stalled.
  void Overloaded(Time now) {
    if (now - last_overload_ < kBurst) return;
    last_overload_ = now;
    is_new_ = false;
    round_requests_ = 0;
    allowed_ = std::max<int64_t>(1, allowed_ / 2);
  }

 private:
  // Refusals of one burst count once.
  static constexpr auto kBurst = std::chrono::milliseconds(500);

  const int64_t max_;
  int64_t allowed_;
  bool is_new_ = true;  // without an overload so far
  int64_t round_requests_ = 0;
  Time last_overload_ = Time() - kBurst;
};

// Recent times from a request to its first byte, of one host. Used by one thread.
class FirstByteTimes {
 public:
  // Below this a second request costs more than it saves.
  static constexpr double kMinSeconds = 0.05;

  void Add(double seconds);
  // First bytes later than this are slow: four times the median, and beyond the 95th
  // percentile and `min_seconds`. Nothing while too few times are known.
  std::optional<double> SlowAfter(double min_seconds = kMinSeconds) const {
    if (!slow_after_) return std::nullopt;
    return std::max(*slow_after_, min_seconds);
  }

 private:
  void Update();

  std::array<double, 128> times_ = {};  // a ring
  size_t num_times_ = 0;                // ever added
  std::optional<double> slow_after_;
};

// How many requests may be sent twice. A store that is slow as a whole would only become
// slower by it. Used by one thread.
class HedgeBudget {
 public:
  // A request was sent.
  void Earn();
  // Takes a second request, if one is left. `num_slow` of the `num_in_flight` requests
  // wait too long for their first byte.
  bool Spend(int64_t num_slow, int64_t num_in_flight);

 private:
  int64_t num_earned_ = 0;  // in requests
};

}  // namespace torchparquet
