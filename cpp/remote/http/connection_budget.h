#pragma once

#include <chrono>
#include <cstdint>

namespace torchparquet {

// How many requests may be in flight. Grows as long as more of them bring more bytes, and
// shrinks when the store is overloaded. Judges rounds, in which every allowed request had
// its turn. Used by one thread.
class ConnectionBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;

  ConnectionBudget(int64_t min_connections, int64_t max_connections);

  int64_t allowed() const { return allowed_; }

  void Received(int64_t num_bytes) { round_bytes_ += num_bytes; }
  // A request ended well. `others_wait` says that more requests would be made if they
  // were allowed; rates without them tell nothing.
  void Completed(Time now, bool others_wait);
  // The store asked to slow down, or a request stalled.
  void Overloaded(Time now);

 private:
  void Judge(double rate);
  void Probe(double rate);
  void Settle(int64_t allowed);
  void BeginRound(Time now);

  const int64_t min_;
  const int64_t max_;
  int64_t allowed_;

  Time round_begin_ = {};
  int64_t round_bytes_ = 0;
  int64_t round_requests_ = 0;
  bool is_round_saturated_ = true;

  bool is_probing_ = false;  // allowed_ was raised from probed_from_
  int64_t probed_from_ = 0;
  double settled_rate_ = 0;  // bytes a second before the probe
  int64_t rounds_to_hold_ = 0;
  Time last_overload_ = {};
  bool was_overloaded_ = false;
};

}  // namespace torchparquet
