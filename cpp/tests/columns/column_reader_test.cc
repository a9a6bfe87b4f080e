#include "columns/column_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "columns/open_column.h"
#include "draws.h"
#include "exact_buffer.h"
#include "recipes/reading.h"

namespace torchparquet {
namespace {

using testing::DataSet;
using testing::Draws;
using testing::ExactBuffer;
using testing::FileRecipe;
using testing::StoredAs;
using testing::StoredColumn;

constexpr int64_t kGroupRows[] = {1500, 400};

std::vector<StoredColumn> Columns() {
  return {{"plain", "int64"},
          {"plain nulls", "float32", StoredAs::kPlain, 3},
          {"dictionary", "float64", StoredAs::kDictionary},
          {"dictionary nulls", "int32", StoredAs::kDictionary, 5},
          {"half nulls", "float16", StoredAs::kDictionary, -1},
          {"runs", "bool", StoredAs::kFallback},
          {"bits nulls", "bool", StoredAs::kPlain, 4},
          {"delta nulls", "date", StoredAs::kFallback, 7},
          {"narrow", "int8", StoredAs::kDictionary, 2},
          {"all null", "uint16", StoredAs::kPlain, 1}};
}

// Every way in which pages may be stored: version, compression, rows of a page, and
// whether dictionaries give way to plain pages.
std::vector<FileRecipe> Recipes() {
  std::vector<FileRecipe> recipes;
  for (const bool second_version : {false, true}) {
    for (const bool compressed : {false, true}) {
      for (const int64_t page_rows : {64, 700}) {
        recipes.push_back({.columns = Columns(),
                           .row_group_rows = {kGroupRows[0], kGroupRows[1]},
                           .page_rows = page_rows,
                           .second_version = second_version,
                           .compressed = compressed,
                           .max_dictionary_bytes = page_rows == 64 ? 128 : 1 << 20});
      }
    }
  }
  return recipes;
}

class CountedProgress : public DecodeProgress {
 public:
  JaggedItems BeginItems() override { return {}; }
  void EndItems(JaggedItems) override {}
  void SegmentDone() override { ++num_done_; }
  int64_t num_done() const { return num_done_; }

 private:
  int64_t num_done_ = 0;
};

// Nothing in them outlives a task, so anything may stand in them at the next.
void Scribble(DecodeScratch* scratch) {
  for (ScratchBuffer* buffer : {&scratch->file_bytes, &scratch->page, &scratch->validity,
                                &scratch->dense, &scratch->block}) {
    if (buffer->capacity() > 0) std::memset(buffer->data(), 0xDB, buffer->capacity());
  }
}

// One column chunk of a file, and what reads it.
class Chunk {
 public:
  Chunk(const DataSet& data, StoredColumn column, int64_t row_group)
      : file_(std::make_shared<const ParquetFile>(PlannedFile{data.path(0), {}})),
        column_(std::move(column)),
        row_group_(row_group),
        first_row_(row_group == 0 ? 0 : kGroupRows[0]) {}

  std::unique_ptr<ColumnReader> Open(const PagePlace& place = {},
                                     ColumnBuffers buffers = {}) const {
    return OpenColumn(file_, testing::RequestOf(column_), row_group_, place,
                      std::move(buffers));
  }

  // Reads the rows into segments of random sizes. Returns how many cells are wrong.
  int64_t Read(ColumnReader* reader, int64_t begin, int64_t end, Draws& draws) const {
    const int64_t item_bytes = testing::ItemBytes(column_.kind);
    std::vector<ExactBuffer<uint8_t>> values;
    std::vector<ExactBuffer<uint8_t>> valid;
    std::vector<Segment> segments;
    for (int64_t row = begin; row < end;) {
      const int64_t num_rows = draws.Between(1, end - row);
      values.emplace_back(static_cast<size_t>(num_rows * item_bytes));
      valid.emplace_back(static_cast<size_t>(num_rows));
      segments.push_back({values.back().data(), valid.back().data(), num_rows});
      row += num_rows;
    }
    const ColumnTarget target{.segments = segments,
                              .stride = 1,
                              .item_bytes = item_bytes,
                              .streaming = draws.OneIn(2),
                              .nulls = NullPolicy::kFill,
                              .fill_bits = testing::kFillBits};
    CountedProgress progress;
    DecodeScratch scratch;
    DecodeScratch& used = draws.OneIn(2) ? scratch : scratch_;
    Scribble(&used);
    reader->Read({row_group_, begin, end - begin}, target, &used, &progress);
    Scribble(&used);
    CHECK(progress.num_done() == std::ssize(segments));
    CHECK(reader->row() == end);
    CHECK(reader->place().first_row < end);
    const testing::Cells cells(column_);
    int64_t num_wrong = 0;
    int64_t row = first_row_ + begin;
    for (const Segment& segment : segments) {
      for (int64_t i = 0; i < segment.num_rows; ++i, ++row) {
        num_wrong +=
            !cells.Equals(row, testing::kFillBits, segment.values + i * item_bytes);
        num_wrong += segment.valid[i] != !cells.IsNull(row);
      }
    }
    return num_wrong;
  }

  // The place of the page whose first row is `row`.
  PagePlace PlaceOf(int64_t row, Draws& draws) const {
    const auto reader = Open();
    CHECK(Read(reader.get(), row, row + 1, draws) == 0);
    CHECK(reader->place().first_row == row);
    return reader->place();
  }

  int64_t num_rows() const { return kGroupRows[row_group_]; }

 private:
  std::shared_ptr<const ParquetFile> file_;
  StoredColumn column_;
  int64_t row_group_;
  int64_t first_row_;  // of the row group, in the file
  mutable DecodeScratch scratch_;
};

// Overwrites a part of an open file.
void Destroy(const std::string& path, int64_t begin, int64_t end) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(begin);
  const std::string garbage(static_cast<size_t>(end - begin), '\xDB');
  file.write(garbage.data(), std::ssize(garbage));
}

// Reads a column chunk from its first row to its last in random ranges, with gaps, by
// readers that come and go.
int64_t ReadThrough(const Chunk& chunk, ColumnBuffers* buffers, Draws& draws) {
  int64_t num_wrong = 0;
  auto reader = chunk.Open({}, std::move(*buffers));
  const int64_t max_rows = draws.OneIn(3) ? 900 : 90;
  while (reader->row() < chunk.num_rows()) {
    const bool gap = draws.OneIn(4);
    const int64_t begin =
        gap ? draws.Between(reader->row(), chunk.num_rows() - 1) : reader->row();
    const int64_t end =
        begin + draws.Between(1, std::min(max_rows, chunk.num_rows() - begin));
    num_wrong += chunk.Read(reader.get(), begin, end, draws);
    CHECK(reader->held_bytes() > 0);
    if (!draws.OneIn(3)) continue;
    const PagePlace place = reader->place();
    ColumnBuffers used = draws.OneIn(2) ? reader->TakeBuffers() : ColumnBuffers();
    // The bytes of another reader mean nothing to the next.
    for (ScratchBuffer* buffer : {&used.file_bytes, &used.page, &used.dictionary}) {
      if (buffer->capacity() > 0) std::memset(buffer->data(), 0xDB, buffer->capacity());
    }
    reader = chunk.Open(place, std::move(used));
    CHECK(reader->row() == place.first_row);
  }
  *buffers = reader->TakeBuffers();
  return num_wrong;
}

TEST_CASE("ranges with gaps, by one reader or by several that go on at its places") {
  Draws draws(100);
  for (const FileRecipe& recipe : Recipes()) {
    CAPTURE(recipe.second_version);
    CAPTURE(recipe.compressed);
    CAPTURE(recipe.page_rows);
    const DataSet data(recipe, 1);
    ColumnBuffers buffers;  // from column to column, whatever their types
    for (int trial = 0; trial < 3; ++trial) {
      for (const StoredColumn& column : recipe.columns) {
        CAPTURE(column.name);
        for (const int64_t row_group : {0, 1}) {
          const Chunk chunk(data, column, row_group);
          CHECK(ReadThrough(chunk, &buffers, draws) == 0);
        }
      }
    }
  }
}

TEST_CASE("a reader begins at its place") {
  const DataSet data(Recipes()[0], 1);
  const Chunk chunk(data, Columns()[0], 1);
  const auto first = chunk.Open();
  CHECK(first->row() == 0);
  CHECK(first->place().offset == -1);
  CHECK(first->place().first_row == 0);
  Draws draws(101);
  const PagePlace place = chunk.PlaceOf(128, draws);
  CHECK(place.offset > 0);
  const auto later = chunk.Open(place);
  CHECK(later->row() == 128);
  CHECK(later->place().offset == place.offset);
  CHECK(later->place().first_row == 128);
}

// Pages of 100 rows in one row group of 1500.
std::vector<FileRecipe> LongRecipes() {
  std::vector<FileRecipe> recipes;
  for (FileRecipe recipe : Recipes()) {
    if (recipe.page_rows > 100) continue;
    recipe.page_rows = 100;
    recipe.max_dictionary_bytes = 1 << 20;
    recipes.push_back(recipe);
  }
  return recipes;
}

TEST_CASE("at a place nothing of the pages between it and the first is read") {
  Draws draws(102);
  for (const FileRecipe& recipe : LongRecipes()) {
    for (const StoredColumn& column : recipe.columns) {
      CAPTURE(column.name);
      const DataSet data(recipe, 1);
      const Chunk chunk(data, column, 0);
      const PagePlace second_page = chunk.PlaceOf(100, draws);
      const auto reader = chunk.Open();
      CHECK(chunk.Read(reader.get(), 0, 350, draws) == 0);
      const PagePlace place = reader->place();
      CHECK(place.first_row == 300);
      // With the last byte of the first page, so that its values cannot be decoded.
      Destroy(data.path(0), second_page.offset - 1, place.offset);
      const auto later = chunk.Open(place);
      CHECK(chunk.Read(later.get(), 350, 1500, draws) == 0);
    }
  }
}

TEST_CASE("the page that a reader stopped in, and the dictionary, are not read again") {
  Draws draws(103);
  for (const FileRecipe& recipe : LongRecipes()) {
    for (const StoredColumn& column : recipe.columns) {
      CAPTURE(column.name);
      const DataSet data(recipe, 1);
      const Chunk chunk(data, column, 0);
      const PagePlace next_page = chunk.PlaceOf(300, draws);
      const auto reader = chunk.Open();
      CHECK(chunk.Read(reader.get(), 190, 210, draws) == 0);
      Destroy(data.path(0), 0, next_page.offset);
      CHECK(chunk.Read(reader.get(), 210, 230, draws) == 0);
      CHECK(chunk.Read(reader.get(), 260, 1500, draws) == 0);
    }
  }
}

TEST_CASE("pages between two ranges are passed over undecoded") {
  Draws draws(104);
  for (const FileRecipe& recipe : LongRecipes()) {
    for (const StoredColumn& column : recipe.columns) {
      CAPTURE(column.name);
      const DataSet data(recipe, 1);
      const Chunk chunk(data, column, 0);
      const PagePlace next_page = chunk.PlaceOf(300, draws);
      // The last byte of the page of the rows 200 to 299.
      Destroy(data.path(0), next_page.offset - 1, next_page.offset);
      const auto reader = chunk.Open();
      CHECK(chunk.Read(reader.get(), 150, 200, draws) == 0);
      CHECK(chunk.Read(reader.get(), 300, 301, draws) == 0);
      const auto other = chunk.Open();
      CHECK(chunk.Read(other.get(), 150, 151, draws) == 0);
      CHECK(chunk.Read(other.get(), 320, 500, draws) == 0);
      const auto third = chunk.Open();
      CHECK(testing::Throws(ErrorKind::kCorruptFile,
                            [&] { chunk.Read(third.get(), 299, 300, draws); }));
    }
  }
}

TEST_CASE("errors name the file, the row group and the column") {
  Draws draws(105);
  const DataSet data(Recipes()[0], 1);
  const Chunk chunk(data, Columns()[0], 1);
  const auto reader = chunk.Open();
  CHECK(chunk.Read(reader.get(), 390, 400, draws) == 0);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(0), {}});
  const auto open = [&](const ColumnRequest& column, int64_t row_group) {
    OpenColumn(file, column, row_group, {}, {});
  };
  const std::vector<Error> errors{
      *testing::Caught([&] { chunk.Read(reader.get(), 400, 401, draws); }),
      *testing::Caught([&] { open({"plain", {"float64"}}, 1); }),
      *testing::Caught([&] { open({"absent", {"int64"}}, 1); }),
      *testing::Caught([&] { open({"plain", {"int64"}}, 2); }),
      *testing::Caught([&] { open({"plain", {"int64"}}, -1); })};
  for (const Error& error : errors) {
    CAPTURE(std::string(error.what()));
    CHECK(error.kind() == ErrorKind::kCorruptFile);
    CHECK(testing::Mentions(error, data.path(0)));
  }
  for (const size_t i : {0, 1, 3}) CHECK(testing::Mentions(errors[i], "column 'plain'"));
  for (const size_t i : {0, 1, 2}) CHECK(testing::Mentions(errors[i], "row group 1"));
  CHECK(testing::Mentions(errors[0], "400 rows of 401"));
}

}  // namespace
}  // namespace torchparquet
