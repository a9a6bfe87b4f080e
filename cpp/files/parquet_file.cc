#include "files/parquet_file.h"

#include <arrow/buffer.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "errors.h"

namespace torchparquet {
namespace {

// A Source with Arrow's interface: for footers, and for pages that Arrow decrypts.
// Several threads read at positions of their own.
class ArrowSource : public arrow::io::RandomAccessFile {
 public:
  explicit ArrowSource(const Source* file) : file_(file) {}

  arrow::Result<int64_t> GetSize() override { return file_->num_bytes(); }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, void* out) override {
    const int64_t count =
        std::clamp<int64_t>(file_->num_bytes() - position, 0, num_bytes);
    file_->ReadAt(position, count, static_cast<uint8_t*>(out));
    return count;
  }

  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t num_bytes) override {
    num_bytes = std::clamp<int64_t>(file_->num_bytes() - position, 0, num_bytes);
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateBuffer(num_bytes));
    file_->ReadAt(position, num_bytes, buffer->mutable_data());
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
  const Source* file_;
  int64_t position_ = 0;
  bool closed_ = false;
};

void CheckRowCounts(const parquet::FileMetaData& metadata) {
  int64_t total = 0;
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const int64_t rows = metadata.RowGroup(i)->num_rows();
    if (rows < 0 || __builtin_add_overflow(total, rows, &total)) {
      throw CorruptFile("row group " + std::to_string(i) +
                        " claims an impossible row count: " + std::to_string(rows));
    }
  }
  if (total != metadata.num_rows()) {
    throw CorruptFile("the footer's row count is not the sum of its row groups: " +
                      std::to_string(metadata.num_rows()) + ", " + std::to_string(total));
  }
}

FooterEnd ReadFooterEnd(const Source& file) {
  std::array<uint8_t, FooterEnd::kNumBytes> end{};
  if (file.num_bytes() < FooterEnd::kNumBytes) return {};
  file.ReadAt(file.num_bytes() - FooterEnd::kNumBytes, FooterEnd::kNumBytes, end.data());
  return FooterEnd::Read(end, file.num_bytes());
}

// Strings and lists are no longer than the footer, since each element takes at least one
// byte. Without these limits, Arrow allocates and clears hundreds of megabytes for a list
// that forty bytes claim.
parquet::ReaderProperties PropertiesFor(const FooterEnd& footer,
                                        const PlannedFile& planned) {
  parquet::ReaderProperties properties;
  const int64_t most = std::max<int64_t>(footer.num_bytes, 1);  // 0 means no limit
  properties.set_thrift_container_size_limit(static_cast<int32_t>(
      std::min<int64_t>(properties.thrift_container_size_limit(), most)));
  properties.set_thrift_string_size_limit(static_cast<int32_t>(
      std::min<int64_t>(properties.thrift_string_size_limit(), most)));
  // For pages that are decrypted.
  properties.enable_buffered_stream();
  properties.set_buffer_size(ParquetFile::kAheadBytes);
  properties.set_page_checksum_verification(true);
  if (planned.decryption) properties.file_decryption_properties(planned.decryption);
  return properties;
}

Error NoKeys(const std::string& what) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted and needs its keys: give decryption_properties");
}

Error KeysDoNotFit(const std::string& what, const std::exception& reason) {
  return Error(ErrorKind::kEncrypted,
               what + " is encrypted, and decryption_properties do not decrypt it: " +
                   Printable(reason.what()));
}

std::unique_ptr<parquet::ParquetFileReader> OpenReader(const PlannedFile& planned,
                                                       const Source& file) {
  const FooterEnd footer = ReadFooterEnd(file);
  if (file.num_bytes() == 0) throw CorruptFile("empty file (0 bytes)");
  if (footer.is_encrypted && planned.decryption == nullptr) {
    throw NoKeys("file");
  }
  const auto open = [&] {
    return parquet::ParquetFileReader::Open(std::make_shared<ArrowSource>(&file),
                                            PropertiesFor(footer, planned));
  };
  if (planned.decryption == nullptr) return open();
  try {
    return open();
  } catch (const parquet::ParquetException& error) {
    if (footer.is_encrypted) throw KeysDoNotFit("file", error);
    // Throws for a file that nobody can read. Otherwise the problem is a plain footer
    // that the key did not sign, or a plain file that should be encrypted.
    parquet::ParquetFileReader::Open(std::make_shared<ArrowSource>(&file),
                                     PropertiesFor(footer, {}));
    throw Error(ErrorKind::kEncrypted,
                "file does not fit decryption_properties: " + Printable(error.what()));
  }
}

}  // namespace

std::unique_ptr<const Source> OpenSource(const PlannedFile& planned) {
  if (planned.memory) {
    return std::make_unique<MemoryFile>(planned.path, *planned.memory, planned.identity);
  }
  return std::make_unique<LocalFile>(planned.path, planned.identity);
}

FooterEnd FooterEnd::Read(std::span<const uint8_t, kNumBytes> end, int64_t file_bytes) {
  int64_t num_bytes = 0;
  for (size_t i = 0; i < 4; ++i) num_bytes |= int64_t{end[i]} << (8 * i);
  const auto letters_are = [&](const char* letters) {
    return std::memcmp(end.data() + 4, letters, 4) == 0;
  };
  const bool fits = num_bytes <= file_bytes - kNumBytes;
  const bool is_encrypted = letters_are("PARE");
  const bool is_plain = fits && letters_are("PAR1");
  return {.num_bytes = is_plain || (fits && is_encrypted) ? num_bytes : 0,
          .is_plain = is_plain,
          .is_encrypted = is_encrypted};
}

std::unique_ptr<parquet::ColumnChunkMetaData> ParquetFile::ColumnChunk(
    const parquet::RowGroupMetaData& group, int column) const {
  // Arrow reports a missing key by an exception alone.
  const bool has_keys = reader_ != nullptr;
  if (!has_keys && !metadata().is_encryption_algorithm_set()) {
    return group.ColumnChunk(column);
  }
  try {
    return group.ColumnChunk(column);
  } catch (const parquet::ParquetException& error) {
    if (has_keys) throw KeysDoNotFit("column", error);
    throw NoKeys("column");
  }
}

std::unique_ptr<parquet::PageReader> ParquetFile::OpenPages(int64_t row_group,
                                                            int column) const {
  if (reader_ == nullptr) {
    throw NoKeys("column");
  }
  const std::lock_guard lock(reader_mutex_);
  return reader_->RowGroup(static_cast<int>(row_group))->GetColumnPageReader(column);
}

ParquetFile::ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
                         std::shared_ptr<const ParsedFooter> known)
    : file_(std::move(file)),
      footer_(known != nullptr && planned.decryption == nullptr &&
                      known->identity == file_->identity()
                  ? std::move(known)
                  : ParseFooter(planned)) {}

// Sets reader_ for a file with keys.
std::shared_ptr<const ParsedFooter> ParquetFile::ParseFooter(const PlannedFile& planned) {
  auto reader = OpenReader(planned, *file_);
  auto footer = std::make_shared<ParsedFooter>();
  footer->identity = file_->identity();
  footer->metadata = reader->metadata();
  footer->num_bytes = footer->metadata->size();
  CheckRowCounts(*footer->metadata);
  footer->leaves = DescribeSchema(*footer->metadata->schema());
  for (size_t i = 0; i < footer->leaves.size(); ++i) {
    footer->leaf_of_path.try_emplace(footer->leaves[i].path, static_cast<int>(i));
  }
  if (planned.decryption != nullptr) reader_ = std::move(reader);
  return footer;
}

int ParquetFile::FindLeaf(const std::string& path) const {
  const auto found = footer_->leaf_of_path.find(path);
  return found == footer_->leaf_of_path.end() ? -1 : found->second;
}

ParquetFile::~ParquetFile() = default;

}  // namespace torchparquet
