#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "bridge/arrow_library.h"
#include "format/footer_bytes.h"
#include "format/footer_scan.h"
#include "format/offset_index.h"
#include "format/schema.h"
#include "format/source.h"

namespace torchparquet {

// The schemas of files opened before, by their bytes in footers: most files of a data set
// have the same schema. Thread-safe.
class KnownSchemas {
 public:
  // The limit, for data sets in which every file has its own schema.
  static constexpr size_t kMaxSchemas = 256;

  // Null if it is not known.
  std::shared_ptr<const Schema> Find(const FooterScan& footer) const;
  void Add(const FooterScan& footer, const std::shared_ptr<const Schema>& schema);

 private:
  struct Known {
    bool depends_on_arrow = false;
    // By the Arrow schema, if leaves depend on it; else by "".
    std::map<std::string, std::shared_ptr<const Schema>, std::less<>> by_arrow_schema =
        {};
  };

  mutable std::shared_mutex mutex_;
  std::map<std::string, Known, std::less<>> schemas_;  // guarded by mutex_
};

// The parsed footer of a file. Immutable but for the indexes; thread-safe.
struct ParsedFooter {
  FileIdentity identity;  // of the file
  int64_t num_bytes = 0;  // in the file
  bool has_encrypted_parts = false;
  bool has_short_chunk_sizes = false;       // as in FooterFacts
  bool has_wrong_compressed_flags = false;  // as in FooterFacts
  std::vector<RowGroupFacts> row_groups = {};
  std::shared_ptr<const Schema> schema = nullptr;
  // The column chunks, row group after row group, of a footer that was scanned.
  std::vector<ChunkPlace> chunks = {};
  // The column chunks of any other, as Arrow describes them.
  std::shared_ptr<const ArrowChunks> arrow_chunks = nullptr;
  // Those that readers of the file have needed.
  std::shared_ptr<OffsetIndexes> offset_indexes = std::make_shared<OffsetIndexes>();

  // Fails for a column chunk that Arrow cannot describe.
  Failure Describe(int64_t row_group, int column, ChunkFacts* facts) const;
  // Bytes of memory that it takes, without the schema, which files share. Arrow's objects
  // are estimated.
  int64_t MemoryBytes() const;
};

// True if the row groups belong to a file with that schema: each column chunk of a flat
// column has a value, or a null, for each row. Otherwise a row group that claims too few
// rows would silently lose some.
bool Fits(const FooterScan& scan, const Schema& schema);

// The footer of a file whose schema is known.
ParsedFooter FooterOf(const FooterScan& scan, int64_t num_bytes,
                      const FileIdentity& identity, std::shared_ptr<const Schema> schema);

// A footer as LoadFooter finds it.
struct LoadedFooter {
  // Bytes that a page reader of an encrypted column chunk reads at a time.
  static constexpr int64_t kAheadBytes = int64_t{64} << 10;

  std::shared_ptr<const Schema> schema = nullptr;
  // Views the footer's bytes. Nothing unless it is sound and fits the schema.
  std::optional<FooterScan> scan = std::nullopt;
  std::shared_ptr<const ParsedFooter> parsed = nullptr;
  // The page reader of a file with keys; null without. The file must outlive it.
  std::unique_ptr<ArrowFile> reader = nullptr;
};

// Reads the footer in `bytes`, which are those of `file`. Arrow parses it only if its
// schema was not seen before or a scan cannot read it. `parsed` is set for a footer that
// Arrow has parsed and, with `for_readers`, for all. `schemas` are those of other
// footers, and gain this one; or null.
// Throws Error(kCorruptFile) if the file is no Parquet file or its footer contradicts
// itself, and Error(kEncrypted) if the keys do not fit the footer.
LoadedFooter LoadFooter(const Source& file, const FooterBytes& bytes,
                        const std::shared_ptr<const FileKeys>& keys, bool for_readers,
                        KnownSchemas* schemas);

// The errors of a file or a column without its keys, and with keys that fail.
Error NoKeys(const std::string& what);
Error KeysDoNotFit(const std::string& what, const Failure& failure);
// False for a failure for want of memory, which says nothing of keys.
bool IsOfContent(const Failure& failure);

}  // namespace torchparquet
