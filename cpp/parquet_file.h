#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "schema.h"
#include "source.h"

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

// An open Parquet file with its footer. Immutable, thread-safe.
class ParquetFile {
 public:
  // What a page reader of a column chunk that is encrypted reads at a time.
  static constexpr int64_t kAheadBytes = int64_t{64} << 10;

  // Throws Error(kCorruptFile) for what is no Parquet file or whose footer contradicts
  // itself, and Error(kEncrypted) for a footer that the keys do not fit.
  ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned);
  explicit ParquetFile(const PlannedFile& planned)
      : ParquetFile(OpenSource(planned), planned) {}
  ~ParquetFile();

  const Source& file() const { return *file_; }
  const parquet::FileMetaData& metadata() const { return *metadata_; }
  // What the footer says of a column chunk. Throws Error(kEncrypted) where that is
  // encrypted, and no key fits.
  std::unique_ptr<parquet::ColumnChunkMetaData> ColumnChunk(
      const parquet::RowGroupMetaData& group, int column) const;
  // Decrypts the pages of a column chunk that is encrypted.
  std::unique_ptr<parquet::PageReader> OpenPages(int64_t row_group, int column) const;

  // The leaf columns in the file's order.
  const std::vector<LeafColumn>& leaves() const { return leaves_; }
  // The index of the first leaf with that dotted path, or -1.
  int FindLeaf(const std::string& path) const;

 private:
  std::unique_ptr<const Source> file_;
  const bool has_keys_;
  // Of a file with keys, else null. Guarded by the mutex where it makes other readers.
  std::unique_ptr<parquet::ParquetFileReader> reader_;
  mutable std::mutex reader_mutex_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<LeafColumn> leaves_;
  std::unordered_map<std::string, int> leaf_of_path_;
};

// Opens the files of a data set on demand and keeps the most recently used ones
// open. Thread-safe; a file is opened by one thread while others wait for it.
class ParquetFiles {
 public:
  static constexpr size_t kMaxOpenFiles = 64;

  explicit ParquetFiles(std::vector<PlannedFile> planned)
      : planned_(std::move(planned)) {}

  std::shared_ptr<const ParquetFile> Open(int64_t file);
  // Closes the files that nobody reads at the moment.
  void Close();
  const std::string& path(int64_t file) const {
    return planned_[static_cast<size_t>(file)].path;
  }
  int64_t num_files() const { return static_cast<int64_t>(planned_.size()); }

 private:
  struct OpenFile {
    int64_t file;
    std::shared_ptr<const ParquetFile> opened;
  };

  const std::vector<PlannedFile> planned_;
  std::mutex mutex_;
  std::list<OpenFile> open_;  // guarded by mutex_; most recently used first
};

}  // namespace torchparquet
