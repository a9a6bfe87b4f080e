#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "caught.h"
#include "reader/parallel_reader.h"
#include "recipes/reading.h"
#include "tried.h"

namespace torchparquet {
namespace {

using testing::Consumer;
using testing::DataSet;
using testing::FileRecipe;
using testing::Mentions;
using testing::StoredAs;

constexpr int64_t kThreadCounts[] = {1, 2, 4, 8, 64};
constexpr int64_t kBatchRows = 40;

FileRecipe Recipe() {
  return {.columns = {{"a", "int64"},
                      {"b", "float32", StoredAs::kDictionary, 6},
                      {"c", "int32", StoredAs::kFallback}},
          .row_group_rows = {300, 200},
          .page_rows = 100,
          .compressed = false};
}

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Changes one byte of the page that stores row `row` of the plain int64 column `a`.
void CorruptCell(const DataSet& data, int64_t file, int64_t row) {
  std::string bytes = ReadBytes(data.path(file));
  const uint64_t bits = testing::Cells(data.columns()[0]).Bits(row);
  std::string stored(sizeof(bits), '\0');
  std::memcpy(stored.data(), &bits, sizeof(bits));
  const size_t place = bytes.find(stored);
  REQUIRE(place != std::string::npos);
  bytes[place] = static_cast<char>(bytes[place] ^ 0x10);
  WriteBytes(data.path(file), bytes);
}

struct Outcome {
  int64_t num_batches;
  std::string message;
  ErrorKind kind;
};

// Reads to the failure and checks all that holds for any.
Outcome ReadToFailure(const DataSet& data, const ReaderParts& spec) {
  CAPTURE(spec.num_threads);
  CAPTURE(spec.max_memory_bytes);
  Consumer consumer(data, spec);
  const int64_t num_batches = consumer.TakeAll();
  CHECK(consumer.num_mismatches() == 0);
  REQUIRE(consumer.error());
  const Error first = *consumer.error();
  for (int i = 0; i < 2; ++i) {
    const auto again = testing::Caught([&] { consumer.TakeOne(); });
    REQUIRE(again);
    CHECK(std::string(again->what()) == first.what());
    CHECK(again->kind() == first.kind());
  }
  return {num_batches, first.what(), first.kind()};
}

// Checks that the failure is the same one at the same place under every schedule.
void CheckFailure(const DataSet& data, const ReaderParts& base, const Outcome& expected,
                  const std::vector<std::string>& mentions) {
  for (const int64_t num_threads : testing::Tried(kThreadCounts)) {
    for (const int64_t num_slabs : {2, 5, 100}) {
      ReaderParts spec = base;
      spec.num_threads = num_threads;
      spec.max_memory_bytes = testing::MemoryFor(spec, num_slabs);
      const Outcome outcome = ReadToFailure(data, spec);
      CHECK(outcome.num_batches == expected.num_batches);
      CHECK(outcome.kind == expected.kind);
      const Error error(outcome.kind, outcome.message);
      for (const std::string& mention : mentions) {
        CAPTURE(outcome.message);
        CHECK(Mentions(error, mention));
      }
    }
  }
}

TEST_CASE("a page that fails its checksum ends the stream at its first batch") {
  const DataSet data(Recipe(), 3);
  // The page of the rows 100 to 199 of the second file's first row group.
  CorruptCell(data, 1, 500 + 150);
  CheckFailure(data, data.Spec(kBatchRows, 1),
               {600 / kBatchRows, "", ErrorKind::kCorruptFile},
               {data.path(1), "row group 0", "column 'a'"});
}

TEST_CASE("of two bad pages the first in plan order is reported") {
  const DataSet data(Recipe(), 4);
  CorruptCell(data, 3, 1500 + 10);
  CorruptCell(data, 1, 500 + 310);
  CheckFailure(data, data.Spec(kBatchRows, 1),
               {800 / kBatchRows, "", ErrorKind::kCorruptFile},
               {data.path(1), "row group 1", "column 'a'"});
  ReaderParts backwards = data.Spec(kBatchRows, 1);
  std::reverse(backwards.share.chunks.begin(), backwards.share.chunks.end());
  // The other way round the last file's second row group, of 200 rows, comes first.
  CheckFailure(data, backwards, {200 / kBatchRows, "", ErrorKind::kCorruptFile},
               {data.path(3), "row group 0", "column 'a'"});
}

TEST_CASE("a truncated file in the middle of several") {
  const DataSet data(Recipe(), 3);
  std::filesystem::resize_file(data.path(1),
                               std::filesystem::file_size(data.path(1)) / 2);
  CheckFailure(data, data.Spec(kBatchRows, 1),
               {500 / kBatchRows, "", ErrorKind::kCorruptFile}, {data.path(1)});
}

TEST_CASE("a file that is gone, empty, no Parquet, or replaced") {
  const DataSet data(Recipe(), 2);
  const std::string intact = ReadBytes(data.path(1));
  ReaderParts spec = data.Spec(kBatchRows, 4);
  const auto outcome = [&] { return ReadToFailure(data, spec); };

  std::filesystem::remove(data.path(1));
  CHECK(outcome().kind == ErrorKind::kFileNotFound);
  for (const std::string& content :
       {std::string(), std::string("PAR1"), std::string(500, 'x')}) {
    WriteBytes(data.path(1), content);
    const Outcome bad = outcome();
    CHECK(bad.kind == ErrorKind::kCorruptFile);
    CHECK(bad.num_batches == 500 / kBatchRows);
    CHECK(bad.message.find(data.path(1)) != std::string::npos);
  }
  WriteBytes(data.path(1), intact);
  const auto expect_bytes = [&](size_t num_bytes) {
    std::vector<PlannedFile> planned = data.Planned();
    planned[1].identity.num_bytes = static_cast<int64_t>(num_bytes);
    spec.files = std::make_shared<ParquetFiles>(std::move(planned));
  };
  expect_bytes(intact.size() - 1);
  CHECK(outcome().message.find("changed") != std::string::npos);
  expect_bytes(intact.size());
  Consumer whole(data, spec);
  whole.TakeAll();
  CHECK_FALSE(whole.error());
}

TEST_CASE("a column that is missing or of another kind than was planned") {
  const DataSet data(Recipe(), 1);
  ReaderParts spec = data.Spec(kBatchRows, 2);
  spec.columns[2].request.kinds = {"uint32", "int64"};
  const Outcome other_kind = ReadToFailure(data, spec);
  CHECK(other_kind.num_batches == 0);
  CHECK(other_kind.message.find("has kind int32 but uint32 or int64 was planned") !=
        std::string::npos);
  spec.columns[2].request = {"absent", {"int32"}, kernels::Dtype::kInt32};
  CHECK(ReadToFailure(data, spec).message.find("column 'absent'") != std::string::npos);
}

TEST_CASE("a plan that asks for more than the file has") {
  const DataSet data(Recipe(), 1);
  ReaderParts spec = data.Spec(kBatchRows, 2);
  spec.share.chunks[1].rows.num_rows = 201;
  CHECK(ReadToFailure(data, spec).kind == ErrorKind::kCorruptFile);
  spec.share.chunks[1].rows = {.row_group = 2, .begin = 0, .num_rows = 1};
  CHECK(ReadToFailure(data, spec).kind == ErrorKind::kCorruptFile);
}

// Changes the number of values in the header of the page numbered `page`, of 100 plain
// values, of the first file.
void ClaimMoreValues(const DataSet& data, int64_t page) {
  std::string bytes = ReadBytes(data.path(0));
  // Thrift's compact form: the struct, 100 as the first of its 32-bit fields, PLAIN.
  const std::string header("\x1c\x15\xc8\x01\x15\x00", 6);
  size_t place = bytes.find(header);
  for (; page > 0 && place != std::string::npos; --page)
    place = bytes.find(header, place + 1);
  REQUIRE(place != std::string::npos);
  bytes[place + 2] = '\xca';  // 101
  WriteBytes(data.path(0), bytes);
}

TEST_CASE("a last page that claims more rows than its row group has") {
  const DataSet data(Recipe(), 1);
  ClaimMoreValues(data, 2);
  CheckFailure(data, data.Spec(kBatchRows, 1),
               {200 / kBatchRows, "", ErrorKind::kCorruptFile},
               {data.path(0), "row group 0", "column 'a'"});
}

TEST_CASE("a null under nulls='error' names its row") {
  FileRecipe recipe = Recipe();
  recipe.columns[1].null_every = 777;  // the rows 776 and 1553
  const DataSet data(recipe, 4);
  ReaderParts spec = data.Spec(kBatchRows, 1);
  spec.columns[1].nulls = NullPolicy::kError;
  CheckFailure(data, spec, {776 / kBatchRows, "", ErrorKind::kNullValue},
               {data.path(1), "row group 0", "column 'b'", "row 276 of its row group"});
  spec.share.chunks.erase(spec.share.chunks.begin() + 2);  // the row group of row 776
  CheckFailure(data, spec, {(1553 - 300) / kBatchRows, "", ErrorKind::kNullValue},
               {data.path(3), "row group 0", "column 'b'", "row 53 of its row group"});
}

TEST_CASE(
    "of two bad columns of a row group the one that fails at the earlier row counts") {
  FileRecipe recipe = Recipe();
  recipe.columns[1].null_every = 151;  // the row 150 first
  const DataSet data(recipe, 1);
  CorruptCell(data, 0, 250);
  ReaderParts spec = data.Spec(kBatchRows, 1);
  spec.columns[1].nulls = NullPolicy::kError;
  CheckFailure(data, spec, {150 / kBatchRows, "", ErrorKind::kNullValue},
               {"column 'b'", "row 150 of its row group"});
}

TEST_CASE("a byte changed anywhere gives the right values or an error, never others") {
  FileRecipe recipe = Recipe();
  recipe.row_group_rows = {120};
  recipe.page_rows = 60;
  const DataSet data(recipe, 1);
  const std::string intact = ReadBytes(data.path(0));
  int64_t num_errors = 0;
  const size_t stride = testing::ScheduleSeed() == 0 ? 3 : 37;
  for (size_t place = 0; place < intact.size(); place += stride) {
    CAPTURE(place);
    std::string bytes = intact;
    bytes[place] = static_cast<char>(bytes[place] ^ (place % 2 == 0 ? 0x01 : 0x80));
    WriteBytes(data.path(0), bytes);
    ReaderParts spec = data.Spec(kBatchRows, 2);
    Consumer consumer(data, spec);
    consumer.TakeAll();
    num_errors += consumer.error().has_value();
    if (!consumer.error()) CHECK(consumer.num_mismatches() == 0);
  }
  CHECK(num_errors > 0);
}

}  // namespace
}  // namespace torchparquet
