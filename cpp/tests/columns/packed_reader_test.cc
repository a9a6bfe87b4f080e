#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "caught.h"
#include "columns/open_column.h"
#include "columns/readers.h"
#include "draws.h"
#include "kernels/packing/boundaries.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::Nested;
using testing::NestedColumn;
using testing::NestedFile;
using testing::NestedRecipe;
using testing::Throws;

constexpr int32_t kNullToken = -7;
constexpr int32_t kSeparator = -8;
constexpr int32_t kPadding = -9;

uint64_t BitsOf(int32_t value) { return static_cast<uint32_t>(value); }

// The tokens of a document, without its separator.
std::vector<int32_t> TokensOf(const Nested& document) {
  std::vector<int32_t> tokens;
  for (const Nested& item : document.items) {
    int32_t token = kNullToken;
    if (!item.is_null) std::memcpy(&token, item.bytes.data(), sizeof(token));
    tokens.push_back(token);
  }
  return tokens;
}

struct Expected {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> marks;
};

// Documents one after the other, token by token.
Expected Concatenated(std::span<const Nested> documents, size_t length) {
  Expected expected;
  const auto append = [&](int32_t token, bool is_first) {
    if (expected.tokens.empty() || expected.tokens.back().size() == length) {
      expected.tokens.emplace_back();
      expected.marks.emplace_back();
      is_first = true;
    }
    expected.tokens.back().push_back(token);
    expected.marks.back().push_back(
        static_cast<uint8_t>(kernels::kIsToken | (is_first ? kernels::kIsFirst : 0)));
  };
  for (const Nested& document : documents) {
    const std::vector<int32_t> tokens = TokensOf(document);
    if (tokens.empty()) continue;
    for (size_t i = 0; i < tokens.size(); ++i) append(tokens[i], i == 0);
    append(kSeparator, false);
  }
  if (!expected.tokens.empty() && expected.tokens.back().size() < length) {
    expected.marks.back().push_back(kernels::kIsFirst);
    expected.marks.back().resize(length);
    expected.tokens.back().resize(length, kPadding);
  }
  return expected;
}

ColumnRequest Packed(const NestedColumn& column, int64_t length) {
  ColumnRequest request = column.Request();
  request.num_offsets = 0;
  request.list_length = length;
  request.pack = {.packing = {.length = length, .has_separator = true},
                  .separator_bits = BitsOf(kSeparator),
                  .padding_bits = BitsOf(kPadding)};
  return request;
}

class Segments : public DecodeProgress {
 public:
  Segments(std::vector<int64_t> num_rows, int64_t length) {
    for (const int64_t rows : num_rows) {
      values_.emplace_back(static_cast<size_t>(rows * length));
      marks_.emplace_back(static_cast<size_t>(rows * length));
      segments_.push_back({.values = reinterpret_cast<uint8_t*>(values_.back().data()),
                           .valid = marks_.back().data(),
                           .num_rows = rows});
    }
  }

  JaggedItems BeginItems() override { return {}; }
  void EndItems(JaggedItems) override {}
  void SegmentDone() override { ++num_done_; }

  ColumnTarget Target(int64_t length, bool streaming) const {
    return {.segments = segments_,
            .item_bytes = sizeof(int32_t),
            .cell_items = length,
            .valid_items = length,
            .streaming = streaming,
            .nulls = NullPolicy::kFill,
            .fill_bits = BitsOf(kNullToken)};
  }
  size_t num_done() const { return num_done_; }
  std::vector<int32_t> values() const { return Joined(values_); }
  std::vector<uint8_t> marks() const { return Joined(marks_); }

 private:
  template <typename T>
  static std::vector<T> Joined(const std::vector<ExactBuffer<T>>& parts) {
    std::vector<T> all;
    for (const ExactBuffer<T>& part : parts) {
      const std::vector<T> copy = part.Copy();
      all.insert(all.end(), copy.begin(), copy.end());
    }
    return all;
  }

  std::vector<ExactBuffer<int32_t>> values_;
  std::vector<ExactBuffer<uint8_t>> marks_;
  std::vector<Segment> segments_;
  size_t num_done_ = 0;
};

template <typename T>
std::vector<T> Flattened(const std::vector<std::vector<T>>& rows, int64_t begin,
                         int64_t end) {
  std::vector<T> all;
  for (int64_t row = begin; row < end; ++row) {
    const std::vector<T>& of_row = rows[static_cast<size_t>(row)];
    all.insert(all.end(), of_row.begin(), of_row.end());
  }
  return all;
}

NestedRecipe Recipe(int64_t page_entries) {
  return {.columns = {{.name = "few nulls", .null_one_in = 9},
                      {.name = "none", .null_one_in = 0},
                      {.name = "required", .optional = false}},
          .row_group_rows = {150, 1, 60},
          .page_entries = page_entries};
}

TEST_CASE("any sequences of a row group are read, in segments of any size") {
  Draws draws(321);
  for (const int64_t page_entries : {7, 60, 5000}) {
    const NestedFile data(Recipe(page_entries), draws);
    const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
    for (int trial = 0; trial < 40; ++trial) {
      const auto column = static_cast<size_t>(draws.Between(0, 2));
      const int64_t row_group = draws.Between(0, 2);
      const int64_t length = draws.Between(1, 40);
      const auto documents =
          std::span(data.rows(column))
              .subspan(static_cast<size_t>(data.FirstRow(row_group)),
                       static_cast<size_t>(
                           data.recipe().row_group_rows[static_cast<size_t>(row_group)]));
      const Expected expected = Concatenated(documents, static_cast<size_t>(length));
      const int64_t num_sequences = std::ssize(expected.tokens);
      const auto reader = OpenColumn(file, Packed(data.recipe().columns[column], length),
                                     row_group, {}, {});
      DecodeScratch scratch;
      for (int64_t begin = draws.Between(0, num_sequences); begin < num_sequences;) {
        const int64_t end = draws.Between(begin, num_sequences);
        std::vector<int64_t> num_rows;
        for (int64_t row = begin; row < end; row += num_rows.back()) {
          num_rows.push_back(draws.Between(1, end - row));
        }
        Segments segments(num_rows, length);
        testing::Scribble(&scratch);
        reader->Read({row_group, begin, end - begin},
                     segments.Target(length, draws.OneIn(2)), &scratch, &segments);
        CHECK(segments.num_done() == num_rows.size());
        CHECK(segments.values() == Flattened(expected.tokens, begin, end));
        CHECK(segments.marks() == Flattened(expected.marks, begin, end));
        CHECK(reader->row() == end);
        begin = end + draws.Between(0, 1);
        if (end == num_sequences) break;
      }
    }
  }
}

TEST_CASE("more sequences than a row group has are an error with its place") {
  Draws draws(322);
  const NestedFile data(Recipe(60), draws);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  const auto reader =
      OpenColumn(file, Packed(data.recipe().columns[2], 1 << 20), 0, {}, {});
  Segments segments({2}, 1 << 20);
  DecodeScratch scratch;
  CHECK(Throws(ErrorKind::kCorruptFile, [&] {
    reader->Read({0, 0, 2}, segments.Target(1 << 20, false), &scratch, &segments);
  }));
}

TEST_CASE("lengths of lists are read without their values") {
  Draws draws(323);
  for (const int64_t page_entries : {7, 5000}) {
    const NestedFile data(Recipe(page_entries), draws);
    const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
    for (size_t column = 0; column < 3; ++column) {
      ColumnRequest request = data.recipe().columns[column].Request();
      request.num_offsets = 0;
      request.list_length = 1;
      request.lengths_only = true;
      const auto reader = OpenColumn(file, request, 0, {}, {});
      ExactBuffer<int64_t> lengths(150);
      const Segment segment{.values = reinterpret_cast<uint8_t*>(lengths.data()),
                            .num_rows = 150};
      Segments progress({}, 1);
      DecodeScratch scratch;
      reader->Read({0, 0, 150},
                   {.segments = {&segment, 1}, .item_bytes = sizeof(int64_t)}, &scratch,
                   &progress);
      for (size_t row = 0; row < 150; ++row) {
        CHECK(lengths.Copy()[row] == std::ssize(data.rows(column)[row].items));
      }
    }
  }
}

}  // namespace
}  // namespace torchparquet
