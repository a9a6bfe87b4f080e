#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/byte_range.h"
#include "remote/transport/fetch.h"
#include "remote/transport/fetcher.h"

namespace torchparquet {

// The fetches of one reader at its end, since the next one will read it first.
// Thread-safe.
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

  CarriedFetches();
  ~CarriedFetches();
  CarriedFetches(const CarriedFetches&) = delete;
  CarriedFetches& operator=(const CarriedFetches&) = delete;

  // Begins a fetch.
  void Begin(const std::shared_ptr<Fetcher>& fetcher, Carried carried);
  void AddStep();
  int64_t num_bytes() const;
  // Hands all over; the caller cancels what it does not want.
  All Take();

 private:
  const int64_t owner_pid_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Fetcher> fetcher_;
  All all_;
  int64_t num_bytes_ = 0;
};

}  // namespace torchparquet
