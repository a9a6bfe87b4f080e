#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "caught.h"
#include "columns/open_column.h"
#include "columns/readers.h"
#include "draws.h"
#include "pages/page_header.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Flat;
using testing::ListForm;
using testing::Nested;
using testing::NestedColumn;
using testing::NestedFile;
using testing::NestedRecipe;
using testing::StoredAs;
using testing::ValueKind;

constexpr uint64_t kFillBits = testing::kNestedFill;

std::vector<NestedColumn> Columns() {
  using enum ValueKind;
  std::vector<NestedColumn> columns;
  const auto add = [&](NestedColumn column) {
    column.name = "c" + std::to_string(columns.size());
    columns.push_back(std::move(column));
  };
  for (const StoredAs stored_as :
       {StoredAs::kPlain, StoredAs::kDictionary, StoredAs::kFallback}) {
    add({.kind = kString, .num_lists = 0, .optional = false, .stored_as = stored_as});
    add({.kind = kString, .num_lists = 0, .stored_as = stored_as});
    add({.kind = kString, .num_lists = 1, .stored_as = stored_as});
    add({.kind = kString, .num_lists = 2, .stored_as = stored_as});
    add({.kind = kInt64, .optional = false, .stored_as = stored_as});
    add({.kind = kInt32, .null_one_in = 0, .stored_as = stored_as});
    add({.kind = kInt32, .num_lists = 2, .stored_as = stored_as});
    add({.kind = kInt64, .num_lists = 3, .stored_as = stored_as});
    add({.kind = kFixed, .num_lists = 1, .stored_as = stored_as});
  }
  add({.kind = kInt32, .form = ListForm::kTwoLevel});
  add({.kind = kString, .num_lists = 2, .form = ListForm::kTwoLevel, .null_one_in = 20});
  add({.kind = kInt64, .form = ListForm::kBare});
  add({.kind = kString, .form = ListForm::kBare});
  add({.kind = kBool, .num_lists = 1});
  add({.kind = kBool, .num_lists = 2, .stored_as = StoredAs::kFallback});
  add({.kind = kString, .num_lists = 0, .null_one_in = 1});  // nothing but nulls
  add({.kind = kInt32, .null_one_in = 1});
  add({.kind = kInt32, .list_length = 0});
  return columns;
}

std::vector<NestedRecipe> Recipes() {
  std::vector<NestedRecipe> recipes;
  for (const bool second_version : {false, true}) {
    for (const bool compressed : {false, true}) {
      for (const int64_t page_entries : {37, 3000}) {
        recipes.push_back({.columns = Columns(),
                           .row_group_rows = {180, 70},
                           .page_entries = page_entries,
                           .second_version = second_version,
                           .compressed = compressed,
                           .max_dictionary_bytes = page_entries == 37 ? 200 : 1 << 20});
      }
    }
  }
  for (const bool compressed : {false, true}) {
    for (const bool bit_packed_levels : {false, true}) {
      recipes.push_back({.columns = Columns(),
                         .row_group_rows = {180, 70},
                         .page_entries = compressed ? 300 : 11,
                         .compressed = compressed,
                         .splits_rows = true,
                         .bit_packed_levels = bit_packed_levels});
    }
  }
  return recipes;
}

// One column chunk of a file, and what reads it.
class Chunk {
 public:
  Chunk(const NestedFile& data, size_t column, int64_t row_group)
      : data_(data),
        column_(data.recipe().columns[column]),
        rows_(std::span(data.rows(column))
                  .subspan(
                      static_cast<size_t>(data.FirstRow(row_group)),
                      static_cast<size_t>(
                          data.recipe().row_group_rows[static_cast<size_t>(row_group)]))),
        row_group_(row_group),
        file_(std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}})) {}

  std::unique_ptr<ColumnReader> Open(const PagePlace& place = {},
                                     ColumnBuffers buffers = {}) const {
    return OpenColumn(file_, column_.Request(), row_group_, place, std::move(buffers));
  }

  // Reads the rows into segments of random sizes. Returns how many of those are wrong.
  int64_t Read(ColumnReader* reader, int64_t begin, int64_t end, Draws& draws,
               NullPolicy nulls = NullPolicy::kFill) const {
    const bool has_masks = nulls == NullPolicy::kFill && draws.OneIn(2);
    std::vector<int64_t> segment_rows;
    for (int64_t left = end - begin; left > 0; left -= segment_rows.back()) {
      segment_rows.push_back(
          draws.Between(1, draws.OneIn(3) ? left : std::min(left, int64_t{9})));
    }
    std::vector<ExactBuffer<int64_t>> starts;
    std::vector<ExactBuffer<uint8_t>> valid;
    std::vector<Segment> segments;
    for (const int64_t num_rows : segment_rows) {
      starts.emplace_back(static_cast<size_t>(num_rows));
      valid.emplace_back(static_cast<size_t>(num_rows));
      segments.push_back({reinterpret_cast<uint8_t*>(starts.back().data()),
                          has_masks ? valid.back().data() : nullptr, num_rows});
    }
    const ColumnTarget target{.segments = segments,
                              .item_bytes = 8,
                              .has_item_valid = has_masks && column_.num_lists > 0,
                              .nulls = nulls,
                              .fill_bits = kFillBits};
    testing::ItemsProgress progress(column_.Request().num_offsets, segment_rows);
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
    CHECK(progress.items().size() == segments.size());
    CHECK(reader->row() == end);
    CHECK(reader->place().first_row <= end);
    int64_t num_wrong = 0;
    int64_t row = begin;
    for (size_t i = 0; i < segments.size(); ++i) {
      const Flat found =
          testing::FlatOf(progress.items()[i], starts[i].Copy(), valid[i].Copy());
      Flat expected = testing::Flatten(
          column_,
          rows_.subspan(static_cast<size_t>(row), static_cast<size_t>(segment_rows[i])),
          kFillBits);
      if (!target.has_item_valid) expected.item_valid.clear();
      if (!has_masks) expected.row_valid.assign(expected.row_valid.size(), 0);
      num_wrong += found != expected;
      row += segment_rows[i];
    }
    return num_wrong;
  }

  int64_t num_rows() const { return std::ssize(rows_); }
  std::span<const Nested> rows() const { return rows_; }
  const NestedColumn& column() const { return column_; }
  // Of the last Read that failed.
  int64_t num_done() const { return num_done_; }

  // True if the page begins in the middle of a row.
  bool BeginsInRow(const PagePlace& place) const {
    if (place.offset < 0 || column_.num_lists == 0) return false;
    std::ifstream file(data_.path(), std::ios::binary);
    file.seekg(place.offset);
    std::vector<uint8_t> bytes(1000);
    file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
    const auto header = ParsePageHeader(bytes);
    REQUIRE(header);
    const int width = column_.num_lists == 1 ? 1 : 2;
    size_t begin = static_cast<size_t>(header->header_bytes);
    if (header->kind == PageHeader::Kind::kData) begin += 4;
    // The first level stands in the first run, of either kind.
    while ((bytes[begin++] & 0x80) != 0) {
    }
    return (bytes[begin] & ((1 << width) - 1)) != 0;
  }

 private:
  const NestedFile& data_;
  const NestedColumn column_;
  const std::span<const Nested> rows_;
  const int64_t row_group_;
  std::shared_ptr<const ParquetFile> file_;
  mutable DecodeScratch scratch_;
  mutable int64_t num_done_ = 0;
};

// Reads a column chunk from its first row to its last in random ranges, with gaps, by
// readers that come and go.
struct Counts {
  int64_t num_wrong = 0;
  int64_t num_resumed_in_row = 0;
};
Counts ReadThrough(const Chunk& chunk, bool looks_at_pages, ColumnBuffers* buffers,
                   Draws& draws) {
  Counts counts;
  auto reader = chunk.Open({}, std::move(*buffers));
  const int64_t max_rows = draws.OneIn(3) ? 400 : 40;
  while (reader->row() < chunk.num_rows()) {
    const bool gap = draws.OneIn(4);
    const int64_t begin =
        gap ? draws.Between(reader->row(), chunk.num_rows() - 1) : reader->row();
    const int64_t end =
        begin + draws.Between(1, std::min(max_rows, chunk.num_rows() - begin));
    counts.num_wrong += chunk.Read(reader.get(), begin, end, draws);
    if (!draws.OneIn(2)) continue;
    const PagePlace place = reader->place();
    if (looks_at_pages) counts.num_resumed_in_row += chunk.BeginsInRow(place);
    ColumnBuffers used = draws.OneIn(2) ? reader->TakeBuffers() : ColumnBuffers();
    // The bytes of another reader mean nothing to the next.
    for (ScratchBuffer* buffer : {&used.file_bytes, &used.page, &used.dictionary,
                                  &used.indices, &used.codes, &used.levels}) {
      if (buffer->capacity() > 0) std::memset(buffer->data(), 0xDB, buffer->capacity());
    }
    reader = chunk.Open(place, std::move(used));
    CHECK(reader->row() == place.first_row);
  }
  *buffers = reader->TakeBuffers();
  return counts;
}

TEST_CASE("ranges with gaps, by one reader or by several that go on at its places") {
  Draws draws(300);
  int64_t num_resumed_in_row = 0;
  for (const NestedRecipe& recipe : Recipes()) {
    CAPTURE(recipe.second_version);
    CAPTURE(recipe.compressed);
    CAPTURE(recipe.page_entries);
    CAPTURE(recipe.splits_rows);
    CAPTURE(recipe.bit_packed_levels);
    const NestedFile data(recipe, draws);
    ColumnBuffers buffers;  // from column to column, whatever their types
    const bool looks_at_pages =
        recipe.splits_rows && !recipe.compressed && !recipe.bit_packed_levels;
    for (size_t column = 0; column < recipe.columns.size(); ++column) {
      CAPTURE(recipe.columns[column].name);
      for (const int64_t row_group : {0, 1}) {
        const Chunk chunk(data, column, row_group);
        const Counts counts = ReadThrough(chunk, looks_at_pages, &buffers, draws);
        CHECK(counts.num_wrong == 0);
        num_resumed_in_row += counts.num_resumed_in_row;
      }
    }
  }
  // Rows go on over the borders of pages, and readers begin there.
  CHECK(num_resumed_in_row > 20);
}

// True if a row has a null anywhere.
bool HasNull(const Nested& row) {
  return row.is_null || std::ranges::any_of(row.items, HasNull);
}

TEST_CASE("the first null is an error that names its row, once those before are there") {
  Draws draws(301);
  int64_t num_errors = 0;
  for (const bool second_version : {false, true}) {
    std::vector<NestedColumn> columns = Columns();
    for (NestedColumn& column : columns) column.null_one_in = 200;
    const NestedFile data({.columns = columns,
                           .row_group_rows = {60, 60},
                           .page_entries = 20,
                           .second_version = second_version},
                          draws);
    for (size_t column = 0; column < columns.size(); ++column) {
      CAPTURE(columns[column].name);
      for (int64_t row_group = 0; row_group < 2; ++row_group) {
        const Chunk chunk(data, column, row_group);
        const auto found = std::ranges::find_if(chunk.rows(), HasNull);
        const int64_t row = found - chunk.rows().begin();
        const auto reader = chunk.Open();
        int64_t num_wrong = 0;
        const auto error = testing::Caught([&] {
          num_wrong =
              chunk.Read(reader.get(), 0, chunk.num_rows(), draws, NullPolicy::kError);
        });
        CHECK(num_wrong == 0);
        CHECK(error.has_value() == (row < chunk.num_rows()));
        if (!error) continue;
        ++num_errors;
        CHECK(error->kind() == ErrorKind::kNullValue);
        CHECK(testing::Mentions(*error, "row " + std::to_string(row) + " "));
        CHECK(testing::Mentions(*error, "column '" + columns[column].name + "'"));
        CHECK(testing::Mentions(*error, "row group " + std::to_string(row_group)));
        // Passed over, nulls are none of the reader's concern.
        const auto later = chunk.Open();
        const auto rest = std::find_if(found + 1, chunk.rows().end(), HasNull);
        const int64_t end = rest - chunk.rows().begin();
        if (end == row + 1) continue;
        CHECK(chunk.Read(later.get(), row + 1, end, draws, NullPolicy::kError) == 0);
      }
    }
  }
  CHECK(num_errors > 50);
}

// Says in the page's levels, whose kind comes first, that all entries repeat at `level`.
void SetRepetition(const std::string& path, int64_t page_offset, uint8_t level) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(page_offset);
  std::vector<uint8_t> bytes(200);
  file.read(reinterpret_cast<char*>(bytes.data()), std::ssize(bytes));
  file.clear();
  const auto header = ParsePageHeader(bytes);
  REQUIRE(header);
  REQUIRE(header->kind == PageHeader::Kind::kData);
  file.seekp(page_offset + header->header_bytes + 4);
  const char run[] = {'\xA0', '\x1F', static_cast<char>(level)};
  file.write(run, sizeof(run));
}

TEST_CASE("rows that are not those of the row group are an error") {
  Draws draws(302);
  for (const ListForm form : {ListForm::kThreeLevel, ListForm::kBare}) {
    const NestedRecipe recipe{
        .columns = {{.name = "a", .form = form, .null_one_in = 0, .list_length = 8}},
        .row_group_rows = {40},
        .page_entries = 64,
        .compressed = false,
        .has_checksums = false,
        .has_offset_index = false};
    const auto read = [&](int64_t page_row, uint8_t level, int64_t begin, int64_t end) {
      const NestedFile data(recipe, draws);
      PagePlace place;
      {
        const Chunk chunk(data, 0, 0);
        const auto reader = chunk.Open();
        while (place.first_row < page_row || place.offset < 0) {
          CHECK(chunk.Read(reader.get(), reader->row(), reader->row() + 1, draws) == 0);
          place = reader->place();
        }
      }
      SetRepetition(data.path(), place.offset, level);
      const Chunk chunk(data, 0, 0);
      const auto reader = chunk.Open();
      return testing::Caught([&] { chunk.Read(reader.get(), begin, end, draws); });
    };
    const auto says = [](const std::optional<Error>& error, const std::string& text) {
      const bool is_said = error && error->kind() == ErrorKind::kCorruptFile &&
                           testing::Mentions(*error, text) &&
                           testing::Mentions(*error, "column 'a'");
      if (!is_said) FAIL_CHECK(std::string(error ? error->what() : "no error"));
      return is_said;
    };
    CHECK(says(read(0, 1, 0, 1), "begins in the middle of a row"));
    CHECK(says(read(0, 1, 39, 40), "begins in the middle of a row"));
    CHECK(says(read(8, 1, 0, 40), "ends after 32 rows"));
    CHECK(says(read(8, 1, 39, 40), "ends after 32 rows"));
    CHECK(says(read(30, 0, 0, 40), "more rows than its row group"));
    // Rows before are as they were.
    CHECK_FALSE(read(8, 1, 0, 7));
  }
}

TEST_CASE("a page with other rows than its offset index tells is an error at any end") {
  Draws draws(305);
  const NestedFile data({.columns = {{.name = "a", .null_one_in = 0, .list_length = 8}},
                         .row_group_rows = {40},
                         .page_entries = 64,
                         .compressed = false,
                         .has_checksums = false},
                        draws);
  const Chunk chunk(data, 0, 0);
  const auto sound = chunk.Open();
  CHECK(chunk.Read(sound.get(), 0, 1, draws) == 0);
  SetRepetition(data.path(), sound->place().offset, 0);
  // The first page ends with row 8. Another reader may go on there.
  for (const int64_t end : {1, 7, 8, 9, 40}) {
    CAPTURE(end);
    const auto error =
        testing::Caught([&] { chunk.Read(chunk.Open().get(), 0, end, draws); });
    REQUIRE(error);
    CHECK(error->kind() == ErrorKind::kCorruptFile);
    CHECK(testing::Mentions(*error, "a border between pages at row 8"));
    CHECK(testing::Mentions(*error, "rewrite"));
  }
}

// Counts the reads of footers and indexes.
class FileWithCounts : public LocalFile {
 public:
  explicit FileWithCounts(const std::string& path) : LocalFile(path, {}) {}
  void LookAt(int64_t offset, int64_t num_bytes, uint8_t* out) const override {
    ++num_looks;
    LocalFile::LookAt(offset, num_bytes, out);
  }

  mutable int64_t num_looks = 0;
};

TEST_CASE("the offset index is read by the first task that leaves out rows") {
  Draws draws(306);
  const NestedFile data({.columns = {{.name = "a", .null_one_in = 0, .list_length = 8}},
                         .row_group_rows = {40},
                         .page_entries = 64},
                        draws);
  const Chunk chunk(data, 0, 0);
  auto source = std::make_unique<FileWithCounts>(data.path());
  const FileWithCounts& counted = *source;
  const auto file = std::make_shared<const ParquetFile>(
      std::move(source), PlannedFile{data.path(), {}}, nullptr);
  const int64_t of_footer = counted.num_looks;
  ColumnRequest request = chunk.column().Request();
  request.reads_whole_row_group = true;
  const auto whole = OpenColumn(file, request, 0, {}, {});
  CHECK(chunk.Read(whole.get(), 0, 40, draws) == 0);
  CHECK(counted.num_looks == of_footer);
  const auto parts = OpenColumn(file, request, 0, {}, {});
  for (int64_t row = 0; row < 40; row += 10) {
    CHECK(chunk.Read(parts.get(), row, row + 10, draws) == 0);
    CHECK(counted.num_looks == of_footer + 1);
  }
}

TEST_CASE("an entry that goes on with a list must have an element of it") {
  Draws draws(304);
  // With nulls, without, and of lists of lists.
  for (const auto& [null_one_in, num_lists] :
       {std::pair{6, 1}, std::pair{0, 1}, std::pair{0, 2}, std::pair{6, 2}}) {
    const NestedRecipe recipe{
        .columns = {{.name = "a", .num_lists = num_lists, .null_one_in = null_one_in}},
        .row_group_rows = {300},
        .page_entries = 200,
        .compressed = false,
        .has_checksums = false,
        .has_offset_index = false};
    const NestedFile data(recipe, draws);
    const Chunk chunk(data, 0, 0);
    const auto reader = chunk.Open();
    CHECK(chunk.Read(reader.get(), 0, 150, draws) == 0);
    const PagePlace place = reader->place();
    REQUIRE(place.first_row > 0);
    for (int level = 1; level <= num_lists; ++level) {
      SetRepetition(data.path(), place.offset, static_cast<uint8_t>(level));
      const auto error =
          testing::Caught([&] { chunk.Read(chunk.Open().get(), 0, 300, draws); });
      REQUIRE(error);
      CHECK(error->kind() == ErrorKind::kCorruptFile);
      CHECK(testing::Mentions(*error, "have no element for it"));
    }
  }
}

TEST_CASE("numbers of words, in lists and lists of lists") {
  Draws draws(303);
  const std::vector<std::string> words{"", "a", "b"};
  for (const StoredAs stored_as : {StoredAs::kPlain, StoredAs::kDictionary}) {
    for (const int num_lists : {1, 2}) {
      const NestedRecipe recipe{.columns = {{.name = "w",
                                             .kind = ValueKind::kString,
                                             .num_lists = num_lists,
                                             .null_one_in = 0,
                                             .stored_as = stored_as}},
                                .row_group_rows = {200}};
      const NestedFile data(recipe, draws);
      ColumnRequest request = recipe.columns[0].Request();
      request.num_offsets = num_lists;
      request.dtype = kernels::Dtype::kInt16;
      request.vocabulary = std::make_shared<const Vocabulary>(words, 9);
      const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
      const auto reader = OpenColumn(file, request, 0, {}, {});
      ExactBuffer<int64_t> starts(200);
      const Segment segment{reinterpret_cast<uint8_t*>(starts.data()), nullptr, 200};
      testing::ItemsProgress progress(num_lists, {200});
      DecodeScratch scratch;
      reader->Read({0, 0, 200}, {.segments = {&segment, 1}, .item_bytes = 8}, &scratch,
                   &progress);
      const Flat found = testing::FlatOf(progress.items().front(), starts.Copy(), {});
      const Flat strings = testing::Flatten(recipe.columns[0], data.rows(0), 0);
      std::vector<uint8_t> codes;
      const auto& offsets = strings.offsets.back();
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        const std::string word(strings.values.begin() + offsets[i],
                               strings.values.begin() + offsets[i + 1]);
        const auto place = std::ranges::find(words, word);
        codes.push_back(
            place == words.end() ? 9 : static_cast<uint8_t>(place - words.begin()));
        codes.push_back(0);
      }
      CHECK(found.values == codes);
      for (size_t level = 0; level < found.offsets.size(); ++level) {
        CHECK(found.offsets[level] == strings.offsets[level]);
      }
    }
  }
}

}  // namespace
}  // namespace torchparquet
