#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>

#include "remote/http/pacing.h"

namespace torchparquet {
namespace {

ConnectionBudget::Time At(double seconds) {
  return ConnectionBudget::Time() +
         std::chrono::duration_cast<ConnectionBudget::Time::duration>(
             std::chrono::duration<double>(seconds));
}

void Complete(int64_t num_requests, ConnectionBudget* budget) {
  for (int64_t i = 0; i < num_requests; ++i) budget->Completed();
}

// One that has been through its beginning.
ConnectionBudget Grown(int64_t max_connections) {
  ConnectionBudget budget(max_connections);
  Complete(max_connections, &budget);
  CHECK(budget.allowed() == max_connections);
  return budget;
}

TEST_CASE("a quarter is allowed at first, one more with each request, and never more") {
  ConnectionBudget budget(64);
  CHECK(budget.allowed() == 16);
  Complete(10, &budget);
  CHECK(budget.allowed() == 26);
  Complete(1000, &budget);
  CHECK(budget.allowed() == 64);
}

TEST_CASE("each overload halves them, down to one, and a burst counts once") {
  ConnectionBudget budget = Grown(64);
  double seconds = 0;
  for (const int64_t expected : {32, 16, 8, 4, 2, 1, 1}) {
    budget.Overloaded(At(seconds));
    CHECK(budget.allowed() == expected);
    budget.Overloaded(At(seconds + 0.4));  // the rest of the burst
    CHECK(budget.allowed() == expected);
    seconds += 1;
  }
}

TEST_CASE("each round without an overload adds one") {
  ConnectionBudget budget = Grown(8);
  budget.Overloaded(At(1));
  for (const int64_t before : {4, 5, 6, 7}) {
    Complete(before - 1, &budget);
    CHECK(budget.allowed() == before);
    Complete(1, &budget);
    CHECK(budget.allowed() == before + 1);
  }
  Complete(100, &budget);
  CHECK(budget.allowed() == 8);
}

TEST_CASE("an overload begins the round anew") {
  ConnectionBudget budget = Grown(8);
  Complete(7, &budget);
  budget.Overloaded(At(1));
  Complete(3, &budget);
  CHECK(budget.allowed() == 4);
  Complete(1, &budget);
  CHECK(budget.allowed() == 5);
}

TEST_CASE("one request is always allowed") {
  CHECK(ConnectionBudget(0).allowed() == 1);
  CHECK(ConnectionBudget(-3).allowed() == 1);
}

}  // namespace
}  // namespace torchparquet
