#pragma once

#include <cstdint>

namespace torchparquet {

// Counts of the network since the process began to use it. Durations in nanoseconds.
struct FetchStats {
  int64_t num_requests = 0;  // sent, with retries and hedges
  int64_t num_retries = 0;
  int64_t num_hedges = 0;  // second requests for a slow first byte
  int64_t num_hedges_won = 0;
  int64_t bytes_received = 0;
  int64_t bytes_wasted = 0;     // received twice, or not wanted any more
  int64_t num_connections = 0;  // opened
  int64_t concurrency = 0;      // requests in flight that are allowed now
  int64_t first_byte_time = 0;  // sum over requests
};

inline FetchStats operator+(const FetchStats& a, const FetchStats& b) {
  return {.num_requests = a.num_requests + b.num_requests,
          .num_retries = a.num_retries + b.num_retries,
          .num_hedges = a.num_hedges + b.num_hedges,
          .num_hedges_won = a.num_hedges_won + b.num_hedges_won,
          .bytes_received = a.bytes_received + b.bytes_received,
          .bytes_wasted = a.bytes_wasted + b.bytes_wasted,
          .num_connections = a.num_connections + b.num_connections,
          .concurrency = a.concurrency + b.concurrency,
          .first_byte_time = a.first_byte_time + b.first_byte_time};
}

// The counts after `before`. The concurrency is that of now.
inline FetchStats operator-(const FetchStats& now, const FetchStats& before) {
  return {.num_requests = now.num_requests - before.num_requests,
          .num_retries = now.num_retries - before.num_retries,
          .num_hedges = now.num_hedges - before.num_hedges,
          .num_hedges_won = now.num_hedges_won - before.num_hedges_won,
          .bytes_received = now.bytes_received - before.bytes_received,
          .bytes_wasted = now.bytes_wasted - before.bytes_wasted,
          .num_connections = now.num_connections - before.num_connections,
          .concurrency = now.concurrency,
          .first_byte_time = now.first_byte_time - before.first_byte_time};
}

}  // namespace torchparquet
