#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "draws.h"
#include "reader/memory_plan.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "tried.h"

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

MemoryPlan PlanOf(const ReaderParts& spec) {
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
  for (const int64_t num_threads : testing::Tried({1, 2, 3, 4, 64})) {
    for (const int64_t num_slabs : slab_counts) {
      ReaderParts spec = data.Spec(num_slabs % 2 == 0 ? 37 : 101, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      REQUIRE(PlanOf(spec).max_slice_rows < kMaxGroupRows);
      CheckAll(data, spec);
    }
  }
}

TEST_CASE("chunks cut to slices, few columns") {
  for (const Pages& pages : testing::Tried(kPages)) {
    CAPTURE(pages.rows);
    CAPTURE(pages.second_version);
    CAPTURE(pages.compressed);
    CheckAllSlices(DataSet(Recipe(FewColumns(), pages), 2), {2, 3, 9, 20, 48});
  }
}

TEST_CASE("chunks cut to slices, many columns") {
  for (const Pages& pages : testing::Tried(kPages)) {
    CAPTURE(pages.rows);
    CAPTURE(pages.second_version);
    CAPTURE(pages.compressed);
    CheckAllSlices(DataSet(Recipe(ManyColumns(), pages), 1), {2, 9, 48});
  }
}

TEST_CASE("slices of chunks that begin and end within a row group") {
  testing::Draws draws(testing::SeedTried(110));
  for (const Pages& pages : testing::Tried(kPages)) {
    const DataSet data(Recipe(ManyColumns(), pages), 1);
    for (int64_t trial = 0; trial < testing::NumTried(6); ++trial) {
      ReaderParts spec = data.Spec(draws.Between(5, 120), draws.Between(1, 4));
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

constexpr int64_t kPageRows = 50;

// The begin and end of a page's values in its file.
struct PageValues {
  size_t begin;
  size_t end;
};

// Finds the pages of a required, plain int64 column that is not compressed.
std::vector<PageValues> PagesOf(const StoredColumn& column, int64_t num_rows,
                                const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const testing::Cells cells(column);
  std::vector<PageValues> pages;
  for (int64_t first_row = 0; first_row < num_rows; first_row += kPageRows) {
    std::string values;
    for (int64_t row = first_row; row < first_row + kPageRows; ++row) {
      const uint64_t bits = cells.Bits(row);
      char stored[sizeof(bits)];
      std::memcpy(stored, &bits, sizeof(bits));
      values.append(stored, sizeof(bits));
    }
    const size_t begin = bytes.find(values);
    REQUIRE(begin != std::string::npos);
    pages.push_back({begin, begin + values.size()});
  }
  return pages;
}

void Overwrite(const std::string& path, size_t begin, size_t end) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(begin));
  const std::string garbage(end - begin, '\xFF');
  file.write(garbage.data(), std::ssize(garbage));
}

// Damages a page so that it can be passed over but not decoded any more.
void DamageValues(const std::string& path, const PageValues& page) {
  Overwrite(path, page.end - 8, page.end);
}

TEST_CASE("pages whose rows the consumer has are not read again") {
  constexpr int64_t kNumRows = 3000;
  const StoredColumn columns[] = {{"a", "int64"}, {"b", "int64"}};
  for (const int64_t num_threads : testing::Tried({1, 2, 3, 4, 64})) {
    for (const int64_t num_slabs : {2, 3, 9, 40, 120}) {
      CAPTURE(num_threads);
      CAPTURE(num_slabs);
      const DataSet data({.columns = {columns[0], columns[1]},
                          .row_group_rows = {kNumRows},
                          .page_rows = kPageRows,
                          .compressed = false},
                         1);
      const std::vector<PageValues> pages[] = {
          PagesOf(columns[0], kNumRows, data.path(0)),
          PagesOf(columns[1], kNumRows, data.path(0))};
      ReaderParts spec = data.Spec(17, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      REQUIRE(PlanOf(spec).max_slice_rows < kNumRows / 2);
      Consumer consumer(data, spec);
      size_t page = 0;  // the first that is whole
      while (consumer.TakeOne()) {
        // The last row's page holds the next rows too.
        for (; page < static_cast<size_t>((consumer.rows_taken() - 1) / kPageRows);
             ++page) {
          for (const auto& of_column : pages) {
            DamageValues(data.path(0), of_column[page]);
            // If several threads share a column, one may still be passing over pages.
            // The first page may be a dictionary, so every reader looks at its header.
            if (num_threads > 1 || page == 0) continue;
            Overwrite(data.path(0), of_column[page - 1].end, of_column[page].begin);
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
