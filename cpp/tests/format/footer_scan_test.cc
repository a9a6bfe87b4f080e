#include "format/footer_scan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

#include "draws.h"
#include "encoders/thrift_compact_encoder.h"
#include "exact_buffer.h"

namespace torchparquet {
namespace {

using testing::Bytes;
using testing::Draws;
using testing::ExactBuffer;
namespace compact = testing::compact;
using compact::Field;
using Fields = std::vector<Field>;

bool IsScanned(const Bytes& bytes) {
  ExactBuffer<uint8_t> exact(bytes);
  return ScanFooter(exact.span()).has_value();
}

Bytes Text(std::string_view text) {
  Bytes bytes = compact::Varint(text.size());
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

Field I64(int64_t id, int64_t value) {
  return {id, compact::kI64, compact::Zigzag(value)};
}
Field Binary(int64_t id, std::string_view text) {
  return {id, compact::kBinary, Text(text)};
}
Field List(int64_t id, int element_type, const std::vector<Bytes>& elements) {
  Field field{id, compact::kList,
              compact::ListHead(element_type, elements.size(), elements.size() < 15)};
  for (const Bytes& element : elements) compact::Append(&field.value, element);
  return field;
}

// The structs of a footer, each by itself, so that a test can spoil one.
struct Chunk {
  int64_t num_values = 0;
  int64_t value_bytes = 0;
  int64_t num_bytes = 0;
  std::optional<int64_t> string_bytes = std::nullopt;
  std::optional<int64_t> dictionary_offset = std::nullopt;
  int32_t codec = 1;
};

Fields MetaData(const Chunk& chunk) {
  Fields fields{compact::I32(1, 1),
                List(2, compact::kI32, {compact::Zigzag(0), compact::Zigzag(3)}),
                List(3, compact::kBinary, {Text("a"), Text("b")}),
                compact::I32(4, chunk.codec),
                I64(5, chunk.num_values),
                I64(6, chunk.value_bytes),
                I64(7, chunk.num_bytes),
                I64(9, 4),
                compact::StructField(12, {Binary(1, "max"), I64(3, 0)})};
  if (chunk.dictionary_offset) fields.push_back(I64(11, *chunk.dictionary_offset));
  if (chunk.string_bytes) {
    const Field histogram = List(3, compact::kI64, {compact::Zigzag(2)});
    fields.push_back(compact::StructField(16, {I64(1, *chunk.string_bytes), histogram}));
  }
  return fields;
}

Fields ColumnChunk(const Fields& meta_data) {
  return {I64(2, 0), compact::StructField(3, meta_data), I64(4, 99)};
}

Fields RowGroup(int64_t num_rows, const std::vector<Bytes>& chunks) {
  return {List(1, compact::kStruct, chunks), I64(2, 1000), I64(3, num_rows)};
}

Fields FileMetaData(int64_t num_rows, const std::vector<Bytes>& row_groups) {
  const Bytes element = compact::Struct({Binary(4, "schema"), compact::I32(5, 2)});
  const std::vector<Bytes> pairs{
      compact::Struct({Binary(1, "key"), Binary(2, "value")}),
      compact::Struct({Binary(1, "alone")}),
      compact::Struct({Binary(1, "ARROW:schema"), Binary(2, "first")}),
      compact::Struct({Binary(1, "ARROW:schema"), Binary(2, "second")})};
  const Bytes order = compact::Struct({compact::StructField(1, {})});
  return {compact::I32(1, 2),
          List(2, compact::kStruct, {element, element}),
          I64(3, num_rows),
          List(4, compact::kStruct, row_groups),
          List(5, compact::kStruct, pairs),
          Binary(6, "writer"),
          List(7, compact::kStruct, {order, order})};
}

const Chunk kChunk{10, 80, 70};

enum class Part { kFile, kRowGroup, kColumnChunk, kMetaData };

// A footer of one row group of 10 rows and one column. `spoil` may change the fields of
// one of its structs.
Bytes Footer(Part part, const std::function<void(Fields*)>& spoil) {
  const auto made = [&](Part which, Fields fields) {
    if (which == part) spoil(&fields);
    return fields;
  };
  const Fields meta_data = made(Part::kMetaData, MetaData(kChunk));
  const Fields chunk = made(Part::kColumnChunk, ColumnChunk(meta_data));
  const Fields group = made(Part::kRowGroup, RowGroup(10, {compact::Struct(chunk)}));
  return compact::Struct(made(Part::kFile, FileMetaData(10, {compact::Struct(group)})));
}

Bytes FooterOf(const Chunk& chunk) {
  return Footer(Part::kMetaData, [&](Fields* fields) { *fields = MetaData(chunk); });
}

// The fields that the format demands.
struct Demanded {
  Part part;
  std::vector<int64_t> ids;
};
const std::vector<Demanded> kDemanded{{Part::kFile, {1, 2, 3, 4}},
                                      {Part::kRowGroup, {1, 2, 3}},
                                      {Part::kColumnChunk, {2, 3}},
                                      {Part::kMetaData, {1, 2, 3, 4, 5, 6, 7, 9}}};

TEST_CASE("a scan tells rows, bytes and schema") {
  Draws draws(1);
  for (int round = 0; round < 500; ++round) {
    const auto num_columns = static_cast<size_t>(draws.Below(4));
    std::vector<double> column_bytes(num_columns);
    std::vector<bool> has_value_per_row(num_columns, true);
    std::vector<Bytes> groups;
    std::vector<int64_t> num_rows(static_cast<size_t>(draws.Below(20)));
    std::vector<int64_t> num_bytes;
    std::vector<ChunkPlace> places;
    int64_t total = 0;
    for (int64_t& rows : num_rows) {
      rows = draws.OneIn(9) ? 0 : draws.Below(1000);
      total += rows;
      num_bytes.push_back(0);
      std::vector<Bytes> chunks;
      for (size_t column = 0; column < num_columns; ++column) {
        Chunk chunk{rows, draws.Between(-9, 1 << 30), draws.Below(1 << 30)};
        if (draws.OneIn(9)) ++chunk.num_values;
        if (draws.OneIn(2)) chunk.string_bytes = draws.Between(-9, 1 << 30);
        if (draws.OneIn(2)) chunk.dictionary_offset = draws.Between(-9, 1 << 30);
        chunk.codec = static_cast<int32_t>(draws.Below(8));
        if (chunk.num_values != rows) has_value_per_row[column] = false;
        num_bytes.back() += chunk.num_bytes;
        places.push_back({.data_page_offset = 4,
                          .dictionary_page_offset = chunk.dictionary_offset.value_or(0),
                          .compressed_bytes = chunk.num_bytes,
                          .uncompressed_bytes = chunk.value_bytes,
                          .num_values = chunk.num_values,
                          .codec = chunk.codec});
        const int64_t bytes =
            chunk.string_bytes.value_or(std::max(chunk.value_bytes, chunk.num_bytes));
        column_bytes[column] += static_cast<double>(std::max<int64_t>(bytes, 0));
        chunks.push_back(compact::Struct(ColumnChunk(MetaData(chunk)), &draws));
      }
      groups.push_back(compact::Struct(RowGroup(rows, chunks), &draws));
    }
    const Fields fields = FileMetaData(total, groups);
    ExactBuffer<uint8_t> footer(compact::Struct(fields, &draws));
    const auto scan = ScanFooter(footer.span());
    REQUIRE(scan);
    CHECK(scan->num_rows == total);
    CHECK(scan->row_group_num_rows == num_rows);
    CHECK(scan->row_group_num_bytes == num_bytes);
    CHECK(scan->chunks == places);
    if (!num_rows.empty()) {
      CHECK(scan->column_bytes == column_bytes);
      CHECK(scan->has_value_per_row == has_value_per_row);
    }
    CHECK(scan->num_column_orders == 2);
  }
}

TEST_CASE("a scan views the schema, and the first Arrow schema") {
  ExactBuffer<uint8_t> footer(FooterOf(kChunk));
  const auto scan = ScanFooter(footer.span());
  REQUIRE(scan);
  CHECK(scan->arrow_schema == "first");
  const Bytes schema = FileMetaData(0, {})[1].value;
  CHECK(std::ranges::equal(scan->schema, schema, {},
                           [](char byte) { return static_cast<uint8_t>(byte); }));
}

TEST_CASE(
    "a footer that lacks a field, has one twice or of another type is not scanned") {
  CHECK(IsScanned(FooterOf(kChunk)));
  for (const auto& [part, ids] : kDemanded) {
    for (const int64_t id : ids) {
      CAPTURE(static_cast<int>(part));
      CAPTURE(id);
      const auto is_scanned = [&](const auto& spoil) {
        return IsScanned(Footer(part, [&](Fields* fields) {
          const auto field = std::ranges::find(*fields, id, &Field::id);
          REQUIRE(field != fields->end());
          spoil(fields, field);
        }));
      };
      CHECK_FALSE(is_scanned([](Fields* fields, auto field) { fields->erase(field); }));
      CHECK_FALSE(is_scanned([](Fields* fields, auto field) {
        const Field twice = *field;
        fields->push_back(twice);
      }));
      CHECK_FALSE(is_scanned(
          [](Fields*, auto field) { *field = {field->id, compact::kByte, {0}}; }));
    }
  }
}

TEST_CASE("a footer that ends early, or goes on, is not scanned") {
  const Bytes footer = FooterOf(kChunk);
  for (size_t size = 0; size < footer.size(); ++size) {
    CHECK_FALSE(IsScanned({footer.begin(), footer.begin() + static_cast<int64_t>(size)}));
  }
  Bytes longer = footer;
  longer.push_back(0);
  CHECK_FALSE(IsScanned(longer));
}

TEST_CASE("a footer that contradicts itself is not scanned") {
  CHECK_FALSE(IsScanned(FooterOf({10, 80, -1})));
  const Bytes chunk = compact::Struct(ColumnChunk(MetaData(kChunk)));
  const Bytes huge = compact::Struct(ColumnChunk(MetaData({10, 80, INT64_MAX})));
  const Bytes too_much = compact::Struct(RowGroup(10, {chunk, huge}));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(10, {too_much}))));
  const Bytes group = compact::Struct(RowGroup(10, {chunk}));
  CHECK(IsScanned(compact::Struct(FileMetaData(20, {group, group}))));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(21, {group, group}))));
  const Bytes wider = compact::Struct(RowGroup(10, {chunk, chunk}));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(20, {group, wider}))));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(20, {wider, group}))));
  const Bytes less = compact::Struct(RowGroup(-1, {chunk}));
  const Bytes more = compact::Struct(RowGroup(11, {chunk}));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(10, {less, more}))));
  const Bytes most = compact::Struct(RowGroup(INT64_MAX, {chunk}));
  CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(-2, {most, most}))));
}

TEST_CASE("a footer that names no codec of the format is not scanned") {
  for (const int32_t codec : {-1, 8}) {
    Chunk chunk = kChunk;
    chunk.codec = codec;
    CHECK_FALSE(IsScanned(FooterOf(chunk)));
  }
}

TEST_CASE("writers whose footers are read in a way of their own are told") {
  const auto may_be_old = [](std::string_view writer) {
    ExactBuffer<uint8_t> footer(Footer(Part::kFile, [&](Fields* fields) {
      *std::ranges::find(*fields, 6, &Field::id) = Binary(6, writer);
    }));
    return ScanFooter(footer.span()).value().may_have_old_writer;
  };
  for (const auto* old :
       {"parquet-mr", "parquet-mr version 1.2.8 (build x)", "parquet-mr version 1.1",
        "parquet-mr version 1.1.0", "Parquet-MR version 1.2.0",
        "parquet-cpp version 1.5.1", "impala, by parquet-cpp"}) {
    CAPTURE(old);
    CHECK(may_be_old(old));
  }
  for (const auto* later :
       {"", "writer", "parquet-mr version 1.10.1 (build x)", "parquet-rs version 1.1.0",
        "parquet-mr version 1.15.0", "parquet-cpp-arrow version 1.5.1"}) {
    CAPTURE(later);
    CHECK_FALSE(may_be_old(later));
  }
}

TEST_CASE("an encrypted footer or column is not scanned") {
  Fields file = FileMetaData(0, {});
  CHECK(IsScanned(compact::Struct(file)));
  file.push_back(compact::StructField(8, {compact::StructField(1, {})}));
  CHECK_FALSE(IsScanned(compact::Struct(file)));
  for (const int64_t id : {8, 9}) {
    Fields chunk = ColumnChunk(MetaData(kChunk));
    chunk.push_back(id == 8 ? compact::StructField(8, {}) : Binary(9, "secret"));
    const Bytes group = compact::Struct(RowGroup(10, {compact::Struct(chunk)}));
    CHECK_FALSE(IsScanned(compact::Struct(FileMetaData(10, {group}))));
  }
}

TEST_CASE("a column chunk that names another file is not scanned") {
  for (const auto* name : {"", "other.parquet"}) {
    Fields chunk = ColumnChunk(MetaData(kChunk));
    chunk.insert(chunk.begin(), Binary(1, name));
    const Bytes group = compact::Struct(RowGroup(10, {compact::Struct(chunk)}));
    CHECK(IsScanned(compact::Struct(FileMetaData(10, {group}))) == (*name == 0));
  }
}

TEST_CASE("any bytes are scanned or not") {
  Draws draws(2);
  const Bytes sound = FooterOf({10, 80, 70, 60});
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = sound;
    for (int64_t left = draws.Between(1, 4); left > 0; --left) {
      bytes[static_cast<size_t>(draws.Below(std::ssize(bytes)))] =
          static_cast<uint8_t>(draws.Bits());
    }
    IsScanned(bytes);
  }
}

}  // namespace
}  // namespace torchparquet
