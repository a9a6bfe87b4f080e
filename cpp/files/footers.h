#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "files/parquet_file.h"
#include "format/parsed_footer.h"
#include "format/schema.h"
#include "format/source.h"
#include "remote/blocks/remote_blocks.h"

namespace torchparquet {

// Parts of footers that few callers need.
struct FooterParts {
  bool chunk_num_bytes = false;
  bool content = false;
  bool parsed = false;  // of files without keys
};

// The footers of some files as columns. `file_*` have one entry per file in the given
// order, `row_group_*` one per row group, file after file.
struct Footers {
  std::vector<int64_t> file_num_bytes;
  std::vector<int64_t> file_mtime_ns;
  std::vector<int64_t> file_inode;
  std::vector<int64_t> file_digest;  // XXH64 of the footer's bytes
  // 1 if a column chunk is encrypted without a key for it.
  std::vector<int64_t> file_has_hidden_columns;
  std::vector<int64_t> file_num_rows;
  std::vector<int64_t> file_num_row_groups;
  std::vector<int64_t> file_schema;  // index into schemas
  std::vector<int64_t> row_group_num_rows;
  std::vector<int64_t> row_group_num_bytes;  // compressed, all columns
  // Compressed, of each column chunk: row group after row group, in the order of the
  // leaves. Empty unless asked for.
  std::vector<int64_t> chunk_num_bytes;
  std::vector<std::vector<LeafColumn>> schemas;  // distinct ones, by first appearance
  // For each leaf of each schema the bytes of its values, decompressed, over all files
  // that have the schema: as far as footers tell, and only to estimate.
  std::vector<std::vector<double>> schema_leaf_bytes;
  // For each file its bytes from the footer to the end; empty unless asked for.
  std::vector<std::vector<uint8_t>> contents;
  // For each file its footer as column readers use it, as far as kMaxParsedBytes go;
  // empty unless asked for.
  std::vector<std::shared_ptr<const ParsedFooter>> parsed;

  static constexpr int64_t kMaxParsedBytes = int64_t{256} << 20;
};

// Ends the reading of footers, from another thread.
class FootersStop {
 public:
  // From now on, no footer is read.
  void Stop();
  bool is_stopped() const { return is_stopped_.load(std::memory_order_relaxed); }
  // Adds blocks that Stop ends. False if it was called.
  bool Add(const std::shared_ptr<RemoteBlocks>& blocks);

 private:
  std::mutex mutex_;
  std::atomic<bool> is_stopped_ = false;               // written under mutex_
  std::vector<std::shared_ptr<RemoteBlocks>> blocks_;  // guarded by mutex_
};

// Reads the footers of `files` on `num_threads` threads, which end before it returns.
// Throws the Error of the first file in order that fails, and Error(kStopped) if `stop`
// came first.
Footers ReadFooters(const std::vector<PlannedFile>& files, FooterParts parts,
                    int64_t num_threads, FootersStop* stop = nullptr);

}  // namespace torchparquet
