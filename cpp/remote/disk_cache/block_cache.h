#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "remote/disk_cache/block_file.h"
#include "remote/disk_cache/cache_folder.h"

namespace torchparquet {

// Counts of a cache since it was made. `bytes` are those of blocks.
struct BlockCacheStats {
  int64_t num_hits = 0;
  int64_t num_misses = 0;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int64_t num_skipped = 0;  // blocks that were not kept
  int64_t num_evicted = 0;
  int64_t num_damaged = 0;
};

// Blocks of remote bytes in a folder on local disk, shared by processes and runs. Each
// process lists the folder when it begins and after each tenth of the limit that it
// writes, and removes the oldest blocks if they exceed the limit. In between they may
// exceed it by a tenth, or one block if that is larger, per process. Thread-safe. No
// lock is held while blocks are read or written. A forked child may use its parent's
// object.
class BlockCache {
 public:
  static constexpr int64_t kMinLimitBytes = int64_t{1} << 20;
  // A limit with which blocks are read, and none is written or evicted. The folder is not
  // listed then; damaged blocks are removed all the same.
  static constexpr int64_t kKeepsNothing = 0;

  // Makes the folder, or takes an empty one or one of an earlier cache. Throws
  // Error(kInvalidArgument) for a folder with anything else and for a limit below
  // kMinLimitBytes other than kKeepsNothing, and Error(kIo) for the system's failures.
  BlockCache(std::string folder, int64_t limit_bytes);
  ~BlockCache();
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // True if the block is there, sound or not.
  bool Has(const BlockKey& key) const;

  // Writes the block to `out` and marks it as used. Returns false if it is not there, or
  // not sound; `out` then holds anything. A damaged block is removed.
  bool Read(const BlockKey& key, uint8_t* out);

  // Keeps a block, of as many bytes as its range, if that is possible. A failure of the
  // system, as for a full disk or a removed folder, ends the keeping of blocks in this
  // process; Read goes on.
  void Write(const BlockKey& key, std::span<const uint8_t> bytes);

  // Why blocks are not kept: a message, empty if there is no reason.
  std::string failure() const;
  BlockCacheStats stats() const;

 private:
  // A message that is set once.
  class Notice {
   public:
    ~Notice() { delete text_.load(); }
    void Set(const std::string& text);
    const std::string* get() const { return text_.load(std::memory_order_acquire); }

   private:
    // No lock, since a child can be forked at any time.
    std::atomic<const std::string*> text_ = nullptr;
  };
  using Counter = std::atomic<int64_t>;

  bool ReadKept(const BlockKey& key, uint8_t* out);
  void RemoveDamaged(const BlockKey& key, const FileDescriptor& file);
  bool Keep(const BlockKey& key, std::span<const uint8_t> bytes);
  void Evict();
  // Lists the blocks and, if they exceed the limit, removes the oldest. Returns false if
  // they still do.
  bool EvictOnce();

  const int64_t limit_bytes_;
  const CacheFolder folder_;
  Notice why_ended_;
  Notice why_skipped_;
  Counter unlisted_bytes_ = 0;  // written since this process last listed the blocks
  Counter num_hits_ = 0;
  Counter num_misses_ = 0;
  Counter bytes_read_ = 0;
  Counter bytes_written_ = 0;
  Counter num_skipped_ = 0;
  Counter num_evicted_ = 0;
  Counter num_damaged_ = 0;
};

}  // namespace torchparquet
