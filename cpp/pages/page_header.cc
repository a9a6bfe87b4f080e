#include "pages/page_header.h"

#include <string>

#include "base/errors.h"
#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

Error NoPageHeader() { return CorruptFile("page header is damaged"); }

// The structs of the three kinds of page. A missing field keeps its default.
void ReadDataPage(int struct_type, ThriftCompactReader* reader, PageHeader* header) {
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
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

void ReadDictionaryPage(int struct_type, ThriftCompactReader* reader,
                        PageHeader* header) {
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
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

void ReadDataPageV2(int struct_type, ThriftCompactReader* reader, PageHeader* header) {
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
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
        header->is_compressed = ThriftCompactReader::ReadBool(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
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
        described = PageHeader::Kind::kData;
        return ReadDataPage(field_type, reader, header);
      case 7:
        described = PageHeader::Kind::kDictionary;
        return ReadDictionaryPage(field_type, reader, header);
      case 8:
        described = PageHeader::Kind::kDataV2;
        return ReadDataPageV2(field_type, reader, header);
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
