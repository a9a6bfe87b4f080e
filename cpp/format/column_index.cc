#include "format/column_index.h"

#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

ColumnIndex ReadColumnIndex(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  ColumnIndex index;
  const auto list = [&](int64_t id, auto read_element) {
    return reader.At(
        id, [&reader, read_element](int type) { reader.ReadList(type, read_element); });
  };
  reader.ReadFields(
      list(1,
           [&](int type) {
             index.has_nulls_only.push_back(reader.ReadBoolElement(type));
           }),
      list(2, [&](int type) { index.low.push_back(reader.ReadBinary(type)); }),
      list(3, [&](int type) { index.high.push_back(reader.ReadBinary(type)); }),
      list(5, [&](int type) { index.num_nulls.push_back(reader.ReadI64(type)); }));
  return index;
}

// ColumnChunk, in the format's sense.
IndexPlaces ReadPlaces(ThriftCompactReader* reader, int struct_type) {
  IndexPlaces places;
  reader->ReadFields(struct_type, reader->I64(4, &places.offset_index.offset),
                     reader->I32(5, &places.offset_index.num_bytes),
                     reader->I64(6, &places.column_index.offset),
                     reader->I32(7, &places.column_index.num_bytes));
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
