#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace torchparquet {

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

}  // namespace torchparquet
