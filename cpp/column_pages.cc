#include "column_pages.h"

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/types.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

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

// Takes the definition levels off the front of a V1 page, whose parts are compressed
// together.
PageParts SplitV1(const parquet::DataPageV1& page, std::span<const uint8_t> bytes,
                  int max_definition_level) {
  PageParts parts;
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

}  // namespace

// What the footer says of the column chunk.
struct ColumnPages::Chunk {
  ByteRange range;
  int64_t num_values;
  parquet::Compression::type codec;
  // Arrow before 3.0 wrote V2 pages that say they are not compressed but are.
  bool always_compressed;
  const parquet::ColumnDescriptor* descriptor;

  static std::unique_ptr<const Chunk> Make(const ParquetFile& file, int64_t row_group,
                                           int column) {
    const parquet::FileMetaData& metadata = file.metadata();
    if (row_group < 0 || row_group >= metadata.num_row_groups()) {
      throw CorruptFile("file has only " + std::to_string(metadata.num_row_groups()) +
                        " row groups");
    }
    const auto group = metadata.RowGroup(static_cast<int>(row_group));
    const auto chunk = group->ColumnChunk(column);
    if (chunk->num_values() != group->num_rows()) {
      throw CorruptFile("column chunk claims " + std::to_string(chunk->num_values()) +
                        " values in a row group of " + std::to_string(group->num_rows()) +
                        " rows");
    }
    if (!parquet::IsCodecSupported(chunk->compression())) {
      throw Error(ErrorKind::kNotSupported,
                  "pages are compressed by a codec that is not built in");
    }
    return std::make_unique<const Chunk>(
        Chunk{.range = ColumnChunkRange(metadata, *chunk, file.file().num_bytes()),
              .num_values = chunk->num_values(),
              .codec = chunk->compression(),
              .always_compressed = metadata.writer_version().VersionLt(
                  parquet::ApplicationVersion::PARQUET_CPP_10353_FIXED_VERSION()),
              .descriptor = metadata.schema()->Column(column)});
  }
};

ColumnPages::ColumnPages(const ParquetFile& file, int64_t row_group, int column,
                         SkipPage skip, DecodeScratch* scratch)
    : chunk_(Chunk::Make(file, row_group, column)),
      skip_(std::move(skip)),
      scratch_(scratch),
      stream_(OpenWindowStream(&file.file(), chunk_->range.offset,
                               chunk_->range.num_bytes, &scratch->window)),
      first_page_reader_(OpenReader(/*decompress=*/true, chunk_->num_values)) {}

ColumnPages::~ColumnPages() = default;

std::unique_ptr<parquet::PageReader> ColumnPages::OpenReader(bool decompress,
                                                             int64_t num_values) {
  parquet::ReaderProperties properties;
  properties.set_page_checksum_verification(true);
  auto reader = parquet::PageReader::Open(
      stream_, num_values,
      decompress ? chunk_->codec : parquet::Compression::UNCOMPRESSED, properties,
      *chunk_->descriptor, chunk_->always_compressed);
  reader->set_data_page_filter([this](const parquet::DataPageStats& page) {
    num_announced_ += page.num_values;
    return skip_(page);
  });
  return reader;
}

std::shared_ptr<parquet::Page> ColumnPages::Next() {
  if (raw_page_reader_ != nullptr) {
    is_raw_ = true;
    return raw_page_reader_->NextPage();
  }
  auto page = first_page_reader_->NextPage();
  if (page != nullptr && chunk_->codec != parquet::Compression::UNCOMPRESSED) {
    // Both readers take their bytes from the stream as they need them, so the second
    // goes on where the first stops. The first keeps the bytes of its page.
    raw_page_reader_ =
        OpenReader(/*decompress=*/false, chunk_->num_values - num_announced_);
  }
  return page;
}

std::span<const uint8_t> ColumnPages::Decompress(std::span<const uint8_t> bytes,
                                                 int64_t num_bytes) {
  if (num_bytes < 0) throw CorruptFile("page claims a negative size");
  if (bytes.empty() && num_bytes == 0) return {};
  uint8_t* out = scratch_->page.Reserve(static_cast<size_t>(num_bytes));
  const std::span<uint8_t> decompressed(out, static_cast<size_t>(num_bytes));
  scratch_->codec.Decompress(chunk_->codec, bytes, decompressed);
  return decompressed;
}

PageParts ColumnPages::Split(const parquet::DataPage& page) {
  const int max_level = chunk_->descriptor->max_definition_level();
  std::span<const uint8_t> bytes(page.data(), static_cast<size_t>(page.size()));
  if (page.type() != parquet::PageType::DATA_PAGE_V2) {
    if (is_raw_) bytes = Decompress(bytes, page.uncompressed_size());
    return SplitV1(static_cast<const parquet::DataPageV1&>(page), bytes, max_level);
  }
  const auto& page_v2 = static_cast<const parquet::DataPageV2&>(page);
  PageParts parts;
  // Some writers store repetition levels although the column has none.
  TakeFront(&bytes, page_v2.repetition_levels_byte_length());
  const auto levels = TakeFront(&bytes, page_v2.definition_levels_byte_length());
  if (max_level > 0) parts.levels = levels;
  parts.values = bytes;
  if (is_raw_ && (page_v2.is_compressed() || chunk_->always_compressed)) {
    const int64_t level_bytes = int64_t{page_v2.repetition_levels_byte_length()} +
                                page_v2.definition_levels_byte_length();
    parts.values = Decompress(bytes, page.uncompressed_size() - level_bytes);
  }
  return parts;
}

}  // namespace torchparquet
