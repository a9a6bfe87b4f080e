#include "remote/transport/cached_fetcher.h"

#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"

namespace torchparquet {
namespace {

BlockKey KeyOf(const RemoteObject& object, const ByteRange& block) {
  return {.object = Text(object.path, "\n", object.num_bytes, "\n", object.identity),
          .range = block};
}

}  // namespace

CachedFetcher::CachedFetcher(std::shared_ptr<BlockCache> cache,
                             std::shared_ptr<Fetcher> other)
    : cache_(std::move(cache)), other_(std::move(other)) {}

CachedFetcher::~CachedFetcher() {
  std::deque<std::shared_ptr<Fetch>> unloaded;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    unloaded = std::exchange(loads_, {});
    asked_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (const auto& fetch : unloaded) {
    fetch->Fail(ReaderClosed());
  }
}

bool CachedFetcher::Has(const RemoteObject& object, const ByteRange& block) const {
  return !object.identity.empty() && cache_->Has(KeyOf(object, block));
}

void CachedFetcher::Keep(std::shared_ptr<const Fetch> fetch,
                         std::vector<ByteRange> blocks, std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  Begin();
  kept_.push_back({std::move(fetch), std::move(blocks), std::move(done)});
  asked_.notify_one();
}

void CachedFetcher::DoStart(const std::shared_ptr<Fetch>& fetch) {
  const std::lock_guard lock(mutex_);
  Begin();
  loads_.push_back(fetch);
  asked_.notify_one();
}

void CachedFetcher::Hurry(const std::shared_ptr<Fetch>& fetch) { other_->Hurry(fetch); }

void CachedFetcher::Cancel(const std::shared_ptr<Fetch>& fetch) {
  {
    const std::lock_guard lock(mutex_);
    std::erase(loads_, fetch);
  }
  other_->Cancel(fetch);
}

// Called under the lock. One thread does all the work too.
void CachedFetcher::Begin() {
  if (!threads_.empty()) return;
  for (int i = 0; i < kNumThreads; ++i) {
    try {
      threads_.emplace_back([this] { Work(); });
    } catch (const std::exception& error) {
      if (i > 0) return;
      throw NoThread(error);
    }
  }
}

// Blocks that a reader will want soon go before those that were read already.
void CachedFetcher::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [&] { return is_over_ || !loads_.empty() || !kept_.empty(); });
    if (is_over_) return;
    if (!loads_.empty()) {
      const std::shared_ptr<Fetch> fetch = std::move(loads_.front());
      loads_.pop_front();
      lock.unlock();
      Load(fetch);
    } else {
      const Kept kept = std::move(kept_.front());
      kept_.pop_front();
      lock.unlock();
      Keep(kept);
    }
    lock.lock();
  }
}

void CachedFetcher::Load(const std::shared_ptr<Fetch>& fetch) {
  if (fetch->is_over()) return;  // cancelled
  try {
    fetch->Prepare();
    if (cache_->Read(KeyOf(fetch->object(), fetch->range()), fetch->out())) {
      fetch->Arrive(fetch->range().num_bytes);
    } else {
      other_->Start(fetch);
    }
  } catch (...) {
    fetch->Fail(CurrentErrorAt({}));
  }
}

void CachedFetcher::Keep(const Kept& kept) {
  const RemoteObject& object = kept.fetch->object();
  try {
    for (const ByteRange& block : kept.blocks) {
      const uint8_t* data =
          kept.fetch->data() + (block.offset - kept.fetch->range().offset);
      cache_->Write(KeyOf(object, block), {data, static_cast<size_t>(block.num_bytes)});
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
    // Blocks that are not kept are fetched again.
  }
  kept.done();
}

}  // namespace torchparquet
