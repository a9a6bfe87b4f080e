#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "caught.h"
#include "draws.h"
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

constexpr int64_t kThreadCounts[] = {1, 2, 4, 8, 64};

// One column of every kind in every encoding, required and with nulls.
std::vector<StoredColumn> EveryColumn() {
  std::vector<StoredColumn> columns;
  for (const char* kind : {"bool", "int8", "uint16", "int32", "int64", "float16",
                           "float32", "float64", "date"}) {
    for (const StoredAs stored_as :
         {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
      if (kind == std::string("bool") && stored_as == StoredAs::kDictionary) continue;
      for (const int64_t null_every : {0, -1, 1, 3}) {
        const std::string name = std::string(kind) + "." +
                                 std::to_string(static_cast<int>(stored_as)) + "." +
                                 std::to_string(null_every);
        columns.push_back({name, kind, stored_as, null_every});
      }
    }
  }
  return columns;
}

FileRecipe FewColumns() {
  return {.columns = {{"id", "int64"},
                      {"label", "bool", StoredAs::kPlain, 4},
                      {"price", "float32", StoredAs::kDictionary, 7}},
          .row_group_rows = {230, 1, 0, 999, 64}};
}

TEST_CASE("every kind in every encoding, both page versions, compressed or not") {
  for (const bool second_version : testing::Tried({false, true})) {
    for (const bool compressed : testing::Tried({false, true})) {
      const DataSet data({.columns = EveryColumn(),
                          .row_group_rows = {350, 120},
                          .page_rows = 90,
                          .second_version = second_version,
                          .compressed = compressed},
                         1);
      CheckAll(data, data.Spec(64, 2));
      CheckAll(data, data.Spec(1000, 1));
    }
  }
}

TEST_CASE("large batches") {
  for (const bool compressed : testing::Tried({false, true})) {
    const DataSet data({.columns = testing::SomeTried(EveryColumn()),
                        .row_group_rows = {9000, 21'000},
                        .page_rows = 2500,
                        .compressed = compressed},
                       1);
    CheckAll(data, data.Spec(25'000, 2));
  }
}

TEST_CASE("the stream is the same for any number of threads and any batch size") {
  const DataSet data(FewColumns(), 3);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t batch_rows : {0, 1, 7, 64, 100, 1000, 100'000}) {
      // One row per batch is slow with a lock per batch; one count of threads will do.
      if (batch_rows == 1 && num_threads != 4) continue;
      CheckAll(data, data.Spec(batch_rows, num_threads));
    }
  }
}

TEST_CASE("a small max_memory cuts chunks into many slices") {
  const DataSet data(FewColumns(), 2);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t num_slabs : {2, 3, 5, 9}) {
      ReaderParts spec = data.Spec(50, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      CheckAll(data, spec);
      Consumer consumer(data, spec);
      CHECK(consumer.reader().max_slabs() <= num_slabs);
    }
  }
}

TEST_CASE("files in memory are read as those on disk, beside them too") {
  const DataSet data(FewColumns(), 3);
  std::vector<std::vector<char>> contents;
  for (int64_t file = 0; file < 3; ++file) {
    std::ifstream in(data.path(file), std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(in),
                          std::istreambuf_iterator<char>());
  }
  for (const std::vector<size_t>& in_memory :
       {std::vector<size_t>{0, 1, 2}, std::vector<size_t>{1}}) {
    ReaderParts spec = data.Spec(50, 4);
    std::vector<PlannedFile> planned = data.Planned();
    for (const size_t file : in_memory) {
      const std::span<const char> content = contents[file];
      planned[file].path = "<buffer>";
      planned[file].memory.emplace(reinterpret_cast<const uint8_t*>(content.data()),
                                   content.size());
    }
    spec.files = std::make_shared<ParquetFiles>(std::move(planned));
    CheckAll(data, spec);
  }
}

TEST_CASE("lent slabs come back as batches and are written within their bounds") {
  const DataSet data(FewColumns(), 2);
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t num_slabs : {2, 4, 1000}) {
      ReaderParts spec = data.Spec(50, num_threads);
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      spec.lent_slabs = true;
      CheckAll(data, spec);
      Consumer consumer(data, spec);
      CHECK(consumer.reader().memory().slabs == nullptr);
    }
  }
}

TEST_CASE("several columns of one field, with gaps of other fields' columns between") {
  const DataSet data({.columns = {{"a", "float32", StoredAs::kPlain, 5},
                                  {"b", "float32", StoredAs::kDictionary},
                                  {"c", "float32", StoredAs::kFallback, 2},
                                  {"n", "int64"}},
                      .row_group_rows = {3000, 17},
                      .page_rows = 700},
                     2);
  ReaderParts spec = data.Spec(128, 3);
  spec.fields = {{.item_bytes = 8}, {.item_bytes = 4, .width = 3, .has_valid = true}};
  spec.row_id_field = -1;
  spec.row_valid_field = -1;
  for (int64_t i = 0; i < 3; ++i) {
    ColumnSpec& column = spec.columns[static_cast<size_t>(i)];
    column.field = 1;
    column.element = 2 - i;
  }
  spec.columns[3].field = 0;
  CheckAll(data, spec);
}

TEST_CASE("any ranges of row groups, repeated, reordered, and of any rank") {
  const DataSet data(FewColumns(), 3);
  const std::vector<int64_t> group_rows = FewColumns().row_group_rows;
  testing::Draws draws(60);
  for (int trial = 0; trial < 25; ++trial) {
    ReaderParts spec =
        data.Spec(draws.OneIn(4) ? 0 : draws.Between(1, 150), draws.Between(1, 4));
    const std::vector<Chunk> whole = spec.share.chunks;
    spec.share.world_size = draws.Between(1, 4);
    spec.share.rank = draws.Below(spec.share.world_size);
    spec.share.chunks.clear();
    for (int64_t i = draws.Between(1, 9); i > 0; --i) {
      Chunk chunk =
          whole[static_cast<size_t>(draws.Below(static_cast<int64_t>(whole.size())))];
      const int64_t begin = draws.Between(0, chunk.rows.num_rows);
      chunk.rows.num_rows = draws.Between(0, chunk.rows.num_rows - begin);
      chunk.rows.begin = begin;
      chunk.first_row_id += begin;
      chunk.valid = draws.OneIn(2);
      spec.share.chunks.push_back(chunk);
    }
    CheckAll(data, spec);
  }
}

TEST_CASE("an empty share has no batch") {
  const DataSet data(FewColumns(), 1);
  for (const int64_t batch_rows : {0, 10}) {
    ReaderParts spec = data.Spec(batch_rows, 2);
    spec.share.chunks.clear();
    CheckAll(data, spec);
    spec.share.chunks.push_back({.rows = {.row_group = 2}});
    CheckAll(data, spec);
  }
}

TEST_CASE("only row ids need no file") {
  const DataSet data(FewColumns(), 1);
  ReaderParts spec = data.Spec(100, 2);
  spec.columns.clear();
  spec.files = std::make_shared<ParquetFiles>(
      std::vector<PlannedFile>{{.path = "/nonexistent/file.parquet", .identity = {}}});
  CheckAll(data, spec);
}

TEST_CASE("two readers at once, of one memory") {
  const DataSet data(FewColumns(), 2);
  const ReaderParts spec = data.Spec(32, 2);
  Consumer first(data, spec);
  const ReaderMemory memory = first.reader().memory();
  Consumer second(data, spec, memory);
  CHECK(second.reader().memory().slabs == memory.slabs);
  std::jthread other([&] { second.TakeAll(); });
  first.TakeAll();
  other.join();
  for (Consumer* consumer : {&first, &second}) {
    CHECK_FALSE(consumer->error());
    CHECK(consumer->num_mismatches() == 0);
    CHECK(consumer->rows_taken() == data.num_rows());
  }
  Consumer third(data, data.Spec(33, 1), memory);
  CHECK(third.reader().memory().slabs != memory.slabs);  // of another size
  CHECK(third.reader().memory().scratch == memory.scratch);
  third.TakeAll();
  CHECK_FALSE(third.error());
  CHECK(third.num_mismatches() == 0);
}

TEST_CASE("more files than are kept open") {
  const DataSet data({.columns = {{"id", "int64"}}, .row_group_rows = {3, 2}},
                     static_cast<int64_t>(ParquetFiles::kMaxOpenFiles) + 20);
  CheckAll(data, data.Spec(4, 4));
}

TEST_CASE("specifications that contradict themselves are refused") {
  const DataSet data(FewColumns(), 1);
  const auto refused = [&](auto&& change) {
    ReaderParts spec = data.Spec(10, 1);
    change(spec);
    return testing::Throws(ErrorKind::kInvalidArgument,
                           [&] { ParallelReader{ReaderSpec{std::move(spec)}}; });
  };
  CHECK_FALSE(refused([](ReaderParts&) {}));
  CHECK(refused([](ReaderParts& spec) { spec.num_threads = 0; }));
  CHECK(refused([](ReaderParts& spec) { spec.max_memory_bytes = 100; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].field = 5; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].field = -1; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].element = 1; }));
  CHECK(refused([](ReaderParts& spec) { spec.columns[0].element = -1; }));
  CHECK(refused([](ReaderParts& spec) { spec.row_id_field = 9; }));
  CHECK(refused([](ReaderParts& spec) { spec.row_valid_field = 9; }));
  // Row ids and validity are fields of their own shape.
  CHECK(refused(
      [](ReaderParts& spec) { std::swap(spec.row_id_field, spec.row_valid_field); }));
  for (const int64_t field : {3, 4}) {
    CHECK(refused(
        [&](ReaderParts& spec) { spec.fields[static_cast<size_t>(field)].width = 2; }));
    CHECK(refused([&](ReaderParts& spec) {
      spec.fields[static_cast<size_t>(field)].item_bytes = 4;
    }));
  }
  CHECK(refused([](ReaderParts& spec) { spec.share.chunks[0].file = -1; }));
  CHECK(refused([](ReaderParts& spec) { spec.share.chunks[0].file = 1; }));
  CHECK(refused([](ReaderParts& spec) { spec.share.chunks[0].rows.begin = -1; }));
  CHECK(refused([](ReaderParts& spec) { spec.share.chunks[0].rows.num_rows = -1; }));
  CHECK(refused([](ReaderParts& spec) {
    spec.columns.clear();
    spec.row_id_field = -1;
    spec.row_valid_field = -1;
  }));
}

}  // namespace
}  // namespace torchparquet
