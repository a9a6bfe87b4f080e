#include "format/column_index.h"

#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

ColumnIndex ReadColumnIndex(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  ColumnIndex index;
  reader.ReadStruct([&](int64_t id, int type) {
    switch (id) {
      case 1:
        return reader.ReadList(type, [&](int element) {
          index.has_nulls_only.push_back(reader.ReadBoolElement(element));
        });
      case 2:
        return reader.ReadList(
            type, [&](int element) { index.low.push_back(reader.ReadBinary(element)); });
      case 3:
        return reader.ReadList(
            type, [&](int element) { index.high.push_back(reader.ReadBinary(element)); });
      case 5:
        return reader.ReadList(type, [&](int element) {
          index.num_nulls.push_back(reader.ReadI64(element));
        });
      default:
        return reader.SkipField(type);
    }
  });
  return index;
}

// ColumnChunk, in the format's sense.
IndexPlaces ReadPlaces(ThriftCompactReader* reader, int struct_type) {
  IndexPlaces places;
  reader->ReadStruct(struct_type, [&](int64_t id, int type) {
    switch (id) {
      case 4:
        places.offset_index.offset = reader->ReadI64(type);
        return;
      case 5:
        places.offset_index.num_bytes = reader->ReadI32(type);
        return;
      case 6:
        places.column_index.offset = reader->ReadI64(type);
        return;
      case 7:
        places.column_index.num_bytes = reader->ReadI32(type);
        return;
      default:
        reader->SkipField(type);
    }
  });
  return places;
}

}  // namespace

std::optional<ColumnIndex> ParseColumnIndex(std::span<const uint8_t> bytes) {
  ColumnIndex index;
  try {
    index = ReadColumnIndex(bytes);
  } catch (const ThriftCompactReader::Failure&) {
    return std::nullopt;
  }
  const size_t num_pages = index.has_nulls_only.size();
  const bool agrees = index.low.size() == num_pages && index.high.size() == num_pages &&
                      (index.num_nulls.empty() || index.num_nulls.size() == num_pages);
  if (num_pages == 0 || !agrees) return std::nullopt;
  return index;
}

std::vector<IndexPlaces> FindIndexes(std::span<const uint8_t> footer) {
  ThriftCompactReader reader(footer);
  std::vector<IndexPlaces> found;
  const auto read_row_group = [&](int struct_type) {
    reader.ReadStruct(struct_type, [&](int64_t id, int type) {
      if (id != 1) return reader.SkipField(type);
      reader.ReadList(
          type, [&](int element) { found.push_back(ReadPlaces(&reader, element)); });
    });
  };
  try {
    reader.ReadStruct([&](int64_t id, int type) {
      if (id != 4) return reader.SkipField(type);
      reader.ReadList(type, read_row_group);
    });
  } catch (const ThriftCompactReader::Failure&) {
    return {};
  }
  return found;
}

}  // namespace torchparquet
