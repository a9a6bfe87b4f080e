#include "remote/http/retry_policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace torchparquet {
namespace {

constexpr double kFirstSpanSeconds = 0.1;
constexpr double kMaxSpanSeconds = 20;

RetryPolicy::Time Later(RetryPolicy::Time time, double seconds) {
  return time + std::chrono::duration_cast<RetryPolicy::Time::duration>(
                    std::chrono::duration<double>(seconds));
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<unsigned> Month(std::string_view name) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<unsigned>(found - kNames.begin()) + 1;
}

// The form that RFC 9110 prescribes: "Sun, 06 Nov 1994 08:49:37 GMT".
std::optional<int64_t> DateSeconds(std::string_view text) {
  if (text.size() != 29 || !text.ends_with(" GMT")) return std::nullopt;
  const auto day = Number(text.substr(5, 2));
  const auto month = Month(text.substr(8, 3));
  const auto year = Number(text.substr(12, 4));
  const auto hour = Number(text.substr(17, 2));
  const auto minute = Number(text.substr(20, 2));
  const auto second = Number(text.substr(23, 2));
  if (!day || !month || !year || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(*month),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((int64_t{days} * 24 + *hour) * 60 + *minute) * 60 + *second;
}

}  // namespace

std::optional<RetryPolicy::Time> RetryPolicy::After(const Failure& failure) {
  if (num_failures_++ == 0) first_failure_ = failure.now;
  const Time last = Later(first_failure_, max_seconds_);
  if (num_tries_ >= max_tries_ || failure.now >= last) return std::nullopt;
  const double doublings = std::min(static_cast<double>(num_failures_ - 1), 30.0);
  const double span = std::min(kMaxSpanSeconds, kFirstSpanSeconds * std::exp2(doublings));
  // The store may wish for days.
  const double wish = std::min(failure.retry_after_seconds, max_seconds_);
  return std::min(last, Later(failure.now, wish + span * failure.draw));
}

std::optional<double> RetryAfterSeconds(std::string_view header, int64_t unix_seconds) {
  if (const auto seconds = Number(header)) {
    return static_cast<double>(std::max<int64_t>(*seconds, 0));
  }
  if (const auto date = DateSeconds(header)) {
    return static_cast<double>(std::max<int64_t>(*date - unix_seconds, 0));
  }
  return std::nullopt;
}

}  // namespace torchparquet
