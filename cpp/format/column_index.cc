#include "format/column_index.h"

#include "format/thrift_compact.h"

namespace torchparquet {
namespace {

ColumnIndex ReadColumnIndex(std::span<const uint8_t> bytes) {
  ThriftCompactReader reader(bytes);
  ColumnIndex index;
  reader.ReadFields(
      reader.List(1,
                  [&](int type) {
                    index.has_nulls_only.push_back(reader.ReadBoolElement(type));
                  }),
      reader.List(2, [&](int type) { index.low.push_back(reader.ReadBinary(type)); }),
      reader.List(3, [&](int type) { index.high.push_back(reader.ReadBinary(type)); }),
      reader.List(5, [&](int type) { index.num_nulls.push_back(reader.ReadI64(type)); }));
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
  if (!ThriftCompactReader::IsSound([&] { index = ReadColumnIndex(bytes); })) {
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
    reader.ReadFields(struct_type, reader.List(1, [&](int element) {
      found.push_back(ReadPlaces(&reader, element));
    }));
  };
  const bool is_sound = ThriftCompactReader::IsSound(
      [&] { reader.ReadFields(reader.List(4, read_row_group)); });
  return is_sound ? found : std::vector<IndexPlaces>();
}

}  // namespace torchparquet
