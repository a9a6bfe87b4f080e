#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/errors.h"
#include "remote/http/hedging.h"
#include "remote/transport/fetch.h"
#include "remote/transport/fetch_stats.h"

namespace torchparquet {

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
