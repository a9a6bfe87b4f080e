#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "columns/open_column.h"
#include "columns/readers.h"
#include "draws.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::ListForm;
using testing::Nested;
using testing::NestedColumn;
using testing::NestedFile;
using testing::NestedRecipe;
using testing::StoredAs;
using testing::ValueKind;

constexpr uint64_t kFillBits = testing::kNestedFill;

// The values of rows as one tensor, and which of them are valid.
struct Cells {
  std::vector<uint8_t> values;
  std::vector<uint8_t> valid;

  bool operator==(const Cells&) const = default;
};

Cells CellsOf(const NestedColumn& column, std::span<const Nested> rows) {
  Cells cells;
  const auto add = [&](const Nested& value) {
    cells.valid.push_back(!value.is_null);
    if (!value.is_null) {
      cells.values.insert(cells.values.end(), value.bytes.begin(), value.bytes.end());
      return;
    }
    for (int64_t i = 0; i < column.cell_items() * column.item_bytes(); ++i) {
      cells.values.push_back(
          static_cast<uint8_t>(kFillBits >> (8 * (i % column.item_bytes()))));
    }
  };
  for (const Nested& row : rows) {
    if (row.is_null) {
      for (int64_t i = 0; i < column.list_length; ++i) add({.is_null = true});
    }
    std::ranges::for_each(row.items, add);
  }
  return cells;
}

class Chunk {
 public:
  Chunk(const NestedFile& data, size_t column, int64_t row_group)
      : column_(data.recipe().columns[column]),
        rows_(std::span(data.rows(column))
                  .subspan(
                      static_cast<size_t>(data.FirstRow(row_group)),
                      static_cast<size_t>(
                          data.recipe().row_group_rows[static_cast<size_t>(row_group)]))),
        row_group_(row_group),
        file_(std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}})) {}

  std::unique_ptr<ColumnReader> Open(const PagePlace& place = {},
                                     ColumnBuffers buffers = {}) const {
    ColumnRequest request = column_.Request();
    request.num_offsets = 0;
    request.list_length = column_.list_length;
    return OpenColumn(file_, request, row_group_, place, std::move(buffers));
  }

  // Reads the rows into segments of random sizes. Returns how many of those are wrong.
  int64_t Read(ColumnReader* reader, int64_t begin, int64_t end, Draws& draws,
               NullPolicy nulls = NullPolicy::kFill) {
    const bool has_mask = nulls == NullPolicy::kFill && draws.OneIn(2);
    const int64_t row_items = column_.list_length * column_.cell_items();
    std::vector<ExactBuffer<uint8_t>> values;
    std::vector<ExactBuffer<uint8_t>> valid;
    std::vector<Segment> segments;
    segment_ends_.clear();
    for (int64_t row = begin; row < end; row = segment_ends_.back()) {
      const int64_t num_rows =
          draws.Between(1, draws.OneIn(3) ? end - row : std::min(end - row, int64_t{9}));
      values.emplace_back(
          static_cast<size_t>(num_rows * row_items * column_.item_bytes()));
      valid.emplace_back(static_cast<size_t>(num_rows * column_.list_length));
      segments.push_back(
          {values.back().data(), has_mask ? valid.back().data() : nullptr, num_rows});
      segment_ends_.push_back(row + num_rows);
    }
    const ColumnTarget target{.segments = segments,
                              .item_bytes = column_.item_bytes(),
                              .cell_items = row_items,
                              .valid_items = column_.list_length,
                              .streaming = draws.OneIn(2),
                              .nulls = nulls,
                              .fill_bits = kFillBits};
    testing::ItemsProgress progress(0, {});
    DecodeScratch scratch;
    DecodeScratch& used = draws.OneIn(2) ? scratch : scratch_;
    testing::Scribble(&used);
    num_done_ = 0;
    try {
      reader->Read({row_group_, begin, end - begin}, target, &used, &progress);
    } catch (const Error&) {
      num_done_ = progress.num_done();
      throw;
    }
    testing::Scribble(&used);
    CHECK(progress.num_done() == std::ssize(segments));
    CHECK(reader->row() == end);
    int64_t num_wrong = 0;
    int64_t row = begin;
    for (size_t i = 0; i < segments.size(); ++i) {
      Cells expected =
          CellsOf(column_, rows_.subspan(static_cast<size_t>(row),
                                         static_cast<size_t>(segments[i].num_rows)));
      if (!has_mask) expected.valid.assign(expected.valid.size(), 0);
      num_wrong += Cells{values[i].Copy(), valid[i].Copy()} != expected;
      row += segments[i].num_rows;
    }
    return num_wrong;
  }

  // How many segments the Read that failed had done, and those that end by `row`.
  int64_t num_done() const { return num_done_; }
  int64_t NumEnding(int64_t row) const {
    return std::ranges::count_if(segment_ends_, [&](int64_t end) { return end <= row; });
  }
  int64_t num_rows() const { return std::ssize(rows_); }
  std::span<const Nested> rows() const { return rows_; }

 private:
  const NestedColumn column_;
  const std::span<const Nested> rows_;
  const int64_t row_group_;
  std::shared_ptr<const ParquetFile> file_;
  DecodeScratch scratch_;
  std::vector<int64_t> segment_ends_;
  int64_t num_done_ = 0;
};

std::vector<NestedColumn> Columns() {
  using enum ValueKind;
  std::vector<NestedColumn> columns;
  for (const StoredAs stored_as :
       {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
    for (const int64_t length : {1, 3, 100}) {
      columns.push_back({.kind = kInt32, .list_length = length, .stored_as = stored_as});
      columns.push_back({.kind = kInt64,
                         .optional = false,
                         .list_length = length,
                         .stored_as = stored_as});
      columns.push_back({.kind = kFixed, .list_length = length, .stored_as = stored_as});
    }
  }
  columns.push_back({.kind = kBool, .list_length = 5});
  columns.push_back({.kind = kInt32, .form = ListForm::kTwoLevel, .list_length = 4});
  columns.push_back({.kind = kInt64, .form = ListForm::kBare, .list_length = 7});
  columns.push_back({.kind = kInt64, .null_one_in = 1, .list_length = 2});
  columns.push_back({.kind = kInt64, .null_one_in = 0, .list_length = 40});
  columns.push_back({.kind = kInt32, .null_one_in = 300, .list_length = 40});
  for (size_t i = 0; i < columns.size(); ++i) columns[i].name = "c" + std::to_string(i);
  return columns;
}

TEST_CASE("ranges with gaps, by one reader or by several that go on at its places") {
  Draws draws(310);
  for (const bool splits_rows : {false, true}) {
    for (const bool compressed : {false, true}) {
      const NestedRecipe recipe{.columns = Columns(),
                                .row_group_rows = {90, 40},
                                .page_entries = 47,
                                .second_version = compressed && !splits_rows,
                                .compressed = compressed,
                                .splits_rows = splits_rows};
      const NestedFile data(recipe, draws);
      ColumnBuffers buffers;
      for (size_t column = 0; column < recipe.columns.size(); ++column) {
        CAPTURE(column);
        for (const int64_t row_group : {0, 1}) {
          Chunk chunk(data, column, row_group);
          auto reader = chunk.Open({}, std::move(buffers));
          while (reader->row() < chunk.num_rows()) {
            const int64_t begin = draws.OneIn(4)
                                      ? draws.Between(reader->row(), chunk.num_rows() - 1)
                                      : reader->row();
            const int64_t end = begin + draws.Between(1, chunk.num_rows() - begin);
            CHECK(chunk.Read(reader.get(), begin, end, draws) == 0);
            if (draws.OneIn(3)) continue;
            const PagePlace place = reader->place();
            reader = chunk.Open(place, reader->TakeBuffers());
          }
          buffers = reader->TakeBuffers();
        }
      }
    }
  }
}

TEST_CASE("a list of another length is an error that names its row") {
  Draws draws(311);
  for (int trial = 0; trial < 100; ++trial) {
    const bool optional = draws.OneIn(2);
    NestedColumn column{
        .name = "odd",
        .optional = optional,
        .null_one_in = draws.OneIn(2) ? 10 : 0,
        .list_length = draws.Between(1, 30),
        .stored_as = draws.OneIn(2) ? StoredAs::kPlain : StoredAs::kDictionary};
    const int64_t num_rows = draws.Between(1, 120);
    const NestedRecipe recipe{.columns = {column},
                              .row_group_rows = {num_rows},
                              .page_entries = draws.Between(3, 300),
                              .second_version = draws.OneIn(2),
                              .splits_rows = draws.OneIn(2)};
    auto rows = testing::RandomRows(draws, recipe);
    const int64_t odd_row = draws.Below(num_rows);
    Nested& odd = rows[0][static_cast<size_t>(odd_row)];
    odd = {};
    int64_t length = draws.OneIn(3) ? 0 : draws.Below(2 * column.list_length + 2);
    if (draws.OneIn(3)) length = column.list_length + (draws.OneIn(2) ? 1 : -1);
    if (length == column.list_length) ++length;
    NestedColumn value = column;
    value.num_lists = 0;
    value.optional = false;
    while (std::ssize(odd.items) < length) {
      odd.items.push_back(testing::RandomRow(draws, value));
    }
    CAPTURE(length);
    CAPTURE(column.list_length);
    const NestedFile data(recipe, rows);
    Chunk chunk(data, 0, 0);
    const auto reader = chunk.Open();
    const auto error =
        testing::Caught([&] { chunk.Read(reader.get(), 0, num_rows, draws); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kListLength);
    CHECK(testing::Mentions(*error, "row " + std::to_string(odd_row) + " of"));
    CHECK(testing::Mentions(*error, "length=" + std::to_string(column.list_length)));
    CHECK(testing::Mentions(*error, "column 'odd'"));
    CHECK(chunk.num_done() == chunk.NumEnding(odd_row));
    // Nobody reads it here.
    const auto before = chunk.Open();
    if (odd_row > 0) CHECK(chunk.Read(before.get(), 0, odd_row, draws) == 0);
    if (odd_row + 1 == num_rows) continue;
    CHECK(chunk.Read(before.get(), odd_row + 1, num_rows, draws) == 0);
  }
}

TEST_CASE("the first null is an error that names its row, once those before are there") {
  Draws draws(312);
  for (const bool list_is_null : {false, true}) {
    for (const int64_t length : {1, 6}) {
      for (const int64_t null_row : {0, 1, 37, 79}) {
        const NestedRecipe recipe{
            .columns = {{.name = "n", .null_one_in = 0, .list_length = length}},
            .row_group_rows = {80},
            .page_entries = 20};
        auto rows = testing::RandomRows(draws, recipe);
        Nested& row = rows[0][static_cast<size_t>(null_row)];
        if (list_is_null) {
          row = {.is_null = true};
        } else {
          row.items[static_cast<size_t>(draws.Below(length))] = {.is_null = true};
        }
        const NestedFile data(recipe, rows);
        Chunk chunk(data, 0, 0);
        const auto reader = chunk.Open();
        const auto error = testing::Caught(
            [&] { chunk.Read(reader.get(), 0, 80, draws, NullPolicy::kError); });
        REQUIRE(error);
        CHECK(error->kind() == ErrorKind::kNullValue);
        CHECK(testing::Mentions(*error, "row " + std::to_string(null_row) + " "));
        CHECK(chunk.num_done() == chunk.NumEnding(null_row));
        CHECK(chunk.Read(chunk.Open().get(), 0, 80, draws) == 0);
      }
    }
  }
}

TEST_CASE("numbers of words in lists of one length") {
  Draws draws(313);
  const NestedRecipe recipe{.columns = {{.name = "w",
                                         .kind = ValueKind::kString,
                                         .list_length = 3,
                                         .stored_as = StoredAs::kDictionary}},
                            .row_group_rows = {100}};
  const NestedFile data(recipe, draws);
  ColumnRequest request = recipe.columns[0].Request();
  request.num_offsets = 0;
  request.list_length = 3;
  const std::string word = [&] {
    for (const Nested& row : data.rows(0)) {
      for (const Nested& item : row.items) {
        if (!item.is_null) return item.bytes;
      }
    }
    return std::string();
  }();
  request.vocabulary = std::make_shared<const Vocabulary>(std::vector{word}, 1);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  const auto reader = OpenColumn(file, request, 0, {}, {});
  ExactBuffer<uint8_t> codes(300);
  const Segment segment{codes.data(), nullptr, 100};
  DecodeScratch scratch;
  testing::ItemsProgress progress(0, {});
  reader->Read({0, 0, 100},
               {.segments = {&segment, 1},
                .item_bytes = 1,
                .cell_items = 3,
                .nulls = NullPolicy::kFill,
                .fill_bits = 7},
               &scratch, &progress);
  std::vector<uint8_t> expected;
  for (const Nested& row : data.rows(0)) {
    if (row.is_null) expected.insert(expected.end(), 3, 7);
    for (const Nested& item : row.items) {
      expected.push_back(item.is_null ? 7 : item.bytes == word ? 0 : 1);
    }
  }
  CHECK(codes.Copy() == expected);
}

}  // namespace
}  // namespace torchparquet
