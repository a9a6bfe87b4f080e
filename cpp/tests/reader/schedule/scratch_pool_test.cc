#include "reader/schedule/scratch_pool.h"

#include <doctest/doctest.h>

#include <thread>
#include <utility>
#include <vector>

namespace torchparquet {
namespace {

TEST_CASE("a thread's scratch is that which was returned last, with its memory") {
  ScratchPool pool;
  auto first = pool.TakeThread();
  auto second = pool.TakeThread();
  CHECK(first.get() != second.get());
  const uint8_t* memory = second->strip.Reserve(10'000);
  const DecodeScratch* last = second.get();
  pool.ReturnThread(std::move(first));
  pool.ReturnThread(std::move(second));
  const auto again = pool.TakeThread();
  CHECK(again.get() == last);
  CHECK(again->strip.Reserve(10'000) == memory);
  CHECK(pool.TakeThread().get() != last);
}

TEST_CASE("what a reader kept goes to one reader") {
  ScratchPool pool;
  CHECK(pool.TakeKept().columns.empty());
  KeptScratch kept;
  const uint8_t* page = kept.columns.emplace_back().page.Reserve(1000);
  const uint8_t* places = kept.places.emplace_back().Reserve(5000);
  pool.ReturnKept(std::move(kept));
  kept = pool.TakeKept();
  REQUIRE(kept.columns.size() == 1);
  CHECK(kept.columns[0].page.data() == page);
  REQUIRE(kept.places.size() == 1);
  CHECK(kept.places[0].data() == places);
  const KeptScratch other = pool.TakeKept();
  CHECK(other.columns.empty());
  CHECK(other.places.empty());
}

TEST_CASE("what is kept of readers does not add up") {
  ScratchPool pool;
  for (size_t num_columns : {3, 1}) {
    KeptScratch kept;
    kept.columns.resize(num_columns);
    pool.ReturnKept(std::move(kept));
  }
  CHECK(pool.TakeKept().columns.size() == 1);
}

TEST_CASE("threads take and return at once") {
  ScratchPool pool;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&pool] {
        for (int round = 0; round < 500; ++round) {
          auto scratch = pool.TakeThread();
          scratch->rows.Reserve(64)[0] = 1;
          pool.ReturnThread(std::move(scratch));
          pool.ReturnKept(pool.TakeKept());
        }
      });
    }
  }
  CHECK(pool.TakeThread() != nullptr);
}

}  // namespace
}  // namespace torchparquet
