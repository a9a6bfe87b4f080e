#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_range.h"
#include "bridge/arrow_library.h"
#include "format/offset_index.h"
#include "format/parsed_footer.h"
#include "format/schema.h"
#include "format/source.h"
#include "remote/blocks/remote_blocks.h"
#include "remote/transport/cached_fetcher.h"
#include "remote/transport/fetcher.h"
#include "remote/transport/remote_object.h"

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
  // The object of a file in a store, and what brings its bytes; else null.
  std::shared_ptr<const RemoteObject> remote = nullptr;
  std::shared_ptr<Fetcher> fetcher = nullptr;
  std::shared_ptr<CachedFetcher> cached = nullptr;  // null without a cache on disk
};

// Opens the file's bytes. A file in a store is read through `blocks`, or by itself if
// that is null. Throws Error as LocalFile, MemoryFile and RemoteFile do.
std::unique_ptr<const Source> OpenSource(const PlannedFile& planned,
                                         std::shared_ptr<RemoteBlocks> blocks = nullptr);

// An open Parquet file with its footer. Thread-safe.
class ParquetFile {
 public:
  // Takes a footer that Arrow has parsed.
  ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
              LoadedFooter loaded);
  // Reads the footer, with `schemas` and errors as LoadFooter. `known` is an earlier
  // footer of this file, or null. It is used if the file has not changed and has no keys.
  ParquetFile(std::unique_ptr<const Source> file, const PlannedFile& planned,
              KnownSchemas* schemas, std::shared_ptr<const ParsedFooter> known = nullptr);
  explicit ParquetFile(const PlannedFile& planned)
      : ParquetFile(OpenSource(planned), planned, nullptr) {}

  const Source& file() const { return *file_; }
  const std::shared_ptr<const ParsedFooter>& footer() const { return footer_; }
  const std::vector<RowGroupFacts>& row_groups() const { return footer_->row_groups; }
  // The footer's entry for a column chunk. Throws Error(kEncrypted) if it is encrypted
  // and no key fits, and Error(kInvalidArgument) if its pages are in another file.
  ChunkFacts ColumnChunk(int64_t row_group, int column) const;
  // The bytes of a column chunk, dictionary page included. Throws Error(kCorruptFile) if
  // they lie outside the file, and as ColumnChunk does.
  ByteRange ChunkRange(int64_t row_group, int column) const;
  ByteRange ChunkRange(const ChunkFacts& chunk) const;
  // The place of a column chunk's offset index; empty if the footer tells of none.
  ByteRange OffsetIndexRange(int64_t row_group, int column) const;
  // The offset index of a column chunk, read if it was not yet. Null if there is none, or
  // none that is sound. Throws Error as Source::ReadAt does.
  std::shared_ptr<const OffsetIndex> ReadOffsetIndex(int64_t row_group, int column) const;
  // The same without reading: null if it was not read.
  std::shared_ptr<const OffsetIndex> KnownOffsetIndex(int64_t row_group,
                                                      int column) const;
  // True if each read may take a round trip.
  bool is_remote() const { return is_remote_; }
  // Opens a page reader that decrypts the pages of an encrypted column chunk.
  std::unique_ptr<ArrowPages> OpenPages(int64_t row_group, int column) const;

  // The leaf columns in the file's order.
  const std::vector<LeafColumn>& leaves() const { return footer_->schema->leaves(); }
  // The index of the first leaf with that dotted path, or -1.
  int FindLeaf(const std::string& path) const { return footer_->schema->Find(path); }

 private:
  const bool is_remote_;
  std::unique_ptr<const Source> file_;
  // Null for a file without keys. The mutex guards it while it makes other readers.
  std::unique_ptr<ArrowFile> reader_;
  mutable std::mutex reader_mutex_;
  std::shared_ptr<const ParsedFooter> footer_;
};

}  // namespace torchparquet
