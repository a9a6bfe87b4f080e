#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
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
using testing::CutToWindows;
using testing::DataSet;
using testing::Draws;
using testing::FileRecipe;
using testing::Mentions;
using testing::SetWindows;
using testing::StoredAs;
using testing::StoredColumn;
using testing::Throws;

constexpr int64_t kThreadCounts[] = {1, 2, 4, 64};

std::vector<StoredColumn> Columns() {
  return {{"a", "int64"},
          {"b", "bool", StoredAs::kPlain, 4},
          {"c", "float32", StoredAs::kDictionary, 7},
          {"d", "uint16", StoredAs::kFallback, -1},
          {"e", "float64", StoredAs::kPlain, 3}};
}

FileRecipe Recipe() {
  return {.columns = Columns(), .row_group_rows = {230, 1, 0, 499, 64, 2}};
}

TEST_CASE("rows stand where the permutation of their window says") {
  const DataSet data(Recipe(), 3);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t batch_rows : testing::Tried({1, 7, 64, 230, 1000, 100'000})) {
      for (const int64_t num_chunks : {1, 4, 6, 18}) {
        if (batch_rows == 1 && num_threads != 4) continue;
        CAPTURE(num_chunks);
        ReaderParts spec = data.Spec(batch_rows, num_threads);
        SetWindows(&spec.share, num_chunks);
        CheckAll(data, spec);
      }
    }
  }
}

TEST_CASE("windows that deliver some of their positions, in lent slabs or ours") {
  Draws draws(testing::SeedTried(205));
  const DataSet data(Recipe(), 2);
  for (int64_t trial = 0; trial < testing::NumTried(60); ++trial) {
    ReaderParts spec = data.Spec(draws.Between(1, 300), draws.Between(1, 4));
    for (Chunk& chunk : spec.share.chunks) {
      if (chunk.rows.num_rows < 3 || draws.OneIn(2)) continue;
      const int64_t begin = draws.Between(0, chunk.rows.num_rows - 1);
      chunk.rows.begin += begin;
      chunk.first_row_id += begin;
      chunk.rows.num_rows = draws.Between(1, chunk.rows.num_rows - begin);
      chunk.valid = draws.OneIn(2);
    }
    spec.share.rank = 2;
    spec.share.world_size = 3;
    CutToWindows(draws, &spec.share, draws.OneIn(2));
    spec.lent_slabs = draws.OneIn(2);
    CheckAll(data, spec);
  }
}

TEST_CASE("batches of given sizes cross the borders of windows") {
  Draws draws(testing::SeedTried(206));
  const DataSet data(Recipe(), 2);
  for (int64_t trial = 0; trial < testing::NumTried(30); ++trial) {
    ReaderParts spec = data.Spec(0, draws.Between(1, 4));
    CutToWindows(draws, &spec.share, draws.OneIn(2));
    int64_t left = NumRows(spec.share);
    while (left > 0) {
      spec.batch_sizes.push_back(std::min(left, draws.Between(0, 400)));
      left -= spec.batch_sizes.back();
    }
    CheckAll(data, spec);
  }
}

TEST_CASE("a window of many strips, ranges and buckets") {
  const int64_t strip = 131'072;
  using Rows = std::vector<int64_t>;
  for (const Rows& rows :
       testing::Tried({Rows{1, strip, 50'000}, Rows{strip + 1, 2 * strip, 50'000}})) {
    const DataSet data({.columns = {{"a", "int32"}, {"b", "int8", StoredAs::kPlain, 3}},
                        .row_group_rows = rows,
                        .page_rows = 20'000},
                       1);
    for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
      ReaderParts spec = data.Spec(8192, num_threads);
      SetWindows(&spec.share, 3);
      spec.share.windows[0].begin = 5000;
      CheckAll(data, spec);
    }
  }
}

TEST_CASE("a window with an order, of rows of many strips") {
  Draws draws(testing::SeedTried(219));
  const DataSet data({.columns = {{"a", "int32"}, {"b", "int8", StoredAs::kPlain, 3}},
                      .row_group_rows = {1, 131'073, 40'000},
                      .page_rows = 20'000},
                     1);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    ReaderParts spec = data.Spec(8192, num_threads);
    SetWindows(&spec.share, 3);
    Window& window = spec.share.windows[0];
    window.order = testing::RandomOrder(draws, window.num_rows);
    window.end = window.num_positions();
    CheckAll(data, spec);
  }
}

TEST_CASE("columns of one field stand beside each other") {
  const DataSet data({.columns = {{"a", "float32", StoredAs::kDictionary, 5},
                                  {"b", "float32", StoredAs::kPlain, -1},
                                  {"c", "float32"}},
                      .row_group_rows = {300, 77}},
                     2);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    ReaderParts spec = data.Spec(50, num_threads);
    spec.fields = {{.item_bytes = 4, .width = 3, .has_valid = true},
                   {.item_bytes = 8},
                   {.item_bytes = 1}};
    spec.row_id_field = 1;
    spec.row_valid_field = 2;
    for (size_t i = 0; i < spec.columns.size(); ++i) {
      spec.columns[i].field = 0;
      spec.columns[i].element = static_cast<int64_t>(i);
    }
    SetWindows(&spec.share, 3);
    CheckAll(data, spec);
    Draws draws(220);
    spec.share.windows.clear();
    CutToWindows(draws, &spec.share, true);
    CheckAll(data, spec);
  }
}

TEST_CASE("max_memory that holds one window is enough, less is refused") {
  const DataSet data(Recipe(), 3);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t num_chunks : {1, 3, 6}) {
      ReaderParts spec = data.Spec(100, num_threads);
      SetWindows(&spec.share, num_chunks);
      ReaderParts generous = spec;
      const int64_t most = ParallelReader(ReaderSpec{generous}).max_slabs();
      const auto fits = [&](int64_t num_slabs) {
        spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
        return !Throws(ErrorKind::kInvalidArgument,
                       [&] { ParallelReader{ReaderSpec{spec}}; });
      };
      int64_t least = 1;
      while (!fits(least)) ++least;
      CHECK(least <= most);
      if (num_chunks == 6) CHECK(least < most);
      CHECK(ParallelReader(ReaderSpec{spec}).max_slabs() == least);
      CheckAll(data, spec);
      spec.lent_slabs = true;
      CheckAll(data, spec);
    }
  }
}

// Breaks the values of the pages in the middle of the file.
void Damage(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellp());
  for (int64_t i = size / 3; i < size / 3 + 2000; i += 7) {
    file.seekp(i);
    file.put('\x5A');
  }
}

TEST_CASE("a damaged file fails in the same way for any number of threads") {
  const DataSet data({.columns = Columns(), .row_group_rows = {400, 300, 200}}, 5);
  Damage(data.path(2));
  for (const int64_t num_chunks : {2, 4, 6}) {
    std::set<std::string> messages;
    std::set<int64_t> num_delivered;
    for (int repeat = 0; repeat < 5; ++repeat) {
      for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
        ReaderParts spec = data.Spec(64, num_threads);
        SetWindows(&spec.share, num_chunks);
        Consumer consumer(data, spec);
        num_delivered.insert(consumer.TakeAll());
        REQUIRE(consumer.error());
        CHECK(consumer.num_mismatches() == 0);
        messages.insert(consumer.error()->what());
      }
    }
    CHECK(messages.size() == 1);
    CHECK(num_delivered.size() == 1);
    // All before the window that holds the file's first row group, and nothing of it.
    int64_t rows_before = 0;
    for (int64_t chunk = 0; chunk < 6 / num_chunks * num_chunks; ++chunk) {
      rows_before += std::vector<int64_t>{400, 300, 200}[static_cast<size_t>(chunk % 3)];
    }
    CHECK(*num_delivered.begin() == rows_before / 64);
    CHECK(Mentions(Error(ErrorKind::kIo, *messages.begin()), "2.parquet"));
  }
}

TEST_CASE("an early end in the middle of windows") {
  const DataSet data(Recipe(), 3);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (int64_t num_batches = 0; num_batches < 6; ++num_batches) {
      ReaderParts spec = data.Spec(100, num_threads);
      SetWindows(&spec.share, 4);
      Consumer consumer(data, spec);
      for (int64_t i = 0; i < num_batches; ++i) CHECK(consumer.TakeOne());
      consumer.reader().Stop();
      CHECK(Throws(ErrorKind::kStopped, [&] { consumer.TakeOne(); }));
      CHECK(consumer.num_mismatches() == 0);
    }
  }
}

TEST_CASE("windows that contradict the share are refused") {
  const DataSet data(Recipe(), 1);
  ReaderParts good = data.Spec(100, 1);
  SetWindows(&good.share, 3);
  const auto is_refused = [&](auto change) {
    ReaderParts spec = good;
    change(spec);
    return Throws(ErrorKind::kInvalidArgument, [&] { ParallelReader{ReaderSpec{spec}}; });
  };
  CHECK_FALSE(is_refused([](ReaderParts&) {}));
  CHECK(is_refused([](ReaderParts& s) { s.share.windows.pop_back(); }));
  CHECK(is_refused([](ReaderParts& s) { ++s.share.windows[0].num_rows; }));
  CHECK(is_refused([](ReaderParts& s) { s.share.windows[0].num_rows = -1; }));
  CHECK(is_refused([](ReaderParts& s) { ++s.share.windows[0].end; }));
  CHECK(is_refused([](ReaderParts& s) { s.share.windows[0].begin = -1; }));
  CHECK(is_refused(
      [](ReaderParts& s) { s.share.windows[0].begin = s.share.windows[0].end + 1; }));
  const auto with_order = [](std::vector<uint32_t> order) {
    return [order](ReaderParts& s) {
      for (Window& window : s.share.windows) {
        window.order = std::make_shared<const std::vector<uint32_t>>(order);
        window.end = window.num_positions();
      }
    };
  };
  CHECK_FALSE(is_refused(with_order({0, 1, 0})));
  CHECK(is_refused(with_order({static_cast<uint32_t>(good.share.windows[0].num_rows)})));
  CHECK(is_refused([&](ReaderParts& s) {
    with_order({0, 1})(s);
    ++s.share.windows[0].end;
  }));
  CHECK(is_refused([&](ReaderParts& s) {
    with_order({0, 1})(s);
    s.share.windows.back().order = nullptr;
  }));
  CHECK(is_refused([](ReaderParts& s) { s.batch_rows = 0; }));
  CHECK(is_refused([](ReaderParts& s) { s.batch_sizes = {NumRows(s.share)}; }));
  CHECK(is_refused([](ReaderParts& s) {
    s.batch_rows = 0;
    s.batch_sizes = {NumRows(s.share) - 1};
  }));
  CHECK(is_refused([](ReaderParts& s) {
    s.batch_rows = 0;
    s.batch_sizes = {NumRows(s.share) + 1, -1};
  }));
}

}  // namespace
}  // namespace torchparquet
