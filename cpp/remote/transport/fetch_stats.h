#pragma once

#include <cstdint>

namespace torchparquet {

// Counts of the network since the process began to use it.
template <typename Count>
struct FetchCounts {
  Count num_requests = 0;  // sent, with retries and hedges
  Count num_retries = 0;
  Count num_hedges = 0;  // second requests for a slow first byte
  Count num_hedges_won = 0;
  Count bytes_received = 0;
  Count bytes_wasted = 0;     // received twice, or not wanted any more
  Count num_connections = 0;  // opened
  Count concurrency = 0;      // requests in flight that are allowed now
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
  change(to.num_connections, from.num_connections);
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

}  // namespace torchparquet
