#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/byte_range.h"
#include "remote/disk_cache/block_cache.h"
#include "remote/transport/fetcher.h"

namespace torchparquet {

// Brings blocks out of a cache on disk, and keeps in it what came over the network.
// Threads begin with the first call. Thread-safe.
class CachedFetcher : public Fetcher {
 public:
  // `other` brings what the cache has lost.
  CachedFetcher(std::shared_ptr<BlockCache> cache, std::shared_ptr<Fetcher> other);
  ~CachedFetcher() override;

  // True if the cache has that block.
  bool Has(const RemoteObject& object, const ByteRange& block) const;
  // Keeps blocks of a fetch that is whole, later. Calls `done` after that, without locks;
  // not at all if this is destroyed before, or if memory runs out and this throws.
  void Keep(std::shared_ptr<const Fetch> fetch, std::vector<ByteRange> blocks,
            std::function<void()> done);

  void Hurry(const std::shared_ptr<Fetch>& fetch) override;
  void Cancel(const std::shared_ptr<Fetch>& fetch) override;
  void Wake() override {}
  FetchStats stats() const override { return other_->stats(); }

  const BlockCache& cache() const { return *cache_; }

 private:
  static constexpr int kNumThreads = 2;
  struct Kept {
    std::shared_ptr<const Fetch> fetch;
    std::vector<ByteRange> blocks;
    std::function<void()> done;
  };

  // The range of the fetch is one block.
  void DoStart(const std::shared_ptr<Fetch>& fetch) override;
  void Begin();
  void Work();
  void Load(const std::shared_ptr<Fetch>& fetch);
  void Keep(const Kept& kept);

  const std::shared_ptr<BlockCache> cache_;
  const std::shared_ptr<Fetcher> other_;
  std::mutex mutex_;  // guards all below
  std::condition_variable asked_;
  std::deque<std::shared_ptr<Fetch>> loads_;
  std::deque<Kept> kept_;
  std::vector<std::thread> threads_;
  bool is_over_ = false;
};

}  // namespace torchparquet
