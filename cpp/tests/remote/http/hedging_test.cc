#include <doctest/doctest.h>

#include "remote/http/pacing.h"

namespace torchparquet {
namespace {

TEST_CASE("nothing is slow until some first bytes are known") {
  FirstByteTimes times;
  for (int i = 0; i < 15; ++i) times.Add(0.1);
  CHECK_FALSE(times.SlowAfter());
  times.Add(0.1);
  REQUIRE(times.SlowAfter());
  CHECK(*times.SlowAfter() == doctest::Approx(0.4));
}

TEST_CASE("slow is beyond four medians, the 95th percentile and 50 ms") {
  FirstByteTimes quick;
  for (int i = 0; i < 128; ++i) quick.Add(0.001);
  CHECK(*quick.SlowAfter() == doctest::Approx(0.05));

  FirstByteTimes uneven;
  for (int i = 0; i < 160; ++i) uneven.Add(i % 10 == 0 ? 2.0 : 0.1);
  CHECK(*uneven.SlowAfter() == doctest::Approx(2.0));
}

TEST_CASE("old times are forgotten") {
  FirstByteTimes times;
  for (int i = 0; i < 128; ++i) times.Add(10);
  for (int i = 0; i < 128; ++i) times.Add(0.1);
  CHECK(*times.SlowAfter() == doctest::Approx(0.4));
}

TEST_CASE("one of twenty requests may be sent twice") {
  HedgeBudget budget;
  int num_spent = 0;
  for (int i = 0; i < 1000; ++i) {
    budget.Earn();
    while (budget.Spend(1, 16)) ++num_spent;
  }
  CHECK(num_spent == 50);
}

TEST_CASE("savings are bounded") {
  HedgeBudget budget;
  for (int i = 0; i < 10'000; ++i) budget.Earn();
  int num_spent = 0;
  while (budget.Spend(1, 16)) ++num_spent;
  CHECK(num_spent == 8);
}

TEST_CASE("a store that is slow as a whole gets no second requests") {
  HedgeBudget budget;
  for (int i = 0; i < 100; ++i) budget.Earn();
  CHECK_FALSE(budget.Spend(5, 16));
  CHECK(budget.Spend(4, 16));
  CHECK_FALSE(budget.Spend(2, 2));
  CHECK(budget.Spend(1, 1));
}

}  // namespace
}  // namespace torchparquet
