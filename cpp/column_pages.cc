#include "column_pages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include "errors.h"
#include "window_stream.h"

namespace torchparquet {
namespace {

struct ByteRange {
  int64_t offset;
  int64_t num_bytes;
};

// The bytes of a column chunk, dictionary page included.
ByteRange ColumnChunkRange(const parquet::FileMetaData& metadata,
                           const parquet::ColumnChunkMetaData& chunk, int64_t file_bytes) {
  ByteRange range{chunk.data_page_offset(), chunk.total_compressed_size()};
  // Some writers leave the dictionary's offset 0 or unset; it then stands where the
  // data pages are said to begin.
  const int64_t dictionary_offset = chunk.has_dictionary_page() ? chunk.dictionary_page_offset() : 0;
  if (dictionary_offset > 0 && dictionary_offset < range.offset) range.offset = dictionary_offset;
  if (range.offset < 0 || range.num_bytes < 0 || range.offset > file_bytes ||
      range.num_bytes > file_bytes - range.offset) {
    throw CorruptFile("column chunk lies outside the file: offset " +
                      std::to_string(range.offset) + ", " + std::to_string(range.num_bytes) +
                      " bytes, file of " + std::to_string(file_bytes));
  }
  // parquet-mr before 1.2.9 left the dictionary page's header out of the size.
  if (metadata.writer_version().VersionLt(
          parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION())) {
    constexpr int64_t kMaxDictionaryHeaderBytes = 100;
    range.num_bytes +=
        std::min(kMaxDictionaryHeaderBytes, file_bytes - range.offset - range.num_bytes);
  }
  return range;
}

// Reads a little-endian 32-bit length at the start of `bytes`.
int64_t ReadLength(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4) throw CorruptFile("page is too short for its levels");
  uint32_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length;
}

std::span<const uint8_t> TakeFront(std::span<const uint8_t>* bytes, int64_t num_bytes) {
  if (num_bytes < 0 || num_bytes > static_cast<int64_t>(bytes->size())) {
    throw CorruptFile("page is too short for its levels");
  }
  const auto front = bytes->first(static_cast<size_t>(num_bytes));
  *bytes = bytes->subspan(static_cast<size_t>(num_bytes));
  return front;
}

PageParts SplitPageV1(const parquet::DataPageV1& page, int max_definition_level) {
  PageParts parts;
  std::span<const uint8_t> bytes(page.data(), static_cast<size_t>(page.size()));
  if (max_definition_level > 0) {
    if (page.definition_level_encoding() == parquet::Encoding::BIT_PACKED) {
      const int64_t width = std::bit_width(static_cast<unsigned>(max_definition_level));
      parts.bit_packed_levels = true;
      parts.levels = TakeFront(&bytes, (width * page.num_values() + 7) / 8);
    } else {
      const int64_t length = ReadLength(bytes);
      TakeFront(&bytes, 4);
      parts.levels = TakeFront(&bytes, length);
    }
  }
  parts.values = bytes;
  return parts;
}

PageParts SplitPageV2(const parquet::DataPageV2& page, int max_definition_level) {
  PageParts parts;
  std::span<const uint8_t> bytes(page.data(), static_cast<size_t>(page.size()));
  // Some writers store repetition levels although the column has none.
  TakeFront(&bytes, page.repetition_levels_byte_length());
  const auto levels = TakeFront(&bytes, page.definition_levels_byte_length());
  if (max_definition_level > 0) parts.levels = levels;
  parts.values = bytes;
  return parts;
}

}  // namespace

std::unique_ptr<parquet::PageReader> OpenColumnPages(const ParquetFile& file, int64_t row_group,
                                                     int column, ScratchBuffer* window) {
  const parquet::FileMetaData& metadata = file.metadata();
  if (row_group < 0 || row_group >= metadata.num_row_groups()) {
    throw CorruptFile("file has only " + std::to_string(metadata.num_row_groups()) +
                      " row groups");
  }
  const auto group = metadata.RowGroup(static_cast<int>(row_group));
  const auto chunk = group->ColumnChunk(column);
  if (chunk->num_values() != group->num_rows()) {
    throw CorruptFile("column chunk claims " + std::to_string(chunk->num_values()) +
                      " values in a row group of " + std::to_string(group->num_rows()) + " rows");
  }
  const ByteRange range = ColumnChunkRange(metadata, *chunk, file.file().num_bytes());
  parquet::ReaderProperties properties;
  properties.set_page_checksum_verification(true);
  // Arrow before 3.0 wrote V2 pages that say they are not compressed but are.
  const bool always_compressed = metadata.writer_version().VersionLt(
      parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION());
  return parquet::PageReader::Open(
      OpenWindowStream(&file.file(), range.offset, range.num_bytes, window), chunk->num_values(),
      chunk->compression(), properties, *metadata.schema()->Column(column), always_compressed);
}

PageParts SplitPage(const parquet::DataPage& page, int max_definition_level) {
  if (page.type() == parquet::PageType::DATA_PAGE_V2) {
    return SplitPageV2(static_cast<const parquet::DataPageV2&>(page), max_definition_level);
  }
  return SplitPageV1(static_cast<const parquet::DataPageV1&>(page), max_definition_level);
}

}  // namespace torchparquet
