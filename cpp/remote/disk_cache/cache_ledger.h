#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "remote/disk_cache/cache_folder.h"

namespace torchparquet {

// The room on disk of a folder's blocks, as all processes count it. Holds the folder's
// lock, so an object of this class lives shortly. Throws Error(kIo).
class CacheLedger {
 public:
  // None if another process keeps the lock too long. Counts the blocks where no sum is
  // known, or not for certain.
  static std::optional<CacheLedger> Open(const CacheFolder& folder);

  int64_t disk_bytes() const { return sum_.disk_bytes; }
  // Bytes that were added and removed in the folder's life.
  int64_t moved_bytes() const { return sum_.moved_bytes; }

  // `change` returns by how many bytes it has made the blocks grow. If it does not
  // return, the next to open the ledger counts.
  void Change(const std::function<int64_t()>& change);
  // Counts all blocks.
  void Count();

 private:
  struct Sum {
    int64_t disk_bytes = 0;
    int64_t moved_bytes = 0;
    uint64_t is_changing = 0;

    bool operator==(const Sum&) const = default;
  };

  CacheLedger(const CacheFolder& folder, FileLock lock);
  std::optional<Sum> Load() const;
  void Store();

  const CacheFolder* folder_;
  FileLock lock_;
  FileDescriptor file_;
  Sum sum_;
};

}  // namespace torchparquet
