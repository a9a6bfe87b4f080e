#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bridge/arrow_library.h"
#include "files/schema.h"
#include "files/source.h"

namespace torchparquet {

// A file of a data set at the time of planning.
struct PlannedFile {
  std::string path;
  FileIdentity identity;
  // The bytes of a file in memory, which must outlive everything that reads it. `path` is
  // then a name for messages.
  std::optional<std::span<const uint8_t>> memory = std::nullopt;
  // The keys of an encrypted file; null without keys.
  std::shared_ptr<const FileKeys> decryption = nullptr;
};

// Opens the file's bytes. Throws Error as LocalFile and MemoryFile do.
std::unique_ptr<const Source> OpenSource(const PlannedFile& planned);

// The meaning of the last bytes of a file.
struct FooterEnd {
  static constexpr int64_t kNumBytes = 8;  // the length and four letters

  // Bytes of the footer; 0 if this is no Parquet file, or the file is too short for the
  // footer.
  int64_t num_bytes = 0;
  bool is_plain = false;  // a footer that is not encrypted
  bool is_encrypted = false;

  static FooterEnd Read(std::span<const uint8_t, kNumBytes> end, int64_t file_bytes);
};

// The parsed footer of a file. Immutable, thread-safe.
struct ParsedFooter {
  FileIdentity identity;  // of the file
  int64_t num_bytes = 0;  // in the file
  bool has_encrypted_parts = false;
  bool has_short_chunk_sizes = false;       // as in FooterFacts
  bool has_wrong_compressed_flags = false;  // as in FooterFacts
  std::vector<RowGroupFacts> row_groups = {};
  std::shared_ptr<const ArrowChunks> chunks = nullptr;
  std::vector<LeafColumn> leaves = {};                     // in the file's order
  std::unordered_map<std::string, int> leaf_of_path = {};  // the first of each
};

// An open Parquet file with its footer. Immutable, thread-safe.
class ParquetFile {
 public:
  // Bytes that a page reader of an encrypted column chunk reads at a time.
  static constexpr int64_t kAheadBytes = int64_t{64} << 10;

  // Throws Error(kCorruptFile) if the file is no Parquet file or its footer contradicts
  // itself, and Error(kEncrypted) if the keys do not fit the footer. `known` is an
  // earlier footer of this file, or null. It is used if the file has not changed. A file
  // with keys has its footer read again.
  ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
              std::shared_ptr<const ParsedFooter> known = nullptr);
  explicit ParquetFile(const PlannedFile& planned)
      : ParquetFile(OpenSource(planned), planned) {}

  const Source& file() const { return *file_; }
  const std::shared_ptr<const ParsedFooter>& footer() const { return footer_; }
  const std::vector<RowGroupFacts>& row_groups() const { return footer_->row_groups; }
  // The footer's entry for a column chunk. Throws Error(kEncrypted) if it is encrypted
  // and no key fits.
  ChunkFacts ColumnChunk(int64_t row_group, int column) const;
  // Opens a page reader that decrypts the pages of an encrypted column chunk.
  std::unique_ptr<ArrowPages> OpenPages(int64_t row_group, int column) const;

  // The leaf columns in the file's order.
  const std::vector<LeafColumn>& leaves() const { return footer_->leaves; }
  // The index of the first leaf with that dotted path, or -1.
  int FindLeaf(const std::string& path) const;

 private:
  std::shared_ptr<const ParsedFooter> ParseFooter(const PlannedFile& planned);

  std::unique_ptr<const Source> file_;
  // Null for a file without keys. The mutex guards it while it makes other readers.
  std::unique_ptr<ArrowFile> reader_;
  mutable std::mutex reader_mutex_;
  std::shared_ptr<const ParsedFooter> footer_;
};

}  // namespace torchparquet
