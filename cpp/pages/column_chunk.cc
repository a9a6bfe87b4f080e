#include "pages/column_chunk.h"

#include <parquet/metadata.h>
#include <parquet/schema.h>
#include <parquet/types.h>

#include <algorithm>
#include <string>

#include "errors.h"

namespace torchparquet {
namespace {

// The bytes of a column chunk, dictionary page included.
ByteRange ColumnChunkRange(const parquet::FileMetaData& metadata,
                           const parquet::ColumnChunkMetaData& chunk,
                           int64_t file_bytes) {
  ByteRange range{chunk.data_page_offset(), chunk.total_compressed_size()};
  // Some writers leave the dictionary's offset 0 or unset; it then stands where the
  // data pages are said to begin.
  const int64_t dictionary_offset =
      chunk.has_dictionary_page() ? chunk.dictionary_page_offset() : 0;
  if (dictionary_offset > 0 && dictionary_offset < range.offset)
    range.offset = dictionary_offset;
  if (range.offset < 0 || range.num_bytes < 0 || range.offset > file_bytes ||
      range.num_bytes > file_bytes - range.offset) {
    throw CorruptFile("column chunk lies outside the file: offset " +
                      std::to_string(range.offset) + ", " +
                      std::to_string(range.num_bytes) + " bytes, file of " +
                      std::to_string(file_bytes));
  }
  // parquet-mr before 1.2.9 left the dictionary page's header out of the size.
  if (metadata.writer_version().VersionLt(
          parquet::ApplicationVersion::PARQUET_816_FIXED_VERSION())) {
    constexpr int64_t kMaxDictionaryHeaderBytes = 100;
    range.num_bytes += std::min(kMaxDictionaryHeaderBytes, file_bytes - range.end());
  }
  return range;
}

// The most bytes that one compressed byte can become, or 0 if the codec sets no useful
// bound.
int64_t MaxExpansion(parquet::Compression::type codec) {
  switch (codec) {
    case parquet::Compression::SNAPPY:
      return 22;  // a copy of 64 bytes takes 3
    case parquet::Compression::LZ4:
    case parquet::Compression::LZ4_HADOOP:
      return 256;  // each further byte of a length adds 255
    case parquet::Compression::GZIP:
      return 1032;  // a match of 258 bytes takes 2 bits
    case parquet::Compression::ZSTD:
      return 128 << 10;  // a block of 128 KiB takes more than one byte
    default:
      return 0;
  }
}

}  // namespace

ColumnChunk DescribeColumnChunk(const ParquetFile& file, int64_t row_group, int column) {
  const parquet::FileMetaData& metadata = file.metadata();
  if (row_group < 0 || row_group >= metadata.num_row_groups()) {
    throw CorruptFile("file has only " + std::to_string(metadata.num_row_groups()) +
                      " row groups");
  }
  const auto group = metadata.RowGroup(static_cast<int>(row_group));
  const auto chunk = file.ColumnChunk(*group, column);
  const parquet::ColumnDescriptor& descriptor = *metadata.schema()->Column(column);
  if (descriptor.max_repetition_level() == 0 &&
      chunk->num_values() != group->num_rows()) {
    throw CorruptFile("column chunk claims " + std::to_string(chunk->num_values()) +
                      " values in a row group of " + std::to_string(group->num_rows()) +
                      " rows");
  }
  if (!parquet::IsCodecSupported(chunk->compression())) {
    throw Error(ErrorKind::kNotSupported,
                "pages are compressed by a codec that is not built in");
  }
  const bool is_encrypted = chunk->crypto_metadata() != nullptr;
  const auto codec =
      is_encrypted ? parquet::Compression::UNCOMPRESSED : chunk->compression();
  const ByteRange range = ColumnChunkRange(metadata, *chunk, file.file().num_bytes());
  return {.range = range,
          .dictionary_bytes = std::clamp<int64_t>(
              chunk->data_page_offset() - range.offset, 0, range.num_bytes),
          .uncompressed_bytes = chunk->total_uncompressed_size(),
          .group_rows = group->num_rows(),
          .num_entries = chunk->num_values(),
          .codec = codec,
          .is_encrypted = is_encrypted,
          .is_compressed = codec != parquet::Compression::UNCOMPRESSED,
          .max_expansion = MaxExpansion(codec),
          .always_compressed = metadata.writer_version().VersionLt(
              parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION()),
          .max_definition_level = descriptor.max_definition_level(),
          .max_repetition_level = descriptor.max_repetition_level()};
}

}  // namespace torchparquet
