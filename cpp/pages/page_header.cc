#include "pages/page_header.h"

#include <string>

#include "base/errors.h"
#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

Error NoPageHeader() { return CorruptFile("page header is damaged"); }

// The structs of the three kinds of page. A missing field keeps its default.
void ReadDataPage(int type, ThriftCompactReader* reader, PageHeader* header) {
  reader->ReadFields(type, reader->I32(1, &header->num_values),
                     reader->I32(2, &header->encoding),
                     reader->I32(3, &header->definition_level_encoding),
                     reader->I32(4, &header->repetition_level_encoding));
}

void ReadDictionaryPage(int type, ThriftCompactReader* reader, PageHeader* header) {
  reader->ReadFields(type, reader->I32(1, &header->num_values),
                     reader->I32(2, &header->encoding));
}

void ReadDataPageV2(int type, ThriftCompactReader* reader, PageHeader* header) {
  const auto read_compressed = [&](int field_type) {
    header->is_compressed = ThriftCompactReader::ReadBool(field_type);
  };
  reader->ReadFields(
      type, reader->I32(1, &header->num_values), reader->I32(4, &header->encoding),
      reader->I32(5, &header->definition_level_bytes),
      reader->I32(6, &header->repetition_level_bytes), reader->At(7, read_compressed));
}

// PageType of the format.
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

void ReadPageHeader(ThriftCompactReader* reader, PageHeader* header) {
  int32_t type = -1;
  std::optional<PageHeader::Kind> described;
  header->compressed_bytes = header->uncompressed_bytes = header->num_values = -1;
  const auto read_page = [&](PageHeader::Kind kind, auto read) {
    return [&described, kind, read, reader, header](int field_type) {
      described = kind;
      read(field_type, reader, header);
    };
  };
  using Kind = PageHeader::Kind;
  reader->ReadFields(reader->I32(1, &type), reader->I32(2, &header->uncompressed_bytes),
                     reader->I32(3, &header->compressed_bytes),
                     reader->At(4,
                                [&](int field_type) {
                                  header->checksum =
                                      static_cast<uint32_t>(reader->ReadI32(field_type));
                                }),
                     reader->At(5, read_page(Kind::kData, ReadDataPage)),
                     reader->At(7, read_page(Kind::kDictionary, ReadDictionaryPage)),
                     reader->At(8, read_page(Kind::kDataV2, ReadDataPageV2)));
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
  ThriftCompactReader reader(bytes);
  PageHeader header;
  try {
    ReadPageHeader(&reader, &header);
  } catch (const ThriftCompactReader::Truncated&) {
    return std::nullopt;
  } catch (const ThriftCompactReader::Malformed&) {
    throw NoPageHeader();
  }
  header.header_bytes = static_cast<int64_t>(bytes.size() - reader.rest_bytes());
  return header;
}

}  // namespace torchparquet
