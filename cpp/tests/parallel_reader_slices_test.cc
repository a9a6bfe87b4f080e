#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "draws.h"
#include "memory_plan.h"
#include "parallel_reader.h"
#include "reading.h"

namespace torchparquet {
namespace {

using testing::CheckAll;
using testing::Consumer;
using testing::DataSet;
using testing::FileRecipe;
using testing::StoredAs;
using testing::StoredColumn;

std::vector<StoredColumn> FewColumns() {
  return {{"plain", "int64"}, {"dictionary", "float32", StoredAs::kDictionary, 5}};
}

std::vector<StoredColumn> ManyColumns() {
  std::vector<StoredColumn> columns;
  for (const char* kind : {"bool", "int8", "int32", "float16", "float64", "date"}) {
    for (const StoredAs stored_as :
         {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
      if (kind == std::string("bool") && stored_as == StoredAs::kDictionary) continue;
      const int64_t null_every =
          (std::ssize(columns) % 4) * 3 - (columns.size() % 4 == 3);
      columns.push_back(
          {"c" + std::to_string(columns.size()), kind, stored_as, null_every});
    }
  }
  return columns;
}

struct Pages {
  int64_t rows;
  bool second_version;
  bool compressed;
};

// Shorter and longer than slices, and some row groups of one page.
constexpr Pages kPages[] = {
    {31, false, false},  {31, false, true},  {31, true, false},  {31, true, true},
    {250, false, false}, {250, false, true}, {250, true, false}, {250, true, true},
};
constexpr int64_t kMaxGroupRows = 620;

FileRecipe Recipe(std::vector<StoredColumn> columns, const Pages& pages) {
  return {.columns = std::move(columns),
          .row_group_rows = {kMaxGroupRows, 0, 83, 1},
          .page_rows = pages.rows,
          .second_version = pages.second_version,
          .compressed = pages.compressed,
          .max_dictionary_bytes = pages.rows < 100 ? 128 : 1 << 20};
}

MemoryPlan PlanOf(const ReaderSpec& spec) {
  const BatchLayout layout = MakeBatchLayout(spec.fields, spec.batch_rows);
  return PlanMemory({.slab_bytes = layout.slab_bytes,
                     .batch_rows = spec.batch_rows,
                     .max_chunk_rows = kMaxGroupRows,
                     .num_batches = 1000,
                     .num_tasks = spec.num_tasks(),
                     .num_threads = spec.num_threads,
                     .max_memory_bytes = spec.max_memory_bytes});
}

// Memory for that many batches. Few leave no room for any reader, more for one or some.
using SlabCounts = std::vector<int64_t>;

void CheckAllSlices(const DataSet& data, const SlabCounts& slab_counts) {
  for (int64_t num_threads = 1; num_threads <= 4; ++num_threads) {
    for (const int64_t num_slabs : slab_counts) {
      ReaderSpec spec = data.Spec(num_slabs % 2 == 0 ? 37 : 101, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      REQUIRE(PlanOf(spec).max_slice_rows < kMaxGroupRows);
      CheckAll(data, spec);
    }
  }
}

TEST_CASE("chunks cut to slices, few columns") {
  for (const Pages& pages : kPages) {
    CAPTURE(pages.rows);
    CAPTURE(pages.second_version);
    CAPTURE(pages.compressed);
    CheckAllSlices(DataSet(Recipe(FewColumns(), pages), 2), {2, 3, 9, 20, 48});
  }
}

TEST_CASE("chunks cut to slices, many columns") {
  for (const Pages& pages : kPages) {
    CAPTURE(pages.rows);
    CAPTURE(pages.second_version);
    CAPTURE(pages.compressed);
    CheckAllSlices(DataSet(Recipe(ManyColumns(), pages), 1), {2, 9, 48});
  }
}

TEST_CASE("slices of chunks that begin and end within a row group") {
  testing::Draws draws(110);
  for (const Pages& pages : kPages) {
    const DataSet data(Recipe(ManyColumns(), pages), 1);
    for (int trial = 0; trial < 6; ++trial) {
      ReaderSpec spec = data.Spec(draws.Between(5, 120), draws.Between(1, 4));
      spec.max_memory_bytes = testing::MemoryFor(spec, draws.Between(2, 40));
      spec.lent_slabs = draws.OneIn(3);
      const std::vector<Chunk> whole = spec.share.chunks;
      spec.share.chunks.clear();
      for (int64_t i = draws.Between(2, 6); i > 0; --i) {
        Chunk chunk = whole[draws.OneIn(3) ? 2 : 0];
        const int64_t begin = draws.Between(1, chunk.rows.num_rows - 1);
        chunk.rows.num_rows = draws.Between(1, chunk.rows.num_rows - begin);
        chunk.rows.begin = begin;
        chunk.first_row_id += begin;
        // Consecutive chunks of one row group are chunks of their own.
        spec.share.chunks.push_back(chunk);
        if (draws.OneIn(3)) spec.share.chunks.push_back(chunk);
      }
      CheckAll(data, spec);
    }
  }
}

// Where each row of a plain int64 column is stored in its file.
std::vector<size_t> PlacesOf(const StoredColumn& column, int64_t num_rows,
                             const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<size_t> places;
  size_t place = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    const uint64_t bits = testing::CellBits(column, row);
    std::string stored(sizeof(bits), '\0');
    std::memcpy(stored.data(), &bits, sizeof(bits));
    place = bytes.find(stored, place);
    REQUIRE(place != std::string::npos);
    places.push_back(place);
  }
  return places;
}

void Overwrite(const std::string& path, size_t begin, size_t end) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(begin));
  const std::string garbage(end - begin, '\xFF');
  file.write(garbage.data(), std::ssize(garbage));
}

constexpr size_t kPageRows = 50;

// Damages a page's values, so that they cannot be decoded any more.
void DamageValues(const std::string& path, const std::vector<size_t>& places,
                  size_t page) {
  Overwrite(path, places[page * kPageRows], places[page * kPageRows] + 8);
}

// Damages a page's header, so that it cannot even be passed over. Not the first one's,
// which may be a dictionary's and is looked at by every reader.
void DamageHeader(const std::string& path, const std::vector<size_t>& places,
                  size_t page) {
  if (page == 0) return;
  Overwrite(path, places[page * kPageRows - 1] + 8, places[page * kPageRows]);
}

TEST_CASE("pages whose rows the consumer has are not read again") {
  constexpr int64_t kNumRows = 1000;
  const StoredColumn columns[] = {{"a", "int64"}, {"b", "int64"}};
  for (int64_t num_threads = 1; num_threads <= 4; ++num_threads) {
    for (const int64_t num_slabs : {2, 3, 9, 40, 120}) {
      CAPTURE(num_threads);
      CAPTURE(num_slabs);
      const DataSet data({.columns = {columns[0], columns[1]},
                          .row_group_rows = {kNumRows},
                          .page_rows = kPageRows,
                          .compressed = false},
                         1);
      const std::vector<size_t> places[] = {PlacesOf(columns[0], kNumRows, data.path(0)),
                                            PlacesOf(columns[1], kNumRows, data.path(0))};
      ReaderSpec spec = data.Spec(17, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      REQUIRE(PlanOf(spec).max_slice_rows < kNumRows / 2);
      Consumer consumer(data, spec);
      size_t page = 0;  // the first that is whole
      while (consumer.TakeOne()) {
        // The last row's page holds the next rows too.
        const auto last_row = static_cast<size_t>(consumer.rows_taken() - 1);
        for (; page < last_row / kPageRows; ++page) {
          for (const auto& column_places : places) {
            DamageValues(data.path(0), column_places, page);
            // Where several threads share a column, one may still be passing over pages.
            if (num_threads == 1) DamageHeader(data.path(0), column_places, page);
          }
        }
      }
      CHECK(page == kNumRows / kPageRows - 1);
      CHECK(consumer.rows_taken() == kNumRows);
      CHECK(consumer.num_mismatches() == 0);
    }
  }
}

}  // namespace
}  // namespace torchparquet
