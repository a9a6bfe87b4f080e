#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/size_statistics.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bridge/arrow/guard.h"
#include "bridge/arrow/parts.h"

namespace torchparquet::bridge {
namespace {

// A ByteSource with Arrow's interface: for footers, and for pages that Arrow decrypts.
// Several threads read at positions of their own.
class SourceFile : public arrow::io::RandomAccessFile {
 public:
  SourceFile(const ByteSource* source, int64_t num_bytes)
      : source_(source), num_bytes_(num_bytes) {}

  arrow::Result<int64_t> GetSize() override { return num_bytes_; }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, void* out) override {
    const int64_t count = std::clamp<int64_t>(num_bytes_ - position, 0, num_bytes);
    source_->ReadAt(position, count, static_cast<uint8_t*>(out));
    return count;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t num_bytes) override {
    num_bytes = std::clamp<int64_t>(num_bytes_ - position, 0, num_bytes);
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(num_bytes));
    source_->ReadAt(position, num_bytes, buffer->mutable_data());
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

  arrow::Result<int64_t> Read(int64_t num_bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(position_, num_bytes, out));
    position_ += count;
    return count;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t num_bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, num_bytes));
    position_ += buffer->size();
    return buffer;
  }

  arrow::Status Seek(int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

 private:
  const ByteSource* source_;
  const int64_t num_bytes_;
  int64_t position_ = 0;
  bool closed_ = false;
};

// Strings and lists are no longer than the footer, since each element takes at least one
// byte. Without these limits, Arrow allocates and clears hundreds of megabytes for a list
// that forty bytes claim.
parquet::ReaderProperties PropertiesFor(const ArrowOpening& opening) {
  parquet::ReaderProperties properties;
  const int64_t most = std::max<int64_t>(opening.footer_bytes, 1);  // 0 means no limit
  properties.set_thrift_container_size_limit(static_cast<int32_t>(
      std::min<int64_t>(properties.thrift_container_size_limit(), most)));
  properties.set_thrift_string_size_limit(static_cast<int32_t>(
      std::min<int64_t>(properties.thrift_string_size_limit(), most)));
  // For pages that are decrypted.
  properties.enable_buffered_stream();
  properties.set_buffer_size(opening.page_buffer_bytes);
  properties.set_page_checksum_verification(true);
  if (opening.keys) {
    const auto& keys = static_cast<const ArrowKeys&>(*opening.keys);
    properties.file_decryption_properties(keys.properties());
  }
  return properties;
}

std::string ArrowSchemaIn(const parquet::FileMetaData& metadata) {
  const auto& pairs = metadata.key_value_metadata();
  if (pairs == nullptr) return {};
  // Not Get, which copies the value where nothing may be thrown.
  const int index = pairs->FindKey("ARROW:schema");
  return index < 0 ? std::string() : pairs->value(index);
}

FooterFacts FactsOf(const parquet::FileMetaData& metadata) {
  using Version = parquet::ApplicationVersion;
  const Version& writer = metadata.writer_version();
  FooterFacts facts{
      .num_bytes = metadata.size(),
      .num_rows = metadata.num_rows(),
      .num_schema_elements = metadata.num_schema_elements(),
      .has_encrypted_parts = metadata.is_encryption_algorithm_set(),
      .has_short_chunk_sizes = writer.VersionLt(Version::PARQUET_816_FIXED_VERSION()),
      .has_wrong_compressed_flags =
          writer.VersionLt(Version::PARQUET_CPP_10353_FIXED_VERSION()),
      .arrow_schema = ArrowSchemaIn(metadata),
      .leaves = LeavesOf(*metadata.schema())};
  facts.row_groups.reserve(static_cast<size_t>(metadata.num_row_groups()));
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    facts.row_groups.push_back({group->num_rows(), group->num_columns()});
  }
  return facts;
}

class Chunks : public ArrowChunks {
 public:
  explicit Chunks(std::shared_ptr<parquet::FileMetaData> metadata)
      : metadata_(std::move(metadata)) {}

  Failure Describe(int row_group, int column, ChunkFacts* facts) const override {
    return Guard([&] {
      const auto chunk = metadata_->RowGroup(row_group)->ColumnChunk(column);
      const auto sizes = chunk->size_statistics();
      *facts = {{.data_page_offset = chunk->data_page_offset(),
                 .dictionary_page_offset =
                     chunk->has_dictionary_page() ? chunk->dictionary_page_offset() : 0,
                 .compressed_bytes = chunk->total_compressed_size(),
                 .uncompressed_bytes = chunk->total_uncompressed_size(),
                 .num_values = chunk->num_values(),
                 .codec = NumberOfCodec(chunk->compression())},
                sizes == nullptr ? std::nullopt : sizes->unencoded_byte_array_data_bytes,
                /*is_encrypted=*/chunk->crypto_metadata() != nullptr,
                chunk->file_path()};
    });
  }

 private:
  std::shared_ptr<parquet::FileMetaData> metadata_;
};

DecryptedPage PageOf(const parquet::Page& page) {
  DecryptedPage plain{.body = {page.data(), static_cast<size_t>(page.size())}};
  PageHeader& header = plain.header;
  header.compressed_bytes = header.uncompressed_bytes = page.size();
  header.is_compressed = false;
  const auto describe = [&](PageHeader::Kind kind, const auto& values) {
    header.kind = kind;
    header.num_values = values.num_values();
    header.encoding = values.encoding();
  };
  switch (page.type()) {
    case parquet::PageType::DATA_PAGE: {
      const auto& data = static_cast<const parquet::DataPageV1&>(page);
      describe(PageHeader::Kind::kData, data);
      header.definition_level_encoding = data.definition_level_encoding();
      header.repetition_level_encoding = data.repetition_level_encoding();
      break;
    }
    case parquet::PageType::DATA_PAGE_V2: {
      const auto& data = static_cast<const parquet::DataPageV2&>(page);
      describe(PageHeader::Kind::kDataV2, data);
      header.definition_level_bytes = data.definition_levels_byte_length();
      header.repetition_level_bytes = data.repetition_levels_byte_length();
      break;
    }
    case parquet::PageType::DICTIONARY_PAGE:
      describe(PageHeader::Kind::kDictionary,
               static_cast<const parquet::DictionaryPage&>(page));
      break;
    default:
      break;
  }
  return plain;
}

class Pages : public ArrowPages {
 public:
  explicit Pages(std::unique_ptr<parquet::PageReader> reader)
      : reader_(std::move(reader)) {}

  Failure Next(std::optional<DecryptedPage>* page) override {
    return Guard([&] {
      page_ = reader_->NextPage();
      page->reset();
      if (page_ != nullptr) *page = PageOf(*page_);
    });
  }

 private:
  std::unique_ptr<parquet::PageReader> reader_;
  std::shared_ptr<parquet::Page> page_;
};

class OpenedFile : public ArrowFile {
 public:
  explicit OpenedFile(std::unique_ptr<parquet::ParquetFileReader> reader)
      : reader_(std::move(reader)) {}

  std::shared_ptr<const ArrowChunks> chunks() const override {
    return std::make_shared<Chunks>(reader_->metadata());
  }
  Failure OpenPages(int row_group, int column,
                    std::unique_ptr<ArrowPages>* pages) override {
    return Guard([&] {
      *pages = std::make_unique<Pages>(
          reader_->RowGroup(row_group)->GetColumnPageReader(column));
    });
  }

 private:
  std::unique_ptr<parquet::ParquetFileReader> reader_;
};

}  // namespace

Failure OpenFile(const ByteSource& source, const ArrowOpening& opening,
                 std::unique_ptr<ArrowFile>* file, FooterFacts* facts) {
  return Guard([&] {
    auto reader = parquet::ParquetFileReader::Open(
        std::make_shared<SourceFile>(&source, opening.file_bytes),
        PropertiesFor(opening));
    *facts = FactsOf(*reader->metadata());
    *file = std::make_unique<OpenedFile>(std::move(reader));
  });
}

}  // namespace torchparquet::bridge
