#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace torchparquet {

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
