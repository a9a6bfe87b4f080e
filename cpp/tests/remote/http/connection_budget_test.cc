#include "remote/http/connection_budget.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

namespace torchparquet {
namespace {

using Time = ConnectionBudget::Time;

// A store whose rate depends on the requests in flight, and a clock.
struct Simulation {
  ConnectionBudget budget;
  std::function<double(double)> rate;  // requests a second
  bool others_wait = true;
  double seconds = 1;

  Time now() const {
    return Time() + std::chrono::duration_cast<Time::duration>(
                        std::chrono::duration<double>(seconds));
  }
  void Run(int64_t num_requests) {
    for (int64_t i = 0; i < num_requests; ++i) {
      seconds += 1 / rate(static_cast<double>(budget.allowed()));
      budget.Received(1'000'000);
      budget.Completed(now(), others_wait);
    }
  }
};

TEST_CASE("connections grow while each of them adds to the rate") {
  Simulation store{.budget = {4, 64}, .rate = [](double n) { return 10 * n; }};
  CHECK(store.budget.allowed() == 4);
  store.Run(2000);
  CHECK(store.budget.allowed() == 64);
}

TEST_CASE("connections that add nothing are given up") {
  Simulation store{.budget = {4, 64},
                   .rate = [](double n) { return 10 * std::min(n, 12.0); }};
  store.Run(400);
  const int64_t settled = store.budget.allowed();
  CHECK(settled >= 9);
  CHECK(settled <= 20);
}

TEST_CASE("connections that take from each other are halved") {
  bool is_crowded = false;
  Simulation store{.budget = {4, 64},
                   .rate = [&](double n) { return is_crowded ? 1000 / n : 10 * n; }};
  while (store.budget.allowed() < 30) store.Run(1);
  is_crowded = true;
  store.Run(300);
  CHECK(store.budget.allowed() <= 15);
  CHECK(store.budget.allowed() >= 4);
}

TEST_CASE("a rate that falls by itself halves them") {
  double rate = 10;
  Simulation store{.budget = {4, 64}, .rate = [&](double n) { return rate * n; }};
  store.Run(2000);
  REQUIRE(store.budget.allowed() == 64);
  rate = 1;
  for (int i = 0; i < 130 && store.budget.allowed() == 64; ++i) store.Run(1);
  CHECK(store.budget.allowed() == 32);
}

TEST_CASE("without a queue nothing is learned") {
  Simulation store{.budget = {4, 64}, .rate = [](double n) { return 10 * n; }};
  store.others_wait = false;
  store.Run(1000);
  CHECK(store.budget.allowed() == 4);
}

TEST_CASE("overload halves towards the least number, and repeated beyond it") {
  Simulation store{.budget = {4, 64}, .rate = [](double n) { return 10 * n; }};
  store.Run(2000);
  store.budget.Overloaded(store.now());
  CHECK(store.budget.allowed() == 32);
  // The rest of a burst.
  store.budget.Overloaded(store.now());
  CHECK(store.budget.allowed() == 32);
  for (const int64_t expected : {16, 8, 4, 2, 1, 1}) {
    store.seconds += 1;
    store.budget.Overloaded(store.now());
    CHECK(store.budget.allowed() == expected);
  }
  // Back again, as soon as the store lets it.
  store.Run(100);
  CHECK(store.budget.allowed() == 4);
}

TEST_CASE("one overload does not go below the least number") {
  Simulation store{.budget = {4, 64}, .rate = [](double n) { return 10 * n; }};
  store.budget.Overloaded(store.now());
  CHECK(store.budget.allowed() == 4);
  store.seconds += 60;
  store.budget.Overloaded(store.now());
  CHECK(store.budget.allowed() == 4);
}

TEST_CASE("odd limits are put right") {
  CHECK(ConnectionBudget(0, 0).allowed() == 1);
  CHECK(ConnectionBudget(8, 2).allowed() == 8);
}

}  // namespace
}  // namespace torchparquet
