#include "remote/http/connection_budget.h"

#include <algorithm>

namespace torchparquet {
namespace {

using std::chrono::milliseconds;

// Shorter rounds are noise.
constexpr auto kMinRound = milliseconds(100);
constexpr int64_t kMinRoundRequests = 8;
// More connections are kept if they bring this part of what each brought before, and
// given up for a loss.
constexpr double kGainPart = 0.2;
constexpr double kLoss = 0.9;
// At the same number of connections only a deep fall means something.
constexpr double kFall = 0.5;
// Rounds until a number that proved best is questioned again.
constexpr int64_t kRoundsToHold = 20;
// Refusals of one burst count once.
constexpr auto kBurst = milliseconds(500);
constexpr auto kMemory = std::chrono::seconds(10);

}  // namespace

ConnectionBudget::ConnectionBudget(int64_t min_connections, int64_t max_connections)
    : min_(std::max<int64_t>(min_connections, 1)),
      max_(std::max(max_connections, min_)),
      allowed_(min_) {}

void ConnectionBudget::Completed(Time now, bool others_wait) {
  if (round_begin_ == Time()) BeginRound(now);
  ++round_requests_;
  is_round_saturated_ = is_round_saturated_ && others_wait;
  const auto elapsed = now - round_begin_;
  if (round_requests_ < std::max(allowed_, kMinRoundRequests) || elapsed < kMinRound) {
    return;
  }
  if (allowed_ < min_) {
    // Without refusals for a round, an overload is over.
    allowed_ = std::min(min_, allowed_ * 2);
  } else if (is_round_saturated_) {
    Judge(static_cast<double>(round_bytes_) /
          std::chrono::duration<double>(elapsed).count());
  }
  BeginRound(now);
}

void ConnectionBudget::Judge(double rate) {
  if (is_probing_) {
    const double growth =
        static_cast<double>(allowed_ - probed_from_) / static_cast<double>(probed_from_);
    if (rate >= (1 + kGainPart * growth) * settled_rate_) {
      Probe(rate);
    } else if (rate < kLoss * settled_rate_) {
      Settle(std::max(min_, probed_from_ / 2));
    } else {
      Settle(probed_from_);
    }
  } else if (rounds_to_hold_ == 0) {
    Probe(rate);
  } else {
    --rounds_to_hold_;
    if (rate < kFall * settled_rate_) Settle(std::max(min_, allowed_ / 2));
    settled_rate_ = rate;
  }
}

void ConnectionBudget::Probe(double rate) {
  settled_rate_ = rate;
  if (allowed_ == max_) return Settle(max_);
  is_probing_ = true;
  probed_from_ = allowed_;
  allowed_ = std::min(max_, allowed_ + std::max<int64_t>(allowed_ / 2, 1));
}

void ConnectionBudget::Settle(int64_t allowed) {
  allowed_ = allowed;
  is_probing_ = false;
  rounds_to_hold_ = kRoundsToHold;
}

void ConnectionBudget::Overloaded(Time now) {
  if (was_overloaded_ && now - last_overload_ < kBurst) return;
  const bool is_repeated = was_overloaded_ && now - last_overload_ < kMemory;
  was_overloaded_ = true;
  last_overload_ = now;
  const int64_t floor = is_repeated && allowed_ <= min_ ? 1 : std::min(min_, allowed_);
  Settle(std::max(floor, allowed_ / 2));
  BeginRound(now);
}

void ConnectionBudget::BeginRound(Time now) {
  round_begin_ = now;
  round_bytes_ = 0;
  round_requests_ = 0;
  is_round_saturated_ = true;
}

}  // namespace torchparquet
