#include "page_header.h"

#include <exception>
#include <limits>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

enum FieldType : uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
  kUuid = 13,
};

// Thrown when a header goes on behind the bytes at hand.
class Truncated : public std::exception {};

Error NoPageHeader() { return CorruptFile("page header is damaged"); }

// Reads values of Thrift's compact protocol one after the other.
class CompactReader {
 public:
  explicit CompactReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  // Calls `on_field(id, type)` for each field of a struct; it must take the value.
  template <typename OnField>
  void ReadStruct(OnField on_field) {
    int64_t id = 0;
    while (true) {
      const uint8_t head = TakeByte();
      const int type = head & 0x0F;
      if (type == kStop) return;
      const int step = head >> 4;
      id = step != 0 ? id + step : ReadInteger();
      if (id < 0 || id > std::numeric_limits<int16_t>::max()) throw NoPageHeader();
      on_field(id, type);
    }
  }

  int32_t ReadI32(int type) {
    if (type != kI32) throw NoPageHeader();
    const int64_t value = ReadInteger();
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      throw NoPageHeader();
    }
    return static_cast<int32_t>(value);
  }

  // A boolean field's value is its type.
  static bool ReadBool(int type) {
    if (type != kTrue && type != kFalse) throw NoPageHeader();
    return type == kTrue;
  }

  static void CheckStruct(int type) {
    if (type != kStruct) throw NoPageHeader();
  }

  // Passes over a value whose field nobody asks for.
  void SkipField(int type) { Skip(type, 0); }

  size_t rest_bytes() const { return rest_.size(); }

 private:
  static constexpr int kMaxDepth = 32;

  void Drop(uint64_t num_bytes) {
    if (num_bytes > rest_.size()) throw Truncated{};
    rest_ = rest_.subspan(num_bytes);
  }
  uint8_t TakeByte() {
    if (rest_.empty()) throw Truncated{};
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  uint64_t ReadVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = TakeByte();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw NoPageHeader();
  }
  int64_t ReadInteger() {
    const uint64_t zigzag = ReadVarint();
    return static_cast<int64_t>(zigzag >> 1) ^ -static_cast<int64_t>(zigzag & 1);
  }

  void Skip(int type, int depth) {
    if (depth > kMaxDepth) throw NoPageHeader();
    switch (type) {
      case kTrue:
      case kFalse:
        return;
      case kByte:
        return Drop(1);
      case kI16:
      case kI32:
      case kI64:
        ReadVarint();
        return;
      case kDouble:
        return Drop(8);
      case kUuid:
        return Drop(16);
      case kBinary:
        return Drop(ReadVarint());
      case kList:
      case kSet:
        return SkipList(depth);
      case kMap:
        return SkipMap(depth);
      case kStruct:
        return ReadStruct([&](int64_t, int inner) { Skip(inner, depth + 1); });
      default:
        throw NoPageHeader();
    }
  }

  // A boolean has a byte of its own where it is no field.
  void SkipElement(int type, int depth) {
    Skip(type == kTrue || type == kFalse ? int{kByte} : type, depth + 1);
  }
  void SkipList(int depth) {
    const uint8_t head = TakeByte();
    const uint64_t size = head >> 4 != 15 ? head >> 4 : ReadVarint();
    for (uint64_t i = 0; i < size; ++i) SkipElement(head & 0x0F, depth);
  }
  void SkipMap(int depth) {
    const uint64_t size = ReadVarint();
    if (size == 0) return;
    const uint8_t types = TakeByte();
    for (uint64_t i = 0; i < size; ++i) {
      SkipElement(types >> 4, depth);
      SkipElement(types & 0x0F, depth);
    }
  }

  std::span<const uint8_t> rest_;
};

// The structs of the three kinds of page. What they lack keeps its value.
void ReadDataPage(CompactReader* reader, PageHeader* header) {
  reader->ReadStruct([&](int64_t id, int type) {
    switch (id) {
      case 1:
        header->num_values = reader->ReadI32(type);
        return;
      case 2:
        header->encoding = reader->ReadI32(type);
        return;
      case 3:
        header->definition_level_encoding = reader->ReadI32(type);
        return;
      case 4:
        header->repetition_level_encoding = reader->ReadI32(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
}

void ReadDictionaryPage(CompactReader* reader, PageHeader* header) {
  reader->ReadStruct([&](int64_t id, int type) {
    switch (id) {
      case 1:
        header->num_values = reader->ReadI32(type);
        return;
      case 2:
        header->encoding = reader->ReadI32(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
}

void ReadDataPageV2(CompactReader* reader, PageHeader* header) {
  reader->ReadStruct([&](int64_t id, int type) {
    switch (id) {
      case 1:
        header->num_values = reader->ReadI32(type);
        return;
      case 4:
        header->encoding = reader->ReadI32(type);
        return;
      case 5:
        header->definition_level_bytes = reader->ReadI32(type);
        return;
      case 6:
        header->repetition_level_bytes = reader->ReadI32(type);
        return;
      case 7:
        header->is_compressed = CompactReader::ReadBool(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
}

// parquet::PageType, by the numbers that the format gives them.
PageHeader::Kind KindOf(int32_t type) {
  switch (type) {
    case 0:
      return PageHeader::Kind::kData;
    case 2:
      return PageHeader::Kind::kDictionary;
    case 3:
      return PageHeader::Kind::kDataV2;
    default:
      return PageHeader::Kind::kOther;
  }
}

void ReadPageHeader(CompactReader* reader, PageHeader* header) {
  int32_t type = -1;
  std::optional<PageHeader::Kind> described;
  header->compressed_bytes = header->uncompressed_bytes = header->num_values = -1;
  reader->ReadStruct([&](int64_t id, int field_type) {
    switch (id) {
      case 1:
        type = reader->ReadI32(field_type);
        return;
      case 2:
        header->uncompressed_bytes = reader->ReadI32(field_type);
        return;
      case 3:
        header->compressed_bytes = reader->ReadI32(field_type);
        return;
      case 4:
        header->checksum = static_cast<uint32_t>(reader->ReadI32(field_type));
        return;
      case 5:
        CompactReader::CheckStruct(field_type);
        described = PageHeader::Kind::kData;
        return ReadDataPage(reader, header);
      case 7:
        CompactReader::CheckStruct(field_type);
        described = PageHeader::Kind::kDictionary;
        return ReadDictionaryPage(reader, header);
      case 8:
        CompactReader::CheckStruct(field_type);
        described = PageHeader::Kind::kDataV2;
        return ReadDataPageV2(reader, header);
      default:
        reader->SkipField(field_type);
    }
  });
  if (type < 0) throw NoPageHeader();
  header->kind = KindOf(type);
  if (header->compressed_bytes < 0 || header->uncompressed_bytes < 0) {
    throw CorruptFile("page claims a negative size, or none");
  }
  if (header->kind == PageHeader::Kind::kOther) return;
  if (described != header->kind) throw NoPageHeader();
  if (header->num_values < 0) {
    throw CorruptFile("page claims a negative number of values, or none");
  }
  if (header->encoding < 0) {
    throw CorruptFile("page does not say how its values are encoded");
  }
}

}  // namespace

std::optional<PageHeader> ParsePageHeader(std::span<const uint8_t> bytes) {
  CompactReader reader(bytes);
  PageHeader header;
  try {
    ReadPageHeader(&reader, &header);
  } catch (const Truncated&) {
    return std::nullopt;
  }
  header.header_bytes = static_cast<int64_t>(bytes.size() - reader.rest_bytes());
  return header;
}

}  // namespace torchparquet
