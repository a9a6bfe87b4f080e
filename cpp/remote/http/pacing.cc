#include "remote/http/pacing.h"

#include <cmath>

namespace torchparquet {
namespace {

constexpr double kFirstSpanSeconds = 0.1;
constexpr double kMaxSpanSeconds = 20;

RetryPolicy::Time Later(RetryPolicy::Time time, double seconds) {
  return time + std::chrono::duration_cast<RetryPolicy::Time::duration>(
                    std::chrono::duration<double>(seconds));
}

constexpr size_t kMinTimes = 16;
// Each update sorts all times.
constexpr size_t kUpdateEvery = 8;
constexpr double kMedians = 4;
constexpr double kPercentile = 0.95;

// One of so many requests may be sent twice, and so many in a row.
constexpr int64_t kRequestsPerHedge = 20;
constexpr int64_t kMaxHedges = 8;

}  // namespace

std::optional<RetryPolicy::Time> RetryPolicy::After(const Failure& failure) {
  if (num_failures_++ == 0) first_failure_ = failure.now;
  const Time last = Later(first_failure_, max_seconds_);
  num_busy_ += failure.is_busy ? 1 : 0;
  const bool is_last =
      num_tries_ - num_busy_ >= max_tries_ || num_busy_ > kBusyTries * (max_tries_ - 1);
  if (is_last || failure.now >= last) return std::nullopt;
  const double doublings = std::min(static_cast<double>(num_failures_ - 1), 30.0);
  const double span = std::min(kMaxSpanSeconds, kFirstSpanSeconds * std::exp2(doublings));
  // The store may wish for days.
  const double wish = std::min(failure.retry_after_seconds, max_seconds_);
  return std::min(last, Later(failure.now, wish + span * failure.draw));
}

void FirstByteTimes::Add(double seconds) {
  times_[num_times_++ % times_.size()] = seconds;
  if (num_times_ >= kMinTimes && num_times_ % kUpdateEvery == 0) Update();
}

void FirstByteTimes::Update() {
  auto sorted = times_;
  const auto count = std::min(num_times_, sorted.size());
  std::sort(sorted.begin(), sorted.begin() + count);
  const double median = sorted[count / 2];
  const double high =
      sorted[static_cast<size_t>(kPercentile * static_cast<double>(count))];
  slow_after_ = std::max(kMedians * median, high);
}

void HedgeBudget::Earn() {
  num_earned_ = std::min(kMaxHedges * kRequestsPerHedge, num_earned_ + 1);
}

bool HedgeBudget::Spend(int64_t num_slow, int64_t num_in_flight) {
  if (num_slow > std::max<int64_t>(1, num_in_flight / 4)) return false;
  if (num_earned_ < kRequestsPerHedge) return false;
  num_earned_ -= kRequestsPerHedge;
  return true;
}

}  // namespace torchparquet
