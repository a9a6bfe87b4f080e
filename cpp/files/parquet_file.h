#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "files/schema.h"
#include "files/source.h"

namespace parquet {
class ColumnChunkMetaData;
class FileDecryptionProperties;
class FileMetaData;
class PageReader;
class ParquetFileReader;
class RowGroupMetaData;
}  // namespace parquet

namespace torchparquet {

// A file of a data set, as it was when it was planned.
struct PlannedFile {
  std::string path;
  FileIdentity identity;
  // Its bytes if it is one in memory, which must outlive everything that reads it; `path`
  // is a name for messages then.
  std::optional<std::span<const uint8_t>> memory = std::nullopt;
  // Its keys, for a file that is encrypted; null where none were given.
  std::shared_ptr<parquet::FileDecryptionProperties> decryption = nullptr;
};

// Opens the file's bytes. Throws Error as LocalFile and MemoryFile do.
std::unique_ptr<const Source> OpenSource(const PlannedFile& planned);

// What the last bytes of a file say of its footer.
struct FooterEnd {
  static constexpr int64_t kNumBytes = 8;  // its length, and four letters

  // Of the footer; 0 for what is no Parquet file, or has no room for so long a one.
  int64_t num_bytes = 0;
  bool is_plain = false;  // and there
  bool is_encrypted = false;

  static FooterEnd Read(std::span<const uint8_t, kNumBytes> end, int64_t file_bytes);
};

// What the footer of a file says. Immutable, thread-safe.
struct ParsedFooter {
  FileIdentity identity;  // of the file
  int64_t num_bytes = 0;  // in the file
  std::shared_ptr<parquet::FileMetaData> metadata;
  std::vector<LeafColumn> leaves = {};                     // in the file's order
  std::unordered_map<std::string, int> leaf_of_path = {};  // the first of each
};

// An open Parquet file with its footer. Immutable, thread-safe.
class ParquetFile {
 public:
  // What a page reader of a column chunk that is encrypted reads at a time.
  static constexpr int64_t kAheadBytes = int64_t{64} << 10;

  // Throws Error(kCorruptFile) for what is no Parquet file or whose footer contradicts
  // itself, and Error(kEncrypted) for a footer that the keys do not fit. `known` is a
  // footer of this file, read before, which is not read again if the file is the same; or
  // null. A file with keys has its footer read.
  ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
              std::shared_ptr<const ParsedFooter> known = nullptr);
  explicit ParquetFile(const PlannedFile& planned)
      : ParquetFile(OpenSource(planned), planned) {}
  ~ParquetFile();

  const Source& file() const { return *file_; }
  const std::shared_ptr<const ParsedFooter>& footer() const { return footer_; }
  const parquet::FileMetaData& metadata() const { return *footer_->metadata; }
  // What the footer says of a column chunk. Throws Error(kEncrypted) where that is
  // encrypted, and no key fits.
  std::unique_ptr<parquet::ColumnChunkMetaData> ColumnChunk(
      const parquet::RowGroupMetaData& group, int column) const;
  // Decrypts the pages of a column chunk that is encrypted.
  std::unique_ptr<parquet::PageReader> OpenPages(int64_t row_group, int column) const;

  // The leaf columns in the file's order.
  const std::vector<LeafColumn>& leaves() const { return footer_->leaves; }
  // The index of the first leaf with that dotted path, or -1.
  int FindLeaf(const std::string& path) const;

 private:
  std::shared_ptr<const ParsedFooter> ParseFooter(const PlannedFile& planned);

  std::unique_ptr<const Source> file_;
  // Of a file with keys, else null. Guarded by the mutex where it makes other readers.
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  mutable std::mutex reader_mutex_;
  std::shared_ptr<const ParsedFooter> footer_;
};

}  // namespace torchparquet
