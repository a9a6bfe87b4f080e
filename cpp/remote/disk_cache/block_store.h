#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remote/disk_cache/block_file.h"
#include "remote/disk_cache/cache_folder.h"

namespace torchparquet {

// The file of a block, as it was when it was looked at.
struct StoredBlock {
  BlockDigest digest = {};
  uint64_t inode = 0;
  int64_t used_at = 0;  // nanoseconds since 1970: the time of modification
  int64_t disk_bytes = 0;
};

// The room on disk of a file with a block of `num_bytes`.
int64_t BlockDiskBytes(int64_t num_bytes);

// Functions that look for blocks, and change them, in a folder. Like the folder, they
// throw Error(kIo).

// The file of a block; none if it is not there.
FileDescriptor OpenBlock(const CacheFolder& folder, const BlockDigest& digest);

// `file` is an open block.
StoredBlock DescribeBlock(const BlockDigest& digest, const FileDescriptor& file);

// Marks an open block as used, once a minute at most.
void TouchBlock(const FileDescriptor& file);

// All files with names of blocks.
std::vector<StoredBlock> ListBlocks(const CacheFolder& folder);

// Removes the block if it is one, is the same and was not used since. Returns the disk's
// bytes that this frees: 0 if it was left.
int64_t RemoveBlock(const CacheFolder& folder, const StoredBlock& block);

// Removes what killed processes had begun to write more than a minute ago.
void RemoveStaleBlocks(const CacheFolder& folder);

// A block that is being written, in a file of its own until it is whole. The file goes
// when the process removes this object, or later if the process is killed.
class NewBlock {
 public:
  explicit NewBlock(const CacheFolder& folder);
  ~NewBlock();
  NewBlock(const NewBlock&) = delete;
  NewBlock& operator=(const NewBlock&) = delete;

  void Write(const BlockKey& key, std::span<const uint8_t> bytes);
  // Puts the block, once written, into its place. Returns false if a file that is no
  // block has that name.
  bool Publish();

 private:
  const CacheFolder& folder_;
  FileDescriptor subfolder_;
  std::string name_;
  FileDescriptor file_;
  BlockDigest digest_ = {};
  bool is_published_ = false;
};

}  // namespace torchparquet
