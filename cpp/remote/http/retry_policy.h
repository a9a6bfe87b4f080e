#pragma once

#include <chrono>
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

}  // namespace torchparquet
