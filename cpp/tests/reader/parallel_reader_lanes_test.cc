#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "recipes/window_cutting.h"
#include "tried.h"

namespace torchparquet {
namespace {

using testing::CheckAll;
using testing::Consumer;
using testing::DataSet;
using testing::Draws;
using testing::FileRecipe;
using testing::StoredAs;
using testing::Throws;

FileRecipe Recipe() {
  return {.columns = {{"a", "int64"},
                      {"b", "float32", StoredAs::kDictionary, 7},
                      {"c", "uint16", StoredAs::kFallback, -1}},
          .row_group_rows = {230, 1, 0, 499, 64, 2, 120}};
}

// Deals the chunks of a specification to so many shares, each in turn.
void DealToLanes(ReaderParts* spec, int64_t num_lanes) {
  const std::vector<Chunk> chunks = spec->share.chunks;
  std::vector<Share> lanes(static_cast<size_t>(num_lanes));
  for (size_t i = 0; i < lanes.size(); ++i) {
    lanes[i].rank = static_cast<int64_t>(i);
    lanes[i].world_size = num_lanes;
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    lanes[i % lanes.size()].chunks.push_back(chunks[i]);
  }
  spec->share = lanes.front();
  spec->beside.assign(lanes.begin() + 1, lanes.end());
}

Share& LaneOf(ReaderParts& spec, int64_t lane) {
  return lane == 0 ? spec.share : spec.beside[static_cast<size_t>(lane - 1)];
}

TEST_CASE("shares stand side by side in every batch") {
  const DataSet data(Recipe(), 3);
  for (const int64_t num_lanes : testing::Tried({2, 3, 5, 30})) {
    for (const int64_t num_threads : testing::Tried({1, 2, 4, 64})) {
      for (const int64_t step : {1, 8, 70, 3000}) {
        CAPTURE(num_lanes);
        ReaderParts spec = data.Spec(step * num_lanes, num_threads);
        DealToLanes(&spec, num_lanes);
        CheckAll(data, spec);
      }
    }
  }
}

TEST_CASE("shares cut to slices by little memory, in lent slabs or ours") {
  Draws draws(testing::SeedTried(207));
  const DataSet data(Recipe(), 2);
  for (int64_t trial = 0; trial < testing::NumTried(60); ++trial) {
    const int64_t num_lanes = draws.Between(1, 4);
    ReaderParts spec = data.Spec(num_lanes * draws.Between(1, 30), draws.Between(1, 4));
    DealToLanes(&spec, num_lanes);
    spec.max_memory_bytes = testing::MemoryFor(spec, draws.Between(2, 20));
    spec.lent_slabs = draws.OneIn(2);
    CheckAll(data, spec);
  }
}

TEST_CASE("windows of shares that are read at once, with as much memory as they need") {
  Draws draws(testing::SeedTried(208));
  const DataSet data(Recipe(), 2);
  for (int64_t trial = 0; trial < testing::NumTried(80); ++trial) {
    const int64_t num_lanes = draws.Between(2, 4);
    ReaderParts spec = data.Spec(num_lanes * draws.Between(1, 90), draws.Between(1, 4));
    DealToLanes(&spec, num_lanes);
    for (int64_t lane = 0; lane < num_lanes; ++lane) {
      Share& share = LaneOf(spec, lane);
      if (draws.OneIn(8)) share.chunks.clear();
      testing::CutToWindows(draws, &share);
    }
    spec.lent_slabs = draws.OneIn(2);
    if (!spec.has_windows()) continue;
    if (draws.OneIn(2)) {
      int64_t num_slabs = 1;
      do {
        spec.max_memory_bytes = testing::MemoryFor(spec, ++num_slabs);
      } while (
          Throws(ErrorKind::kInvalidArgument, [&] { ParallelReader{ReaderSpec{spec}}; }));
    }
    CheckAll(data, spec);
  }
}

TEST_CASE("a failure in one share is the same for any number of threads") {
  const DataSet data(
      {.columns = {{"a", "int64"}, {"b", "float32"}}, .row_group_rows = {400, 300}}, 6);
  {
    std::fstream file(data.path(3), std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t i = 100; i < 2000; i += 7) {
      file.seekp(i);
      file.put('\x5A');
    }
  }
  for (const bool has_windows : {false, true}) {
    std::set<std::string> messages;
    std::set<int64_t> num_batches;
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const int64_t num_threads : testing::Tried({1, 4})) {
        ReaderParts spec = data.Spec(60, num_threads);
        DealToLanes(&spec, 3);
        for (int64_t lane = 0; has_windows && lane < 3; ++lane) {
          Draws draws(209);
          testing::CutToWindows(draws, &LaneOf(spec, lane));
        }
        Consumer consumer(data, spec);
        num_batches.insert(consumer.TakeAll());
        REQUIRE(consumer.error());
        CHECK(consumer.num_mismatches() == 0);
        messages.insert(consumer.error()->what());
      }
    }
    CHECK(messages.size() == 1);
    CHECK(num_batches.size() == 1);
  }
}

TEST_CASE("shares that cannot be read at once are refused") {
  const DataSet data(Recipe(), 2);
  ReaderParts good = data.Spec(30, 1);
  DealToLanes(&good, 3);
  const auto is_refused = [&](auto change) {
    ReaderParts spec = good;
    change(spec);
    return Throws(ErrorKind::kInvalidArgument, [&] { ParallelReader{ReaderSpec{spec}}; });
  };
  CHECK_FALSE(is_refused([](ReaderParts&) {}));
  CHECK(is_refused([](ReaderParts& s) { s.batch_rows = 31; }));
  CHECK(is_refused([](ReaderParts& s) { s.batch_rows = 0; }));
  CHECK(is_refused([](ReaderParts& s) { s.beside[1].rank = 3; }));
  CHECK(is_refused([](ReaderParts& s) { s.beside[0].chunks[0].file = 9; }));
  CHECK(is_refused([](ReaderParts& s) {
    Draws draws(210);
    testing::CutToWindows(draws, &s.beside[0]);
  }));
}

}  // namespace
}  // namespace torchparquet
