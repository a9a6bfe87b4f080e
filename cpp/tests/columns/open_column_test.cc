#include "columns/open_column.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caught.h"
#include "draws.h"
#include "exact_buffer.h"
#include "recipes/nested_reading.h"
#include "recipes/nested_recipe.h"

namespace torchparquet {
namespace {

using testing::Draws;
using testing::ExactBuffer;
using testing::NestedColumn;
using testing::NestedFile;
using testing::NestedRecipe;
using testing::Throws;
using testing::ValueKind;

TEST_CASE("a column without the shape of its field is refused") {
  Draws draws(320);
  const NestedRecipe recipe{
      .columns = {{.name = "flat string", .kind = ValueKind::kString, .num_lists = 0},
                  {.name = "list", .kind = ValueKind::kInt32, .num_lists = 1},
                  {.name = "strings", .kind = ValueKind::kString, .num_lists = 1},
                  {.name = "lists", .kind = ValueKind::kInt32, .num_lists = 2},
                  {.name = "flat", .kind = ValueKind::kInt32, .num_lists = 0},
                  {.name = "fixed", .kind = ValueKind::kFixed, .num_lists = 1}},
      .row_group_rows = {3}};
  const NestedFile data(recipe, draws);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  for (const bool has_vocabulary : {false, true}) {
    for (const NestedColumn& column : recipe.columns) {
      for (int64_t num_offsets = 0; num_offsets <= 4; ++num_offsets) {
        for (const int64_t list_length : {0, 2}) {
          for (const int64_t cell_items : {1, 3}) {
            CAPTURE(column.name);
            CAPTURE(num_offsets);
            CAPTURE(list_length);
            CAPTURE(has_vocabulary);
            ColumnRequest request = column.Request();
            request.num_offsets = num_offsets;
            request.list_length = list_length;
            request.cell_items = cell_items;
            if (has_vocabulary) {
              request.vocabulary =
                  std::make_shared<const Vocabulary>(std::vector<std::string>{"a"}, 0);
            }
            const int64_t num_lists =
                column.num_lists + (column.is_string() && !has_vocabulary);
            const bool fits = cell_items == column.cell_items() &&
                              (list_length == 0 ? num_offsets == num_lists
                                                : num_offsets == 0 && num_lists == 1 &&
                                                      column.num_lists == 1);
            const auto error =
                testing::Caught([&] { OpenColumn(file, request, 0, {}, {}); });
            CHECK(error.has_value() == !fits);
            if (!error) continue;
            CHECK(error->kind() == ErrorKind::kInternal);
            CHECK(testing::Mentions(*error, column.name));
          }
        }
      }
    }
  }
}

TEST_CASE("a column that a file lacks is its default in every item, or null") {
  Draws draws(321);
  const NestedFile data({.columns = {{.name = "other"}}, .row_group_rows = {3}}, draws);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  for (const int64_t list_length : {0, 1, 4}) {
    for (const int64_t cell_items : {1, 3}) {
      for (const int64_t width : {1, 5}) {
        const int64_t row_items = std::max<int64_t>(1, list_length) * cell_items;
        if (width > 1 && row_items > 1) continue;
        const bool is_null = draws.OneIn(2);
        const uint16_t item = is_null ? 0x4321 : 0x1234;
        const int64_t valid_items = std::max<int64_t>(1, list_length);
        ColumnRequest request{.path = "absent",
                              .kinds = {"any"},
                              .dtype = kernels::Dtype::kInt16,
                              .cell_items = cell_items,
                              .list_length = list_length,
                              .missing_is_null = is_null};
        if (!is_null) request.default_bits = 0x1234;
        const auto reader = OpenColumn(file, request, 0, {}, {});
        int64_t row = 0;
        for (const int64_t num_rows : {3, 5000, 1}) {
          const auto size = static_cast<size_t>(num_rows * row_items * width);
          const auto valid_size = static_cast<size_t>(num_rows * valid_items * width);
          ExactBuffer<uint16_t> values(size);
          ExactBuffer<uint8_t> valid(valid_size);
          std::ranges::fill(values.span(), uint16_t{0xDBDB});
          std::ranges::fill(valid.span(), uint8_t{0xDB});
          // The first column of a group, or one alone.
          const Segment segment{reinterpret_cast<uint8_t*>(values.data()), valid.data(),
                                num_rows};
          DecodeScratch scratch;
          testing::ItemsProgress progress(0, {});
          reader->Read({0, row, num_rows},
                       {.segments = {&segment, 1},
                        .stride = width,
                        .item_bytes = 2,
                        .cell_items = row_items,
                        .valid_items = valid_items,
                        .nulls = NullPolicy::kFill,
                        .fill_bits = 0x4321},
                       &scratch, &progress);
          row += num_rows;
          CHECK(reader->row() == row);
          CHECK(progress.num_done() == 1);
          std::vector<uint16_t> expected(size, width == 1 ? item : 0xDBDB);
          std::vector<uint8_t> expected_valid(valid_size, width == 1 ? !is_null : 0xDB);
          for (size_t i = 0; i < size; i += static_cast<size_t>(width)) {
            expected[i] = item;
          }
          for (size_t i = 0; i < valid_size; i += static_cast<size_t>(width)) {
            expected_valid[i] = !is_null;
          }
          CHECK(values.Copy() == expected);
          CHECK(valid.Copy() == expected_valid);
        }
        if (!is_null) continue;
        const Segment segment{nullptr, nullptr, 3};
        DecodeScratch scratch;
        testing::ItemsProgress progress(0, {});
        CHECK(Throws(ErrorKind::kNullValue, [&] {
          OpenColumn(file, request, 0, {}, {})
              ->Read({0, 0, 3}, {.segments = {&segment, 1}, .item_bytes = 2}, &scratch,
                     &progress);
        }));
      }
    }
  }
}

TEST_CASE("a page whose strings are too long for a vocabulary's memory is an error") {
  Draws draws(322);
  const NestedRecipe recipe{.columns = {{.name = "text",
                                         .kind = ValueKind::kString,
                                         .num_lists = 0,
                                         .optional = false}},
                            .row_group_rows = {300},
                            .page_entries = 300,
                            .compressed = false};
  const NestedFile data(recipe, draws);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  for (const int64_t max_page_bytes : {10, 1 << 20}) {
    ColumnRequest request = recipe.columns[0].Request();
    request.num_offsets = 0;
    request.vocabulary =
        std::make_shared<const Vocabulary>(std::vector<std::string>{"a"}, 0);
    request.max_page_bytes = max_page_bytes;
    const auto reader = OpenColumn(file, request, 0, {}, {});
    ExactBuffer<uint8_t> codes(300);
    const Segment segment{codes.data(), nullptr, 300};
    DecodeScratch scratch;
    testing::ItemsProgress progress(0, {});
    const bool fails = Throws(ErrorKind::kOutOfMemory, [&] {
      reader->Read({0, 0, 300}, {.segments = {&segment, 1}, .item_bytes = 1}, &scratch,
                   &progress);
    });
    CHECK(fails == (max_page_bytes == 10));
  }
}

TEST_CASE("rows of variable length that a file lacks are one string, or null") {
  Draws draws(322);
  const NestedFile data({.columns = {{.name = "other"}}, .row_group_rows = {3}}, draws);
  const auto file = std::make_shared<const ParquetFile>(PlannedFile{data.path(), {}});
  struct Case {
    std::optional<std::string> text;
    int64_t num_offsets;
  };
  for (const auto& [text, num_offsets] :
       {Case{{}, 1}, Case{{}, 3}, Case{"", 1}, Case{std::string("ab\0c", 4), 1},
        Case{"x", 1}}) {
    CAPTURE(num_offsets);
    ColumnRequest request{.path = "absent",
                          .kinds = {"any"},
                          .dtype = kernels::Dtype::kUInt8,
                          .num_offsets = num_offsets,
                          .missing_is_null = !text};
    request.default_bytes = text;
    const size_t length = text ? text->size() : 0;
    const auto reader = OpenColumn(file, request, 0, {}, {});
    const std::vector<int64_t> sizes = {3, 1, 2000};
    std::vector<ExactBuffer<int64_t>> starts;
    std::vector<ExactBuffer<uint8_t>> valid;
    std::vector<Segment> segments;
    for (const int64_t size : sizes) {
      starts.emplace_back(static_cast<size_t>(size));
      valid.emplace_back(static_cast<size_t>(size));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      std::ranges::fill(starts[i].span(), int64_t{-1});
      std::ranges::fill(valid[i].span(), uint8_t{0xDB});
      segments.push_back(
          {reinterpret_cast<uint8_t*>(starts[i].data()), valid[i].data(), sizes[i]});
    }
    DecodeScratch scratch;
    testing::ItemsProgress progress(num_offsets, sizes);
    reader->Read({0, 0, 2004}, {.segments = segments, .nulls = NullPolicy::kFill},
                 &scratch, &progress);
    CHECK(reader->row() == 2004);
    CHECK(progress.num_done() == 3);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto size = static_cast<size_t>(sizes[i]);
      std::vector<int64_t> expected(size);
      std::string bytes;
      for (size_t row = 0; row < size; ++row) {
        expected[row] = static_cast<int64_t>(row * length);
        bytes += text.value_or("");
      }
      CHECK(starts[i].Copy() == expected);
      CHECK(valid[i].Copy() == std::vector<uint8_t>(size, text ? 1 : 0));
      const JaggedItems& items = progress.items().at(i);
      CHECK(items.num_items.front() == static_cast<int64_t>(bytes.size()));
      const auto values = items.values->bytes();
      CHECK(std::string(values.begin(), values.end()) == bytes);
    }
    if (text) continue;
    CHECK(Throws(ErrorKind::kNullValue, [&] {
      OpenColumn(file, request, 0, {}, {})
          ->Read({0, 0, 2004}, {.segments = segments}, &scratch, &progress);
    }));
  }
}

}  // namespace
}  // namespace torchparquet
