#include <doctest/doctest.h>

#include <vector>

#include "remote/http/pacing.h"

namespace torchparquet {
namespace {

using Time = RetryPolicy::Time;

Time At(double seconds) {
  return Time() + std::chrono::hours(1) +
         std::chrono::duration_cast<Time::duration>(
             std::chrono::duration<double>(seconds));
}

double Seconds(Time time) { return std::chrono::duration<double>(time - At(0)).count(); }

TEST_CASE("waits are a random part of a span that doubles up to 20 seconds") {
  RetryPolicy policy(100, 1e6);
  std::vector<double> spans;
  for (int i = 0; i < 12; ++i) {
    policy.BeginTry();
    const auto again = policy.After({.now = At(10), .draw = 0.5});
    REQUIRE(again);
    spans.push_back(2 * (Seconds(*again) - 10));
  }
  CHECK(spans[0] == doctest::Approx(0.1));
  CHECK(spans[1] == doctest::Approx(0.2));
  CHECK(spans[5] == doctest::Approx(3.2));
  CHECK(spans[7] == doctest::Approx(12.8));
  CHECK(spans[8] == doctest::Approx(20));
  CHECK(spans[11] == doctest::Approx(20));
  policy.BeginTry();
  CHECK(Seconds(*policy.After({.now = At(10), .draw = 0})) == doctest::Approx(10));
}

TEST_CASE("tries are counted, and end") {
  RetryPolicy policy(3, 1e6);
  for (int i = 0; i < 2; ++i) {
    policy.BeginTry();
    CHECK(policy.After({.now = At(0)}));
  }
  policy.BeginTry();
  CHECK(policy.num_tries() == 3);
  CHECK_FALSE(policy.After({.now = At(0)}));
}

TEST_CASE("a busy store is asked ten times as often, unless there is one try") {
  for (const int64_t max_tries : {1, 2, 5}) {
    RetryPolicy policy(max_tries, 1e6);
    int64_t num_tries = 1;
    for (policy.BeginTry(); policy.After({.now = At(0), .is_busy = true}); ++num_tries) {
      policy.BeginTry();
    }
    CHECK(num_tries == 10 * (max_tries - 1) + 1);
  }
  RetryPolicy policy(2, 1e6);
  for (const bool is_busy : {true, false, true}) {
    policy.BeginTry();
    CHECK(policy.After({.now = At(0), .is_busy = is_busy}));
  }
  policy.BeginTry();
  CHECK_FALSE(policy.After({.now = At(0)}));
}

TEST_CASE("no try begins later than allowed after the first failure") {
  RetryPolicy policy(100, 10);
  policy.BeginTry();
  REQUIRE(policy.After({.now = At(100)}));
  policy.BeginTry();
  const auto last = policy.After({.now = At(109), .retry_after_seconds = 30});
  REQUIRE(last);
  CHECK(Seconds(*last) == doctest::Approx(110));
  policy.BeginTry();
  CHECK_FALSE(policy.After({.now = At(110)}));
}

TEST_CASE("a store's wish to wait is heeded, and spread") {
  RetryPolicy policy(100, 180);
  policy.BeginTry();
  const auto again = policy.After({.now = At(0), .retry_after_seconds = 7, .draw = 0.5});
  CHECK(Seconds(*again) == doctest::Approx(7.05));
  policy.BeginTry();
  const auto capped = policy.After({.now = At(1), .retry_after_seconds = 1e300});
  CHECK(Seconds(*capped) == doctest::Approx(180));
}

}  // namespace
}  // namespace torchparquet
