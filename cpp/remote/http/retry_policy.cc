#include "remote/http/retry_policy.h"

#include <algorithm>
#include <cmath>

namespace torchparquet {
namespace {

constexpr double kFirstSpanSeconds = 0.1;
constexpr double kMaxSpanSeconds = 20;

RetryPolicy::Time Later(RetryPolicy::Time time, double seconds) {
  return time + std::chrono::duration_cast<RetryPolicy::Time::duration>(
                    std::chrono::duration<double>(seconds));
}

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

}  // namespace torchparquet
