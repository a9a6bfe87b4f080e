#include "pages/page_header.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "caught.h"
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
using Kind = PageHeader::Kind;

constexpr int64_t kMaxI32 = std::numeric_limits<int32_t>::max();

std::optional<PageHeader> Parse(const Bytes& bytes) {
  ExactBuffer<uint8_t> exact(bytes);
  return ParsePageHeader(exact.span());
}

bool IsCorrupt(const Bytes& bytes) {
  return testing::Throws(ErrorKind::kCorruptFile, [&] { Parse(bytes); });
}

// Compares what a page of the header's kind is read by.
bool Same(const PageHeader& a, const PageHeader& b) {
  const auto page = [](const PageHeader& header) {
    return std::tie(header.kind, header.header_bytes, header.compressed_bytes,
                    header.uncompressed_bytes, header.checksum);
  };
  if (page(a) != page(b)) return false;
  if (a.kind == Kind::kOther) return true;
  if (std::tie(a.num_values, a.encoding) != std::tie(b.num_values, b.encoding))
    return false;
  if (a.kind == Kind::kData)
    return a.definition_level_encoding == b.definition_level_encoding;
  if (a.kind == Kind::kDictionary) return true;
  return std::tie(a.definition_level_bytes, a.repetition_level_bytes, a.is_compressed) ==
         std::tie(b.definition_level_bytes, b.repetition_level_bytes, b.is_compressed);
}

int64_t RandomCount(Draws& draws) {
  return draws.OneIn(4) ? draws.Between(0, kMaxI32) : draws.Below(1000);
}

// Adds fields that the format has not defined yet, and puts all in any order.
void Disturb(Draws& draws, Fields* fields) {
  for (int64_t left = draws.OneIn(2) ? 0 : draws.Below(4); left > 0; --left) {
    const int64_t id = draws.OneIn(4) ? draws.Between(100, 32767) : draws.Between(20, 40);
    fields->push_back(compact::RandomField(draws, id, 4));
  }
  if (!draws.OneIn(4)) return;
  for (size_t i = fields->size(); i > 1; --i) {
    std::swap((*fields)[i - 1],
              (*fields)[static_cast<size_t>(draws.Below(static_cast<int64_t>(i)))]);
  }
}

Field RandomStatistics(Draws& draws, int64_t id) {
  const auto binary = [&](int64_t field_id) {
    return Field{field_id, compact::kBinary,
                 compact::RandomElement(draws, compact::kBinary, 0)};
  };
  return compact::StructField(id, {binary(1),
                                   binary(2),
                                   {3, compact::kI64, compact::Zigzag(draws.Below(99))},
                                   binary(5),
                                   binary(6),
                                   compact::Bool(7, true)});
}

struct Made {
  PageHeader header;
  Bytes bytes;
};

Field DataFields(Draws& draws, PageHeader* header) {
  header->definition_level_encoding = static_cast<int>(draws.Below(5));
  Fields fields{compact::I32(1, header->num_values), compact::I32(2, header->encoding),
                compact::I32(3, header->definition_level_encoding),
                compact::I32(4, draws.Below(5))};
  if (draws.OneIn(2)) fields.push_back(RandomStatistics(draws, 5));
  Disturb(draws, &fields);
  return compact::StructField(5, fields, &draws);
}

Field DictionaryFields(Draws& draws, PageHeader* header) {
  Fields fields{compact::I32(1, header->num_values), compact::I32(2, header->encoding)};
  if (draws.OneIn(2)) fields.push_back(compact::Bool(3, draws.OneIn(2)));
  Disturb(draws, &fields);
  return compact::StructField(7, fields, &draws);
}

Field DataV2Fields(Draws& draws, PageHeader* header) {
  header->definition_level_bytes = RandomCount(draws);
  header->repetition_level_bytes = RandomCount(draws);
  Fields fields{compact::I32(1, header->num_values),
                compact::I32(2, RandomCount(draws)),
                compact::I32(3, RandomCount(draws)),
                compact::I32(4, header->encoding),
                compact::I32(5, header->definition_level_bytes),
                compact::I32(6, header->repetition_level_bytes)};
  if (draws.OneIn(2)) {
    header->is_compressed = draws.OneIn(2);
    fields.push_back(compact::Bool(7, header->is_compressed));
  }
  if (draws.OneIn(2)) fields.push_back(RandomStatistics(draws, 8));
  Disturb(draws, &fields);
  return compact::StructField(8, fields, &draws);
}

Made RandomHeader(Draws& draws) {
  PageHeader header;
  header.compressed_bytes = RandomCount(draws);
  header.uncompressed_bytes = RandomCount(draws);
  header.num_values = RandomCount(draws);
  header.encoding = static_cast<int>(draws.Below(12));
  int64_t type = 0;
  Fields fields;
  switch (draws.Below(4)) {
    case 0:
      type = 0;
      header.kind = Kind::kData;
      fields.push_back(DataFields(draws, &header));
      break;
    case 1:
      type = 2;
      header.kind = Kind::kDictionary;
      fields.push_back(DictionaryFields(draws, &header));
      break;
    case 2:
      type = 3;
      header.kind = Kind::kDataV2;
      fields.push_back(DataV2Fields(draws, &header));
      break;
    default:
      type = draws.OneIn(2) ? 1 : draws.Between(4, kMaxI32);
      if (draws.OneIn(2)) fields.push_back(compact::StructField(6, {}));
  }
  if (draws.OneIn(2)) {
    header.checksum = static_cast<uint32_t>(draws.Bits());
    fields.push_back(compact::I32(4, static_cast<int32_t>(*header.checksum)));
  }
  fields.push_back(compact::I32(3, header.compressed_bytes));
  fields.push_back(compact::I32(2, header.uncompressed_bytes));
  fields.push_back(compact::I32(1, type));
  std::reverse(fields.begin(), fields.end());
  Disturb(draws, &fields);
  Made made{header, compact::Struct(fields, &draws)};
  made.header.header_bytes = static_cast<int64_t>(made.bytes.size());
  return made;
}

TEST_CASE("headers as they stand in files") {
  const auto data =
      Parse({0x15, 0x00, 0x15, 0x80, 0x01, 0x15, 0x82, 0x01, 0x15, 0x9F, 0xC0, 0xFC,
             0x9C, 0x0E, 0x1C, 0x15, 0xC8, 0x01, 0x15, 0x10, 0x15, 0x06, 0x15, 0x08,
             0x1C, 0x18, 0x02, 0x61, 0x62, 0x00, 0x00, 0x00, 0xEE, 0xEE});
  REQUIRE(data);
  CHECK(data->kind == Kind::kData);
  CHECK(data->is_data());
  CHECK(data->header_bytes == 32);
  CHECK(data->uncompressed_bytes == 64);
  CHECK(data->compressed_bytes == 65);
  CHECK(data->checksum == 2385539056U);  // stored as -1909428240
  CHECK(data->num_values == 100);
  CHECK(data->encoding == 8);
  CHECK(data->definition_level_encoding == 3);

  const auto dictionary = Parse(
      {0x15, 0x04, 0x15, 0x20, 0x15, 0x22, 0x4C, 0x15, 0x08, 0x15, 0x04, 0x12, 0, 0x00});
  REQUIRE(dictionary);
  CHECK(dictionary->kind == Kind::kDictionary);
  CHECK_FALSE(dictionary->is_data());
  CHECK(dictionary->header_bytes == 14);
  CHECK(dictionary->uncompressed_bytes == 16);
  CHECK(dictionary->compressed_bytes == 17);
  CHECK_FALSE(dictionary->checksum);
  CHECK(dictionary->num_values == 4);
  CHECK(dictionary->encoding == 2);

  const auto data_v2 =
      Parse({0x15, 0x06, 0x15, 0x40, 0x15, 0x3E, 0x5C, 0x15, 0x0A, 0x15, 0x02,
             0x15, 0x0A, 0x15, 0x00, 0x15, 0x04, 0x15, 0x06, 0x12, 0x00, 0x00});
  REQUIRE(data_v2);
  CHECK(data_v2->kind == Kind::kDataV2);
  CHECK(data_v2->is_data());
  CHECK(data_v2->header_bytes == 22);
  CHECK(data_v2->uncompressed_bytes == 32);
  CHECK(data_v2->compressed_bytes == 31);
  CHECK(data_v2->num_values == 5);
  CHECK(data_v2->encoding == 0);
  CHECK(data_v2->definition_level_bytes == 2);
  CHECK(data_v2->repetition_level_bytes == 3);
  CHECK_FALSE(data_v2->is_compressed);
}

TEST_CASE("random headers of every kind, with whatever stands around them") {
  Draws draws(80);
  for (int trial = 0; trial < 8000; ++trial) {
    const Made made = RandomHeader(draws);
    CAPTURE(trial);
    const auto found = Parse(made.bytes);
    REQUIRE(found);
    CHECK(Same(*found, made.header));
    Bytes longer = made.bytes;
    compact::Append(&longer, testing::RandomBytes(draws, draws.Below(30)));
    const auto again = Parse(longer);
    REQUIRE(again);
    CHECK(Same(*again, made.header));
  }
}

TEST_CASE("a header that continues after the bytes is not read yet, wherever they end") {
  Draws draws(81);
  for (int trial = 0; trial < 300; ++trial) {
    const Bytes bytes = RandomHeader(draws).bytes;
    CAPTURE(trial);
    for (size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(Parse({bytes.begin(), bytes.begin() + static_cast<int64_t>(size)}));
    }
  }
}

enum class Outcome { kHeader, kNothing, kError };

// Parses any bytes, and checks all that holds for any.
Outcome ParseAny(const Bytes& bytes) {
  std::optional<PageHeader> header;
  const auto error = testing::Caught([&] { header = Parse(bytes); });
  if (error) {
    CHECK(error->kind() == ErrorKind::kCorruptFile);
    return Outcome::kError;
  }
  if (!header) return Outcome::kNothing;
  CHECK(header->header_bytes > 0);
  REQUIRE(header->header_bytes <= static_cast<int64_t>(bytes.size()));
  CHECK(header->compressed_bytes >= 0);
  CHECK(header->uncompressed_bytes >= 0);
  if (header->kind != Kind::kOther) CHECK(header->num_values >= 0);
  const auto end = bytes.begin() + header->header_bytes;
  CHECK_FALSE(Parse({bytes.begin(), end - 1}));
  const auto again = Parse({bytes.begin(), end});
  REQUIRE(again);
  CHECK(Same(*again, *header));
  return Outcome::kHeader;
}

// Checks that each outcome came up, so that no case stays untested.
void CheckEachHappened(const std::vector<Outcome>& outcomes) {
  for (const Outcome outcome : {Outcome::kHeader, Outcome::kNothing, Outcome::kError}) {
    CHECK(std::count(outcomes.begin(), outcomes.end(), outcome) > 0);
  }
}

TEST_CASE("damaged headers give a header, nothing yet, or an error of the file") {
  Draws draws(82);
  std::vector<Outcome> outcomes;
  for (int trial = 0; trial < 8000; ++trial) {
    Bytes bytes = RandomHeader(draws).bytes;
    for (int64_t left = draws.Between(1, 3); left > 0; --left) {
      const auto place =
          static_cast<size_t>(draws.Below(static_cast<int64_t>(bytes.size())));
      bytes[place] = static_cast<uint8_t>(
          draws.OneIn(2) ? bytes[place] ^ (1 << draws.Below(8)) : draws.Below(256));
    }
    outcomes.push_back(ParseAny(bytes));
  }
  CheckEachHappened(outcomes);
}

TEST_CASE("random bytes give a header, nothing yet, or an error of the file") {
  Draws draws(83);
  std::vector<Outcome> outcomes;
  for (int trial = 0; trial < 20'000; ++trial) {
    Bytes bytes = testing::RandomBytes(draws, draws.Below(100));
    // Half of them begin well, and most bytes are such as headers are made of.
    if (draws.OneIn(2)) {
      Bytes begun{0x15, static_cast<uint8_t>(2 * draws.Below(5)), 0x15, 0x20, 0x15, 0x20};
      for (uint8_t& byte : bytes) {
        constexpr uint8_t kLikely[] = {0x00, 0x15, 0x15, 0x1C, 0x19, 0x08, 0x2C, 0x4C};
        if (!draws.OneIn(3)) byte = kLikely[draws.Below(std::ssize(kLikely))];
      }
      compact::Append(&begun, bytes);
      bytes = begun;
    }
    outcomes.push_back(ParseAny(bytes));
  }
  CheckEachHappened(outcomes);
}

// The fields of a whole header of each kind that is read, without any that may lack.
struct Whole {
  int64_t type;
  int64_t struct_id;
  std::vector<int64_t> required;  // fields of the struct
  Fields fields;
};

std::vector<Whole> WholeHeaders() {
  return {
      {0, 5, {1}, {compact::I32(1, 10), compact::I32(2, 0), compact::I32(3, 3)}},
      {2, 7, {1}, {compact::I32(1, 10), compact::I32(2, 0)}},
      {3,
       8,
       {1},
       {compact::I32(1, 10), compact::I32(4, 0), compact::I32(5, 2), compact::I32(6, 0)}},
  };
}

Fields PageFields(const Whole& whole) {
  return {compact::I32(1, whole.type), compact::I32(2, 30), compact::I32(3, 20),
          compact::StructField(whole.struct_id, whole.fields)};
}

Field& FieldOf(Fields* fields, int64_t id) {
  return *std::find_if(fields->begin(), fields->end(),
                       [&](const Field& field) { return field.id == id; });
}

TEST_CASE("a header without a field that it must have is an error") {
  for (const Whole& whole : WholeHeaders()) {
    const Fields fields = PageFields(whole);
    REQUIRE(Parse(compact::Struct(fields)));
    for (size_t i = 0; i < fields.size(); ++i) {
      Fields without = fields;
      without.erase(without.begin() + static_cast<int64_t>(i));
      CAPTURE(fields[i].id);
      CHECK(IsCorrupt(compact::Struct(without)));
    }
    for (const int64_t id : whole.required) {
      Whole less = whole;
      std::erase_if(less.fields, [&](const Field& field) { return field.id == id; });
      CHECK(IsCorrupt(compact::Struct(PageFields(less))));
    }
  }
  CHECK(IsCorrupt({0}));
  // A page that nobody reads needs its place in the file only.
  const Fields index_page{compact::I32(1, 1), compact::I32(2, 30), compact::I32(3, 20)};
  REQUIRE(Parse(compact::Struct(index_page)));
  for (size_t i = 0; i < index_page.size(); ++i) {
    Fields without = index_page;
    without.erase(without.begin() + static_cast<int64_t>(i));
    CHECK(IsCorrupt(compact::Struct(without)));
  }
}

TEST_CASE("a header that describes a page of another kind than it says is an error") {
  for (const Whole& whole : WholeHeaders()) {
    for (const Whole& other : WholeHeaders()) {
      Whole mixed = whole;
      mixed.type = other.type;
      CHECK(IsCorrupt(compact::Struct(PageFields(mixed))) == (whole.type != other.type));
    }
  }
}

TEST_CASE("negative sizes, counts and kinds are errors") {
  for (const Whole& whole : WholeHeaders()) {
    for (const int64_t value : {int64_t{-1}, int64_t{-1000}, -kMaxI32 - 1}) {
      for (const int64_t id : {1, 2, 3}) {
        Fields fields = PageFields(whole);
        FieldOf(&fields, id) = compact::I32(id, value);
        CHECK(IsCorrupt(compact::Struct(fields)));
      }
      Whole negative = whole;
      FieldOf(&negative.fields, 1) = compact::I32(1, value);
      CHECK(IsCorrupt(compact::Struct(PageFields(negative))));
    }
  }
}

TEST_CASE("a field of another type than the format gives it is an error") {
  Draws draws(84);
  const auto of_type = [&](int64_t id, int type) {
    Field field{id, type};
    if (type > compact::kFalse) field.value = compact::RandomElement(draws, type, 2);
    return field;
  };
  for (const Whole& whole : WholeHeaders()) {
    for (int type = compact::kTrue; type <= compact::kUuid; ++type) {
      CAPTURE(type);
      for (const int64_t id : {int64_t{1}, int64_t{2}, int64_t{3}, whole.struct_id}) {
        Fields fields = PageFields(whole);
        Field& field = FieldOf(&fields, id);
        if (type == field.type) continue;
        field = of_type(id, type);
        CHECK(IsCorrupt(compact::Struct(fields)));
      }
      for (const Field& right : whole.fields) {
        if (type == right.type) continue;
        Whole wrong = whole;
        FieldOf(&wrong.fields, right.id) = of_type(right.id, type);
        CHECK(IsCorrupt(compact::Struct(PageFields(wrong))));
      }
      Fields fields = PageFields(whole);
      fields.push_back(of_type(4, type));  // the checksum
      CHECK(IsCorrupt(compact::Struct(fields)) == (type != compact::kI32));
    }
  }
  for (int type = compact::kTrue; type <= compact::kUuid; ++type) {
    Whole whole = WholeHeaders()[2];
    whole.fields.push_back(of_type(7, type));  // is_compressed
    CHECK(IsCorrupt(compact::Struct(PageFields(whole))) == (type > compact::kFalse));
  }
}

// A whole header with one more field.
Bytes HeaderWith(const Field& field) {
  Fields fields = PageFields(WholeHeaders()[0]);
  fields.push_back(field);
  return compact::Struct(fields);
}

TEST_CASE("types that the protocol has not are errors, alone and within others") {
  for (const int type : {14, 15}) {
    CHECK(IsCorrupt(HeaderWith({30, type, Bytes(20)})));
  }
  for (const int type : {0, 14, 15}) {
    const auto element = static_cast<uint8_t>(0x20 | type);  // of two
    CHECK(IsCorrupt(HeaderWith({30, compact::kList, {element, 0, 0}})));
    CHECK(IsCorrupt(HeaderWith({30, compact::kSet, {element, 0, 0}})));
    const auto as_key = static_cast<uint8_t>(type << 4 | compact::kByte);
    const auto as_value = static_cast<uint8_t>(compact::kByte << 4 | type);
    CHECK(IsCorrupt(HeaderWith({30, compact::kMap, {1, as_key, 0, 0}})));
    CHECK(IsCorrupt(HeaderWith({30, compact::kMap, {1, as_value, 0, 0}})));
  }
  // Some writers give the elements of an empty list no type.
  CHECK(Parse(HeaderWith({30, compact::kList, {0x00}})));
}

TEST_CASE("field numbers are those of the protocol's 16 bits, and not negative") {
  const auto with_id = [](int64_t id) { return HeaderWith({id, compact::kByte, {0}}); };
  CHECK(Parse(with_id(32767)));
  for (const int64_t id :
       {int64_t{-1}, int64_t{-32768}, int64_t{32768}, kMaxI32 + 1, -(int64_t{1} << 60)}) {
    CAPTURE(id);
    CHECK(IsCorrupt(with_id(id)));
  }
  Fields fields = PageFields(WholeHeaders()[0]);
  fields.push_back({32760, compact::kByte, {0}});
  fields.push_back({32767, compact::kByte, {0}});
  CHECK(Parse(compact::Struct(fields)));
  fields.back().id = 32768;
  CHECK(IsCorrupt(compact::Struct(fields)));
}

TEST_CASE("numbers beyond 32 bits are errors, those at the border are not") {
  const auto with_bytes = [](int64_t value) {
    Fields fields = PageFields(WholeHeaders()[0]);
    FieldOf(&fields, 3) = compact::I32(3, value);
    return compact::Struct(fields);
  };
  const auto header = Parse(with_bytes(kMaxI32));
  REQUIRE(header);
  CHECK(header->compressed_bytes == kMaxI32);
  CHECK(IsCorrupt(with_bytes(kMaxI32 + 1)));
  CHECK(IsCorrupt(with_bytes(std::numeric_limits<int64_t>::max())));
  const auto with_checksum = [](int64_t value) {
    return HeaderWith(compact::I32(4, value));
  };
  CHECK(Parse(with_checksum(-kMaxI32 - 1))->checksum == 0x80000000U);
  CHECK(IsCorrupt(with_checksum(-kMaxI32 - 2)));
  CHECK(IsCorrupt(with_checksum(std::numeric_limits<int64_t>::min())));
}

// `value` in more bytes than it needs.
Bytes LongVarint(uint8_t value, size_t num_bytes) {
  Bytes bytes(num_bytes, 0x80);
  bytes.front() = value | 0x80;
  bytes.back() = 0;
  return bytes;
}

TEST_CASE("a number of more than ten bytes is an error wherever one may stand") {
  for (const size_t num_bytes : {2, 5, 10, 11, 12, 100}) {
    CAPTURE(num_bytes);
    const bool too_long = num_bytes > 10;
    const Bytes zero = LongVarint(0, num_bytes);
    const Bytes two = LongVarint(2, num_bytes);
    for (const int type :
         {compact::kI16, compact::kI32, compact::kI64, compact::kBinary, compact::kMap}) {
      CHECK(IsCorrupt(HeaderWith({30, type, zero})) == too_long);
    }
    CHECK(IsCorrupt(HeaderWith(Field{4, compact::kI32, two})) == too_long);
    Bytes list{0xF0 | compact::kByte};
    compact::Append(&list, zero);
    CHECK(IsCorrupt(HeaderWith({30, compact::kList, list})) == too_long);
    // The number of a field: an unknown one's, 20, in front of its value.
    Bytes bytes = compact::Struct(PageFields(WholeHeaders()[0]));
    bytes.back() = compact::kByte;
    compact::Append(&bytes, LongVarint(40, num_bytes));
    compact::Append(&bytes, {0x55, 0x00});
    CHECK(IsCorrupt(bytes) == too_long);
  }
}

// `depth` containers, one within the other.
Bytes Nested(const Bytes& opening, const Bytes& closing, size_t depth) {
  Bytes bytes;
  for (size_t i = 0; i < depth; ++i) compact::Append(&bytes, opening);
  compact::Append(&bytes, {0x00});
  for (size_t i = 0; i < depth; ++i) compact::Append(&bytes, closing);
  return bytes;
}

TEST_CASE("nesting that no writer has a use for is an error, not a full stack") {
  struct Container {
    int type;
    Bytes opening;
    Bytes closing;
  };
  const Container containers[] = {
      {compact::kList, {0x10 | compact::kList}, {}},
      {compact::kSet, {0x10 | compact::kSet}, {}},
      {compact::kStruct, {0x10 | compact::kStruct}, {0x00}},
      // In the value, and in the key, whose value is a byte.
      {compact::kMap, {1, compact::kByte << 4 | compact::kMap, 0x77}, {}},
      {compact::kMap, {1, compact::kMap << 4 | compact::kByte}, {0x77}},
  };
  for (const Container& container : containers) {
    CAPTURE(container.type);
    const auto nested = [&](size_t depth) {
      return HeaderWith(
          {30, container.type, Nested(container.opening, container.closing, depth)});
    };
    CHECK(Parse(nested(10)));
    for (const size_t depth : {100, 1000, 100'000}) CHECK(IsCorrupt(nested(depth)));
  }
}

TEST_CASE("sizes that no memory holds need more bytes than there are") {
  const Bytes huge = compact::Varint(std::numeric_limits<uint64_t>::max());
  Bytes tail = huge;
  compact::Append(&tail, Bytes(100, 0x01));
  CHECK_FALSE(Parse(HeaderWith({30, compact::kBinary, tail})));
  for (const int element_type : {compact::kTrue, compact::kFalse, compact::kByte,
                                 compact::kI64, compact::kDouble, compact::kUuid}) {
    CAPTURE(element_type);
    Bytes list{static_cast<uint8_t>(0xF0 | element_type)};
    compact::Append(&list, tail);
    CHECK_FALSE(Parse(HeaderWith({30, compact::kList, list})));
    Bytes map = huge;
    map.push_back(static_cast<uint8_t>(element_type << 4 | element_type));
    compact::Append(&map, tail);
    CHECK_FALSE(Parse(HeaderWith({30, compact::kMap, map})));
  }
}

}  // namespace
}  // namespace torchparquet
