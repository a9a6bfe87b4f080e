#include "remote/transport/fetch_queue.h"

namespace torchparquet {

void FetchQueue::Add(std::shared_ptr<FetchJob> job) {
  const Key key = KeyOf(*job);
  ready_.emplace(key, std::move(job));
}

void FetchQueue::AddAfter(Time time, std::shared_ptr<FetchJob> job) {
  later_.emplace(time, std::move(job));
}

void FetchQueue::AddAddressless(std::shared_ptr<FetchJob> job) {
  addressless_.push_back(std::move(job));
}

void FetchQueue::Wake() {
  for (const auto& job : std::exchange(addressless_, {})) Add(job);
}

void FetchQueue::Hurry(const std::shared_ptr<FetchJob>& job) {
  const bool was_ready = ready_.erase(KeyOf(*job)) > 0;
  job->is_hurried = true;
  if (was_ready) Add(job);
}

void FetchQueue::Remove(const std::shared_ptr<FetchJob>& job) {
  ready_.erase(KeyOf(*job));
  addressless_.remove(job);
  std::erase_if(later_, [&](const auto& entry) { return entry.second == job; });
}

std::shared_ptr<FetchJob> FetchQueue::Next(Time now) {
  while (!later_.empty() && later_.begin()->first <= now) {
    Add(std::move(later_.begin()->second));
    later_.erase(later_.begin());
  }
  if (ready_.empty()) return nullptr;
  auto job = std::move(ready_.begin()->second);
  ready_.erase(ready_.begin());
  return job;
}

std::optional<FetchQueue::Time> FetchQueue::next_time() const {
  if (later_.empty()) return std::nullopt;
  return later_.begin()->first;
}

}  // namespace torchparquet
