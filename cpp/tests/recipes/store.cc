#include "recipes/store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "draws.h"

namespace torchparquet::testing {

Store::Store() : Store(Options()) {}

Store::Store(Options options) : options_(std::move(options)) {
  for (int64_t i = 0; i < options_.num_threads; ++i) {
    threads_.emplace_back(&Store::Work, this, options_.seed + static_cast<uint64_t>(i));
  }
}

Store::~Store() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Store::DoStart(const std::shared_ptr<Fetch>& fetch) {
  const std::lock_guard lock(mutex_);
  ++stats_.num_requests;
  stats_.bytes_received += fetch->range().num_bytes;
  ranges_.push_back(fetch->range());
  waiting_.push_back(fetch);
  changed_.notify_all();
}

void Store::Hurry(const std::shared_ptr<Fetch>& fetch) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(waiting_, fetch);
  if (found != waiting_.end()) waiting_.splice(waiting_.begin(), waiting_, found);
}

void Store::Cancel(const std::shared_ptr<Fetch>& fetch) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.remove(fetch);
  }
  fetch->Fail(Error(ErrorKind::kStopped, "cancelled"));
}

FetchStats Store::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Store::Stall() {
  const std::lock_guard lock(mutex_);
  is_stalled_ = true;
}

void Store::Release() {
  const std::lock_guard lock(mutex_);
  is_stalled_ = false;
  changed_.notify_all();
}

int64_t Store::num_started() const { return stats().num_requests; }

void Store::AwaitStarted(int64_t num_fetches) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stats_.num_requests >= num_fetches; });
}

std::vector<ByteRange> Store::ranges() const {
  const std::lock_guard lock(mutex_);
  return ranges_;
}

void Store::Work(uint64_t seed) {
  Draws draws(seed);
  while (true) {
    std::shared_ptr<Fetch> fetch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [&] { return is_over_ || (!is_stalled_ && !waiting_.empty()); });
      if (is_over_) return;
      auto chosen = waiting_.begin();
      std::advance(chosen, draws.Below(std::ssize(waiting_)));
      fetch = std::move(*chosen);
      waiting_.erase(chosen);
    }
    if (options_.fault) {
      if (const auto error = options_.fault(*fetch)) {
        fetch->Fail(*error);
        continue;
      }
    }
    fetch->Prepare();
    std::ifstream file(fetch->object().path, std::ios::binary);
    file.seekg(fetch->range().offset);
    int64_t arrived = 0;
    while (arrived < fetch->range().num_bytes) {
      const int64_t count =
          std::min(options_.piece_bytes, fetch->range().num_bytes - arrived);
      // The stream takes characters, the fetch holds bytes.
      file.read(reinterpret_cast<char*>(fetch->out()) + arrived, count);
      arrived += count;
      fetch->Arrive(arrived);
    }
  }
}

std::vector<PlannedFile> PlannedIn(const std::vector<std::string>& paths,
                                   const std::shared_ptr<Store>& store) {
  std::vector<PlannedFile> planned;
  for (const std::string& path : paths) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    PlannedFile& file = planned.emplace_back(PlannedFile{.path = path, .identity = {}});
    file.identity.num_bytes = size;
    file.remote = std::make_shared<const RemoteObject>(
        RemoteObject{.path = path, .num_bytes = size, .number = std::ssize(planned) - 1});
    file.fetcher = store;
  }
  return planned;
}

std::vector<PlannedFile> PlannedIn(const DataSet& data,
                                   const std::shared_ptr<Store>& store) {
  return PlannedIn(data.paths(), store);
}

}  // namespace torchparquet::testing
