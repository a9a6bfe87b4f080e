#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "remote/transport/fetch.h"
#include "remote/transport/fetcher.h"

namespace torchparquet {

// Fetches that a reader has begun at its end, for bytes that the next one reads first. Do
// not destroy it in a forked child. Thread-safe.
class CarriedFetches {
 public:
  struct Carried {
    std::shared_ptr<Fetch> fetch = nullptr;  // has begun
    std::vector<ByteRange> blocks = {};
  };
  struct All {
    std::vector<Carried> fetches = {};
    int64_t num_steps = 0;  // of the next reader, whose blocks these are
  };

  CarriedFetches() = default;
  ~CarriedFetches() {
    for (const Carried& carried : all_.fetches) {
      if (!carried.fetch->is_over()) fetcher_->Cancel(carried.fetch);
    }
  }
  CarriedFetches(const CarriedFetches&) = delete;
  CarriedFetches& operator=(const CarriedFetches&) = delete;

  // Begins a fetch.
  void Begin(const std::shared_ptr<Fetcher>& fetcher, Carried carried) {
    const std::shared_ptr<Fetch> fetch = carried.fetch;
    {
      const std::lock_guard lock(mutex_);
      fetcher_ = fetcher;
      all_.fetches.push_back(std::move(carried));
      num_bytes_ += fetch->range().num_bytes;
    }
    fetcher->Start(fetch);
  }
  void AddStep() {
    const std::lock_guard lock(mutex_);
    ++all_.num_steps;
  }
  int64_t num_bytes() const {
    const std::lock_guard lock(mutex_);
    return num_bytes_;
  }
  // Hands all over; the caller cancels what it does not want. Nothing in a forked child.
  All Take() {
    if (getpid() != owner_pid_) return {};
    const std::lock_guard lock(mutex_);
    num_bytes_ = 0;
    return std::exchange(all_, {});
  }

 private:
  const pid_t owner_pid_ = getpid();
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Fetcher> fetcher_;
  All all_;
  int64_t num_bytes_ = 0;
};

}  // namespace torchparquet
