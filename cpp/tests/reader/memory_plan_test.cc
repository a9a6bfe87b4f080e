#include "reader/memory_plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "caught.h"
#include "draws.h"

namespace torchparquet {
namespace {

using testing::Draws;

MemoryDemand RandomDemand(Draws& draws) {
  MemoryDemand demand;
  demand.slab_bytes = int64_t{64} << draws.Below(22);
  demand.batch_rows = draws.Between(1, 5000);
  demand.max_chunk_rows = draws.Below(2'000'000);
  demand.num_batches = draws.OneIn(3) ? draws.Below(5) : draws.Below(100'000);
  demand.num_tasks = draws.Between(1, 60);
  demand.num_threads = draws.Between(1, 70);
  demand.max_memory_bytes =
      demand.slab_bytes * draws.Between(2, draws.OneIn(2) ? 8 : 3000) +
      draws.Below(demand.slab_bytes);
  return demand;
}

// A slice of several batches holds no more than this.
constexpr int64_t kMaxSliceBytes = int64_t{128} << 20;

TEST_CASE("a plan stays within the bound and never waits for itself") {
  Draws draws(30);
  for (int trial = 0; trial < 20'000; ++trial) {
    const MemoryDemand demand = RandomDemand(draws);
    CAPTURE(demand.slab_bytes);
    CAPTURE(demand.batch_rows);
    CAPTURE(demand.max_chunk_rows);
    CAPTURE(demand.num_batches);
    CAPTURE(demand.num_tasks);
    CAPTURE(demand.num_threads);
    CAPTURE(demand.max_memory_bytes);
    const MemoryPlan plan = PlanMemory(demand);
    REQUIRE(plan.max_slabs >= 2);
    REQUIRE(plan.max_held_bytes >= 0);
    REQUIRE(plan.max_slabs * demand.slab_bytes + plan.max_held_bytes <=
            demand.max_memory_bytes);
    REQUIRE(plan.max_slabs <= std::max<int64_t>(2, demand.num_batches));
    REQUIRE(plan.max_slice_rows >= demand.batch_rows);
    REQUIRE(plan.max_slice_rows % demand.batch_rows == 0);
    const int64_t slice_batches = plan.max_slice_rows / demand.batch_rows;
    const bool is_one_batch = slice_batches == 1;
    const bool is_small = slice_batches * demand.slab_bytes <= kMaxSliceBytes;
    REQUIRE((is_one_batch || is_small));
    // While one batch waits for its last rows, the slice that brings them has room.
    REQUIRE(std::min(slice_batches + 1, std::max<int64_t>(demand.num_batches, 2)) <=
            plan.max_slabs);
  }
}

TEST_CASE("slices of several batches are small enough for all that are worked on") {
  Draws draws(32);
  int64_t num_longer = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const MemoryDemand demand = RandomDemand(draws);
    CAPTURE(demand.num_tasks);
    CAPTURE(demand.num_threads);
    const MemoryPlan plan = PlanMemory(demand);
    const int64_t slice_batches = plan.max_slice_rows / demand.batch_rows;
    if (slice_batches == 1) continue;
    ++num_longer;
    // One for each thread that finds no column free, and two to take from and go on with;
    // the first may begin within a batch.
    int64_t num_slices = 2;
    for (int64_t left = demand.num_threads; left > 0; left -= demand.num_tasks)
      ++num_slices;
    REQUIRE(std::min(num_slices * slice_batches + 1,
                     std::max<int64_t>(demand.num_batches, 2)) <= plan.max_slabs);
  }
  CHECK(num_longer > 1000);
}

TEST_CASE("a quarter of the bound is left to column readers where two batches allow it") {
  Draws draws(31);
  for (int trial = 0; trial < 20'000; ++trial) {
    const MemoryDemand demand = RandomDemand(draws);
    CAPTURE(demand.slab_bytes);
    CAPTURE(demand.max_memory_bytes);
    const MemoryPlan plan = PlanMemory(demand);
    if (plan.max_slabs > 2) REQUIRE(plan.max_held_bytes >= demand.max_memory_bytes / 4);
  }
}

TEST_CASE("with memory to spare chunks stay whole, and every thread finds work") {
  MemoryDemand demand{.slab_bytes = 1 << 20,
                      .batch_rows = 1000,
                      .max_chunk_rows = 10'000,
                      .num_batches = 100'000,
                      .num_tasks = 4,
                      .num_threads = 16,
                      .max_memory_bytes = int64_t{4} << 30};
  const MemoryPlan plan = PlanMemory(demand);
  CHECK(plan.max_slice_rows >= demand.max_chunk_rows);
  // Sixteen threads on four columns are four slices, and two more to go on with.
  CHECK(plan.max_slabs >= 6 * 10);
  CHECK(plan.max_slabs < 4096);  // not all that the bound allows
}

TEST_CASE("a chunk is cut where it holds more than a slice may, and not below") {
  MemoryDemand demand{.slab_bytes = 1 << 20,
                      .batch_rows = 1000,
                      .max_chunk_rows = 128'000,
                      .num_batches = 100'000,
                      .num_tasks = 4,
                      .num_threads = 2,
                      .max_memory_bytes = int64_t{64} << 30};
  CHECK(PlanMemory(demand).max_slice_rows == 128'000);
  demand.max_chunk_rows = 1'000'000;
  CHECK(PlanMemory(demand).max_slice_rows == 128'000);
}

TEST_CASE("the bookkeeping of batches of a few rows counts too") {
  const MemoryDemand demand{.slab_bytes = 64,
                            .batch_rows = 7,
                            .max_chunk_rows = 20'000'000,
                            .num_batches = 3'000'000,
                            .num_tasks = 1,
                            .num_threads = 3,
                            .max_memory_bytes = int64_t{32} << 20};
  // Without it there would be 393,216 batches, in 125 MiB.
  CHECK(PlanMemory(demand).max_slabs <= 100'000);
  CHECK(PlanMemory(demand).max_slabs >= 50'000);
}

TEST_CASE("batches go on while the consumer pauses, also where slices are small") {
  const MemoryPlan plan = PlanMemory({.slab_bytes = 1 << 20,
                                      .batch_rows = 1000,
                                      .max_chunk_rows = 500,
                                      .num_batches = 100'000,
                                      .num_tasks = 4,
                                      .num_threads = 1,
                                      .max_memory_bytes = int64_t{1} << 30});
  CHECK(plan.max_slice_rows == 1000);
  CHECK(plan.max_slabs >= 32);
  CHECK(plan.max_slabs < 64);
}

TEST_CASE("a bound for less than two batches is refused, with the figures") {
  MemoryDemand demand{.slab_bytes = 1000,
                      .batch_rows = 77,
                      .max_chunk_rows = 10,
                      .num_batches = 10,
                      .num_tasks = 1,
                      .num_threads = 1,
                      .max_memory_bytes = 1999};
  const auto error = testing::Caught([&] { PlanMemory(demand); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(testing::Mentions(*error, "2000 bytes for batches of 77 rows: 1999 bytes"));
  demand.max_memory_bytes = 2000;
  CHECK(PlanMemory(demand).max_slabs == 2);
}

TEST_CASE("windows leave room for the columns that are staged") {
  WindowDemand demand{.slab_bytes = 1000,
                      .batch_bytes = 1100 - kBookkeepingBytes,
                      .column_bytes = 2000,
                      .window_batches = 10,
                      .in_flight_batches = 20};
  const auto check = [&](int64_t max_memory_bytes, int64_t slabs, int64_t columns) {
    CAPTURE(max_memory_bytes);
    demand.max_memory_bytes = max_memory_bytes;
    const MemoryPlan plan = PlanWindows(demand);
    CHECK(plan.max_slabs == slabs);
    CHECK(plan.max_columns == columns);
  };
  check(15'000, 10, 2);
  // Two windows, two columns and what more of these the rest holds.
  check(20 * 1100 + 2 * 2000, 20, 2);
  check(20 * 1100 + 2 * 2000 - 1, 19, 2);
  check(20 * 1100 + 5 * 2000, 20, 5);

  // Columns for all threads come before the second window, but not before the first.
  demand.num_columns = 5;
  check(20 * 1100 + 2 * 2000, 14, 5);
  check(10 * 1100 + 3 * 2000, 10, 3);

  demand.max_memory_bytes = 9999;
  const auto error = testing::Caught([&] { PlanWindows(demand); });
  REQUIRE(error);
  CHECK(error->kind() == ErrorKind::kInvalidArgument);
  CHECK(testing::Mentions(*error, "10000 bytes for 10 batches: 9999 bytes"));
}

}  // namespace
}  // namespace torchparquet
