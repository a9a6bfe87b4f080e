#include "remote/disk_cache/block_cache.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "remote/disk_cache/block_store.h"

namespace torchparquet {
namespace {

int64_t CheckedLimit(int64_t limit_bytes) {
  if (limit_bytes != BlockCache::kKeepsNothing &&
      limit_bytes < BlockCache::kMinLimitBytes) {
    throw InvalidArgument("the limit of the cache must be ", BlockCache::kMinLimitBytes,
                          " bytes or more: ", limit_bytes);
  }
  return limit_bytes;
}

// Eviction leaves nine tenths.
int64_t TargetBytes(int64_t limit_bytes) { return limit_bytes - limit_bytes / 10; }

}  // namespace

void BlockCache::Notice::Set(const std::string& text) {
  auto owned = std::make_unique<const std::string>(text);
  const std::string* expected = nullptr;
  // Release: readers see the text that the pointer leads to.
  if (text_.compare_exchange_strong(expected, owned.get(), std::memory_order_release,
                                    std::memory_order_relaxed)) {
    static_cast<void>(owned.release());
  }
}

BlockCache::BlockCache(std::string folder, int64_t limit_bytes)
    : limit_bytes_(CheckedLimit(limit_bytes)), folder_(std::move(folder)) {
  if (limit_bytes_ != kKeepsNothing) Evict();
}

BlockCache::~BlockCache() = default;

bool BlockCache::Has(const BlockKey& key) const {
  try {
    return static_cast<bool>(OpenBlock(folder_, DigestOf(key)));
  } catch (const Error&) {
    return false;  // what cannot be read is fetched
  }
}

bool BlockCache::Read(const BlockKey& key, uint8_t* out) {
  bool is_hit = false;
  try {
    is_hit = ReadKept(key, out);
  } catch (const Error&) {
    is_hit = false;  // what cannot be read is fetched
  }
  if (is_hit) {
    num_hits_.fetch_add(1, std::memory_order_relaxed);
    bytes_read_.fetch_add(key.range.num_bytes, std::memory_order_relaxed);
  } else {
    num_misses_.fetch_add(1, std::memory_order_relaxed);
  }
  return is_hit;
}

bool BlockCache::ReadKept(const BlockKey& key, uint8_t* out) {
  const FileDescriptor file = OpenBlock(folder_, DigestOf(key));
  if (!file) return false;
  const BlockState state = ReadBlock(file.get(), key, out);
  if (state == BlockState::kSound) TouchBlock(file);
  if (state == BlockState::kDamaged) RemoveDamaged(key, file);
  return state == BlockState::kSound;
}

void BlockCache::RemoveDamaged(const BlockKey& key, const FileDescriptor& file) {
  num_damaged_.fetch_add(1, std::memory_order_relaxed);
  RemoveBlock(folder_, DescribeBlock(DigestOf(key), file));
}

void BlockCache::Write(const BlockKey& key, std::span<const uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) != key.range.num_bytes) {
    throw Error(ErrorKind::kInternal, "a block has not the bytes of its range");
  }
  if (limit_bytes_ == kKeepsNothing) return;
  bool is_kept = false;
  if (BlockDiskBytes(key.range.num_bytes) > TargetBytes(limit_bytes_)) {
    why_skipped_.Set(Text("a block of ", bytes.size(),
                          " bytes does not fit into a cache of ", limit_bytes_,
                          " bytes"));
  } else if (why_ended_.get() == nullptr) {
    try {
      is_kept = Keep(key, bytes);
    } catch (const Error& error) {
      why_ended_.Set(error.what());
    }
  }
  if (is_kept) {
    bytes_written_.fetch_add(key.range.num_bytes, std::memory_order_relaxed);
  } else {
    num_skipped_.fetch_add(1, std::memory_order_relaxed);
  }
}

bool BlockCache::Keep(const BlockKey& key, std::span<const uint8_t> bytes) {
  folder_.CheckMarked();
  NewBlock block(folder_);
  block.Write(key, bytes);
  if (!block.Publish()) return false;
  unlisted_bytes_ += BlockDiskBytes(key.range.num_bytes);
  if (unlisted_bytes_ >= limit_bytes_ / 10) Evict();
  return true;
}

// One thread of one process evicts at a time. Others go on, and try again at their next
// block.
void BlockCache::Evict() {
  const std::optional<FileLock> turn = folder_.TryLockEviction();
  if (!turn) return;
  // All blocks of a list may be left once, if they have just been used, but not twice.
  if (EvictOnce() || EvictOnce()) return;
  why_ended_.Set("the cache is full of files that are none of its blocks");
}

bool BlockCache::EvictOnce() {
  unlisted_bytes_ = 0;
  RemoveStaleBlocks(folder_);
  std::vector<StoredBlock> blocks = ListBlocks(folder_);
  int64_t left_bytes = 0;
  for (const StoredBlock& block : blocks) left_bytes += block.disk_bytes;
  if (left_bytes <= limit_bytes_) return true;
  std::ranges::sort(blocks, {}, [](const StoredBlock& block) {
    return std::pair(block.used_at, block.digest);
  });
  for (const StoredBlock& block : blocks) {
    const int64_t freed_bytes = RemoveBlock(folder_, block);
    left_bytes -= freed_bytes;
    if (freed_bytes > 0) num_evicted_.fetch_add(1, std::memory_order_relaxed);
    if (left_bytes <= TargetBytes(limit_bytes_)) return true;
  }
  return left_bytes <= limit_bytes_;
}

std::string BlockCache::failure() const {
  for (const Notice* notice : {&why_ended_, &why_skipped_}) {
    if (notice->get() != nullptr) return *notice->get();
  }
  return {};
}

BlockCacheStats BlockCache::stats() const {
  const auto value = [](const Counter& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  return {.num_hits = value(num_hits_),
          .num_misses = value(num_misses_),
          .bytes_read = value(bytes_read_),
          .bytes_written = value(bytes_written_),
          .num_skipped = value(num_skipped_),
          .num_evicted = value(num_evicted_),
          .num_damaged = value(num_damaged_)};
}

}  // namespace torchparquet
