#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remote/http/pacing.h"
#include "remote/transport/fetch.h"

namespace torchparquet {

// A fetch on its way through requests.
struct FetchJob {
  std::shared_ptr<Fetch> fetch;
  RetryPolicy retries;
  bool may_hedge = true;
  int64_t order = 0;  // among all fetches
  bool is_hurried = false;
  int64_t num_written = 0;                            // bytes in fetch->out()
  int64_t num_told = 0;                               // of them, by fetch->Arrive()
  std::string etag = {};                              // that every answer must have
  bool is_unconditional = false;                      // asks without If-Match
  int64_t num_refused = 0;                            // requests since bytes came last
  std::shared_ptr<const ObjectAddress> refused = {};  // by the last of them
};

// Fetches that have no request. Used by one thread.
class FetchQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Ready now.
  void Add(std::shared_ptr<FetchJob> job);
  void AddAfter(Time time, std::shared_ptr<FetchJob> job);
  void AddAddressless(std::shared_ptr<FetchJob> job);
  // All that lacked addresses are ready.
  void Wake();
  void Hurry(const std::shared_ptr<FetchJob>& job);
  void Remove(const std::shared_ptr<FetchJob>& job);

  // Takes the one that begins next: hurried ones first, then in their order. Null if none
  // is ready.
  std::shared_ptr<FetchJob> Next(Time now);
  bool has_ready() const { return !ready_.empty(); }
  // When one becomes ready by itself.
  std::optional<Time> next_time() const;

 private:
  using Key = std::pair<bool, int64_t>;  // not hurried, order
  static Key KeyOf(const FetchJob& job) { return {!job.is_hurried, job.order}; }

  std::map<Key, std::shared_ptr<FetchJob>> ready_;
  std::multimap<Time, std::shared_ptr<FetchJob>> later_;
  std::list<std::shared_ptr<FetchJob>> addressless_;
};

}  // namespace torchparquet
