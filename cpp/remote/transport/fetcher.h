#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/errors.h"
#include "remote/http/pacing.h"
#include "remote/transport/fetch.h"

namespace torchparquet {

// Counts of the network since the process began to use it.
template <typename Count>
struct FetchCounts {
  Count num_requests = 0;  // sent, with retries and hedges
  Count num_retries = 0;
  Count num_hedges = 0;  // second requests for a slow first byte
  Count num_hedges_won = 0;
  Count bytes_received = 0;
  Count bytes_wasted = 0;  // received twice, or not wanted any more
  Count concurrency = 0;   // requests in flight that are allowed now
};

// Calls change(count of `to`, count of `from`) for each of them.
template <typename To, typename From, typename Change>
void ForEachCount(To& to, const From& from, Change change) {
  change(to.num_requests, from.num_requests);
  change(to.num_retries, from.num_retries);
  change(to.num_hedges, from.num_hedges);
  change(to.num_hedges_won, from.num_hedges_won);
  change(to.bytes_received, from.bytes_received);
  change(to.bytes_wasted, from.bytes_wasted);
  change(to.concurrency, from.concurrency);
}

using FetchStats = FetchCounts<int64_t>;

// Of several fetchers.
inline FetchStats operator+(FetchStats sum, const FetchStats& other) {
  ForEachCount(sum, other, [](int64_t& to, int64_t from) { to += from; });
  return sum;
}

// The counts after `before`. The concurrency is that of now.
inline FetchStats operator-(const FetchStats& now, const FetchStats& before) {
  FetchStats since = now;
  ForEachCount(since, before, [](int64_t& to, int64_t from) { to -= from; });
  since.concurrency = now.concurrency;
  return since;
}

// How a fetcher works, and how patient it is with objects that do not say.
struct FetchOptions : Patience {
  double connect_seconds = 10;
  // Slower than this for stall_seconds: retried.
  int64_t stall_bytes_per_second = 64 << 10;
  int64_t stall_seconds = 5;
  int64_t max_connections = 64;
  int64_t num_threads = 1;  // of the client, which share the connections
  // No first byte is asked for again before this.
  double min_hedge_seconds = FirstByteTimes::kMinSeconds;
};

// Brings ranges of objects. Thread-safe.
class Fetcher {
 public:
  virtual ~Fetcher() = default;
  // Begins a fetch. Fetches of one thread of the fetcher begin in the order of these
  // calls, except that those which a reader waits for go first. Throws nothing: a fetch
  // that cannot begin fails.
  void Start(const std::shared_ptr<Fetch>& fetch) {
    if (fetch->is_over()) return;  // cancelled
    try {
      DoStart(fetch);
    } catch (...) {
      fetch->Fail(CurrentErrorAt({}));
    }
  }
  // Tells that a reader waits for the fetch.
  virtual void Hurry(const std::shared_ptr<Fetch>& fetch) = 0;
  // Ends a fetch that nobody wants any more; it fails with Error(kStopped).
  virtual void Cancel(const std::shared_ptr<Fetch>& fetch) = 0;
  // Addresses were given: fetches that lacked one can begin.
  virtual void Wake() = 0;
  virtual FetchStats stats() const = 0;
  // True if it fetches by HTTP itself, false if it asks a store's library.
  virtual bool is_http() const { return true; }

 protected:
  virtual void DoStart(const std::shared_ptr<Fetch>& fetch) = 0;
};

}  // namespace torchparquet
