#include "reader/prefetch/carried_fetches.h"

#include <utility>

namespace torchparquet {

CarriedFetches::~CarriedFetches() {
  for (const Carried& carried : all_.fetches) {
    if (!carried.fetch->is_over()) fetcher_->Cancel(carried.fetch);
  }
}

void CarriedFetches::Begin(const std::shared_ptr<Fetcher>& fetcher, Carried carried) {
  const std::shared_ptr<Fetch> fetch = carried.fetch;
  {
    const std::lock_guard lock(mutex_);
    fetcher_ = fetcher;
    all_.fetches.push_back(std::move(carried));
    num_bytes_ += fetch->range().num_bytes;
  }
  fetcher->Start(fetch);
}

void CarriedFetches::AddStep() {
  const std::lock_guard lock(mutex_);
  ++all_.num_steps;
}

int64_t CarriedFetches::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

CarriedFetches::All CarriedFetches::Take() {
  if (getpid() != owner_pid_) return {};
  const std::lock_guard lock(mutex_);
  num_bytes_ = 0;
  return std::exchange(all_, {});
}

}  // namespace torchparquet
