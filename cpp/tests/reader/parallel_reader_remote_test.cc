#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "recipes/store.h"
#include "recipes/window_cutting.h"
#include "tried.h"

namespace torchparquet {
namespace {

using testing::CheckAll;
using testing::Consumer;
using testing::DataSet;
using testing::Draws;
using testing::FileRecipe;
using testing::MemoryFor;
using testing::Mentions;
using testing::PlannedIn;
using testing::SetWindows;
using testing::Store;
using testing::StoredAs;
using testing::StoredColumn;

std::vector<StoredColumn> Columns() {
  return {{"a", "int64"},
          {"b", "bool", StoredAs::kPlain, 4},
          {"c", "float32", StoredAs::kDictionary, 7},
          {"d", "uint16", StoredAs::kFallback, -1}};
}

FileRecipe Recipe() {
  return {.columns = Columns(), .row_group_rows = {230, 1, 0, 499, 64, 2}};
}

ReaderParts SpecIn(const DataSet& data, const std::shared_ptr<Store>& store,
                   int64_t batch_rows, int64_t num_threads) {
  ReaderParts spec = data.Spec(batch_rows, num_threads);
  spec.files = std::make_shared<ParquetFiles>(PlannedIn(data, store));
  return spec;
}

TEST_CASE("a store gives the rows that a disk does") {
  const DataSet data(Recipe(), 3);
  for (const int64_t num_threads : testing::Tried({1, 2, 4, 64})) {
    for (const int64_t batch_rows : testing::Tried({7, 230, 1'000})) {
      for (const int64_t num_chunks : {0, 1, 6}) {
        for (const int64_t num_slabs : {6, 100}) {
          CAPTURE(num_threads);
          CAPTURE(batch_rows);
          CAPTURE(num_chunks);
          CAPTURE(num_slabs);
          const auto store = std::make_shared<Store>(
              Store::Options{.seed = static_cast<uint64_t>(batch_rows + num_slabs)});
          ReaderParts spec = SpecIn(data, store, batch_rows, num_threads);
          if (num_chunks > 0) SetWindows(&spec.share, num_chunks);
          spec.max_memory_bytes =
              std::max(MemoryFor(spec, num_slabs), num_chunks > 0 ? int64_t{1} << 20 : 0);
          CheckAll(data, spec);
        }
      }
    }
  }
}

TEST_CASE("shares, repeated rows and several lanes of a store") {
  Draws draws(testing::SeedTried(11));
  const DataSet data(Recipe(), 2);
  for (int64_t trial = 0; trial < testing::NumTried(60); ++trial) {
    CAPTURE(trial);
    const auto store = std::make_shared<Store>(
        Store::Options{.seed = draws.Bits(), .num_threads = draws.Between(1, 4)});
    ReaderParts spec = SpecIn(data, store, draws.Between(1, 300), draws.Between(1, 4));
    for (Chunk& chunk : spec.share.chunks) {
      if (chunk.rows.num_rows < 3 || draws.OneIn(2)) continue;
      const int64_t begin = draws.Between(0, chunk.rows.num_rows - 1);
      chunk.rows.begin += begin;
      chunk.first_row_id += begin;
      chunk.rows.num_rows = draws.Between(1, chunk.rows.num_rows - begin);
    }
    // The same row groups again, as a padded share has them.
    const std::vector<Chunk> once = spec.share.chunks;
    for (const Chunk& chunk : once) {
      if (!draws.OneIn(3)) continue;
      spec.share.chunks.push_back(chunk);
      spec.share.chunks.back().valid = false;
    }
    if (draws.OneIn(2)) SetWindows(&spec.share, draws.Between(1, 5));
    spec.max_memory_bytes =
        std::max<int64_t>(MemoryFor(spec, draws.Between(6, 60)),
                          spec.share.windows.empty() ? 0 : int64_t{1} << 20);
    CheckAll(data, spec);
  }
}

TEST_CASE("every byte is fetched once, and only those of columns that are read") {
  const DataSet data({.columns = Columns(), .row_group_rows = {3'000, 3'000, 3'000}}, 2);
  const auto store = std::make_shared<Store>();
  ReaderParts spec = SpecIn(data, store, 500, 3);
  // The third column alone.
  spec.columns = {spec.columns[2]};
  spec.columns[0].field = 0;
  spec.fields = {spec.fields[2], spec.fields[4], spec.fields[5]};
  spec.row_id_field = 1;
  spec.row_valid_field = 2;
  ParallelReader reader{ReaderSpec(spec)};
  while (reader.Next(std::chrono::seconds(60)).status == BatchRing::TakeStatus::kTaken) {
  }
  int64_t column_bytes = 0;
  int64_t footer_bytes = 0;
  for (const PlannedFile& planned : data.Planned()) {
    const ParquetFile file(planned);
    footer_bytes += std::min(file.file().num_bytes(), int64_t{64} << 10);
    for (int group = 0; group < 3; ++group) {
      column_bytes += file.ColumnChunk(group, 2).compressed_bytes;
    }
  }
  CHECK(store->stats().bytes_received == column_bytes + footer_bytes);
}

TEST_CASE("threads that wait for bytes wait still") {
  const DataSet data(
      {.columns = Columns(), .row_group_rows = std::vector<int64_t>(40, 500)}, 1);
  for (const int64_t num_chunks : {0, 3}) {
    const auto store = std::make_shared<Store>();
    ReaderParts spec = SpecIn(data, store, 500, 8);
    if (num_chunks > 0) SetWindows(&spec.share, num_chunks);
    // Its footer first.
    spec.files->Open(0, std::make_shared<RemoteReads>(store));
    store->Stall();
    ParallelReader reader{ReaderSpec(spec)};
    CHECK(reader.Next(std::chrono::milliseconds(200)).status ==
          BatchRing::TakeStatus::kTimedOut);
    // Each looks once or twice, and once more for others that begin. Threads that woke
    // one another would have waited some thousand times by now.
    CHECK(reader.stats().num_waits <= 64);
  }
}

TEST_CASE("bytes are asked for ahead, in the order of the plan") {
  const DataSet data(
      {.columns = {{"a", "int64"}}, .row_group_rows = std::vector<int64_t>(40, 500)}, 1);
  const auto store = std::make_shared<Store>();
  const ReaderParts spec = SpecIn(data, store, 500, 2);
  // Its footer first.
  spec.files->Open(0, std::make_shared<RemoteReads>(store));
  store->Stall();
  ParallelReader reader{ReaderSpec(spec)};
  CHECK(reader.Next(std::chrono::milliseconds(0)).status ==
        BatchRing::TakeStatus::kTimedOut);
  store->AwaitStarted(41);
  const std::vector<ByteRange> ranges = store->ranges();
  CHECK(std::ranges::is_sorted(ranges.begin() + 1, ranges.end(), {}, &ByteRange::offset));
  store->Release();
  int64_t num_batches = 0;
  while (reader.Next(std::chrono::seconds(60)).status == BatchRing::TakeStatus::kTaken) {
    ++num_batches;
  }
  CHECK(num_batches == 40);
  CHECK(store->num_started() == 41);
}

TEST_CASE("a fetch that fails is an error of its column, after the batches before it") {
  const DataSet data(
      {.columns = {{"a", "int64"}, {"b", "int64"}}, .row_group_rows = {100, 100, 100}},
      1);
  const ByteRange spoiled = ParquetFile(data.Planned()[0]).ChunkRange(1, 1);
  const auto store = std::make_shared<Store>(
      Store::Options{.fault = [&](const Fetch& fetch) -> std::optional<Error> {
        const bool is_footer = fetch.range().end() == fetch.object().num_bytes;
        if (is_footer || !fetch.range().contains(spoiled)) return std::nullopt;
        return Error(ErrorKind::kIo, "the store is on fire");
      }});
  ReaderParts spec = SpecIn(data, store, 100, 2);
  Consumer consumer(data, spec);
  const int64_t num_batches = consumer.TakeAll();
  REQUIRE(consumer.error());
  CHECK(consumer.error()->kind() == ErrorKind::kIo);
  CHECK(Mentions(*consumer.error(), "the store is on fire"));
  CHECK(Mentions(*consumer.error(), "row group"));
  CHECK(num_batches <= 1);
  CHECK(consumer.num_mismatches() == 0);
}

TEST_CASE("a reader stops while bytes are awaited") {
  const DataSet data(Recipe(), 2);
  for (const bool has_windows : {false, true}) {
    const auto store = std::make_shared<Store>();
    ReaderParts spec = SpecIn(data, store, 100, 3);
    if (has_windows) SetWindows(&spec.share, 3);
    store->Stall();
    ParallelReader reader{ReaderSpec(spec)};
    CHECK(reader.Next(std::chrono::milliseconds(0)).status ==
          BatchRing::TakeStatus::kTimedOut);
    store->AwaitStarted(1);
    reader.Stop();
  }
}

}  // namespace
}  // namespace torchparquet
